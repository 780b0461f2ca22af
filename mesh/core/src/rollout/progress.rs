//! One rollout as one observer follows it: waves, tally, gates, halt, and what must be remembered.
//!
//! The node feeds it reports and the clock, and asks it who may start. Everything here is derived from documents,
//! records and up time, but for [`Passed`], which the node keeps on disk and gives back after a restart.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::PoolTerms;
use super::gate::{Gate, Verdict};
use super::halt::Halted;
use super::member::Member;
use super::report::MemberReport;
use super::tally::{Renewal, WaveCounts};
use super::wave::{Place, Waves};
use crate::documents::rollout::Rollout;
use crate::node::view::Standing;
use crate::node_id::NodeId;
use crate::text::Pool;
use crate::time::Timestamp;

/// What this observer remembers of a wave that it saw pass: kept on disk, per rollout id and wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// The wave, from 0.
    pub wave: u32,
    /// Whom it had excused then: these do not shut the wave again, but their failures count.
    pub excused: BTreeSet<NodeId>,
    /// This observer's up time when it first saw it pass, in milliseconds.
    pub at_up_ms: u64,
}

/// Something that the node must keep or tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A wave opened, as seen here.
    Opened(u32),
    /// A wave passed, or passed again having excused others: persist it.
    Passed(Passed),
    /// The rollout is halted now.
    Halted(Halted),
    /// The halt is over.
    Unhalted,
}

/// The two clocks that gates need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The observer's own up time in milliseconds: awake while running, summed on disk over its restarts.
    pub up_ms: u64,
    /// Wall time, for `notBefore` alone.
    pub wall: Timestamp,
}

/// One rollout as one observer follows it.
#[derive(Clone, Debug)]
pub struct Progress {
    waves: Waves,
}

impl Progress {
    /// Starts to follow `rollout`. `members`: all nodes of its roster; `pools`: slots and start times of its pools
    /// (urgent ones for an urgent rollout); `passed`: what was remembered of it. Feed every known record to
    /// [`Progress::hear`] next, then call [`Progress::settle`].
    #[must_use]
    pub fn new(
        _rollout: &Rollout,
        _members: &[Member<'_>],
        _pools: &BTreeMap<Pool, PoolTerms>,
        _passed: Vec<Passed>,
        _up_ms: u64,
    ) -> Self {
        todo!()
    }

    /// Goes on under another generation of the same rollout; keeps what was seen of its members.
    pub fn follow(&mut self, _rollout: &Rollout, _members: &[Member<'_>], _pools: &BTreeMap<Pool, PoolTerms>, _up_ms: u64) {
        todo!()
    }

    /// The generation followed.
    #[must_use]
    pub fn rollout(&self) -> &Rollout {
        todo!()
    }

    /// Its waves.
    #[must_use]
    pub fn waves(&self) -> &Waves {
        &self.waves
    }

    /// A new record of a listed member. `up_ms`: this observer's up time when it arrived (in the past for records
    /// that were read from the store after a restart). No effect for nodes that are in no wave.
    pub fn hear(&mut self, _node: &NodeId, _report: MemberReport, _up_ms: u64) {
        todo!()
    }

    /// A certified node that the roster does not list, in scope by its newest certificate, whose record names this
    /// rollout: it joins the implicit last wave. `false` where there is none (the last target is not everybody).
    pub fn join(&mut self, _member: &Member<'_>, _pools: &BTreeMap<Pool, PoolTerms>) -> bool {
        todo!()
    }

    /// Lets time pass and draws all consequences; call it after every batch of reports and at [`Progress::wakeup`].
    pub fn settle(&mut self, _clock: Clock) -> Vec<Change> {
        todo!()
    }

    /// When [`Progress::settle`] is due next: by up time, and by wall time (a `notBefore`).
    #[must_use]
    pub fn wakeup(&self) -> (Option<u64>, Option<Timestamp>) {
        todo!()
    }

    /// Whether the members of `wave` may start, as of the last [`Progress::settle`]: paused, aborted and halted
    /// included; documents' expiry, conflicts and local holds are the node's business.
    #[must_use]
    pub fn gate(&self, _wave: u32, _clock: Clock) -> Gate {
        todo!()
    }

    /// The wave of `node`: its own, or the implicit last one for a node that joined.
    #[must_use]
    pub fn wave_of(&self, _node: &NodeId) -> Option<u32> {
        todo!()
    }

    /// The place of `node` in the order of starting.
    #[must_use]
    pub fn place_of(&self, _node: &NodeId) -> Option<Place> {
        todo!()
    }

    /// How many members of its pool could claim before `node`, among the open waves.
    #[must_use]
    pub fn ahead_of(&self, _node: &NodeId) -> Option<usize> {
        todo!()
    }

    /// How often `node` renews its record.
    #[must_use]
    pub fn renewal(&self, _node: &NodeId) -> Renewal {
        todo!()
    }

    /// How the gate counts `node`.
    #[must_use]
    pub fn standing(&self, _node: &NodeId) -> Option<Standing> {
        todo!()
    }

    /// Whether `node` is excused now.
    #[must_use]
    pub fn is_excused(&self, _node: &NodeId) -> bool {
        todo!()
    }

    /// Counts per wave, the implicit last one included where there is one.
    #[must_use]
    pub fn counts(&self) -> &[WaveCounts] {
        todo!()
    }

    /// What the wave's counts say.
    #[must_use]
    pub fn verdict(&self, _wave: u32) -> Verdict {
        todo!()
    }

    /// Whether the wave has passed, halts considered.
    #[must_use]
    pub fn passed(&self, _wave: u32) -> bool {
        todo!()
    }

    /// Whether the wave is open, pauses aside.
    #[must_use]
    pub fn is_open(&self, _wave: u32) -> bool {
        todo!()
    }

    /// The halt, if any.
    #[must_use]
    pub fn halted(&self) -> Option<Halted> {
        todo!()
    }

    /// Whether the last wave of the descriptor has been seen to pass (remembered).
    #[must_use]
    pub fn complete(&self) -> bool {
        todo!()
    }
}
