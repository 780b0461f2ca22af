//! One rollout as one observer follows it: waves, tally, gates, halt, and what must be remembered.
//!
//! The node feeds it reports and the clock, and asks it who may start. Everything here is derived from documents,
//! records and up time, but for [`Passed`], which the node keeps on disk and gives back after a restart.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem::{Discriminant, discriminant};

use serde::{Deserialize, Serialize};

use super::PoolTerms;
use super::gate::{self, Gate, Verdict};
use super::halt::{self, Halted};
use super::member::Member;
use super::report::MemberReport;
use super::tally::{Renewal, Tally};
use super::wave::Waves;
use crate::documents::rollout::{Rollout, State, Wave};
use crate::node::hold::Hold;
use crate::node_id::NodeId;
use crate::text::{NodeName, Pool};
use crate::time::Timestamp;

/// Most names that a hold carries.
const NAMES: usize = 5;

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

/// What a member's own move goes by: as long as it is the same, gates and renewals are. Whom a gate waits for is told, and
/// moves nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    passed: u32,
    halted: Option<Halted>,
    waits: Discriminant<Verdict>,
    renewal: Renewal,
    place: Option<u32>,
}

/// One rollout as one observer follows it.
#[derive(Clone, Debug)]
pub struct Progress {
    rollout: Rollout,
    waves: Waves,
    tally: Tally,
    names: BTreeMap<NodeId, NodeName>,
    memory: BTreeMap<u32, Passed>,
    opened: BTreeSet<u32>,
    /// As of the last `settle`: how many waves have passed, from the first one on without a gap.
    passed: u32,
    halted: Option<Halted>,
    clock: Clock,
}

