//! The virtual network: links that are ordered streams and delay, lose, repeat, go deaf on one side, and part.

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::limits::PEERS;
use groundswell_core::node::Node;
use groundswell_core::node::admission::admit;
use groundswell_core::node::input::{Input, Report, Source};
use groundswell_core::node_id::NodeId;

use super::machine::Machine;
use super::operator::product;
use super::world::{Due, World};

/// How long a dial waits for the other end to notice that the link before it is gone.
const PARTING_MS: u64 = 20;

impl World {
    /// Puts machines into groups that cannot reach each other.
    pub fn partition(&mut self, group_of: impl Fn(u32) -> u32) {
        self.groups = (0..self.count()).map(group_of).collect();
        let pairs: Vec<(u32, u32)> =
            self.machines.iter().flat_map(|machine| machine.links.keys().map(|other| (machine.index, *other))).collect();
        for (one, other) in pairs {
            if !self.reachable(one, other) {
                self.unlink(one, other);
            }
        }
    }

    /// From now on nothing arrives from `from` at `to`, and neither is told: a one-way partition.
    pub fn deafen(&mut self, from: u32, to: u32) {
        self.deaf.insert((from, to));
    }

    /// Every message arrives again.
    pub fn undeafen(&mut self) {
        self.deaf.clear();
    }

    /// Whatever this machine sends or is sent takes so much longer, for a while.
    pub fn slow(&mut self, index: u32, by_ms: u64, for_ms: u64) {
        self.slow.insert(index, (by_ms, self.now_ms + for_ms));
    }

    /// What is sent from `from` to `to` arrives no earlier than after this time.
    pub fn clog(&mut self, from: u32, to: u32, for_ms: u64) {
        self.clogs.insert((from, to), self.now_ms + for_ms);
    }

    /// Every way is as fast as it was.
    pub fn unclog(&mut self) {
        self.slow.clear();
        self.clogs.clear();
    }

    /// When something that is sent now from `from` to `to` arrives at the earliest.
    fn arrival(&mut self, from: u32, to: u32) -> u64 {
        let (least, spread) = self.faults.delay_ms;
        let now_ms = self.now_ms;
        let by = |index| self.slow.get(&index).filter(|(_, until)| *until > now_ms).map_or(0, |(by_ms, _)| *by_ms);
        let (by_ms, free_at) = (by(from).max(by(to)), self.clogs.get(&(from, to)).copied().unwrap_or(0));
        (now_ms + least + self.random(spread) + by_ms).max(free_at)
    }

    pub(super) fn gossip(&mut self, index: u32, bytes: &[u8]) {
        let content = Digest::of(bytes);
        self.machine_mut(index).gossip_seen.insert(content);
        let me = self.machine(index).id;
        let links: Vec<u32> = self.machine(index).links.keys().copied().collect();
        for other in links {
            if self.machine(other).gossip_seen.contains(&content) {
                continue;
            }
            self.sequence += 1;
            let ticket = self.sequence;
            let source = Source::Gossip { peer: me, ticket };
            // What is lost on one way others still offer.
            if self.send(index, other, Input::Document { bytes: bytes.to_vec(), source }) {
                self.tickets.insert(ticket, bytes.to_vec());
                self.machine_mut(other).gossip_seen.insert(content);
            }
        }
    }

    /// Sends along the link from `from` to `to`, if there is one. What is sent first arrives first. Whether it is on its way.
    pub(super) fn send(&mut self, from: u32, to: u32, input: Input) -> bool {
        let Some(connection) = self.machine(from).links.get(&to).copied() else { return false };
        if self.chance(self.loss) || self.deaf.contains(&(from, to)) {
            return false;
        }
        let arrives = self.arrival(from, to);
        let after = self.arrivals.entry((from, to)).or_default();
        let at = arrives.max(*after);
        *after = at;
        if self.chance(self.faults.repeated) {
            self.schedule(at, to, Due::Message { from, connection, input: Box::new(input.clone()) });
        }
        self.schedule(at, to, Due::Message { from, connection, input: Box::new(input) });
        true
    }

