//! What the node tells: a bounded ring of numbered events with a stable JSON form, and one log line each.
//!
//! Readers follow by number; one who is too slow sees the gap, nobody is waited for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundswell_core::digest::Digest;
use groundswell_core::node::effect::Event;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::{HoldCode, Outcome, Phase};
use groundswell_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Events kept for readers: some hundred rollouts of one node, or the storm of a halt in a large fleet; about 300 KB.
pub const KEPT: usize = 1_024;

/// One event, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// 1, 2, 3 … since the agent started.
    pub number: u64,
    /// When, by this node's wall clock.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub told: Told,
}

/// What happened, with a stable `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "each mirrors the core's event or fault of the same name and fields")]
pub enum Told {
    DocumentAccepted {
        document: String,
        digest: Digest,
    },
    DocumentRejected {
        peer: Option<NodeId>,
        reason: String,
        field: String,
        detail: String,
    },
    DocumentConflict {
        document: String,
        digests: [Digest; 2],
    },
    FrameRejected {
        peer: NodeId,
        reason: String,
    },
    PhaseChanged {
        product: String,
        rollout: Option<String>,
        from: Phase,
        to: Phase,
        hold: Option<HoldCode>,
        text: Option<String>,
        reason: Option<String>,
    },
    VerdictSigned {
        product: String,
        rollout: String,
        outcome: Outcome,
        reason: String,
    },
    WaveOpened {
        rollout: String,
        wave: u32,
    },
    WavePassed {
        rollout: String,
        wave: u32,
    },
    Halted {
        rollout: String,
        wave: u32,
        failures: u32,
        applicable: u32,
    },
    Unhalted {
        rollout: String,
    },
    Granted {
        pool: String,
        slot: u16,
        holder: NodeId,
        claim: ClaimName,
    },
    GrantEnded {
        pool: String,
        slot: u16,
        holder: NodeId,
        why: String,
    },
    Convicted {
        node: NodeId,
    },
    SetBack {
        incarnation: u64,
    },
    StatusTooLarge {
        size_bytes: usize,
    },
    /// This node begins to live through other nodes' outer doors, and why; or, without a reason, lives in the mesh again.
    OuterDoor {
        why: Option<String>,
    },
    PeerUp {
        peer: NodeId,
    },
    PeerDown {
        peer: NodeId,
    },
    /// The door turned someone away, on either side.
    PeerRefused {
        peer: NodeId,
        address: String,
        reason: String,
    },
    /// A download begins or is a tenth further: with what rate, from how many peers, and how many whole copies these and
    /// others have together.
    BlobFetching {
        sha256: Digest,
        held: u32,
        pieces: u32,
        peers: u32,
        bytes_per_second: u64,
        copies_ppm: u64,
    },
    /// A blob is here whole.
    BlobStored {
        sha256: Digest,
    },
    /// Something of this machine does not work: nothing that depends on it is done until it does.
    Fault {
        what: String,
        detail: String,
    },
    /// It works again.
    FaultEnded {
        what: String,
    },
}

/// The ring, shared by the driver that writes and the API that reads.
#[derive(Debug)]
pub struct EventLog {
    ring: Mutex<Ring>,
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    last: u64,
    entries: VecDeque<Arc<Entry>>,
}

/// What a reader gets.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Events that were dropped before it came to read them.
    pub missed: u64,
    /// The events, oldest first.
    pub entries: Vec<Arc<Entry>>,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { ring: Mutex::default(), last: watch::Sender::new(0) }
    }
}

impl EventLog {
    /// Adds an event, and logs it.
    pub fn tell(&self, at: Timestamp, told: Told) {
        log(&told);
        let number = {
            let mut ring = self.lock();
            ring.last += 1;
            let number = ring.last;
            if ring.entries.len() == KEPT {
                ring.entries.pop_front();
            }
            ring.entries.push_back(Arc::new(Entry { number, at, told }));
            number
        };
        self.last.send_replace(number);
    }