impl Progress {
    /// Starts to follow `rollout`. `members`: all nodes of its roster; `pools`: slots and start times of its pools
    /// (urgent ones for an urgent rollout); `passed`: what was remembered of it. Feed every known record to
    /// [`Progress::hear`] next, then call [`Progress::settle`].
    #[must_use]
    pub fn new(
        rollout: &Rollout,
        members: &[Member<'_>],
        pools: &BTreeMap<Pool, PoolTerms>,
        passed: Vec<Passed>,
        up_ms: u64,
    ) -> Self {
        let waves = Waves::assign(rollout, members);
        let mut tally = Tally::new(rollout, &waves, members, pools, up_ms);
        for wave in &passed {
            tally.remember(wave.wave, &wave.excused);
        }
        let in_a_wave = members.iter().filter(|member| waves.wave_of(&member.id).is_some());
        Self {
            names: in_a_wave.map(|member| (member.id, member.certificate.name.clone())).collect(),
            rollout: rollout.clone(),
            waves,
            tally,
            memory: passed.into_iter().map(|passed| (passed.wave, passed)).collect(),
            opened: BTreeSet::new(),
            passed: 0,
            halted: None,
            clock: Clock { up_ms, wall: Timestamp::default() },
        }
    }

    /// Goes on under another generation of the same rollout; keeps what was seen of its members, and since when.
    /// Call [`Progress::settle`] next.
    pub fn follow(&mut self, rollout: &Rollout, members: &[Member<'_>], pools: &BTreeMap<Pool, PoolTerms>, up_ms: u64) {
        let passed = self.memory.values().cloned().collect();
        let mut next = Self::new(rollout, members, pools, passed, up_ms);
        next.tally.carry_over(&self.tally);
        for (node, name) in &self.names {
            if next.tally.standing(node).is_some() {
                next.names.entry(*node).or_insert_with(|| name.clone());
            }
        }
        next.opened = core::mem::take(&mut self.opened);
        next.halted = self.halted;
        next.clock.wall = self.clock.wall;
        *self = next;
    }

    /// The generation followed.
    #[must_use]
    pub fn rollout(&self) -> &Rollout {
        &self.rollout
    }

    /// Its waves.
    #[must_use]
    pub fn waves(&self) -> &Waves {
        &self.waves
    }

    /// Its tally: standings, counts, places, renewals.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// A new record of a member. `up_ms`: this observer's up time when it arrived (in the past for records that were
    /// read from the store after a restart). No effect for nodes that are in no wave.
    pub fn hear(&mut self, node: &NodeId, report: MemberReport, up_ms: u64) {
        self.tally.update(node, report, up_ms);
    }

    /// A certified node that the roster does not list, in scope by its newest certificate, whose record names this
    /// rollout: it joins the implicit last wave. `false` where there is none (the last target is not everybody).
    pub fn join(&mut self, member: &Member<'_>) -> bool {
        let joined = self.tally.join(&self.rollout, member);
        if joined {
            self.names.entry(member.id).or_insert_with(|| member.certificate.name.clone());
        }
        joined
    }

    /// Lets time pass and draws all consequences; call it after every batch of reports and at [`Progress::wakeup`].
    pub fn settle(&mut self, clock: Clock) -> Vec<Change> {
        let mut changes = Vec::new();
        self.clock = clock;
        self.tally.advance(clock.up_ms);
        let halted = halt::halted(&self.rollout.halt, self.tally.counts());
        match (self.halted, halted) {
            (None, Some(now)) => changes.push(Change::Halted(now)),
            (Some(_), None) => changes.push(Change::Unhalted),
            _ => {}
        }
        self.halted = halted;
        self.passed = 0;
        for wave in 0..self.slots() {
            if self.passed < wave {
                break;
            }
            if self.opens(wave).is_none() && self.opened.insert(wave) {
                self.tally.open(wave);
                changes.push(Change::Opened(wave));
            }
            if self.halted.is_none() && self.verdict(wave).passed() {
                self.passed = wave.saturating_add(1);
                changes.extend(self.remember(wave));
            }
        }
        changes
    }

    /// What gates and renewals of `node` depend on, beside the descriptor and the clocks, as of the last settle.
    #[must_use]
    pub fn outlook(&self, node: &NodeId) -> Outlook {
        Outlook {
            passed: self.passed,
            halted: self.halted,
            waits: discriminant(&self.verdict(self.passed)),
            renewal: self.tally.renewal(node),
            place: self.tally.place_of(node).map(|place| place.wave),
        }
    }

    /// When [`Progress::settle`] is due next: by up time, and by wall time (a `notBefore`).
    #[must_use]
    pub fn wakeup(&self) -> (Option<u64>, Option<Timestamp>) {
        let next = self.descriptor(self.passed);
        let waits = self.wait_ends_ms(self.passed).filter(|at| *at > self.clock.up_ms);
        let up = [self.tally.next_deadline(), waits].into_iter().flatten().min();
        (up, next.and_then(|wave| wave.not_before).filter(|at| *at > self.clock.wall))
    }

    /// Whether `node` may start as far as waves go. See [`Progress::gate`].
    #[must_use]
    pub fn gate_of(&self, node: &NodeId) -> Gate {
        match self.tally.place_of(node) {
            Some(place) => self.gate(place.wave),
            None => Gate::Shut(Hold::NoWave),
        }
    }

    /// Whether the members of `wave` may start, as of the last [`Progress::settle`]: paused, aborted and halted
    /// included; documents' expiry, conflicts and local holds are the node's business.
    #[must_use]
    pub fn gate(&self, wave: u32) -> Gate {
        let reason = || self.rollout.reason.as_str().into();
        match self.rollout.state {
            State::Running => {}
            State::Paused => return Gate::Shut(Hold::Paused(reason())),
            State::Aborted => return Gate::Shut(Hold::Aborted(reason())),
        }
        if let Some(Halted { wave, failures, applicable }) = self.halted {
            return Gate::Shut(Hold::Halted { wave, failures, applicable });
        }
        if wave >= self.slots() {
            return Gate::Shut(Hold::NoWave);
        }
        if self.passed < wave {
            return Gate::Shut(self.waits_for(wave, self.passed));
        }
        self.opens(wave).map_or(Gate::Open, Gate::Shut)
    }

    /// What the wave's own counts say, whatever the waves before it do.
    #[must_use]
    pub fn verdict(&self, wave: u32) -> Verdict {
        gate::judge(&self.tally.wave_counts(wave), self.rollout.min_soaked_ppm)
    }

    /// Whether this wave and all before it have passed, and nothing is halted, as of the last settle.
    #[must_use]
    pub fn passed(&self, wave: u32) -> bool {
        wave < self.passed
    }

    /// Whether the wave is open, pauses aside, as of the last settle.
    #[must_use]
    pub fn is_open(&self, wave: u32) -> bool {
        self.passed >= wave && wave < self.slots() && self.opens(wave).is_none()
    }

    /// The halt, if any, as of the last settle.
    #[must_use]
    pub fn halted(&self) -> Option<Halted> {
        self.halted
    }

    /// Whether the last wave of the descriptor has been seen to pass; remembered, so that it stays true when the
    /// members go on to a newer rollout.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.waves.count().checked_sub(1).is_some_and(|last| self.memory.contains_key(&last))
    }

    /// One line for people on the wave: why it is not open, what it waits for, or why it passed.
    #[must_use]
    pub fn note(&self, wave: u32) -> String {
        if self.passed(wave) || self.is_open(wave) {
            return self.verdict(wave).to_string();
        }
        match self.gate(wave) {
            Gate::Open => self.verdict(wave).to_string(),
            Gate::Shut(hold) if self.verdict(wave) == Verdict::Empty => format!("has no member; {hold}"),
            Gate::Shut(hold) => hold.to_string(),
        }
    }

    /// The descriptor's waves, and the implicit last one where there is one.
    fn slots(&self) -> u32 {
        u32::try_from(self.tally.counts().len()).unwrap_or(u32::MAX)
    }

    fn descriptor(&self, wave: u32) -> Option<&Wave> {
        usize::try_from(wave).ok().and_then(|wave| self.rollout.waves.get(wave))
    }

    /// Why `wave` is not open though all before it have passed.
    fn opens(&self, wave: u32) -> Option<Hold> {
        let descriptor = self.descriptor(wave)?;
        if descriptor.approval.is_some() && wave >= self.rollout.open_waves {
            return Some(Hold::Approval { wave });
        }
        if let Some(not_before) = descriptor.not_before
            && not_before > self.clock.wall
        {
            return Some(Hold::NotBefore(not_before));
        }
        let left_ms = self.wait_ends_ms(wave)?.checked_sub(self.clock.up_ms).filter(|left| *left > 0)?;
        Some(Hold::NotBefore(self.clock.wall.plus_seconds(left_ms.div_ceil(1_000))))
    }

    /// When the wait after the wave before `wave` ends, in this observer's up time.
    fn wait_ends_ms(&self, wave: u32) -> Option<u64> {
        let wait_seconds = self.descriptor(wave)?.wait_seconds?;
        let before = self.memory.get(&wave.checked_sub(1)?)?;
        Some(before.at_up_ms.saturating_add(wait_seconds.saturating_mul(1_000)))
    }

    /// The hold of a node of wave `mine` while `wave` has not passed.
    fn waits_for(&self, mine: u32, wave: u32) -> Hold {
        let counts = self.tally.wave_counts(wave);
        match self.verdict(wave) {
            Verdict::NoEvidence => Hold::NoEvidence { wave },
            Verdict::TooFewSoaked { soaked, needed } => Hold::TooFewSoaked { wave, soaked, needed },
            _ => Hold::WaveShut {
                mine,
                waits_for: wave,
                who: self.tally.blocking(wave).filter_map(|node| self.names.get(node)).take(NAMES).cloned().collect(),
                open: counts.blocking,
                members: counts.members,
            },
        }
    }

    /// Remembers that `wave` passed, and whom it had excused; tells what must be kept.
    fn remember(&mut self, wave: u32) -> Option<Change> {
        let excused = self.tally.excused(wave)?;
        let known = self.memory.get(&wave);
        if known.is_some_and(|known| excused.is_subset(&known.excused)) {
            return None;
        }
        let mut passed = known.cloned().unwrap_or(Passed { wave, excused: BTreeSet::new(), at_up_ms: self.clock.up_ms });
        passed.excused.extend(excused.iter().copied());
        self.tally.remember(wave, &passed.excused);
        self.memory.insert(wave, passed.clone());
        Some(Change::Passed(passed))
    }
}
