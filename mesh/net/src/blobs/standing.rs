//! Who lost its standing: peers that sent what is provably not the blob, or broke the protocol.
//!
//! A charge outlives the download in which it was earned, and ends by itself, since a repaired disk is no lie.

use std::collections::BTreeMap;
use std::sync::Mutex;

use groundswell_core::node_id::NodeId;
use tokio::time::Instant;

use super::limits::{CHARGED_FOR, CHARGED_PEERS};

/// What a peer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Charge {
    /// It sent bytes that do not have the hash of the piece asked for.
    #[error("it sent a bad piece")]
    BadPiece,
    /// It sent a hash list that does not lead to the signed root.
    #[error("it sent a hash list that does not lead to the signed root")]
    BadHashList,
    /// It described the blob with another size, or sent a bitmap that cannot be.
    #[error("it describes the blob otherwise than the signed manifest")]
    BadDescription,
    /// It sent a document that is not the one named.
    #[error("it sent another document than the one named")]
    BadDocument,
    /// It answered what was not asked, or more than was asked.
    #[error("it broke the blob protocol")]
    Breach,
}

/// The charged peers; at most [`CHARGED_PEERS`].
#[derive(Debug, Default)]
pub(crate) struct Standings {
    charged: Mutex<BTreeMap<NodeId, (Charge, Instant)>>,
}

impl Standings {
    pub(crate) fn charge(&self, peer: NodeId, charge: Charge) {
        let mut charged = self.charged.lock().expect("no holder of this lock panics");
        let until = Instant::now() + CHARGED_FOR;
        charged.retain(|_, (_, until)| *until > Instant::now());
        if charged.len() >= CHARGED_PEERS {
            let soonest = charged.iter().min_by_key(|(_, (_, until))| *until).map(|(peer, _)| *peer);
            soonest.and_then(|peer| charged.remove(&peer));
        }
        charged.insert(peer, (charge, until));
        tracing::warn!(%peer, %charge, "a peer lost its standing as a source of blobs");
    }

    /// Until when a peer is not asked, if it is charged.
    pub(crate) fn charged_until(&self, peer: &NodeId) -> Option<Instant> {
        let charged = self.charged.lock().expect("no holder of this lock panics");
        charged.get(peer).map(|(_, until)| *until).filter(|until| *until > Instant::now())
    }

    pub(crate) fn list(&self) -> Vec<(NodeId, Charge)> {
        let charged = self.charged.lock().expect("no holder of this lock panics");
        charged.iter().filter(|(_, (_, until))| *until > Instant::now()).map(|(peer, (charge, _))| (*peer, *charge)).collect()
    }
}
