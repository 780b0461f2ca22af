//! Whom to connect to, and when: three links chosen at random, and the addresses that were given (design, section 5).
//!
//! A node picks three members at random; one that cannot be reached for a while is replaced, and now and then one gives
//! way to another: two halves of a mesh that was parted are each content with their own, and would never meet again. Until
//! it has three links it also dials its configured bootstrap addresses and the roster's meeting addresses; one at which nobody
//! has answered yet it goes on dialling, however many links it has: whoever starts later there may be known to nobody else.
//! Links to whom it needs for a while (wardens, holders), and those made at given addresses, it hangs up on a minute after they
//! are needed no more, once its own three hold; only the side that dialled does.
//! It dials a member only at addresses from that member's own signed record, or where it reached it before.
//! Pure: the driver dials and says what failed; what it does not report back within [`DIAL_MS`] has failed too. Inbound links need nothing here.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::push::pick;
use crate::limits::{ADDRESS_BYTES, ADDRESSES, MEET, OWN_LINKS, PEERS, REMEMBERED_PEERS};
use crate::node_id::NodeId;
use crate::time::Time;

/// How long a dial may take before it counts as failed.
pub const DIAL_MS: u64 = 10_000;
/// The first pause after a failed dial; doubled by each further one …
const PAUSE_LEAST_MS: u64 = 1_000;
/// … up to five minutes: a node that comes back is found soon, one that does not costs little.
const PAUSE_MOST_MS: u64 = 300_000;
/// A chosen member that was dialled more often than this in vain is replaced by another.
const FAILURES_TO_REPLACE: u32 = 3;
/// A link that held this long clears its target's failures.
const HELD_MS: u64 = 60_000;
/// A link that this node made for a while stays this long after it was needed last: need often comes again soon, and a link
/// costs a sync.
const KEPT_MS: u64 = 60_000;

/// A node whose own links all hold exchanges one of them for another member this often. A mesh that was parted is whole
/// again once one of its nodes does; a link that changes costs one sync, 2 KB when both sides are equal.
pub const WANDER_MS: u64 = 900_000;

/// While fewer than three members can be chosen, newly known ones are looked for this often.
const LOOK_AGAIN_MS: u64 = 10_000;

/// Connect to a member at one of these addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Who is expected there; `None` for a bootstrap or meeting address, where any member will do.
    pub peer: Option<NodeId>,
    /// Where, most likely first.
    pub addresses: Vec<String>,
}

/// A member that may be dialled.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Who.
    pub node: NodeId,
    /// The addresses in its own signed record.
    pub addresses: &'a [String],
}

/// Which members may be dialled next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Some are to be chosen among all.
    Everybody,
    /// These, if any.
    Only(BTreeSet<NodeId>),
}

/// What is dialled: a member, or an address where any member will do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Member(NodeId),
    Address(String),
}

/// A link that this node made, and not to keep it.
#[derive(Clone, Copy, Debug)]
struct Passing {
    /// For somebody whom it needed, not at a given address.
    sought: bool,
    /// It stays until then, and as long as it is needed.
    until: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    failures: u32,
    next_at: Time,
    /// A dial is under way: `next_at` counts the time that it may take.
    under_way: bool,
    /// The member was wanted beside the own three.
    sought: bool,
}

/// Whom this node wants as neighbours, what it remembers of them, and when it tries again.
#[derive(Debug)]
pub struct Neighbours {
    me: NodeId,
    rng: ChaCha8Rng,
    bootstrap: BTreeSet<String>,
    meet: BTreeSet<String>,
    /// Those of both at which a member has answered since the start.
    met: BTreeSet<String>,
    /// The links that this node chose itself.
    chosen: BTreeSet<NodeId>,
    /// Connected peers, since when, and the address at which this node reached them.
    connected: BTreeMap<NodeId, (Time, Option<String>)>,
    /// Those of them that this node made for a while.
    passing: BTreeMap<NodeId, Passing>,
    remembered: BTreeMap<NodeId, String>,
    attempts: BTreeMap<Target, Attempts>,
    /// When one of its own links gives way to another.
    wander_at: Option<Time>,
    /// Whom it tries for that.
    candidate: Option<NodeId>,
    /// Links that gave way.
    left: Vec<NodeId>,
    next_wakeup: Option<Time>,
}

