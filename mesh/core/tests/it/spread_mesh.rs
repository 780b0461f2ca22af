//! A mesh in memory for the tests of spread: nodes with a ledger, links with latency and loss, virtual time.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::crypto::Crypto;
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::ledger::{Ledger, Merged};
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::Status;
use groundswell_core::record::sync_set::SyncSet;
use groundswell_core::record::{RecordKey, Stamp};
use groundswell_core::spread::{Documents, Heard, Paper, Received, Spread};
use groundswell_core::time::Time;
use groundswell_core::trust::key::PublicKey;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub(crate) const FLEET: Digest = Digest([7; 32]);
const LATENCY_MS: u64 = 20;

/// Signatures for tests: a keyed hash, so that a mesh of hundreds costs milliseconds. Real ones are tested in `record_wire`.
pub(crate) struct HashCrypto(pub(crate) NodeId);

impl Crypto for HashCrypto {
    fn node(&self) -> NodeId {
        self.0
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        blake3::Hasher::new_keyed(&self.0.0).update(message).finalize_xof().fill(&mut signature);
        signature
    }

    fn verify_node(&self, node: &NodeId, message: &[u8], signature: &[u8; 64]) -> bool {
        HashCrypto(*node).sign(message) == *signature
    }

    fn verify_es256(&self, _: &PublicKey, _: &Digest, _: &[u8; 64]) -> bool {
        false
    }
}

/// Documents are any bytes here: named by their digest, with the number of their signatures in the last byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Papers(pub(crate) Vec<(Digest, Vec<u8>)>, SyncSet<Paper>);

impl PartialEq for Papers {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Papers {
    pub(crate) fn offer(&mut self, bytes: Vec<u8>) {
        let Some((signatures, body)) = bytes.split_last() else { return };
        let digest = Digest::of(body);
        let known = self.0.iter().find(|(known, _)| *known == digest).and_then(|(_, known)| known.last());
        if known < Some(signatures) {
            let paper = Paper { order: (0, 0), digest };
            self.1.put(paper.sync_id(u64::from(*signatures)), paper);
        }
        match self.0.iter_mut().find(|(known, _)| *known == digest) {
            Some((_, known)) if known.last() < Some(signatures) => *known = bytes,
            Some(_) => {}
            None => self.0.push((digest, bytes)),
        }
        self.0.sort();
    }
}

impl Documents for Papers {
    fn inventory(&self) -> &SyncSet<Paper> {
        &self.1
    }

    fn envelope(&self, digest: &Digest) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == digest).map(|(_, bytes)| bytes.as_slice())
    }
}

pub(crate) struct Station {
    pub(crate) ledger: Ledger,
    pub(crate) papers: Papers,
    pub(crate) spread: Spread,
    pub(crate) synced: Vec<NodeId>,
    counter: u64,
}

pub(crate) struct Mesh {
    pub(crate) now: Time,
    pub(crate) stations: BTreeMap<NodeId, Station>,
    links: BTreeSet<(NodeId, NodeId)>,
    wire: BTreeMap<(Time, u64), (NodeId, NodeId, Vec<u8>)>,
    sent: u64,
    rng: ChaCha8Rng,
    pub(crate) loss_percent: u64,
    recorded: Option<BTreeSet<Vec<u8>>>,
    /// Frames until one is lost.
    lose: Option<u64>,
    /// Bytes sent over each directed link.
    pub(crate) bytes: BTreeMap<(NodeId, NodeId), u64>,
}

