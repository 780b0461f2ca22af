//! Rosters: large, named by digest, fetched when a document in force names them.

use alloc::format;
use alloc::vec::Vec;

use super::{Placed, Shelf, add_rival};
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::certificate::Certificate;
use crate::documents::rejection::Rejection;
use crate::documents::rollout::{Rollout, RosterRef};
use crate::documents::roster::{Listed, Roster};
use crate::limits::ROSTER_BYTES;
use crate::trust::guard_rails;

impl Shelf {
    /// A roster by its body digest.
    #[must_use]
    pub fn roster(&self, digest: &Digest) -> Option<&Roster> {
        match self.body(digest) {
            Some(Body::Roster(roster)) => Some(roster),
            _ => None,
        }
    }

    /// The listed nodes with the certificates that the roster names, in order of ids.
    /// `None` until the roster and every one of those certificates are here.
    #[must_use]
    pub fn roster_members(&self, digest: &Digest) -> Option<Vec<(&Listed, &Certificate)>> {
        let nodes = &self.roster(digest)?.nodes;
        nodes.iter().map(|listed| Some((listed, self.certificate_by_digest(&listed.certificate)?))).collect()
    }

    /// Certificates that a roster names and that are not here, at most `most`.
    #[must_use]
    pub fn missing_certificates(&self, digest: &Digest, most: usize) -> Vec<Digest> {
        let nodes = self.roster(digest).into_iter().flat_map(|roster| &roster.nodes);
        nodes.map(|listed| listed.certificate).filter(|digest| !self.held.contains_key(digest)).take(most).collect()
    }

    /// All rosters here, by version; of two rivals the lower digest first.
    pub fn rosters(&self) -> impl DoubleEndedIterator<Item = (Digest, &Roster)> + '_ {
        self.rosters.values().flatten().filter_map(|digest| self.roster(digest).map(|roster| (*digest, roster)))
    }

    /// Another body of this roster's version is known, and no later version: it is not newly declared.
    #[must_use]
    pub fn roster_conflicted(&self, digest: &Digest) -> bool {
        self.rosters.last_key_value().is_some_and(|(_, rivals)| rivals.len() > 1 && rivals.contains(digest))
    }

    /// Rosters that a rollout in force or the fleet document names and that are not here.
    #[must_use]
    pub fn wanted_rosters(&self) -> Vec<RosterRef> {
        let anchor = self.fleet().and_then(|fleet| fleet.anchor).map(|digest| {
            // The fleet document names its anchor by digest alone; the limit bounds the fetch.
            RosterRef { version: 1, digest, size: u64::try_from(ROSTER_BYTES).unwrap_or(u64::MAX) }
        });
        let named = self.rollouts().flat_map(|stands| stands.bodies().map(|rollout| rollout.roster.clone()));
        let mut wanted: Vec<RosterRef> = Vec::new();
        for roster in named.chain(anchor) {
            if !self.held.contains_key(&roster.digest) && !wanted.iter().any(|have| have.digest == roster.digest) {
                wanted.push(roster);
            }
        }
        wanted
    }

    pub(super) fn place_roster(&mut self, digest: Digest, roster: &Roster) -> Result<Placed, Rejection> {
        let rivals = self.rosters.entry(roster.version).or_default();
        let (rivals_now, conflict) = add_rival(rivals, digest, "this roster version")?;
        *rivals = rivals_now;
        Ok(Placed { conflict, ..Placed::default() })
    }

    /// With a roster here, rollouts that name it can be judged in full; and an anchor decides about certificates.
    pub(super) fn settle_roster(&mut self, digest: &Digest, dropped: &mut Vec<Digest>) {
        let wrong =
            self.generations_where(|rollout| rollout.roster.digest == *digest && self.check_named_roster(rollout).is_err());
        let mut gone = wrong;
        if self.fleet().is_some_and(|fleet| fleet.anchor == Some(*digest)) {
            let certificates = self.certificates.values().flat_map(|serials| serials.values().flatten());
            gone.extend(certificates.filter(|certificate| !self.still_stands(certificate)));
        }
        for digest in &gone {
            self.forget(digest);
        }
        dropped.extend(gone);
    }

    /// What a rollout says of its roster, and what the roster's policy demands of it, if the roster is here.
    pub(super) fn check_named_roster(&self, rollout: &Rollout) -> Result<(), Rejection> {
        let named = &rollout.roster;
        let (Some(roster), Some(held)) = (self.roster(&named.digest), self.held.get(&named.digest)) else { return Ok(()) };
        let size = u64::try_from(held.body_bytes).unwrap_or(u64::MAX);
        if roster.version != named.version || size != named.size {
            let detail = format!("{} is version {} of {size} bytes", named.digest, roster.version);
            return Err(Rejection::malformed("roster", detail));
        }
        guard_rails::check_presumed_lost(rollout, roster)
    }
}