    fn reachable(&self, one: u32, other: u32) -> bool {
        let group = |index: u32| usize::try_from(index).ok().and_then(|index| self.groups.get(index));
        group(one) == group(other) && self.machine(one).is_awake() && self.machine(other).is_awake()
    }

    pub(super) fn dial(&mut self, index: u32, peer: Option<NodeId>, addresses: &[String]) {
        let by_address = addresses.iter().find_map(|address| address.strip_prefix("sim/")?.parse::<u32>().ok());
        let Some(other) = by_address.filter(|other| *other < self.count()) else { return };
        // The handshake proves the key: a clone at the address is as good as the original.
        if peer.is_none_or(|peer| self.machine(other).id == peer) {
            // In a measurement nothing may come back sooner than a message.
            let after_ms = if self.quiet { self.faults.delay_ms.0.max(30) } else { 30 };
            self.soon(index, after_ms, Due::Connect(other));
        }
    }

    pub(super) fn link(&mut self, index: u32, other: u32) {
        let (mine, its) = (self.machine(index).id, self.machine(other).id);
        let linked = |at: u32, to: &NodeId| self.machine(at).links.keys().any(|peer| self.machine(*peer).id == *to);
        if mine == its || !self.reachable(index, other) {
            return;
        }
        // A new link comes after the end of the old one.
        if self.is_parting(mine, its) {
            return self.soon(index, PARTING_MS, Due::Connect(other));
        }
        if linked(index, &its) || linked(other, &mine) {
            let (peer, address) = (its, self.machine(other).address());
            return self.soon(index, 0, Due::Input(Box::new(Input::Reached { peer, address })));
        }
        if !self.admits(index, other) || !self.admits(other, index) {
            return;
        }
        let full = |at: u32| self.machine(at).links.len() >= PEERS;
        if full(index) || full(other) {
            // It proved itself, and has no place: the dialler is told so, as by the real door.
            let (peer, address) = (its, self.machine(other).address());
            return self.soon(index, 0, Due::Input(Box::new(Input::Reached { peer, address })));
        }
        self.sequence += 1;
        let connection = self.sequence;
        self.arrivals.remove(&(index, other));
        self.arrivals.remove(&(other, index));
        for (me, you, dialled) in [(index, other, true), (other, index, false)] {
            self.machine_mut(me).links.insert(you, connection);
            let (peer, address) = (self.machine(you).id, dialled.then(|| self.machine(you).address()));
            self.soon(me, 0, Due::Input(Box::new(Input::PeerUp { peer, dialled, address })));
        }
    }

    /// Whether one machine lets the other in: the same judgement as at the real door.
    fn admits(&self, index: u32, other: u32) -> bool {
        let (machine, peer) = (self.machine(index), self.machine(other));
        let (Some(node), Some(proof)) = (&machine.node, peer.node.as_ref().and_then(Node::own_proof)) else { return false };
        admit(node.shelf(), &peer.id, proof, machine.now(self.now_ms).wall, &self.verifier).is_ok()
    }

    pub(super) fn unlink(&mut self, index: u32, other: u32) {
        for (me, you) in [(index, other), (other, index)] {
            if self.machine_mut(me).links.remove(&you).is_some() {
                let peer = self.machine(you).id;
                self.soon(me, 0, Due::Input(Box::new(Input::PeerDown { peer })));
            }
        }
    }

    /// Whether what came on this link may be heard: the link is up, or it is what its sender had sent before it went off.
    pub(super) fn is_heard(&self, index: u32, from: u32, connection: u64) -> bool {
        self.machine(index).links.get(&from) == Some(&connection) || self.last_words.get(&(from, index)) == Some(&connection)
    }

