//! Fleet versions: a chain from the fleet's id, each signed by the root before it and its own.
//!
//! All versions are kept, so that a node that missed several walks them one by one (case K5).

use alloc::vec::Vec;

use super::{Placed, Shelf, add_rival};
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::fleet::Fleet;
use crate::documents::rejection::{Reason, Rejection};
use crate::documents::rollout::Rollout;
use crate::trust::verify;

impl Shelf {
    /// The fleet document that verifies: the newest version; of two rivals the one that was here first.
    #[must_use]
    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet_by_digest(self.fleet.as_ref()?)
    }

    /// Its body digest.
    #[must_use]
    pub fn fleet_digest(&self) -> Option<Digest> {
        self.fleet
    }

    /// Two bodies of the newest fleet version are known: nothing starts until a later one names one of them.
    #[must_use]
    pub fn fleet_conflicted(&self) -> bool {
        self.fleets.last_key_value().is_some_and(|(_, rivals)| rivals.len() > 1)
    }

    /// Body digests of the fleet documents above version `after`, lowest first; the bodies of one version side by side, the
    /// one that this node goes by first: whoever walks the chain takes the first and meets the other as a conflict.
    pub fn fleets_after(&self, after: u64) -> impl Iterator<Item = Digest> + '_ {
        let newer = self.fleets.range(after.saturating_add(1)..);
        newer.flat_map(|(_, rivals)| {
            let goes_by = self.fleet;
            let first = rivals.iter().filter(move |digest| goes_by == Some(**digest));
            first.chain(rivals.iter().filter(move |digest| goes_by != Some(**digest))).copied()
        })
    }

    pub(super) fn fleet_by_digest(&self, digest: &Digest) -> Option<&Fleet> {
        match self.body(digest) {
            Some(Body::Fleet(fleet)) => Some(fleet),
            _ => None,
        }
    }

    /// Whether root, in the newest version or a rival of it, revoked the node.
    pub(super) fn is_revoked(&self, node: &crate::node_id::NodeId) -> bool {
        let newest = self.fleets.last_key_value().into_iter().flat_map(|(_, rivals)| rivals);
        newest.filter_map(|digest| self.fleet_by_digest(digest)).any(|fleet| fleet.revoked.binary_search(node).is_ok())
    }

    pub(super) fn place_fleet(&mut self, digest: Digest, fleet: &Fleet) -> Result<Placed, Rejection> {
        let newest = self.fleets.last_key_value().map_or(0, |(version, _)| *version);
        if fleet.version < newest {
            return Err(Rejection::new(Reason::Rollback, "version", alloc::format!("version {newest} is known here")));
        }
        let rivals = self.fleets.entry(fleet.version).or_default();
        let (rivals_now, conflict) = add_rival(rivals, digest, "this fleet version")?;
        *rivals = rivals_now;
        if conflict.is_none() {
            self.fleet = Some(digest);
            // A clock far ahead may have raised the floor: root sets it right.
            self.floor = fleet.issued_at;
        }
        Ok(Placed { conflict, ..Placed::default() })
    }

    /// Under a new version, what it no longer vouches for leaves.
    pub(super) fn settle_fleet(&mut self, digest: Digest, dropped: &mut Vec<Digest>) {
        if self.fleet == Some(digest) {
            dropped.extend(self.drop_fallen());
        }
    }

    /// Takes off what the newest version does not vouch for, and returns it. Signers are known, so nothing is verified again.
    ///
    /// To be called after [`Shelf::restore`] wherever the store may have kept what was dropped before: a removal need not
    /// have reached the disk. While two bodies of the newest version are known nothing falls: which of them was here first is
    /// not known after a restart, nothing starts, and the version that names one of them judges all anew.
    pub fn drop_fallen(&mut self) -> Vec<Digest> {
        if self.fleet_conflicted() {
            return Vec::new();
        }
        let mut generations: Vec<(u64, Digest)> = Vec::new();
        let mut gone: Vec<Digest> = Vec::new();
        for (digest, held) in self.held.iter() {
            match &held.body {
                Body::Rollout(rollout) => generations.push((rollout.generation.get(), *digest)),
                Body::Fleet(_) => {}
                _ if self.still_stands(digest) => {}
                _ => gone.push(*digest),
            }
        }
        for digest in &gone {
            self.forget(digest);
        }
        // In order of generations: a brake falls with what it brakes.
        generations.sort();
        for (_, digest) in generations {
            if !self.still_stands(&digest) {
                self.forget(&digest);
                gone.push(digest);
            }
        }
        gone
    }

    /// Whether the fleet document in force still vouches for a held document.
    pub(super) fn still_stands(&self, digest: &Digest) -> bool {
        let (Some(held), Some(fleet)) = (self.held.get(digest), self.fleet()) else { return false };
        let Ok((role, name)) = verify::role_of(&held.body, fleet) else { return false };
        let by_role = held.signers.require(&role.keys, role.threshold, name).is_ok();
        let one_of_role = || role.keys.iter().any(|key| held.signers.contains(&key.pin()));
        match &held.body {
            Body::Node(certificate) => by_role || self.anchored(certificate, digest),
            Body::Roster(_) => by_role || fleet.anchor == Some(*digest),
            Body::Rollout(rollout) => {
                let within = super::guard_rails::check_rollout(&fleet.limits, rollout).is_ok();
                within && (by_role || (one_of_role() && self.brakes_one(rollout)))
            }
            _ => by_role,
        }
    }

    /// Whether `rollout` only brakes a generation that is here.
    pub(super) fn brakes_one(&self, rollout: &Rollout) -> bool {
        let before = rollout.previous.and_then(|digest| Some((digest, self.rollout_by_digest(&digest)?)));
        before.is_some_and(|(digest, before)| {
            crate::trust::brake::is_brake(rollout, before, &digest) && self.brakes_below(&digest) < crate::limits::BRAKES
        })
    }
}
