//! A certificate that a peer shows at a door: its signatures are looked at once and without the shelf, then it is judged.
//!
//! Verifying costs milliseconds that whoever knocks decides upon, and the shelf lies behind the lock that the whole node
//! waits for. So there are three steps: take the keys ([`Shelf::enrolling_keys`]), verify ([`Shown::look`]), judge
//! ([`Shelf::would_be_member`], [`Shelf::would_be_former`]). The last takes nothing in and copies nothing; keys that are new
//! or gone by then are judged as they are then.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::Shelf;
use crate::crypto::Crypto;
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::certificate::Certificate;
use crate::documents::fleet::Fleet;
use crate::documents::rejection::{Reason, Rejection};
use crate::limits::{CERTIFICATES, DOCUMENT_BYTES};
use crate::node_id::NodeId;
use crate::time::Timestamp;
use crate::trust::key::{Pin, PublicKey};
use crate::trust::threshold::{Signers, count_distinct};
use crate::trust::verify;

/// Fleet versions under which an old certificate is tried: more than a fleet signs in a decade.
const VERSIONS_TRIED: usize = 64;

/// A certificate in its published form, read, and which of its signatures verify.
#[derive(Clone, Debug)]
pub struct Shown {
    certificate: Certificate,
    digest: Digest,
    signers: Signers,
}

impl Shown {
    /// Reads a published form and verifies its signatures, each once: at most [`crate::limits::SIGNATURES`], whatever the
    /// number of `keys`, which are [`Shelf::enrolling_keys`].
    ///
    /// # Errors
    /// `too-large`, `malformed`, `not-canonical`; `fleet` for another fleet's. That too few signatures verify is for the
    /// judge to say.
    pub fn look(published: &[u8], fleet: &Digest, keys: &[PublicKey], crypto: &dyn Crypto) -> Result<Self, Rejection> {
        verify::check_size(published, DOCUMENT_BYTES)?;
        let (envelope, body) = verify::read(published)?;
        let digest = envelope.digest();
        verify::check_fleet(&body, &digest, fleet)?;
        let Body::Node(certificate) = body else {
            return Err(Rejection::malformed("type", "a certificate was asked for"));
        };
        let signers = count_distinct(&envelope.body, &envelope.signatures, keys, crypto);
        Ok(Self { certificate, digest, signers })
    }

    fn is_of(&self, node: &NodeId) -> Result<(), Rejection> {
        if self.certificate.node == *node {
            return Ok(());
        }
        Err(Rejection::malformed("node", "the certificate is another node's"))
    }
}

impl Shelf {
    /// The keys that sign certificates now, and those that did under earlier versions of the fleet document; each once.
    #[must_use]
    pub fn enrolling_keys(&self) -> Vec<PublicKey> {
        let all = self.fleet().into_iter().chain(self.versions_tried()).flat_map(|fleet| &fleet.roles.enroll.keys);
        let distinct: BTreeMap<Pin, &PublicKey> = all.map(|key| (key.pin(), key)).collect();
        distinct.into_values().cloned().collect()
    }

    /// Whether `node` would be a member if what it shows were taken in as any other document.
    ///
    /// # Errors
    /// As [`Shelf::offer`] and [`Shelf::member`].
    pub fn would_be_member(&self, node: &NodeId, shown: &Shown, wall: Timestamp) -> Result<(), Rejection> {
        shown.is_of(node)?;
        let Shown { certificate, digest, signers } = shown;
        let none = || Rejection::new(Reason::Fleet, "fleet", "no fleet document is known here yet: bring it first");
        let role = &self.fleet().ok_or_else(none)?.roles.enroll;
        if let Err(refusal) = signers.require(&role.keys, role.threshold, "enroll")
            && !(self.anchored(certificate, digest) && self.signed_in_time(signers).is_ok())
        {
            return Err(refusal);
        }
        verify::check_issued_at(certificate.issued_at, wall, self.floor)?;
        let serials = self.certificates.get(node);
        let newest = serials.and_then(|serials| serials.last_key_value());
        if self.held.contains_key(digest) || newest.is_some_and(|(serial, _)| certificate.serial < *serial) {
            // It changes nothing.
            return self.member(node, wall).map(|_| ());
        }
        if self.is_revoked(node) || self.is_retired(node) || certificate.retired {
            return Err(Rejection::new(Reason::Revoked, "node", format!("{node} is revoked or retired")));
        }
        if newest.is_some_and(|(serial, _)| certificate.serial == *serial) {
            let detail = format!("{node} has two certificates of one serial: sign a higher serial");
            return Err(Rejection::new(Reason::Conflict, "serial", detail));
        }
        if self.certificates_held() >= CERTIFICATES {
            return Err(Rejection::new(Reason::TooLarge, "type", format!("{CERTIFICATES} certificates are kept here already")));
        }
        match certificate.expires_at {
            Some(end) if end <= self.time(wall).max(certificate.issued_at) => {
                Err(Rejection::new(Reason::Expired, "node", format!("{node} has a certificate that expired at {end}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether what `node` shows made it a member once: signed as it must be under some fleet version of the chain, expired
    /// or not, its keys removed since or not.
    ///
    /// # Errors
    /// `unknown-key`, `threshold`; `revoked` for whom root revoked or who is retired, `conflict` for a certificate that is
    /// void.
    pub fn would_be_former(&self, node: &NodeId, shown: &Shown) -> Result<(), Rejection> {
        shown.is_of(node)?;
        let Shown { certificate, digest, signers } = shown;
        if certificate.retired || self.is_revoked(node) || self.is_retired(node) {
            return Err(Rejection::new(Reason::Revoked, "node", format!("{node} is revoked or retired")));
        }
        let rivals = self.certificates.get(node).and_then(|serials| serials.get(&certificate.serial));
        if rivals.is_some_and(|rivals| rivals.iter().any(|other| other != digest)) {
            return Err(Rejection::new(Reason::Conflict, "serial", format!("{node} has two bodies of this serial")));
        }
        self.signed_in_time(signers)
    }

    /// Step 6 under any version of the chain, the newest first: for what may have been signed by keys that were removed.
    fn signed_in_time(&self, signers: &Signers) -> Result<(), Rejection> {
        let mut refused = Rejection::new(Reason::Fleet, "fleet", "no fleet document is known here yet: bring it first");
        for fleet in self.versions_tried() {
            let role = &fleet.roles.enroll;
            match signers.require(&role.keys, role.threshold, "enroll") {
                Ok(()) => return Ok(()),
                Err(rejection) => refused = rejection,
            }
        }
        Err(refused)
    }

    fn versions_tried(&self) -> impl Iterator<Item = &Fleet> + '_ {
        self.fleets.values().rev().flatten().filter_map(|digest| self.fleet_by_digest(digest)).take(VERSIONS_TRIED)
    }
}