    /// Events after number `after`, at most `most`, oldest first.
    #[must_use]
    pub fn since(&self, after: u64, most: usize) -> Batch {
        let ring = self.lock();
        let oldest = ring.entries.front().map_or(ring.last + 1, |entry| entry.number);
        let missed = if after < ring.last { oldest.saturating_sub(after + 1) } else { 0 };
        let entries = ring.entries.iter().filter(|entry| entry.number > after).take(most).cloned().collect();
        Batch { missed, entries }
    }

    /// Number of the last event; changes wake whoever waits on it.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        match event {
            Event::DocumentAccepted { kind, digest } => Self::DocumentAccepted { document: kind.name().to_owned(), digest },
            Event::DocumentRejected { peer, rejection } => Self::DocumentRejected {
                peer,
                reason: rejection.reason.code().to_owned(),
                field: rejection.field,
                detail: rejection.detail,
            },
            Event::DocumentConflict { kind, digests } => Self::DocumentConflict { document: kind.name().to_owned(), digests },
            Event::FrameRejected { peer, reason } => Self::FrameRejected { peer, reason: reason.to_string() },
            Event::PhaseChanged { product, rollout, from, to, hold, reason } => Self::PhaseChanged {
                product: product.to_string(),
                rollout: rollout.map(|rollout| rollout.to_string()),
                from,
                to,
                hold: hold.as_ref().map(groundswell_core::node::hold::Hold::code),
                text: hold.map(|hold| hold.to_string()),
                reason: reason.map(|reason| reason.to_string()),
            },
            Event::VerdictSigned { product, rollout, outcome, reason } => Self::VerdictSigned {
                product: product.to_string(),
                rollout: rollout.to_string(),
                outcome,
                reason: reason.to_string(),
            },
            Event::WaveOpened { rollout, wave } => Self::WaveOpened { rollout: rollout.to_string(), wave },
            Event::WavePassed { rollout, wave } => Self::WavePassed { rollout: rollout.to_string(), wave },
            Event::Halted { rollout, wave, failures, applicable } => {
                Self::Halted { rollout: rollout.to_string(), wave, failures, applicable }
            }
            Event::Unhalted { rollout } => Self::Unhalted { rollout: rollout.to_string() },
            Event::Granted { pool, slot, holder, claim } => Self::Granted { pool: pool.to_string(), slot, holder, claim },
            Event::GrantEnded { pool, slot, holder, why } => {
                Self::GrantEnded { pool: pool.to_string(), slot, holder, why: why.to_string() }
            }
            Event::Convicted { node, .. } => Self::Convicted { node },
            Event::SetBack { incarnation } => Self::SetBack { incarnation },
            Event::StatusTooLarge { size_bytes } => Self::StatusTooLarge { size_bytes },
            Event::OuterDoor { why } => Self::OuterDoor { why: why.map(|why| why.to_string()) },
            Event::Peer { peer, up: true } => Self::PeerUp { peer },
            Event::Peer { peer, up: false } => Self::PeerDown { peer },
        }
    }
}

