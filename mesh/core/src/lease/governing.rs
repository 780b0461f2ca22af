//! Which roster governs leases: the one that wardens have declared (rule 8, as far as it is built).
//!
//! Until declarations can move on, a warden declares the first roster that it needs and no newer one: a typed hold.
//! A roster that has forerunners opens only pools that none of them listed: for the others old promises may stand.
//! State and records have their final form: a warden names the one roster that it has declared, a promise its own.

use alloc::vec::Vec;

use crate::digest::Digest;
use crate::lease::budget::{PoolMap, Slot};
use crate::lease::sight::Sight;
use crate::node_id::NodeId;
use crate::text::Pool;

/// Every roster that is here with all its certificates.
#[derive(Clone, Debug, Default)]
pub struct Rosters<'a> {
    maps: Vec<&'a PoolMap>,
}

/// Why a warden declares nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterHold {
    /// No roster is here with all its certificates.
    #[error("no roster is known here with all its certificates")]
    Missing,
    /// Two rosters have the highest version.
    #[error("two rosters have version {version}: cut a newer one that names both")]
    Rivals {
        /// Their version.
        version: u64,
    },
    /// A newer roster is here than the one that is declared.
    #[error("roster {newest} waits: leases go on under roster {declared} (roster-change)")]
    Change {
        /// Version of the roster declared; 0 when it is not here.
        declared: u64,
        /// Version of the newest roster.
        newest: u64,
    },
}

impl<'a> Rosters<'a> {
    /// Orders the rosters by version.
    #[must_use]
    pub fn new(maps: impl IntoIterator<Item = &'a PoolMap>) -> Self {
        let mut maps: Vec<&PoolMap> = maps.into_iter().collect();
        maps.sort_by_key(|map| (map.version(), map.roster()));
        Self { maps }
    }