impl Neighbours {
    /// `bootstrap` are the configured addresses.
    #[must_use]
    pub fn new(me: NodeId, seed: [u8; 32], bootstrap: Vec<String>) -> Self {
        Self {
            me,
            rng: ChaCha8Rng::from_seed(seed),
            bootstrap: bootstrap.into_iter().collect(),
            meet: BTreeSet::new(),
            met: BTreeSet::new(),
            chosen: BTreeSet::new(),
            connected: BTreeMap::new(),
            passing: BTreeMap::new(),
            remembered: BTreeMap::new(),
            attempts: BTreeMap::new(),
            wander_at: None,
            candidate: None,
            left: Vec::new(),
            next_wakeup: Some(Time(0)),
        }
    }

    /// Replaces the roster's meeting addresses; at most [`MEET`] are used.
    pub fn set_meet(&mut self, meet: &[String]) {
        self.next_wakeup = Some(Time(0));
        self.meet = meet.iter().take(MEET).filter(|address| plausible(address)).cloned().collect();
        self.met.retain(|address| self.bootstrap.contains(address) || self.meet.contains(address));
    }

    /// A link is up; `address` is where this node reached the peer, if this node dialled.
    pub fn peer_up(&mut self, now: Time, peer: NodeId, address: Option<String>) {
        if let Some(address) = &address {
            self.answered(peer, address);
            let sought = self.attempts.get(&Target::Member(peer)).is_some_and(|attempts| attempts.sought);
            let given = self.bootstrap.contains(address) || self.meet.contains(address);
            if (sought || given) && !self.chosen.contains(&peer) {
                let until = now.after_ms(KEPT_MS);
                self.passing.insert(peer, Passing { sought, until });
                self.wake_by(until);
            }
        }
        self.connected.insert(peer, (now, address));
    }

    /// Whether this node made the link to `peer` because it needed it for a while, e.g. as a warden.
    #[must_use]
    pub fn is_sought(&self, peer: &NodeId) -> bool {
        self.passing.get(peer).is_some_and(|passing| passing.sought)
    }

    /// A dial ended at a peer that had a link already, e.g. one that it had made itself, or at a member that has no place for
    /// one more.
    pub fn reached(&mut self, peer: NodeId, address: String) {
        self.answered(peer, &address);
        if let Some((_, known)) = self.connected.get_mut(&peer) {
            known.get_or_insert(address);
        }
    }

    fn answered(&mut self, peer: NodeId, address: &String) {
        self.remember(peer, address.clone());
        if self.bootstrap.contains(address) || self.meet.contains(address) {
            self.met.insert(address.clone());
        }
    }

    /// A dial came to nothing: only its pause is left to wait for.
    pub fn dial_failed(&mut self, now: Time, peer: Option<NodeId>, addresses: &[String]) {
        let targets: Vec<Target> = match peer {
            Some(peer) => alloc::vec![Target::Member(peer)],
            None => addresses.iter().cloned().map(Target::Address).collect(),
        };
        for target in targets {
            if let Some(attempts) = self.attempts.get_mut(&target).filter(|attempts| attempts.under_way) {
                attempts.under_way = false;
                attempts.next_at = Time(attempts.next_at.0.saturating_sub(DIAL_MS)).max(now);
                let at = attempts.next_at;
                self.wake_by(at);
            }
        }
    }

    /// Whoever refused this node may let it in now: it waits for no pause, and for no dial that it was refused at.
    pub fn hurry(&mut self, now: Time) {
        self.attempts.clear();
        self.wake_by(now);
    }

    /// The last link to a peer is gone.
    pub fn peer_down(&mut self, now: Time, peer: &NodeId) {
        self.passing.remove(peer);
        let Some((since, address)) = self.connected.remove(peer) else { return };
        self.wake_by(now);
        if now.since_ms(since) >= HELD_MS {
            self.attempts.remove(&Target::Member(*peer));
            if let Some(address) = address {
                self.attempts.remove(&Target::Address(address));
            }
        }
    }

