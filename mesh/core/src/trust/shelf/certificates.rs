//! Node certificates: the highest serial counts, retirement is final, two bodies of one serial void both.

use alloc::vec::Vec;

use super::{Placed, Shelf, add_rival};
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::certificate::Certificate;
use crate::documents::rejection::{Reason, Rejection};
use crate::node_id::NodeId;
use crate::time::Timestamp;

/// Serials of one node that are kept even if no roster names them.
const KEPT_SERIALS: usize = 2;

impl Shelf {
    /// A node's certificate of the highest serial; `None` when two bodies share that serial.
    #[must_use]
    pub fn certificate(&self, node: &NodeId) -> Option<&Certificate> {
        self.newest_certificate(node).and_then(|digest| self.certificate_by_digest(&digest))
    }

    /// A certificate by its body digest, in force or not.
    #[must_use]
    pub fn certificate_by_digest(&self, digest: &Digest) -> Option<&Certificate> {
        match self.body(digest) {
            Some(Body::Node(certificate)) => Some(certificate),
            _ => None,
        }
    }

    /// The certificate of the highest serial of each node, with its digest, in order of node ids; retired ones included,
    /// voided ones left out.
    pub fn certificates(&self) -> impl Iterator<Item = (Digest, &Certificate)> + '_ {
        let newest = self.certificates.keys().filter_map(|node| self.newest_certificate(node));
        newest.filter_map(|digest| self.certificate_by_digest(&digest).map(|certificate| (digest, certificate)))
    }

    /// A node's certificate if it counts now.
    ///
    /// # Errors
    /// `unknown-key` without one, `revoked` when revoked or retired, `conflict` when voided, `expired`.
    pub fn member(&self, node: &NodeId, wall: Timestamp) -> Result<&Certificate, Rejection> {
        let refuse = |reason, detail: &str| Rejection::new(reason, "node", alloc::format!("{node} {detail}"));
        if self.is_revoked(node) {
            return Err(refuse(Reason::Revoked, "is revoked by the fleet document"));
        }
        if self.is_retired(node) {
            return Err(refuse(Reason::Revoked, "is retired"));
        }
        let certificate = self.certificate(node).ok_or_else(|| match self.certificates.get(node) {
            Some(_) => refuse(Reason::Conflict, "has two certificates of one serial: sign a higher serial"),
            None => refuse(Reason::UnknownKey, "has no certificate here: admit it"),
        })?;
        match certificate.expires_at {
            Some(end) if end <= self.time(wall) => {
                Err(refuse(Reason::Expired, &alloc::format!("has a certificate that expired at {end}")))
            }
            _ => Ok(certificate),
        }
    }

    /// The bodies of a node's highest serial: one, two when they void each other, none without a certificate.
    #[must_use]
    pub fn newest_bodies(&self, node: &NodeId) -> &[Digest] {
        self.certificates.get(node).and_then(|serials| serials.last_key_value()).map_or(&[], |(_, bodies)| bodies)
    }

    /// Whether a certificate that is kept here made `node` a member once: it may have expired since. Nobody whom root
    /// revoked, who was retired, or whose certificate is void.
    #[must_use]
    pub fn was_member(&self, node: &NodeId) -> bool {
        !self.is_revoked(node) && !self.is_retired(node) && self.newest_certificate(node).is_some()
    }

    /// Retired for good.
    #[must_use]
    pub fn is_retired(&self, node: &NodeId) -> bool {
        self.retired.contains(node)
    }

    fn newest_certificate(&self, node: &NodeId) -> Option<Digest> {
        match self.certificates.get(node)?.last_key_value()?.1.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    pub(super) fn place_certificate(&mut self, digest: Digest, certificate: &Certificate) -> Result<Placed, Rejection> {
        let node = certificate.node;
        let none = alloc::collections::BTreeMap::new();
        let serials = self.certificates.get(&node).unwrap_or(&none);
        if self.is_retired(&node)
            && !certificate.retired
            && serials.last_key_value().is_none_or(|(newest, _)| certificate.serial > *newest)
        {
            return Err(Rejection::new(
                Reason::Revoked,
                "node",
                alloc::format!("{node} is retired, which is final: give it a new identity"),
            ));
        }
        let newer = serials.range(certificate.serial.saturating_add(1)..).count();
        if newer >= KEPT_SERIALS && !certificate.retired && !self.named_by_roster(&node, &digest) {
            let detail = alloc::format!("{newer} certificates of higher serials are known here");
            return Err(Rejection::new(Reason::Rollback, "serial", detail));
        }
        let rivals = serials.get(&certificate.serial).cloned().unwrap_or_default();
        let (rivals, conflict) = add_rival(&rivals, digest, "this node and serial")?;
        let mut serials = serials.clone();
        serials.insert(certificate.serial, rivals);
        let superseded = serials.len().saturating_sub(KEPT_SERIALS);
        let old = serials.values().take(superseded).flatten();
        let keep = |old: &Digest| {
            *old == digest
                || self.named_by_roster(&node, old)
                || self.certificate_by_digest(old).is_some_and(|certificate| certificate.retired)
        };
        let dropped: Vec<Digest> = old.filter(|old| !keep(old)).copied().collect();
        self.certificates.insert(node, serials);
        if certificate.retired {
            self.retired.insert(node);
        }
        Ok(Placed { dropped, conflict })
    }

    fn named_by_roster(&self, node: &NodeId, digest: &Digest) -> bool {
        self.rosters().any(|(_, roster)| roster.listed(node).is_some_and(|listed| listed.certificate == *digest))
    }

    /// Whether the anchor of the fleet document keeps a certificate valid whose signing key was removed.
    /// Until the anchor's roster is here, what was valid before stays so.
    pub(super) fn anchored(&self, certificate: &Certificate, digest: &Digest) -> bool {
        let Some(anchor) = self.fleet().and_then(|fleet| fleet.anchor) else { return false };
        match self.roster(&anchor) {
            Some(roster) => roster.listed(&certificate.node).is_some_and(|listed| listed.certificate == *digest),
            None => self.held.contains_key(digest),
        }
    }
}
