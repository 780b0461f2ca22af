//! What members do that lie, each with its own key and nobody else's: beside the core that goes on running on the machine,
//! they send what it would never sign. All of it goes through the doors of honest machines (S7, section 7).

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::documents::canonical::encode;
use groundswell_core::documents::envelope::{Envelope, Signature};
use groundswell_core::documents::rollout::State;
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Sequence;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::{Outcome, Phase, Status, Verdict};
use groundswell_core::record::{RecordKey, RecordKind, Stamp};
use groundswell_core::text::{Reason, RolloutId, Version};
use groundswell_core::trust::key::Pin;
use groundswell_core::trust::signing::SecretKey;
use serde::{Deserialize, Serialize};

use super::operator::{node_secret, product};
use super::world::{Due, World};

/// How often a liar lies.
const EVERY_MS: u64 = 2_000;
/// How far beyond what its core has signed a liar numbers its own records, so that they count as newer.
const AHEAD: u64 = 1_000;
/// Of so many rounds a liar that recants owns up to a failure …
const RECANTS: u64 = 10;
/// … in the first of them, and takes it back in the others.
const FAILS: u64 = 2;

/// A way to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// As a warden: promises every slot to everybody who claims it, and tells each only of its own.
    GrantTwice,
    /// Tells half of its neighbours one thing and the others another, under one number.
    Equivocate,
    /// Says that it soaked, or that it failed, whatever runs.
    Boast,
    /// Says that it failed, and soon after that it soaked; again and again.
    Recant,
    /// Passes on releases, rollouts and words of others that nobody has signed.
    Forge,
    /// Says again what was said before, its own and others', documents and records.
    Replay,
    /// Sends what makes no sense, much of it.
    Flood,
}

/// A frame of version 1 that pushes these records directly.
fn frame(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 0, 0];
    varint(&mut bytes, records.len());
    for record in records {
        varint(&mut bytes, record.len());
        bytes.extend(record);
    }
    bytes
}

fn varint(bytes: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = u8::try_from(number % 128).expect("below 128");
        number /= 128;
        bytes.push(if number > 0 { low | 0x80 } else { low });
        if number == 0 {
            break;
        }
    }
}

/// An envelope whose signature names a key that its writer does not have.
fn forge(kind: Kind, body: Vec<u8>, kid: Pin) -> (Digest, Vec<u8>) {
    let own = SecretKey::generate(&[0x66; 32]).expect("any non-zero seed gives a key");
    let digest = Digest::of(&body);
    let signatures = vec![Signature { kid, sig: own.sign(&body) }];
    (digest, Envelope { kind, body, signatures }.to_bytes())
}

impl World {
    /// A machine lies from now on, for a while.
    pub fn begin_to_lie(&mut self, index: u32, how: Lie, for_ms: u64) {
        self.machine_mut(index).liar = true;
        let until_ms = self.now_ms + for_ms;
        self.soon(index, 0, Due::Lie { how, until_ms, round: 0 });
    }

    pub(super) fn lie(&mut self, index: u32, how: Lie, until_ms: u64, round: u64) {
        if self.now_ms >= until_ms {
            return;
        }
        self.soon(index, EVERY_MS, Due::Lie { how, until_ms, round: round + 1 });
        match how {
            Lie::GrantTwice => self.grant_twice(index, round),
            Lie::Equivocate => self.equivocate(index),
            Lie::Boast => self.boast(index, round, None),
            Lie::Recant => self.boast(index, round, Some(round % RECANTS < FAILS)),
            Lie::Forge => self.forge(index),
            Lie::Replay => self.replay(index),
            Lie::Flood => self.flood(index),
        }
    }

    fn neighbours(&self, index: u32) -> Vec<u32> {
        self.machine(index).links.keys().copied().collect()
    }

    /// Pushes records that this machine has at one neighbour.
    fn push(&mut self, index: u32, to: u32, records: &[Vec<u8>]) {
        let peer = self.machine(index).id;
        self.send(index, to, Input::Frame { peer, bytes: frame(records) });
    }