    /// Takes back what was remembered before a restart. Beyond [`REMEMBERED_PEERS`] an arbitrary other peer is forgotten.
    pub fn remember(&mut self, peer: NodeId, address: String) {
        if peer == self.me || !plausible(&address) {
            return;
        }
        self.remembered.insert(peer, address);
        if self.remembered.len() > REMEMBERED_PEERS {
            let others: Vec<NodeId> = self.remembered.keys().copied().filter(|other| *other != peer).collect();
            if let Some(forgotten) = pick(&others, &mut self.rng) {
                self.remembered.remove(&forgotten);
            }
        }
    }

    /// Addresses worth remembering across a restart: where a peer was last reached.
    pub fn remembered(&self) -> impl ExactSizeIterator<Item = (&NodeId, &String)> {
        self.remembered.iter()
    }

    /// Whom [`Neighbours::dials`] looks at now. Most often there is nobody to choose: then all members need not be gone through.
    /// `member` says of a node how it may be dialled, if it is one.
    #[must_use]
    pub fn whom<'a>(&self, now: Time, seek: &BTreeSet<NodeId>, member: impl Fn(&NodeId) -> Option<Member<'a>>) -> Whom {
        let missing = seek.iter().chain(&self.candidate).copied().filter(|peer| !self.is_up(peer));
        if self.is_settled(now) {
            return Whom::Only(missing.collect());
        }
        let has_address = |peer: &NodeId| member(peer).is_some_and(|member| !self.addresses_of(&member).is_empty());
        let gives_way = |peer: &NodeId| !self.is_up(peer) && (self.has_failed(peer) || !has_address(peer));
        // Of its own links one is exchanged for another, is lacking, or may be replaced.
        if self.is_content() || self.chosen.len() < OWN_LINKS || self.chosen.iter().any(gives_way) {
            return Whom::Everybody;
        }
        let tried = self.attempts.keys().filter_map(|target| if let Target::Member(peer) = target { Some(*peer) } else { None });
        Whom::Only(missing.chain(self.chosen.iter().copied()).chain(tried).collect())
    }

    /// Whom to dial now. `members` are all valid members that are known, or [`Neighbours::whom`] of them; `seek` those that this node needs beside its
    /// own three, e.g. wardens of its slot. Ask again at [`Neighbours::next_wakeup`], and when `seek` changed.
    pub fn dials<'a>(&mut self, now: Time, members: impl IntoIterator<Item = Member<'a>>, seek: &BTreeSet<NodeId>) -> Vec<Dial> {
        let chooses = !self.is_settled(now);
        let known = if chooses {
            self.reachable(members)
        } else {
            let missing = |peer: &NodeId| !self.is_up(peer) && (seek.contains(peer) || self.candidate == Some(*peer));
            self.reachable(members.into_iter().filter(|member| missing(&member.node)))
        };
        if chooses {
            self.choose(&known);
        }
        let mut room = PEERS.saturating_sub(self.connected.len());
        let mut dials = Vec::new();
        self.next_wakeup = (self.chosen.len() < OWN_LINKS).then(|| now.after_ms(LOOK_AGAIN_MS));
        self.wander(now, &known);
        let wanted: BTreeSet<NodeId> = self.chosen.union(seek).copied().chain(self.candidate).collect();
        for peer in wanted.into_iter().filter(|peer| !self.connected.contains_key(peer)).collect::<Vec<_>>() {
            if let Some(addresses) = known.get(&peer)
                && self.attempt(now, Target::Member(peer), &mut room)
            {
                let sought = seek.contains(&peer) && !self.chosen.contains(&peer);
                self.attempts.entry(Target::Member(peer)).or_default().sought = sought;
                dials.push(Dial { peer: Some(peer), addresses: addresses.clone() });
            }
        }
        let few = self.connected.len() < OWN_LINKS;
        let reached: BTreeSet<&String> = self.connected.values().filter_map(|(_, address)| address.as_ref()).collect();
        let open = |address: &&String| !reached.contains(*address) && (few || !self.met.contains(*address));
        let addresses: Vec<String> = self.bootstrap.union(&self.meet).filter(open).cloned().collect();
        for address in addresses {
            if self.attempt(now, Target::Address(address.clone()), &mut room) {
                dials.push(Dial { peer: None, addresses: alloc::vec![address] });
            }
        }
        let known = |target: &Target| match target {
            Target::Member(peer) => known.contains_key(peer),
            Target::Address(address) => self.bootstrap.contains(address) || self.meet.contains(address),
        };
        if chooses {
            self.attempts.retain(|target, _| known(target));
        }
        self.part(now, seek);
        dials
    }

    /// Everybody who might be reached: the members with an address, then the given addresses.
    #[must_use]
    pub fn known<'a>(&self, members: impl IntoIterator<Item = Member<'a>>) -> Vec<Dial> {
        let mut remembered: Vec<Member<'_>> = members.into_iter().collect();
        let heard: BTreeSet<NodeId> = remembered.iter().map(|member| member.node).collect();
        let unheard = self.remembered.keys().filter(|node| !heard.contains(node));
        remembered.extend(unheard.map(|node| Member { node: *node, addresses: &[] }));
        let members = self.reachable(remembered).into_iter().map(|(peer, addresses)| Dial { peer: Some(peer), addresses });
        let given = self.bootstrap.union(&self.meet).map(|address| Dial { peer: None, addresses: alloc::vec![address.clone()] });
        members.chain(given).collect()
    }

    /// Whether any address was given to this node.
    #[must_use]
    pub fn has_addresses(&self) -> bool {
        !self.bootstrap.is_empty() || !self.meet.is_empty()
    }

    /// Peers whose links gave way to others: hang up on them.
    pub fn take_left(&mut self) -> Vec<NodeId> {
        core::mem::take(&mut self.left)
    }

    /// When [`Neighbours::dials`] may have more to say: at once after a link went down or addresses were given.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.next_wakeup
    }

    /// Members with an address.
    fn reachable<'a>(&self, members: impl IntoIterator<Item = Member<'a>>) -> BTreeMap<NodeId, Vec<String>> {
        let usable = members.into_iter().map(|member| (member.node, self.addresses_of(&member)));
        usable.filter(|(_, usable)| !usable.is_empty()).collect()
    }

    /// Where another member may be dialled, the remembered address first.
    fn addresses_of(&self, Member { node, addresses }: &Member<'_>) -> Vec<String> {
        if *node == self.me {
            return Vec::new();
        }
        let mut usable: Vec<String> = self.remembered.get(node).into_iter().cloned().collect();
        for address in addresses.iter().take(ADDRESSES).filter(|address| plausible(address)) {
            if !usable.contains(address) {
                usable.push(address.clone());
            }
        }
        usable
    }

    /// Whether all of its own links hold, and none is to be exchanged now.
    fn is_settled(&self, now: Time) -> bool {
        self.is_content() && self.wander_at.is_some_and(|at| at > now)
    }

    /// Whether it was dialled too often in vain.
    fn has_failed(&self, peer: &NodeId) -> bool {
        self.attempts.get(&Target::Member(*peer)).is_some_and(|attempts| attempts.failures > FAILURES_TO_REPLACE)
    }

    fn is_up(&self, peer: &NodeId) -> bool {
        self.connected.contains_key(peer)
    }

    /// Whether all of its own links hold.
    fn is_content(&self) -> bool {
        self.chosen.len() >= OWN_LINKS && self.chosen.iter().all(|peer| self.is_up(peer))
    }

    /// Gives up the links that it made for a while and needs no more, once its own hold.
    fn part(&mut self, now: Time, seek: &BTreeSet<NodeId>) {
        let content = self.is_content();
        for (peer, passing) in &mut self.passing {
            if !content || seek.contains(peer) || self.chosen.contains(peer) || self.candidate == Some(*peer) {
                passing.until = now.after_ms(KEPT_MS);
            }
        }
        let over: Vec<NodeId> = self.passing.iter().filter(|(_, it)| it.until <= now).map(|(peer, _)| *peer).collect();
        for peer in over {
            self.passing.remove(&peer);
            self.left.push(peer);
        }
        if let Some(until) = self.passing.values().map(|passing| passing.until).min() {
            self.wake_by(until);
        }
    }

    /// Keeps three chosen members: those that left or failed too often make room for others.
    fn choose(&mut self, known: &BTreeMap<NodeId, Vec<String>>) {
        let failed: BTreeSet<NodeId> = known.keys().chain(&self.chosen).copied().filter(|peer| self.has_failed(peer)).collect();
        let failed = |peer: &NodeId| failed.contains(peer);
        let open: Vec<NodeId> = known.keys().copied().filter(|peer| !self.chosen.contains(peer) && !failed(peer)).collect();
        let connected = &self.connected;
        // A failed one goes only when there is another to take its place.
        let mut replaceable = open.len();
        self.chosen.retain(|peer| {
            let gone = !known.contains_key(peer) && !connected.contains_key(peer);
            let replaced = failed(peer) && !connected.contains_key(peer) && replaceable > 0;
            replaceable -= usize::from(replaced);
            !gone && !replaced
        });
        let mut open = open;
        while self.chosen.len() < OWN_LINKS
            && let Some(peer) = pick(&open, &mut self.rng)
        {
            self.chosen.insert(peer);
            open.retain(|other| *other != peer);
        }
    }

    /// Exchanges one of its own links for another, now and then, while all of them hold.
    fn wander(&mut self, now: Time, known: &BTreeMap<NodeId, Vec<String>>) {
        let connected = |peer: &NodeId| self.connected.contains_key(peer);
        if !self.is_content() {
            (self.wander_at, self.candidate) = (None, None);
            return;
        }
        if let Some(found) = self.candidate.filter(connected) {
            self.candidate = None;
            let own: Vec<NodeId> = self.chosen.iter().copied().collect();
            if let Some(old) = pick(&own, &mut self.rng) {
                self.chosen.remove(&old);
                self.chosen.insert(found);
                // A link that the other side made is the other side's to keep.
                if self.connected.get(&old).is_some_and(|(_, address)| address.is_some()) {
                    self.passing.remove(&old);
                    self.left.push(old);
                }
            }
        }
        let at = self.wander_at.unwrap_or_else(|| self.next_wander(now));
        if at <= now {
            let open: Vec<NodeId> = known.keys().copied().filter(|peer| !self.connected.contains_key(peer)).collect();
            self.candidate = pick(&open, &mut self.rng);
            let next = self.next_wander(now);
            self.wander_at = Some(next);
        } else {
            self.wander_at = Some(at);
        }
        if let Some(at) = self.wander_at {
            self.wake_by(at);
        }
    }

    fn next_wander(&mut self, now: Time) -> Time {
        now.after_ms(WANDER_MS - WANDER_MS / 8 + self.rng.next_u64() % (WANDER_MS / 4))
    }

    fn wake_by(&mut self, at: Time) {
        self.next_wakeup = Some(self.next_wakeup.map_or(at, |known| known.min(at)));
    }

    /// Whether `target` may be dialled now; notes the attempt, or when it may be.
    fn attempt(&mut self, now: Time, target: Target, room: &mut usize) -> bool {
        let attempts = self.attempts.entry(target).or_default();
        let may = attempts.next_at <= now && *room > 0;
        if may {
            *room -= 1;
            let pause = PAUSE_LEAST_MS.saturating_mul(1 << attempts.failures.min(16)).min(PAUSE_MOST_MS);
            let jitter = self.rng.next_u64() % (pause / 2 + 1);
            attempts.failures = attempts.failures.saturating_add(1);
            attempts.next_at = now.after_ms(DIAL_MS + pause + jitter);
            attempts.under_way = true;
        }
        if *room > 0 || may {
            let at = attempts.next_at;
            self.wake_by(at);
        }
        may
    }
}

/// Short enough, and printable: what it means is for the driver to find out.
fn plausible(address: &str) -> bool {
    !address.is_empty() && address.len() <= ADDRESS_BYTES && address.chars().all(|c| c.is_ascii_graphic())
}