/// Prose for people. One line per change of state at `info`; what comes often is `debug`.
fn log(told: &Told) {
    use tracing::{debug, error, info, warn};
    let nth = |wave: &u32| wave.saturating_add(1);
    match told {
        Told::DocumentAccepted { document, digest } => info!("accepted {document} {digest}"),
        Told::DocumentRejected { peer, reason, field, detail } => match peer {
            Some(peer) => warn!(%peer, "refused a document: {reason}: {field}: {detail}"),
            None => warn!("refused a document: {reason}: {field}: {detail}"),
        },
        Told::DocumentConflict { document, digests: [one, other] } => error!("two bodies of one {document}: {one} and {other}"),
        Told::FrameRejected { peer, reason } => warn!(%peer, "refused a frame: {reason}"),
        Told::PhaseChanged { product, rollout, from, to, text, reason, .. } => {
            let moved = from != to;
            // A hold that ended without a move is no news for people.
            if !moved && text.is_none() {
                return;
            }
            let rollout = rollout.as_deref().unwrap_or("no rollout");
            let phase = if moved { format!("{from:?} -> {to:?}") } else { format!("{to:?}") };
            // The verdict's reason was told when the phase changed.
            let why = reason.as_deref().filter(|_| moved).or(text.as_deref()).unwrap_or_default();
            let colon = if why.is_empty() { "" } else { ": " };
            info!("{product}: {phase} ({rollout}){colon}{why}");
        }
        Told::VerdictSigned { product, rollout, outcome: Outcome::Soaked, .. } => info!("{product}: soaked in {rollout}"),
        Told::VerdictSigned { product, rollout, outcome, reason } => warn!("{product}: {outcome:?} in {rollout}: {reason}"),
        Told::WaveOpened { rollout, wave } => info!("{rollout}: wave {} is open", nth(wave)),
        Told::WavePassed { rollout, wave } => info!("{rollout}: wave {} has passed", nth(wave)),
        Told::Halted { rollout, wave, failures, applicable } => {
            error!("{rollout}: halted: {failures} of {applicable} in wave {} failed", nth(wave));
        }
        Told::Unhalted { rollout } => info!("{rollout}: no longer halted"),
        Told::Granted { pool, slot, holder, claim } => debug!("granted slot {slot} of {pool} to {} for {claim}", holder.short()),
        Told::GrantEnded { pool, slot, holder, why } => debug!("slot {slot} of {pool} is back from {}: {why}", holder.short()),
        Told::Convicted { node } => error!(%node, "signed two different records under one number: it counts for nothing now"),
        Told::SetBack { incarnation } => error!("this node's store was set back: going on as incarnation {incarnation}"),
        Told::StatusTooLarge { size_bytes } => error!("this node's status has {size_bytes} bytes: configure fewer products here"),
        Told::OuterDoor { why: Some(why) } => warn!("{why}"),
        Told::OuterDoor { why: None } => info!("lives in the mesh again, not through outer doors"),
        Told::PeerUp { peer } => debug!(%peer, "connected"),
        Told::PeerDown { peer } => debug!(%peer, "disconnected"),
        Told::PeerRefused { peer, address, reason } => warn!(%peer, address, "refused at the door: {reason}"),
        Told::BlobFetching { sha256, held, pieces, peers, .. } => {
            debug!("blob {sha256}: {held} of {pieces} pieces from {peers} peers")
        }
        Told::BlobStored { sha256 } => info!("stored blob {sha256}"),
        Told::Fault { what, detail } => error!("{what}: {detail}"),
        Told::FaultEnded { what } => info!("{what} works again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_sees_how_much_it_missed() {
        let log = EventLog::default();
        for wave in 0..u32::try_from(KEPT).unwrap() + 10 {
            log.tell(Timestamp::default(), Told::WaveOpened { rollout: "r".to_owned(), wave });
        }
        let batch = log.since(3, 5);
        assert_eq!((batch.missed, batch.entries.len(), batch.entries[0].number), (7, 5, 11));
        assert_eq!(log.since(1_034, 5).missed, 0);
        assert!(log.since(1_034, 5).entries.is_empty());
    }

    #[test]
    fn an_event_has_a_stable_json_form() {
        let told = Told::Fault { what: "store".to_owned(), detail: "full".to_owned() };
        let entry = Entry { number: 7, at: Timestamp::from_seconds(0), told };
        let json = r#"{"number":7,"at":"1970-01-01T00:00:00Z","kind":"fault","what":"store","detail":"full"}"#;
        assert_eq!(serde_json::to_string(&entry).unwrap(), json);
        assert_eq!(serde_json::from_str::<Entry>(json).unwrap(), entry);
    }
}
