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
