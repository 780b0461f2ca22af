//! What one record costs one node: read, merged, counted and queued for the others, in a fleet of any size.
//!
//! Signatures are checked before the clock runs, as everywhere in the virtual world; what is timed is the core.

use std::collections::BTreeSet;
use std::time::Instant;

use groundswell_core::crypto::{Crypto as _, SoftwareCrypto};
use groundswell_core::documents::rollout::Wave;
use groundswell_core::node::input::{Input, Source};
use groundswell_core::node::{Node, NodeConfig};
use groundswell_core::number::{Ppm, Sequence};
use groundswell_core::record::Stamp;
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::{Phase, RolloutSeen, Section, Status};
use groundswell_core::time::{Now, Time, Timestamp};
use groundswell_core::trust::local::LocalTrust;
use serde::Serialize;

use super::memo::{MemoCrypto, Memory};
use super::operator::{BEGINNING, Operator, node_secret, platform, product};

/// Records of every node that are merged while the clock runs.
const ROUNDS: u64 = 4;
/// Records in one frame: a busy neighbour's batch.
const BATCH: usize = 4;

/// What merging cost in one fleet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Merges {
    /// Nodes that sign records.
    pub nodes: u32,
    /// Records merged.
    pub merges: u64,
    /// Nanoseconds of each, in the mean.
    pub nanoseconds: f64,
}

/// Merges [`ROUNDS`] records of each of `nodes` nodes into one node that follows a rollout over all of them.
///
/// # Panics
/// When the node does not take what it was given.
#[must_use]
pub fn merge(nodes: u32) -> Merges {
    let mut operator = Operator::new(|_| {});
    let certificates: Vec<Vec<u8>> = (0..nodes).map(|index| operator.admit(index, "edge").bytes).collect();
    let roster = operator.cut_roster().bytes;
    let content = b"2.0.0";
    let (release, body) = operator.release("2.0.0", 2, content);
    let mut rollout = operator.rollout("rollout-2", &release, &body);
    let wave = |percent| Wave { percent_ppm: Some(Ppm::new(percent).expect("a share")), soak_seconds: 600, ..Wave::default() };
    rollout.waves = [10_000, 100_000, 500_000, 1_000_000].into_iter().map(wave).collect();
    rollout.open_waves = 4;
    let generation = operator.sign_rollout(&rollout);

    let memory = Memory::default();
    let now = |ms: u64| Now { awake_ms: ms, boot: Time(ms), wall: Timestamp::from_seconds(BEGINNING + ms / 1_000) };
    let config = NodeConfig {
        fleet: operator.fleet_id(),
        platform: platform(),
        products: BTreeSet::from([product()]),
        lean: false,
        local_trust: LocalTrust::default(),
        bootstrap: vec!["sim/1".to_string()],
        silent: false,
        agent: None,
    };
    let crypto = MemoCrypto::new(&node_secret(0), memory.clone());
    let mut node = Node::open(config, Box::new(crypto), [1; 32], Vec::new(), now(0)).expect("an empty store opens");
    // The certificates at last: each is read into everything that is known before.
    let documents = [operator.fleet().to_vec()].into_iter().chain(certificates).chain([roster, release.bytes, generation.bytes]);
    for bytes in documents {
        node.handle(now(0), Input::Document { bytes, source: Source::Store });
    }
    let peer = SoftwareCrypto::from_secret(&node_secret(1)).node();
    node.handle(now(1), Input::PeerUp { peer, dialled: true, address: None });
    node.take_effects();

    let seen = RolloutSeen { id: rollout.id.clone(), generation: 1, digest: generation.digest };
    let writers: Vec<MemoCrypto> = (1..nodes).map(|index| MemoCrypto::new(&node_secret(index), memory.clone())).collect();
    let phases = [Phase::Waiting, Phase::Fetching, Phase::Staged, Phase::Waiting, Phase::Staged];
    let (mut at_ms, mut spent, mut merges) = (1_000, 0, 0);
    for (round, phase) in (0..=ROUNDS).zip(phases) {
        let status = RecordBody::Status(status(&seen, phase));
        let stamp = Stamp { incarnation: 1, counter: round + 1 };
        let sign = |writer: &MemoCrypto| SignedRecord::sign(&operator.fleet_id(), stamp, status.clone(), writer);
        let records: Vec<SignedRecord> = writers.iter().filter_map(sign).collect();
        for record in &records {
            let read = MemoCrypto::new(&node_secret(0), memory.clone()).open_record(&operator.fleet_id(), record.bytes());
            assert!(read.is_ok(), "a node reads what another one signed");
        }
        let frames: Vec<Vec<u8>> = records.chunks(BATCH).map(frame).collect();
        let begun = Instant::now();
        for bytes in frames {
            at_ms += 10;
            node.handle(now(at_ms), Input::Frame { peer, bytes });
            node.take_effects();
        }
        // The first record of each node makes room for it: the others are what goes on all the time.
        if round > 0 {
            spent += begun.elapsed().as_nanos();
            merges += records.len() as u64;
        }
        let newest = records.iter().all(|record| node.ledger().stamp(&record.key()) == Some(stamp));
        assert!(newest, "every record was merged");
    }
    let float = |number: u128| number.to_string().parse::<f64>().unwrap_or(f64::NAN);
    Merges { nodes, merges, nanoseconds: float(spent) / float(u128::from(merges.max(1))) }
}

fn status(seen: &RolloutSeen, phase: Phase) -> Status {
    let section = Section {
        running: None,
        from: None,
        floor: Sequence::default(),
        rollout: Some(seen.clone()),
        phase,
        hold: None,
        claim: None,
        started_at: None,
        verdicts: Vec::new(),
    };
    Status { addresses: vec!["sim/7".to_string()], products: [(product(), section)].into(), ..Status::default() }
}

/// A frame of the neighbour protocol that pushes records: see `docs/PROTOCOL.md`.
fn frame(records: &[SignedRecord]) -> Vec<u8> {
    // Version 1, the first kind of frame, no documents, no proofs.
    let mut bytes = vec![1, 0, 0, 0];
    length(&mut bytes, records.len());
    for record in records {
        length(&mut bytes, record.bytes().len());
        bytes.extend(record.bytes());
    }
    bytes
}

/// A length as postcard writes it: seven bits a byte, lowest first.
fn length(bytes: &mut Vec<u8>, mut length: usize) {
    while length >= 128 {
        bytes.push(u8::try_from(length % 128).unwrap_or(0) | 128);
        length /= 128;
    }
    bytes.push(u8::try_from(length).unwrap_or(0));
}
