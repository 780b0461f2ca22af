//! The window through which the lease rules see this node's records, documents and silence.

use alloc::collections::BTreeMap;

use super::Node;
use crate::digest::Digest;
use crate::lease::governing::Rosters;
use crate::lease::presence::Presence;
use crate::lease::sight::{Gone, Sight};
use crate::node_id::NodeId;
use crate::record::grants::{Grants, Promise};
use crate::record::ledger::Ledger;
use crate::record::status::Status;
use crate::record::sync_set::SyncSet;
use crate::record::{ClaimName, RecordKey, RecordKind, Stamp};
use crate::spread::neighbours::Member;
use crate::spread::{Documents, Paper};
use crate::trust::shelf::Shelf;

/// Borrowed parts of a node, so that a rule can look while another part of the node is changed.
#[derive(Clone, Copy)]
pub(super) struct NodeSight<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) shelf: &'a Shelf,
    pub(super) presence: &'a Presence,
    pub(super) written_off: &'a BTreeMap<NodeId, ClaimName>,
    pub(super) departed: &'a BTreeMap<NodeId, u64>,
}

impl Node {
    pub(super) fn sight(&self) -> NodeSight<'_> {
        NodeSight {
            ledger: &self.ledger,
            shelf: &self.shelf,
            presence: &self.presence,
            written_off: &self.written_off,
            departed: &self.departed,
        }
    }

    /// Every roster that is here, as leases read them.
    pub(super) fn rosters(&self) -> Rosters<'_> {
        Rosters::of(self.shelf.rosters().map(|(digest, roster)| (digest, roster, self.maps.get(&digest).map(|map| &**map))))
    }
}

impl<'a> NodeSight<'a> {
    /// Where a member may be dialled: at the addresses of its record. Whoever has a certificate and no record here, where it was
    /// reached before.
    pub(super) fn dialable(&self, node: &NodeId) -> Option<Member<'a>> {
        match self.ledger.status(node) {
            Some(status) => self.gone(node).is_none().then_some(Member { node: *node, addresses: &status.addresses }),
            None => self.shelf.certificate(node).map(|_| Member { node: *node, addresses: &[] }),
        }
    }
}

impl Sight for NodeSight<'_> {
    fn status(&self, node: &NodeId) -> Option<(Stamp, &Status)> {
        let record = self.ledger.record(&RecordKey { node: *node, kind: RecordKind::Status })?;
        Some((record.stamp(), record.status()?))
    }

    fn grants(&self, node: &NodeId) -> Option<&Grants> {
        let entry = self.ledger.entry(&RecordKey { node: *node, kind: RecordKind::Grants })?;
        entry.records().iter().find_map(|record| record.grants())
    }

    fn promises<'s>(&'s self, node: &NodeId) -> impl Iterator<Item = &'s Promise> + 's {
        self.ledger.promises(node)
    }

    fn is_convicted(&self, node: &NodeId) -> bool {
        self.ledger.is_convicted(node)
    }

    fn gone(&self, node: &NodeId) -> Option<Gone> {
        self.shelf.gone(node)
    }

    fn gone_for_ms(&self, node: &NodeId) -> Option<u64> {
        self.departed.get(node).map(|since| self.presence.up_ms().saturating_sub(*since))
    }

    fn written_off(&self, node: &NodeId) -> Option<ClaimName> {
        self.written_off.get(node).copied()
    }

    fn unheard_ms(&self, node: &NodeId) -> Option<u64> {
        self.presence.unheard_ms(node)
    }
}

impl Documents for Shelf {
    fn inventory(&self) -> &SyncSet<Paper> {
        self.sync_set()
    }

    fn envelope(&self, digest: &Digest) -> Option<&[u8]> {
        Self::envelope(self, digest)
    }
}
