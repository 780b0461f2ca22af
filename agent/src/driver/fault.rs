//! While the store cannot be written: what is remembered of the mesh, and what is let go.
//!
//! The core is not fed then: what it would answer could not be made durable, and its effects would pile up. Frames and
//! gossip are let go (sync repairs that), who came and went is remembered, and devices and downloads wait in their
//! bounded queues.

use std::collections::BTreeMap;
use std::time::Duration;

use groundswell_core::node::input::Input;
use groundswell_core::node_id::NodeId;
use groundswell_core::time::Timestamp;
use groundswell_net::NetworkEvent;
use tokio::time::Instant;

use crate::install::durable::is_disk_full;
use crate::store::CommitError;

/// First pause before the store is tried again; doubles up to [`RETRY_MOST`].
const RETRY_FIRST: Duration = Duration::from_millis(250);
/// Longest pause: a disk that is freed is noticed within this time.
const RETRY_MOST: Duration = Duration::from_secs(15);

/// What is told of a commit that failed: of a full disk by the word that stands for one everywhere (case B2).
pub(super) fn told(error: &CommitError) -> String {
    let full = if is_disk_full(&error.source) { "disk-full: " } else { "" };
    format!("{full}{error}: {}", error.source)
}

/// A store that cannot be written.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) detail: String,
    pub(super) since: Timestamp,
    pub(super) retry_at: Instant,
    pause: Duration,
    peers: BTreeMap<NodeId, Missed>,
    addresses: Option<Vec<String>>,
}

/// What the core has to be told of a peer afterwards.
#[derive(Debug, Default)]
struct Missed {
    /// It was up for the core, and that link is not what it was.
    down: bool,
    /// It is up now: whether this node dialled, and where.
    up: Option<(bool, String)>,
}

impl Fault {
    pub(super) fn new(detail: String, since: Timestamp) -> Self {
        let (peers, addresses) = (BTreeMap::new(), None);
        Self { detail, since, retry_at: Instant::now() + RETRY_FIRST, pause: RETRY_FIRST, peers, addresses }
    }

    /// Another attempt failed.
    pub(super) fn again(&mut self, detail: String) {
        self.detail = detail;
        self.pause = (self.pause * 2).min(RETRY_MOST);
        self.retry_at = Instant::now() + self.pause;
    }

    /// Remembers what the core must hear later. Returns the ticket of a gossip message to be ignored.
    pub(super) fn miss(&mut self, event: NetworkEvent) -> Option<u64> {
        match event {
            NetworkEvent::PeerUp { peer, dialled, address } => self.peers.entry(peer).or_default().up = Some((dialled, address)),
            NetworkEvent::PeerDown { peer } => {
                let missed = self.peers.entry(peer).or_default();
                missed.down |= missed.up.take().is_none();
            }
            // The link lost something: the core starts it anew, and both sides sync.
            NetworkEvent::Frame { peer, .. } => {
                let missed = self.peers.entry(peer).or_default();
                if missed.up.is_none() && !missed.down {
                    missed.down = true;
                    missed.up = Some((false, String::new()));
                }
            }
            NetworkEvent::Addresses(addresses) => self.addresses = Some(addresses),
            NetworkEvent::Gossip { ticket, .. } => return Some(ticket),
            NetworkEvent::Reached { .. }
            | NetworkEvent::Discovered { .. }
            | NetworkEvent::Refused { .. }
            | NetworkEvent::DialFailed { .. } => {}
        }
        None
    }

    /// What the core has to be told once the store works again.
    pub(super) fn catch_up(self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for (peer, missed) in self.peers {
            if missed.down {
                inputs.push(Input::PeerDown { peer });
            }
            if let Some((dialled, address)) = missed.up {
                let address = Some(address).filter(|address| dialled && !address.is_empty());
                inputs.push(Input::PeerUp { peer, dialled, address });
            }
        }
        inputs.extend(self.addresses.map(Input::Addresses));
        inputs
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn b2_a_store_on_a_full_disk_is_said_as_disk_full() {
        let told = |kind: io::ErrorKind| told(&CommitError { folder: "/data/store".into(), source: kind.into() });
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(told(kind).starts_with("disk-full: ") && told(kind).contains("/data/store"), "{}", told(kind));
        }
        assert!(!told(io::ErrorKind::ReadOnlyFilesystem).contains("disk-full"));
    }

    #[tokio::test]
    async fn a_peer_that_came_and_went_meanwhile_is_not_told_and_one_that_lost_frames_starts_anew() {
        let mut fault = Fault::new(String::new(), Timestamp::default());
        let (brief, gone, talker) = (NodeId([1; 32]), NodeId([2; 32]), NodeId([3; 32]));
        fault.miss(NetworkEvent::PeerUp { peer: brief, dialled: true, address: "/a".to_owned() });
        fault.miss(NetworkEvent::PeerDown { peer: brief });
        fault.miss(NetworkEvent::PeerDown { peer: gone });
        fault.miss(NetworkEvent::Frame { peer: talker, bytes: Vec::new() });
        fault.miss(NetworkEvent::Frame { peer: talker, bytes: Vec::new() });
        assert_eq!(fault.miss(NetworkEvent::Gossip { peer: talker, ticket: 9, bytes: Vec::new() }), Some(9));
        let told: Vec<_> = fault
            .catch_up()
            .into_iter()
            .map(|input| match input {
                Input::PeerUp { peer, .. } => (peer, true),
                Input::PeerDown { peer } => (peer, false),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, [(gone, false), (talker, false), (talker, true)]);
    }
}