    /// The roster with this body digest.
    #[must_use]
    pub fn get(&self, roster: &Digest) -> Option<&'a PoolMap> {
        self.maps.iter().copied().find(|map| map.roster() == *roster)
    }

    /// The roster with the highest version.
    ///
    /// # Errors
    /// When none is here, or two have that version.
    pub fn newest(&self) -> Result<&'a PoolMap, RosterHold> {
        let newest = *self.maps.last().ok_or(RosterHold::Missing)?;
        let version = newest.version();
        let rivals = self.maps.iter().filter(|map| map.version() == version).count() > 1;
        if rivals { Err(RosterHold::Rivals { version }) } else { Ok(newest) }
    }

    /// What the warden `me`, which has declared `declared`, does next: `Ok(Some)` declares, `Ok(None)` changes nothing.
    ///
    /// A node that has declared nothing declares the newest roster that lists it and opens its pool.
    ///
    /// # Errors
    /// Why it declares nothing although the newest roster lists it and is not the one it has declared.
    pub fn declaration(&self, me: &NodeId, declared: Option<Digest>) -> Result<Option<Digest>, RosterHold> {
        let newest = self.newest()?;
        if declared == Some(newest.roster()) {
            return Ok(None);
        }
        let change = |declared: u64| RosterHold::Change { declared, newest: newest.version() };
        if let Some(declared) = declared {
            return Err(change(self.get(&declared).map_or(0, PoolMap::version)));
        }
        let Some(pool) = newest.pool_of(me) else { return Ok(None) };
        if self.opens(newest, pool) {
            return Ok(Some(newest.roster()));
        }
        let first = |map: &&&PoolMap| {
            let alone = self.maps.iter().filter(|other| other.version() == map.version()).count() == 1;
            alone && map.pool_of(me).is_some_and(|pool| self.opens(map, pool))
        };
        self.maps.iter().rev().find(first).map(|map| Some(map.roster())).ok_or_else(|| change(0))
    }

    /// Whether slots of `pool` may be granted under `map`: no older roster can still have promises for them.
    #[must_use]
    pub fn opens(&self, map: &PoolMap, pool: &Pool) -> bool {
        let mut version = map.version();
        let mut older: Vec<Digest> = map.previous().to_vec();
        while !older.is_empty() {
            // Numbering is dense, so this is the forerunners' version even when they are not here.
            version = version.saturating_sub(1);
            if version < map.settled() {
                return true;
            }
            let mut before = Vec::new();
            for roster in older {
                match self.get(&roster) {
                    Some(forerunner) if forerunner.pool(pool).is_none() => before.extend_from_slice(forerunner.previous()),
                    Some(_) | None => return false,
                }
            }
            before.sort_unstable();
            before.dedup();
            older = before;
        }
        true
    }

    /// The roster to claim under: the newest one that a quorum of the wardens of the pool's first slot has declared,
    /// else the one that this node has declared itself.
    #[must_use]
    pub fn to_claim_under(&self, pool: &Pool, declared: Option<Digest>, sight: &impl Sight) -> Option<&'a PoolMap> {
        let first = Slot { pool: pool.clone(), number: 0 };
        let governs = |map: &PoolMap| {
            map.wardens(&first).is_some_and(|wardens| {
                let declared = |node: &&NodeId| {
                    !sight.is_convicted(node) && sight.grants(node).is_some_and(|grants| grants.declared == Some(map.roster()))
                };
                wardens.nodes.iter().filter(declared).count() >= wardens.quorum
            })
        };
        let own = || declared.and_then(|declared| self.get(&declared)).filter(|map| map.pool(pool).is_some());
        self.maps.iter().rev().copied().find(|map| self.opens(map, pool) && governs(map)).or_else(own)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use crate::lease::budget::Seat;
    use crate::lease::sight::Gone;
    use crate::record::grants::Grants;
    use crate::record::status::Status;
    use crate::record::{ClaimName, Stamp};

    #[derive(Default)]
    struct Declared(BTreeMap<NodeId, Grants>);

    impl Sight for Declared {
        fn status(&self, _: &NodeId) -> Option<(Stamp, &Status)> {
            None
        }
        fn grants(&self, node: &NodeId) -> Option<&Grants> {
            self.0.get(node)
        }
        fn is_convicted(&self, _: &NodeId) -> bool {
            false
        }
        fn gone(&self, _: &NodeId) -> Option<Gone> {
            None
        }
        fn written_off(&self, _: &NodeId) -> Option<ClaimName> {
            None
        }
        fn unheard_ms(&self, _: &NodeId) -> Option<u64> {
            None
        }
    }

    fn digest(number: u8) -> Digest {
        Digest([number; 32])
    }

    fn node(number: u8) -> NodeId {
        NodeId([number; 32])
    }

    fn pool(name: &str) -> Pool {
        Pool::new(name).unwrap()
    }

    /// Roster `digest` of `version` with nodes 1–4 in `edge`, and `extra` in `core`.
    fn map(roster: u8, version: u64, previous: &[u8], settled: u64, extra: &[u8]) -> PoolMap {
        let seat = |number: u8, name: &str| Seat { node: node(number), pool: pool(name), dormant: false };
        let seats = (1..=4).map(|number| seat(number, "edge")).chain(extra.iter().map(|number| seat(*number, "core")));
        let previous: Vec<Digest> = previous.iter().map(|number| digest(*number)).collect();
        PoolMap::new(digest(roster), version, &previous, settled, &BTreeMap::new(), seats)
    }

    #[test]
    fn a_warden_declares_its_first_roster_and_holds_against_a_newer_one() {
        let (v1, v2) = (map(1, 1, &[], 0, &[]), map(2, 2, &[1], 0, &[9]));
        let both = Rosters::new([&v2, &v1]);
        assert_eq!(Rosters::default().declaration(&node(1), None), Err(RosterHold::Missing));
        assert_eq!(Rosters::new([&v1]).declaration(&node(1), None), Ok(Some(digest(1))));
        assert_eq!(Rosters::new([&v1]).declaration(&node(1), Some(digest(1))), Ok(None));
        let change = Err(RosterHold::Change { declared: 1, newest: 2 });
        assert_eq!(both.declaration(&node(1), Some(digest(1))), change, "roster-change");
        let unknown = Err(RosterHold::Change { declared: 0, newest: 1 });
        assert_eq!(Rosters::new([&v1]).declaration(&node(1), Some(digest(7))), unknown);
    }

    #[test]
    fn a_warden_that_comes_late_declares_the_roster_under_which_its_pool_began() {
        let (v1, v2) = (map(1, 1, &[], 0, &[]), map(2, 2, &[1], 0, &[9]));
        assert_eq!(Rosters::new([&v1, &v2]).declaration(&node(2), None), Ok(Some(digest(1))));
        // Without the forerunner nobody can know what was promised under it.
        let change = Err(RosterHold::Change { declared: 0, newest: 2 });
        assert_eq!(Rosters::new([&v2]).declaration(&node(2), None), change);
        // The pool core began with version 2.
        assert_eq!(Rosters::new([&v1, &v2]).declaration(&node(9), None), Ok(Some(digest(2))));
        assert_eq!(Rosters::new([&v1, &v2]).declaration(&node(200), None), Ok(None), "not listed: no warden");
    }

    #[test]
    fn d4_of_rival_rosters_none_is_newly_declared() {
        let (a, b) = (map(1, 1, &[], 0, &[]), map(2, 1, &[], 0, &[9]));
        assert_eq!(Rosters::new([&a, &b]).declaration(&node(1), None), Err(RosterHold::Rivals { version: 1 }));
        let v2 = map(3, 2, &[1, 2], 0, &[9]);
        let all = Rosters::new([&a, &b, &v2]);
        assert_eq!(all.declaration(&node(1), None), Err(RosterHold::Change { declared: 0, newest: 2 }));
    }

    #[test]
    fn a_pool_opens_under_a_roster_only_where_no_forerunner_listed_it() {
        let (v1, v2, v3) = (map(1, 1, &[], 0, &[]), map(2, 2, &[1], 0, &[]), map(3, 3, &[2], 0, &[9]));
        let all = Rosters::new([&v1, &v2, &v3]);
        assert!(all.opens(&v1, &pool("edge")));
        assert!(!all.opens(&v3, &pool("edge")));
        assert!(all.opens(&v3, &pool("core")));
        assert!(!Rosters::new([&v2, &v3]).opens(&v3, &pool("core")), "version 1 is not here");
        let settled = map(3, 3, &[2], 2, &[9]);
        assert!(Rosters::new([&v2, &settled]).opens(&settled, &pool("core")), "what is before version 2 is settled");
        let settled = map(3, 3, &[2], 3, &[9]);
        assert!(Rosters::new([&settled]).opens(&settled, &pool("edge")));
    }

    #[test]
    fn a_holder_claims_under_the_roster_that_the_wardens_declared() {
        let (v1, v2) = (map(1, 1, &[], 0, &[]), map(2, 2, &[1], 0, &[9]));
        let all = Rosters::new([&v1, &v2]);
        let under = |sight: &Declared, own| all.to_claim_under(&pool("edge"), own, sight).map(PoolMap::roster);
        let mut sight = Declared::default();
        assert_eq!(under(&sight, None), None);
        assert_eq!(under(&sight, Some(digest(1))), Some(digest(1)), "its own, while others have said nothing");
        for number in 1..=3 {
            sight.0.insert(node(number), Grants { declared: Some(digest(1)), promises: Vec::new() });
        }
        assert_eq!(under(&sight, None), Some(digest(1)), "a node that only the newer roster lists");
        // Even a quorum that declares a roster which cannot open the pool yet does not move a holder.
        for number in 1..=4 {
            sight.0.insert(node(number), Grants { declared: Some(digest(2)), promises: Vec::new() });
        }
        assert_eq!(under(&sight, Some(digest(1))), Some(digest(1)));
    }
}