/// Node ids look random, as keys do.
pub(crate) fn node(number: u64) -> NodeId {
    NodeId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

pub(crate) fn status(log: &str) -> RecordBody {
    RecordBody::Status(Status { log: log.to_string(), ..Status::default() })
}

pub(crate) fn stamp(counter: u64) -> Stamp {
    Stamp { incarnation: 1, counter }
}

pub(crate) fn signed(node: NodeId, counter: u64, body: RecordBody) -> SignedRecord {
    SignedRecord::sign(&FLEET, stamp(counter), body, &HashCrypto(node)).expect("small enough")
}

pub(crate) fn verified(bytes: &[u8]) -> Option<SignedRecord> {
    SignedRecord::verify(&FLEET, bytes, &HashCrypto(NodeId([0; 32]))).ok()
}

impl Mesh {
    pub(crate) fn new(seed: u64, nodes: u64) -> Self {
        let mut mesh = Self {
            now: Time(1_000),
            stations: BTreeMap::new(),
            links: BTreeSet::new(),
            wire: BTreeMap::new(),
            sent: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            loss_percent: 0,
            recorded: None,
            lose: None,
            bytes: BTreeMap::new(),
        };
        for number in 0..nodes {
            mesh.add(node(number));
        }
        mesh
    }

    pub(crate) fn add(&mut self, id: NodeId) {
        self.add_with(id, Spread::new);
    }

    /// A node that pays for its bytes, and says so.
    pub(crate) fn add_lean(&mut self, id: NodeId) {
        self.add_with(id, Spread::lean);
        self.says(id, RecordBody::Status(Status { lean: true, ..Status::default() }));
    }

    fn add_with(&mut self, id: NodeId, spread: impl Fn(NodeId, [u8; 32]) -> Spread) {
        let mut seed = id.0;
        self.rng.fill_bytes(&mut seed);
        let spread = spread(id, seed);
        let station = Station { ledger: Ledger::new(), papers: Papers::default(), spread, synced: Vec::new(), counter: 0 };
        self.stations.insert(id, station);
    }

    pub(crate) fn connect(&mut self, one: NodeId, other: NodeId) {
        if one != other && self.links.insert((one, other)) {
            self.links.insert((other, one));
            let now = self.now;
            self.at(one).spread.peer_up(now, other);
            self.at(other).spread.peer_up(now, one);
        }
    }

    pub(crate) fn disconnect(&mut self, one: NodeId, other: NodeId) {
        for (from, to) in [(one, other), (other, one)] {
            self.links.remove(&(from, to));
            self.at(from).spread.peer_down(&to);
        }
        self.wire.retain(|_, (from, to, _)| self.links.contains(&(*from, *to)));
    }

    pub(crate) fn line(&mut self) {
        let ids: Vec<NodeId> = self.stations.keys().copied().collect();
        for (one, other) in ids.iter().zip(ids.iter().skip(1)) {
            self.connect(*one, *other);
        }
    }

    pub(crate) fn ring(&mut self) {
        self.line();
        let (first, last) = (self.id(0), self.id(self.stations.len() - 1));
        self.connect(first, last);
    }

    /// Each node links to `own` others at random, so that the mean degree is twice that.
    pub(crate) fn random(&mut self, own: usize) {
        let ids: Vec<NodeId> = self.stations.keys().copied().collect();
        for one in &ids {
            for _ in 0..own {
                let other = self.any(&ids);
                self.connect(*one, other);
            }
        }
    }

    pub(crate) fn any(&mut self, ids: &[NodeId]) -> NodeId {
        let at = usize::try_from(self.rng.next_u64() % ids.len() as u64).expect("less than a length");
        *ids.get(at).expect("within")
    }

    /// The node at `place` in order of ids.
    pub(crate) fn id(&self, place: usize) -> NodeId {
        *self.stations.keys().nth(place).expect("a node at that place")
    }

    pub(crate) fn at(&mut self, id: NodeId) -> &mut Station {
        self.stations.get_mut(&id).expect("a known node")
    }

    /// `id` says something new.
    pub(crate) fn says(&mut self, id: NodeId, body: RecordBody) -> RecordKey {
        let now = self.now;
        let station = self.at(id);
        station.counter += 1;
        let record = signed(id, station.counter, body);
        let key = record.key();
        assert_eq!(station.ledger.merge(record), Merged::New);
        station.spread.note_new(now, key, None);
        key
    }

    pub(crate) fn says_something(&mut self, id: NodeId) -> RecordKey {
        let text = format!("{:x}", self.rng.next_u64());
        self.says(id, status(&text))
    }

    pub(crate) fn grants(&mut self, id: NodeId) -> RecordKey {
        self.says(id, RecordBody::Grants(Grants::default()))
    }

    /// `id` hears `record` from outside the mesh.
    pub(crate) fn hears(&mut self, id: NodeId, record: SignedRecord) -> Merged {
        let now = self.now;
        let station = self.at(id);
        let key = record.key();
        let merged = station.ledger.merge(record);
        if matches!(merged, Merged::New | Merged::Convicted) {
            station.spread.note_new(now, key, None);
        }
        merged
    }

    /// Lets `ms` pass.
    pub(crate) fn run(&mut self, ms: u64) {
        let end = self.now.after_ms(ms);
        loop {
            let arrival = self.wire.first_key_value().map(|((at, _), _)| *at);
            let wakeup = self.stations.values().filter_map(|station| station.spread.next_wakeup()).min();
            let Some(next) = arrival.into_iter().chain(wakeup).min().filter(|at| at.0.next_multiple_of(10) <= end.0) else {
                break;
            };
            // On a grid of 10 ms, so that a large mesh takes fewer steps.
            self.now = Time(next.0.next_multiple_of(10)).max(self.now);
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (from, to, bytes) = entry.remove();
                self.deliver(from, to, &bytes);
            }
            self.wake();
        }
        self.now = end;
    }

    fn wake(&mut self) {
        let now = self.now;
        let due: Vec<NodeId> = self
            .stations
            .iter()
            .filter(|(_, station)| station.spread.next_wakeup().is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let station = self.at(id);
            station.spread.wake(now, &station.ledger, &station.papers);
            self.send(id);
        }
    }

    fn deliver(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        let now = self.now;
        let station = self.at(to);
        let heard = station.spread.handle(now, from, bytes, &station.ledger, &station.papers);
        for heard in heard.expect("honest frames are frames") {
            let (merged, key) = match heard {
                Heard::Document(bytes) => {
                    station.papers.offer(bytes);
                    continue;
                }
                Heard::Synced(peer) => {
                    station.synced.push(peer);
                    continue;
                }
                Heard::Record(bytes) => {
                    let record = verified(&bytes).expect("honest records verify");
                    let key = record.key();
                    (station.ledger.merge(record), key)
                }
                Heard::Proof(one, other) => {
                    let one = verified(&one).expect("honest records verify");
                    let key = one.key();
                    let other = verified(&other).expect("honest records verify");
                    (station.ledger.convict(one, other).expect("a proof"), key)
                }
            };
            if matches!(merged, Merged::New | Merged::Convicted) {
                station.spread.note_new(now, key, Some(from));
            }
        }
        self.send(to);
    }

    fn send(&mut self, from: NodeId) {
        for (to, bytes) in self.at(from).spread.take_frames() {
            *self.bytes.entry((from, to)).or_default() += bytes.len() as u64;
            self.recorded.as_mut().map(|recorded| recorded.insert(bytes.clone()));
            let lost = self.lose == Some(0);
            self.lose = self.lose.map(|left| left.wrapping_sub(1));
            if lost || self.rng.next_u64() % 100 < self.loss_percent || !self.links.contains(&(from, to)) {
                continue;
            }
            self.sent += 1;
            // One latency for all: frames of a link arrive in order.
            self.wire.insert((self.now.after_ms(LATENCY_MS), self.sent), (from, to, bytes));
        }
    }

    /// Keeps every frame from now on.
    pub(crate) fn record_frames(&mut self) {
        self.recorded = Some(BTreeSet::new());
    }

    /// The different frames that were kept.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        self.recorded.iter().flatten().cloned().collect()
    }

    /// Loses the frame after the next `after` ones.
    pub(crate) fn lose_frame(&mut self, after: u64) {
        self.lose = Some(after);
    }

    pub(crate) fn have(&self, key: &RecordKey) -> usize {
        self.stations.values().filter(|station| station.ledger.entry(key).is_some()).count()
    }

    /// Whether all nodes hold the same.
    pub(crate) fn agree(&self) -> bool {
        let mut stations = self.stations.values();
        let first = stations.next().expect("a node");
        stations.all(|station| station.ledger == first.ledger && station.papers == first.papers)
    }

    pub(crate) fn received(&self) -> Received {
        self.stations.values().map(|station| station.spread.received()).fold(Received::default(), |sum, one| Received {
            records: sum.records + one.records,
            duplicates: sum.duplicates + one.duplicates,
        })
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }
}