    /// A record of this machine that its core does not know of, `after` others.
    fn sign(&self, index: u32, after: u64, body: RecordBody) -> Option<Vec<u8>> {
        let machine = self.machine(index);
        let stamps = [RecordKind::Status, RecordKind::Grants]
            .map(|kind| machine.node.as_ref().and_then(|node| node.ledger().stamp(&RecordKey { node: machine.id, kind })));
        let newest = stamps.into_iter().flatten().filter(|stamp| *stamp < Stamp::PROOF).max()?;
        let stamp = Stamp { counter: newest.counter + AHEAD + after, ..newest };
        let crypto = SoftwareCrypto::from_secret(&node_secret(machine.key));
        SignedRecord::sign(&self.operator.fleet_id(), stamp, body, &crypto).map(|record| record.bytes().to_vec())
    }

    fn own_status(&self, index: u32) -> Option<Status> {
        let machine = self.machine(index);
        machine.node.as_ref()?.ledger().status(&machine.id).cloned()
    }

    fn grant_twice(&mut self, index: u32, round: u64) {
        let machine = self.machine(index);
        let (me, Some(node)) = (machine.id, &machine.node) else { return };
        let others = node.ledger().statuses().filter(|(holder, _)| **holder != me);
        let claims: Vec<SeenClaim> = others.flat_map(|(holder, status)| SeenClaim::standing(*holder, status)).collect();
        for (place, claim) in (0..).zip(claims) {
            let Some(to) = self.machines.iter().find(|other| other.id == claim.holder).map(|other| other.index) else { continue };
            // Under one number now and then: whoever sees both can prove it.
            let after = round * 100 + if round.is_multiple_of(3) { 0 } else { place };
            let grants = Grants { declared: Some(claim.roster), promises: vec![claim.promise()] };
            if let Some(record) = self.sign(index, after, RecordBody::Grants(grants)) {
                self.link(index, to);
                self.push(index, to, &[record]);
            }
        }
    }

    fn equivocate(&mut self, index: u32) {
        let Some(status) = self.own_status(index) else { return };
        for (place, to) in self.neighbours(index).into_iter().enumerate() {
            let mut told = status.clone();
            told.log = if place.is_multiple_of(2) { "yes" } else { "no" }.to_string();
            if let Some(record) = self.sign(index, 0, RecordBody::Status(told)) {
                self.push(index, to, &[record]);
            }
        }
    }

    /// Says how it ended under the rollout that it names: that it failed, or that it soaked; `None`: either.
    fn boast(&mut self, index: u32, round: u64, failed: Option<bool>) {
        let Some(mut status) = self.own_status(index) else { return };
        let Some(section) = status.products.get_mut(&product()) else { return };
        let Some(rollout) = section.rollout.as_ref().map(|seen| seen.id.clone()) else { return };
        let failed = failed.unwrap_or_else(|| self.random(3) == 0);
        let (phase, outcome) = if failed { (Phase::Failed, Outcome::Failed) } else { (Phase::Soaked, Outcome::Soaked) };
        section.phase = phase;
        section.claim = None;
        let (claim, reason) = (None, Reason::lossy("trust me"));
        section.verdicts = vec![Verdict { rollout, claim, outcome, reason, confirmed_at: None, soaked_at: None }];
        let Some(record) = self.sign(index, round, RecordBody::Status(status)) else { return };
        for to in self.neighbours(index) {
            self.push(index, to, std::slice::from_ref(&record));
        }
    }

