//! Which roster governs leases at a warden: the newest one that it has declared (rule 8).
//!
//! A warden declares only a roster whose chain of forerunners contains the one that it has declared, and of rival rosters
//! (two bodies of one version) none newly. Under a roster it then grants a slot when [`super::handover`] says so.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::documents::roster::Roster;
use crate::lease::budget::{PoolMap, Slot};
use crate::lease::sight::Sight;
use crate::node_id::NodeId;
use crate::text::Pool;

/// Every roster that is here, those that lack certificates included.
#[derive(Clone, Debug, Default)]
pub struct Rosters<'a> {
    /// By version, then digest.
    known: Vec<Known<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    roster: Digest,
    version: u64,
    previous: &'a [Digest],
    settled: u64,
    /// `None` while certificates are missing.
    map: Option<&'a PoolMap>,
}

/// What lies before a roster on its chain, as far as it is known here.
#[derive(Clone, Debug, Default)]
pub struct Forerunners {
    /// Those that are here.
    pub known: BTreeSet<Digest>,
    /// Those that are named and not here, with their versions: what lies before them cannot be told.
    pub missing: BTreeMap<Digest, u64>,
}

/// Why a warden declares no newer roster now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterHold {
    /// No roster is here with all its certificates.
    #[error("no roster is known here with all its certificates")]
    Missing,
    /// Two rosters have this version.
    #[error("two rosters have version {version}: cut a newer one that names both")]
    Rivals {
        /// Their version.
        version: u64,
    },
    /// The newer roster names certificates that are not here yet.
    #[error("roster {newest} waits for certificates that it names (roster-change)")]
    Certificates {
        /// Version of the newer roster.
        newest: u64,
    },
    /// Rosters between the declared one and the newer one are not here yet.
    #[error("roster {newest} waits for roster {missing}, which lies before it (roster-change)")]
    Gap {
        /// Version of the newer roster.
        newest: u64,
        /// The highest version that is missing.
        missing: u64,
    },
    /// The newer roster's chain does not contain the declared one.
    #[error(
        "roster {newest} does not follow roster {declared}, which this node has declared: cut one that names both, \
         or give the node a new identity (roster-change)"
    )]
    OffChain {
        /// Version of the roster declared; 0 when it is not here.
        declared: u64,
        /// Version of the newer roster.
        newest: u64,
    },
}

impl<'a> Rosters<'a> {
    /// Rosters that are here with all their certificates.
    #[must_use]
    pub fn new(maps: impl IntoIterator<Item = &'a PoolMap>) -> Self {
        let known = maps.into_iter().map(|map| Known {
            roster: map.roster(),
            version: map.version(),
            previous: map.previous(),
            settled: map.settled(),
            map: Some(map),
        });
        Self::ordered(known.collect())
    }

    /// All rosters by their bodies, each with what leases read of it once its certificates are here.
    #[must_use]
    pub fn of(rosters: impl IntoIterator<Item = (Digest, &'a Roster, Option<&'a PoolMap>)>) -> Self {
        let known = rosters.into_iter().map(|(roster, body, map)| Known {
            roster,
            version: body.version,
            previous: &body.previous,
            settled: body.settled,
            map,
        });
        Self::ordered(known.collect())
    }

    fn ordered(mut known: Vec<Known<'a>>) -> Self {
        known.sort_by_key(|one| (one.version, one.roster));
        Self { known }
    }

