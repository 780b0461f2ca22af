//! The agent's answer to the mesh's question who may enter: the core's rule over the documents in force here.
//!
//! The node lies behind one lock, held for one step of the core at a time and never across an await, so the mesh's
//! tasks may ask at any time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::node::Node;
use groundswell_core::node_id::NodeId;
use groundswell_core::trust::shelf::Shown;
use groundswell_net::Admission;
use groundswell_net::blobs::DocumentSource;
use groundswell_net::outer::OuterSource;

use crate::clock::Clock;
use crate::identity::Secret;

/// Proofs of peers that were let in and are not up yet; a proof that is lost comes again by sync.
const PROOFS: usize = 64;

/// The node, shared between the driver that drives it and the mesh that asks it.
#[derive(Clone)]
pub(crate) struct SharedNode(Arc<Mutex<Node>>);

impl SharedNode {
    pub(crate) fn new(node: Node) -> Self {
        Self(Arc::new(Mutex::new(node)))
    }

    /// A panic inside the core is a broken invariant: nobody goes on with a node in an unknown state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Node> {
        self.0.lock().expect("the core does not panic: a broken invariant ends the agent")
    }
}

/// [`Admission`] by the documents in force.
pub(crate) struct Door {
    node: SharedNode,
    fleet: Digest,
    crypto: SoftwareCrypto,
    proofs: Mutex<BTreeMap<NodeId, Vec<u8>>>,
    clock: Clock,
    outer: Option<Arc<dyn OuterSource>>,
}

impl Door {
    pub(crate) fn new(
        node: SharedNode,
        fleet: Digest,
        secret: &Secret,
        clock: Clock,
        outer: Option<Arc<dyn OuterSource>>,
    ) -> Self {
        let crypto = SoftwareCrypto::from_secret(secret);
        Self { node, fleet, crypto, proofs: Mutex::new(BTreeMap::new()), clock, outer }
    }

    /// The certificate by which a peer came in, if it was new here: a document like any other, to be told before the
    /// peer is up.
    pub(crate) fn take_proof(&self, peer: &NodeId) -> Option<Vec<u8>> {
        lock(&self.proofs).remove(peer)
    }
}

impl Admission for Door {
    fn fleet(&self) -> Digest {
        self.fleet
    }

    fn own_proof(&self) -> Vec<u8> {
        self.node.lock().own_proof().map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn knows(&self, peer: NodeId) -> bool {
        self.node.lock().shelf().member(&peer, self.clock.wall()).is_ok()
    }

    fn admit(&self, peer: NodeId, proof: &[u8]) -> Result<(), String> {
        if self.knows(peer) {
            return Ok(());
        }
        let keys = self.node.lock().shelf().enrolling_keys();
        // Without the lock: whoever knocks decides how much there is to verify.
        let shown = Shown::look(proof, &self.fleet, &keys, &self.crypto).map_err(|rejection| rejection.to_string())?;
        let judged = self.node.lock().shelf().would_be_member(&peer, &shown, self.clock.wall());
        judged.map_err(|rejection| rejection.to_string())?;
        let mut proofs = lock(&self.proofs);
        if proofs.len() < PROOFS {
            proofs.insert(peer, proof.to_vec());
        }
        Ok(())
    }

    fn outer(&self) -> Option<Arc<dyn OuterSource>> {
        self.outer.clone()
    }
}

/// Rosters and other documents that peers fetch by digest.
pub(crate) struct Shelves(pub(crate) SharedNode);

impl DocumentSource for Shelves {
    fn document(&self, digest: &Digest) -> Option<Vec<u8>> {
        self.0.lock().shelf().envelope(digest).map(<[u8]>::to_vec)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
