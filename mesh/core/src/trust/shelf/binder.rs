//! Where verified documents lie, by body digest, and what follows from which are here: the releases, and what sync compares.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::digest::Digest;
use crate::documents::{Body, Kind};
use crate::lease::budget::PoolMap;
use crate::once::Once;
use crate::record::sync_set::{SyncId, SyncSet};
use crate::spread::Paper;
use crate::trust::threshold::Signers;

/// A verified document.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) body: Body,
    pub(super) body_bytes: usize,
    pub(super) envelope: Vec<u8>,
    /// SHA-256 of the envelope: hashed once, however often it is listed.
    pub(super) published: Digest,
    pub(super) signers: Signers,
    /// Of a roster: what leases read of it, worked out once for all copies of the shelf, when all certificates that it names are here.
    pub(super) map: Once<Arc<PoolMap>>,
}

/// All that is held. A document is written once and shared by copies of the shelf.
#[derive(Clone, Debug, Default)]
pub(super) struct Binder {
    held: BTreeMap<Digest, Arc<Held>>,
    releases: BTreeSet<Digest>,
    inventory: SyncSet<Paper>,
}

impl Held {
    fn paper(&self, digest: Digest) -> (SyncId, Paper) {
        let paper = Paper { order: self.body.order(), digest };
        // The envelope holds verified signatures only: its hash changes when one is added.
        let [a, b, c, d, e, f, g, h, ..] = self.published.0;
        (paper.sync_id(u64::from_le_bytes([a, b, c, d, e, f, g, h])), paper)
    }
}

impl Binder {
    /// Takes a document in.
    pub(super) fn insert(&mut self, digest: Digest, held: Held) {
        let kind = held.body.kind();
        if kind == Kind::Release {
            self.releases.insert(digest);
        }
        // Rosters are fetched, never synced.
        if kind != Kind::Roster {
            let (id, paper) = held.paper(digest);
            self.inventory.put(id, paper);
        }
        self.held.insert(digest, Arc::new(held));
    }

    /// Writes a document's signatures anew.
    pub(super) fn sign_anew(&mut self, digest: &Digest, edit: impl FnOnce(&mut Held)) {
        if let Some(held) = self.held.remove(digest) {
            let mut held = Arc::unwrap_or_clone(held);
            edit(&mut held);
            self.insert(*digest, held);
        }
    }

    /// Takes a document out.
    pub(super) fn remove(&mut self, digest: &Digest) -> Option<Arc<Held>> {
        let held = self.held.remove(digest)?;
        self.releases.remove(digest);
        self.inventory.remove(&held.paper(*digest).0);
        Some(held)
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<&Held> {
        self.held.get(digest).map(|held| &**held)
    }

    pub(super) fn contains_key(&self, digest: &Digest) -> bool {
        self.held.contains_key(digest)
    }

    /// All documents, in order of digests.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Digest, &Held)> {
        self.held.iter().map(|(digest, held)| (digest, &**held))
    }

    /// The same above `after`.
    pub(super) fn after(&self, after: Digest) -> impl Iterator<Item = (&Digest, &Held)> {
        let above = self.held.range((Bound::Excluded(after), Bound::Unbounded));
        above.map(|(digest, held)| (digest, &**held))
    }

    /// The releases among them, in order of digests.
    pub(super) fn releases(&self) -> impl Iterator<Item = (&Digest, &Held)> {
        self.releases.iter().filter_map(|digest| Some((digest, self.get(digest)?)))
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// What sync compares of them.
    pub(super) fn inventory(&self) -> &SyncSet<Paper> {
        &self.inventory
    }
}