    fn find(&self, roster: &Digest) -> Option<&Known<'a>> {
        self.known.iter().find(|one| one.roster == *roster)
    }

    /// The roster with this body digest, if it is here with all its certificates.
    #[must_use]
    pub fn get(&self, roster: &Digest) -> Option<&'a PoolMap> {
        self.find(roster)?.map
    }

    /// The version of a roster whose body is here.
    #[must_use]
    pub fn version(&self, roster: &Digest) -> Option<u64> {
        self.find(roster).map(|one| one.version)
    }

    /// Those that are here with all their certificates, oldest first.
    pub fn maps(&self) -> impl DoubleEndedIterator<Item = &'a PoolMap> + '_ {
        self.known.iter().filter_map(|one| one.map)
    }

    /// Everything before `roster`. A link counts only to the version just below, for versions are dense.
    #[must_use]
    pub fn before(&self, roster: &Digest) -> Forerunners {
        let mut before = Forerunners::default();
        let mut open: Vec<&Known<'a>> = self.find(roster).into_iter().collect();
        while let Some(one) = open.pop() {
            let below = one.version.saturating_sub(1);
            for previous in one.previous {
                match self.find(previous).filter(|found| found.version == below) {
                    Some(found) if before.known.insert(*previous) => open.push(found),
                    Some(_) => {}
                    None => {
                        before.missing.insert(*previous, below);
                    }
                }
            }
        }
        before
    }

    /// What the warden `me`, which has declared `declared`, does next: `Ok(Some)` declares, `Ok(None)` changes nothing.
    ///
    /// A node that has declared nothing declares the newest roster that lists it: it has promised nothing under any.
    /// One that has declared goes on even when the newer roster does not list it, for its old slots wait for its word.
    ///
    /// # Errors
    /// Why it declares nothing although a newer roster is here.
    pub fn declaration(&self, me: &NodeId, declared: Option<Digest>) -> Result<Option<Digest>, RosterHold> {
        if self.maps().next().is_none() {
            return Err(RosterHold::Missing);
        }
        let now = declared.and_then(|declared| self.find(&declared)).map_or(0, |one| one.version);
        let mut hold = Ok(None);
        for newer in self.known.iter().rev().take_while(|one| one.version > now) {
            match self.may_declare(me, newer, declared) {
                Ok(true) => return Ok(Some(newer.roster)),
                Ok(false) => {}
                Err(why) => hold = hold.and(Err(why)),
            }
        }
        hold
    }

    fn may_declare(&self, me: &NodeId, newer: &Known<'a>, declared: Option<Digest>) -> Result<bool, RosterHold> {
        let newest = newer.version;
        if self.known.iter().filter(|one| one.version == newest).count() > 1 {
            return Err(RosterHold::Rivals { version: newest });
        }
        let map = newer.map.ok_or(RosterHold::Certificates { newest })?;
        let Some(declared) = declared else { return Ok(map.pool_of(me).is_some()) };
        let before = self.before(&newer.roster);
        if before.known.contains(&declared) || before.missing.contains_key(&declared) {
            return Ok(true);
        }
        let mine = self.find(&declared).map(|one| one.version);
        // Older than what is settled: nobody keeps what lies between, and nothing under it can stand or come to stand.
        if mine.is_some_and(|mine| mine < newer.settled) {
            return Ok(true);
        }
        let above = |missing: &u64| mine.is_none_or(|mine| *missing > mine);
        match before.missing.into_values().filter(above).max() {
            Some(missing) => Err(RosterHold::Gap { newest, missing }),
            None => Err(RosterHold::OffChain { declared: mine.unwrap_or(0), newest }),
        }
    }

    /// The roster to claim under: the newest one that a quorum of the wardens of the pool's first slot has declared,
    /// else the one that this node has declared itself.
    #[must_use]
    pub fn to_claim_under(&self, pool: &Pool, declared: Option<Digest>, sight: &impl Sight) -> Option<&'a PoolMap> {
        let own = || declared.and_then(|declared| self.get(&declared)).filter(|map| map.pool(pool).is_some());
        // There is no other: then it counts whether or not its wardens have declared it.
        if let ([only], Some(own)) = (self.known.as_slice(), own())
            && only.roster == own.roster()
        {
            return Some(own);
        }
        let first = Slot { pool: pool.clone(), number: 0 };
        let governs = |map: &PoolMap| {
            map.wardens(&first).is_some_and(|wardens| {
                let declared = |node: &&NodeId| {
                    !sight.is_convicted(node) && sight.grants(node).is_some_and(|grants| grants.declared == Some(map.roster()))
                };
                wardens.nodes.iter().filter(declared).count() >= wardens.quorum
            })
        };
        self.maps().rev().find(|map| governs(map)).or_else(own)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use crate::lease::budget::Seat;

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

    fn next(rosters: &[&PoolMap], me: u8, declared: Option<u8>) -> Result<Option<Digest>, RosterHold> {
        Rosters::new(rosters.iter().copied()).declaration(&node(me), declared.map(digest))
    }

    #[test]
    fn a_warden_declares_the_newest_roster_that_follows_its_own() {
        let (v1, v2, v3) = (map(1, 1, &[], 1, &[]), map(2, 2, &[1], 1, &[9]), map(3, 3, &[2], 1, &[9]));
        assert_eq!(next(&[], 1, None), Err(RosterHold::Missing));
        assert_eq!(next(&[&v1], 1, None), Ok(Some(digest(1))));
        assert_eq!(next(&[&v1], 1, Some(1)), Ok(None));
        assert_eq!(next(&[&v1, &v2], 1, Some(1)), Ok(Some(digest(2))));
        assert_eq!(next(&[&v1, &v2, &v3], 1, Some(1)), Ok(Some(digest(3))), "over one that it never saw govern");
        assert_eq!(next(&[&v1, &v2, &v3], 1, Some(3)), Ok(None), "and never goes back");
    }

    #[test]
    fn a_node_that_declared_nothing_declares_the_newest_that_lists_it_and_one_that_left_goes_on() {
        let (v1, v2, v3) = (map(1, 1, &[], 1, &[9]), map(2, 2, &[1], 1, &[9]), map(3, 3, &[2], 1, &[]));
        assert_eq!(next(&[&v1, &v2, &v3], 9, None), Ok(Some(digest(2))));
        assert_eq!(next(&[&v1, &v2, &v3], 200, None), Ok(None), "never listed: no warden");
        assert_eq!(next(&[&v1, &v2, &v3], 9, Some(2)), Ok(Some(digest(3))), "its old slots wait for its word");
    }

    #[test]
    fn d4_of_rival_rosters_none_is_newly_declared() {
        let (v1, a, b) = (map(1, 1, &[], 1, &[]), map(2, 2, &[1], 1, &[]), map(3, 2, &[1], 1, &[9]));
        let rivals = Err(RosterHold::Rivals { version: 2 });
        assert_eq!(next(&[&v1, &a, &b], 1, Some(1)), rivals);
        assert_eq!(next(&[&v1, &a, &b], 1, Some(2)), Ok(None), "what it declared before goes on to govern");
        assert_eq!(next(&[&v1, &a, &b], 1, None), Ok(Some(digest(1))), "who declared nothing falls back on what has no rival");
        let both = map(4, 3, &[2, 3], 1, &[9]);
        for declared in [1, 2, 3] {
            assert_eq!(next(&[&v1, &a, &b, &both], 1, Some(declared)), Ok(Some(digest(4))));
        }
        let one = map(5, 3, &[2], 1, &[9]);
        let off = Err(RosterHold::OffChain { declared: 2, newest: 3 });
        assert_eq!(next(&[&v1, &a, &b, &one], 1, Some(3)), off, "the rival that nothing names");
    }

    #[test]
    fn a_gap_in_the_chain_is_waited_for_unless_what_lies_below_is_settled() {
        let (v1, v3) = (map(1, 1, &[], 1, &[]), map(3, 3, &[2], 1, &[]));
        assert_eq!(next(&[&v1, &v3], 1, Some(1)), Err(RosterHold::Gap { newest: 3, missing: 2 }));
        assert_eq!(next(&[&v3], 1, Some(7)), Err(RosterHold::Gap { newest: 3, missing: 2 }), "its own is not here either");
        assert_eq!(next(&[&v3], 1, Some(2)), Ok(Some(digest(3))), "named on the chain, though not here");
        let settled = map(3, 3, &[2], 2, &[]);
        assert_eq!(next(&[&v1, &settled], 1, Some(1)), Ok(Some(digest(3))));
        let misnumbered = map(4, 4, &[1], 1, &[]);
        assert_eq!(next(&[&v1, &misnumbered], 1, Some(1)), Ok(Some(digest(4))), "it names it all the same");
        assert!(Rosters::new([&v1, &misnumbered]).before(&digest(4)).known.is_empty(), "but what lies before is not known");
    }
}