    /// The power of a machine is off: its links are gone. What has left it already arrives, and only then the other end
    /// notices; what waits behind a clog is in its own queue, and lost. Nothing reaches it any more.
    pub(super) fn fall_silent(&mut self, index: u32) {
        self.last_words.retain(|(_, to), _| *to != index);
        let (least, spread) = self.faults.delay_ms;
        let no_later = self.now_ms + least + spread;
        for (other, connection) in self.machine(index).links.clone() {
            let last = self.arrivals.get(&(index, other)).copied().filter(|at| *at > self.now_ms);
            let Some(last) = last.filter(|_| !self.quiet) else {
                self.unlink(index, other);
                continue;
            };
            self.machine_mut(index).links.remove(&other);
            self.machine_mut(other).links.remove(&index);
            self.last_words.insert((index, other), connection);
            self.schedule(last.min(no_later), other, Due::Gone { from: index, connection });
        }
    }

    /// A machine has heard the last that another one sent before its power was off.
    pub(super) fn hears_no_more(&mut self, index: u32, from: u32, connection: u64) {
        if self.last_words.get(&(from, index)) == Some(&connection) {
            self.last_words.remove(&(from, index));
            let peer = self.machine(from).id;
            self.input(index, Input::PeerDown { peer });
        }
    }

    /// Whether one of two nodes has not noticed yet that its link to the other is gone.
    fn is_parting(&self, one: NodeId, other: NodeId) -> bool {
        let ends = |(from, to): &(u32, u32)| (self.machine(*from).id, self.machine(*to).id);
        self.last_words.keys().map(ends).any(|ends| ends == (one, other) || ends == (other, one))
    }

    /// Cuts every link of a machine; both ends notice.
    pub fn cut(&mut self, index: u32) {
        let links: Vec<u32> = self.machine(index).links.keys().copied().collect();
        for other in links {
            self.unlink(index, other);
        }
    }

    /// Asks a neighbour for a roster, and again until it is here: an answer may be lost.
    pub(super) fn fetch_roster(&mut self, index: u32, digest: Digest) {
        if self.machine(index).node.as_ref().is_some_and(|node| node.shelf().envelope(&digest).is_some()) {
            return;
        }
        let links: Vec<u32> = self.machine(index).links.keys().copied().collect();
        let found = links.iter().find_map(|other| {
            let node = self.machine(*other).node.as_ref()?;
            Some((*other, self.machine(*other).id, node.shelf().envelope(&digest)?.to_vec()))
        });
        let again_ms = if found.is_some() { 5_000 } else { 1_000 };
        if let Some((other, peer, bytes)) = found {
            self.send(other, index, Input::Roster { bytes, source: Source::Peer(peer) });
        }
        self.soon(index, again_ms, Due::Roster(digest));
    }

    pub(super) fn fetch_blob(&mut self, index: u32, blob: Digest) {
        let held = self.machine(index).blobs.contains(&blob);
        let near = self.machine(index).links.keys().any(|other| self.machine(*other).blobs.contains(&blob));
        if !held && !near {
            return self.soon(index, 1_000, Due::Blob(blob));
        }
        self.give_blob(index, blob);
        self.input(index, Input::Device { product: product(), report: Report::Fetched { sha256: blob } });
    }

    /// The machine at the other end of a link of `index` whose key is `id`.
    pub(super) fn linked_to(&self, index: u32, id: &NodeId) -> Option<u32> {
        let links = &self.machine(index).links;
        self.by_id.get(id)?.iter().copied().find(|other| links.contains_key(other))
    }

    /// Whether every honest member that is up can be reached from every other over links of such.
    #[must_use]
    pub fn is_one_mesh(&self) -> bool {
        let member = |machine: &&Machine| machine.node.is_some() && !machine.liar && !self.truth.is_gone(&machine.id);
        let mut apart: BTreeSet<u32> = self.machines.iter().filter(member).map(|machine| machine.index).collect();
        let mut reached: Vec<u32> = apart.pop_first().into_iter().collect();
        while let Some(index) = reached.pop() {
            reached.extend(self.machine(index).links.keys().filter(|other| apart.remove(other)));
        }
        apart.is_empty()
    }

    /// Machines that are up, in order.
    #[must_use]
    pub fn up(&self) -> BTreeSet<u32> {
        self.machines.iter().filter(|machine| machine.is_awake()).map(|machine| machine.index).collect()
    }
}

impl Machine {
    /// Whether its agent runs and it does not sleep.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        self.node.is_some() && self.asleep_until_ms == 0
    }
}
