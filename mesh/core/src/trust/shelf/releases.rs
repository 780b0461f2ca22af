//! Releases: identified by (product, version) and by (product, sequence).

use alloc::format;
use alloc::vec::Vec;

use super::{Placed, Shelf, add_rival};
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::rejection::{Reason, Rejection};
use crate::documents::release::Release;
use crate::documents::rollout::{ReleaseRef, Rollout};
use crate::limits::SEQUENCE_JUMP;
use crate::number::Sequence;
use crate::text::Product;

impl Shelf {
    /// A release by its body digest.
    #[must_use]
    pub fn release(&self, digest: &Digest) -> Option<&Release> {
        match self.body(digest) {
            Some(Body::Release(release)) => Some(release),
            _ => None,
        }
    }

    /// All releases, in order of digests.
    pub fn releases(&self) -> impl Iterator<Item = (Digest, &Release)> + '_ {
        self.held.releases().filter_map(|(digest, held)| match &held.body {
            Body::Release(release) => Some((*digest, release)),
            _ => None,
        })
    }

    /// Another body with its (product, version) or (product, sequence) is known: it is not started.
    #[must_use]
    pub fn release_conflicted(&self, digest: &Digest) -> bool {
        self.release(digest).is_some_and(|release| {
            let versions = self.release_versions.get(&(release.product.clone(), release.version.clone()));
            let sequences = self.release_sequences.get(&release.product).and_then(|all| all.get(&release.sequence));
            [versions, sequences].into_iter().flatten().any(|rivals| rivals.len() > 1)
        })
    }

    /// A sequence may exceed the highest one known by a bounded step, so that no stolen key closes the channel (case K4).
    pub(super) fn check_sequence(&self, product: &Product, sequence: Sequence, field: &str) -> Result<(), Rejection> {
        let highest = self.release_sequences.get(product).and_then(|all| all.last_key_value()).map(|(highest, _)| highest.get());
        match highest {
            Some(highest) if sequence.get() > highest.saturating_add(SEQUENCE_JUMP) => {
                let detail = format!("{sequence} is more than {SEQUENCE_JUMP} above {highest}, the highest known of {product}");
                Err(Rejection::new(Reason::TooLarge, field, detail))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn place_release(&mut self, digest: Digest, release: &Release, from_store: bool) -> Result<Placed, Rejection> {
        if !from_store {
            self.check_sequence(&release.product, release.sequence, "sequence")?;
        }
        let by_version_key = (release.product.clone(), release.version.clone());
        let versions = self.release_versions.get(&by_version_key).cloned().unwrap_or_default();
        let sequences = self.release_sequences.get(&release.product).and_then(|all| all.get(&release.sequence)).cloned();
        let (versions, by_version) = add_rival(&versions, digest, "this product and version")?;
        let (sequences, by_sequence) = add_rival(&sequences.unwrap_or_default(), digest, "this product and sequence")?;
        self.release_versions.insert(by_version_key, versions);
        self.release_sequences.entry(release.product.clone()).or_default().insert(release.sequence, sequences);
        Ok(Placed { conflict: by_version.or(by_sequence), ..Placed::default() })
    }

    /// Rollouts that name this release by another product, version or sequence never stood.
    pub(super) fn settle_release(&mut self, digest: &Digest, dropped: &mut Vec<Digest>) {
        let wrong = self.generations_where(|rollout| rollout.release.digest == *digest && self.check_release(rollout).is_err());
        for generation in wrong {
            self.forget(&generation);
            dropped.push(generation);
        }
    }

    /// What a rollout says of its release, against the release if that is here.
    pub(super) fn check_release(&self, rollout: &Rollout) -> Result<(), Rejection> {
        let named = &rollout.release;
        let Some(release) = self.release(&named.digest) else { return Ok(()) };
        let is = ReleaseRef {
            product: release.product.clone(),
            version: release.version.clone(),
            sequence: release.sequence,
            digest: named.digest,
        };
        if is == *named {
            return Ok(());
        }
        let detail = format!("{} is {} {} with sequence {}", is.digest, is.product, is.version, is.sequence);
        Err(Rejection::malformed("release", detail))
    }
}
