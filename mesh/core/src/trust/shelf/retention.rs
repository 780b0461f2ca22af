//! The shelf's bounds: what leaves when it is full, and how a document leaves.
//!
//! Nothing that a rollout in force needs is ever dropped to make room: then the new document is refused, `too-large`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::{Rivals, Shelf};
use crate::digest::Digest;
use crate::documents::rejection::{Reason, Rejection};
use crate::documents::rollout::Rollout;
use crate::documents::{Body, Kind};
use crate::limits::{CERTIFICATES, DOCUMENTS, ROSTERS};

/// How many newer ones make a rollout or release superseded for good.
const SUPERSEDED_BY: usize = 2;

impl Shelf {
    /// Makes room for one more document like `body`. Returns what must leave for it; it is still here.
    pub(super) fn make_room(&self, body: &Body) -> Result<Vec<Digest>, Rejection> {
        let full = |what: &str, most: usize| {
            Err(Rejection::new(Reason::TooLarge, "type", format!("{most} {what} are kept here and none of them can be dropped")))
        };
        match body {
            Body::Node(_) if self.certificates_held() >= CERTIFICATES => full("certificates", CERTIFICATES),
            Body::Node(_) => Ok(Vec::new()),
            Body::Roster(_) if self.rosters().count() < ROSTERS => Ok(Vec::new()),
            Body::Roster(_) => match self.superseded_rosters().into_iter().next() {
                Some(oldest) => Ok(alloc::vec![oldest]),
                None => full("rosters", ROSTERS),
            },
            _ if self.documents < DOCUMENTS => Ok(Vec::new()),
            _ => match self.superseded_documents() {
                leave if leave.is_empty() => full("documents", DOCUMENTS),
                leave => Ok(leave),
            },
        }
    }

    /// How many certificates are held, in force or not.
    pub(super) fn certificates_held(&self) -> usize {
        self.held.len().saturating_sub(self.documents + self.rosters.len())
    }

    /// Whether a rollout in force or the fleet document names a roster.
    pub(super) fn needs_roster(&self, digest: &Digest) -> bool {
        let anchor = self.fleet().is_some_and(|fleet| fleet.anchor == Some(*digest));
        anchor || self.rollouts().flat_map(|stands| stands.bodies()).any(|rollout| rollout.roster.digest == *digest)
    }

    /// The oldest rollout that two newer ones of its product and scope supersede, with all its generations;
    /// else the oldest release that no rollout names and that two newer ones supersede.
    fn superseded_documents(&self) -> Vec<Digest> {
        let newer = |old: &Rollout| {
            let same = |other: &Rollout| other.release.product == old.release.product && other.scope == old.scope;
            self.rollouts()
                .filter(|stands| same(&stands.rollout) && stands.rollout.release.sequence > old.release.sequence)
                .count()
        };
        let old = self.rollouts().map(|stands| &stands.rollout).filter(|rollout| newer(rollout) >= SUPERSEDED_BY);
        if let Some(oldest) = old.min_by_key(|rollout| (rollout.release.sequence, &rollout.id)) {
            return self.generations_where(|rollout| rollout.id == oldest.id);
        }
        let named = |digest: &Digest| !self.generations_where(|rollout| rollout.release.digest == *digest).is_empty();
        let newer = |product, sequence| {
            let newer = |all: &BTreeMap<crate::number::Sequence, Rivals>| all.keys().filter(|other| **other > sequence).count();
            self.release_sequences.get(product).map_or(0, newer)
        };
        let mut old: Vec<_> =
            self.releases().filter(|(_, release)| newer(&release.product, release.sequence) >= SUPERSEDED_BY).collect();
        old.sort_by_key(|(digest, release)| (release.sequence, *digest));
        old.into_iter().map(|(digest, _)| digest).find(|digest| !named(digest)).into_iter().collect()
    }

    /// Takes a document off the shelf and out of every list. Harmless when it is gone already.
    pub(super) fn forget(&mut self, digest: &Digest) {
        let Some(held) = self.held.remove(digest) else { return };
        self.note_change();
        self.documents -= usize::from(!matches!(held.body.kind(), Kind::Node | Kind::Roster));
        match &held.body {
            Body::Fleet(fleet) => unlist(&mut self.fleets, &fleet.version, digest),
            Body::Node(certificate) => {
                if let Some(serials) = self.certificates.get_mut(&certificate.node) {
                    unlist(serials, &certificate.serial, digest);
                    if serials.is_empty() {
                        self.certificates.remove(&certificate.node);
                    }
                }
            }
            Body::Token(_) => {}
            Body::Release(release) => {
                if let Some(sequences) = self.release_sequences.get_mut(&release.product) {
                    unlist(sequences, &release.sequence, digest);
                }
                unlist(&mut self.release_versions, &(release.product.clone(), release.version.clone()), digest);
            }
            Body::Roster(roster) => unlist(&mut self.rosters, &roster.version, digest),
            Body::Rollout(rollout) => self.unlist_generation(&rollout.id, rollout.generation, digest),
        }
    }
}

/// Takes `digest` from the rivals under `key`, and the key with the last of them.
pub(super) fn unlist<K: Ord>(lists: &mut BTreeMap<K, Rivals>, key: &K, digest: &Digest) {
    if let Some(rivals) = lists.get_mut(key) {
        rivals.retain(|other| other != digest);
        if rivals.is_empty() {
            lists.remove(key);
        }
    }
}