    fn forge(&mut self, index: u32) {
        let mut documents = Vec::new();
        let machine = self.machine(index);
        let Some(node) = &machine.node else { return };
        let me = machine.id;
        if let Some(known) = node.shelf().rollouts().max_by_key(|known| known.rollout.release.sequence) {
            let Some(kid) = known.rollout.keys.first().map(|key| key.kid) else { return };
            let mut abort = known.rollout.clone();
            abort.previous = Some(known.digest);
            abort.generation = abort.generation.next().unwrap_or(abort.generation);
            abort.state = State::Aborted;
            documents.push(forge(Kind::Rollout, encode(&abort), kid));
            if let Some(release) = node.shelf().release(&known.rollout.release.digest) {
                let mut evil = release.clone();
                evil.version = Version::new("666.0.0").expect("a plain version");
                evil.sequence = Sequence::new(release.sequence.get() + 500).unwrap_or(release.sequence);
                let signer = evil.keys.first().map_or(kid, |key| key.kid);
                let (digest, bytes) = forge(Kind::Release, encode(&evil), signer);
                documents.push((digest, bytes));
                let mut rollout = known.rollout.clone();
                rollout.id = RolloutId::new("rollout-666").expect("a plain id");
                rollout.generation = groundswell_core::number::Generation::FIRST;
                rollout.previous = None;
                rollout.state = State::Running;
                rollout.forgiven.clear();
                rollout.release.version = evil.version;
                rollout.release.sequence = evil.sequence;
                rollout.release.digest = digest;
                documents.push(forge(Kind::Rollout, encode(&rollout), kid));
            }
        }
        // What another has said, with one bit of it otherwise; and words of somebody who is no member.
        let entries = node.ledger().entries().filter(|(key, _)| key.node != me);
        let mut records: Vec<Vec<u8>> = entries.flat_map(|(_, entry)| entry.records()).map(|it| it.bytes().to_vec()).collect();
        records.truncate(4);
        for record in &mut records {
            let middle = record.len() / 2;
            if let Some(byte) = record.get_mut(middle) {
                *byte ^= 1;
            }
        }
        let stranger = SoftwareCrypto::from_secret(&node_secret(1_000_000));
        let (stamp, body) = (Stamp { incarnation: 1, counter: 1 }, RecordBody::Status(Status::default()));
        let words = SignedRecord::sign(&self.operator.fleet_id(), stamp, body, &stranger);
        records.extend(words.map(|record| record.bytes().to_vec()));
        self.truth.forged.extend(documents.iter().map(|(digest, _)| *digest));
        for to in self.neighbours(index) {
            for (_, bytes) in &documents {
                self.tell(index, to, me, bytes);
            }
            for record in &records {
                self.push(index, to, std::slice::from_ref(record));
            }
        }
    }

    /// As gossip does it, but for what a machine has seen before.
    fn tell(&mut self, index: u32, to: u32, me: NodeId, bytes: &[u8]) {
        self.sequence += 1;
        let ticket = self.sequence;
        self.tickets.insert(ticket, bytes.to_vec());
        self.send(index, to, Input::Document { bytes: bytes.to_vec(), source: Source::Gossip { peer: me, ticket } });
    }

    fn replay(&mut self, index: u32) {
        let machine = self.machine(index);
        let (me, Some(node)) = (machine.id, &machine.node) else { return };
        let now: Vec<Vec<u8>> =
            node.ledger().entries().flat_map(|(_, entry)| entry.records()).map(|record| record.bytes().to_vec()).collect();
        let old = self.kept_records.entry(index).or_default().clone();
        for to in self.neighbours(index) {
            for _ in 0..3 {
                let pick = self.random(self.handed.len() as u64);
                if let Some(bytes) = usize::try_from(pick).ok().and_then(|pick| self.handed.get(pick)).cloned() {
                    self.tell(index, to, me, &bytes);
                }
            }
            for some in old.chunks(8).take(4) {
                self.push(index, to, some);
            }
        }
        // What it says again is what was true when it began, or once every while.
        if old.is_empty() || self.random(10) == 0 {
            self.kept_records.insert(index, now);
        }
    }

    fn flood(&mut self, index: u32) {
        let peer = self.machine(index).id;
        for to in self.neighbours(index) {
            for _ in 0..20 {
                let length = 1 + self.random(200);
                let mut bytes = vec![1];
                for _ in 0..length {
                    bytes.push(u8::try_from(self.random(256)).unwrap_or(0));
                }
                self.send(index, to, Input::Frame { peer, bytes });
            }
        }
    }
}
