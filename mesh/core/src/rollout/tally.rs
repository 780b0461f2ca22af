//! The tally of one rollout as one observer sees it: counts per wave, kept up in O(log n) per record.
//!
//! It is a cache of the records and of *when this observer saw each change*, in milliseconds of the observer's own
//! up time (awake while running, summed over its restarts), never wall time: so the time that the observer itself
//! was down or asleep counts against nobody (case M3). How one member is counted stands in [`super::standing`].
//!
//! **Silent** is a member whose claim or `activating` stayed the same for start + timeout + revert + grace, or that
//! confirmed and has not vouched within soak + grace. Only a silent member fails; a late verdict retracts it.
//!
//! **Excused** is an unseen or waiting member of an open wave, without a claim, that was not heard of for
//! `offlineAfter` since the latest of these:
//! - unseen: since the wave opened here, and since this generation came into force here (case D38);
//! - waiting, in the front of its pool (see [`super::front`]): since it was last heard, and since it came to stand
//!   in the front, from where it renews every third of `offlineAfter` (cases M6, D37);
//! - waiting elsewhere: since a day after it was last heard, when it became due, and since the wave opened (case D36).
//!
//! An excuse lasts until the member is heard of again. The front are the first `max(8, 2·slots)` members of a pool,
//! in the rollout's order, of those in open waves that wait, are not excused and say that they could claim now.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::PoolTerms;
use super::forgiveness::Forgiveness;
use super::front::{Crossed, Front};
use super::member::Member;
use super::report::MemberReport;
use super::standing::{Stage, Terms, could_claim, failed_claim, judge, stage};
use super::wave::{Place, Waves, late_place};
use crate::documents::rollout::Rollout;
use crate::limits::NODES;
use crate::node::view::Standing;
use crate::node_id::NodeId;
use crate::record::ClaimName;
use crate::text::Pool;

/// A member that owes no more than that publishes its record once in this time, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// A wave's members by how the gate counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaveCounts {
    /// All members; in the implicit last wave only those seen.
    pub members: u32,
    /// To whom it does not apply.
    pub not_applicable: u32,
    /// Signed nothing naming this generation or a later one.
    pub unseen: u32,
    /// Seen, not started.
    pub waiting: u32,
    /// With a claim, activating, or confirmed and not yet vouched for.
    pub in_progress: u32,
    /// Vouched.
    pub soaked: u32,
    /// Failed, rolled back, or silent.
    pub failed: u32,
    /// Forgiven: out of every count.
    pub forgiven: u32,
    /// Of unseen and waiting: excused as offline.
    pub excused: u32,
    /// Of unseen, waiting and in progress: those for whom the gate waits (not excused now, nor when it passed).
    pub blocking: u32,
}

impl WaveCounts {
    /// Members to whom the rollout applies, without the forgiven: the denominator of every share.
    #[must_use]
    pub fn applicable(&self) -> u32 {
        self.members.saturating_sub(self.not_applicable).saturating_sub(self.forgiven)
    }
}

/// How often a node publishes its record though nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Once a day.
    Daily,
    /// Every third of `offlineAfter`: it holds a claim, or stands in the front of its pool.
    EveryThird,
}

/// One member: what it said, when, and how it is counted now.
#[derive(Clone, Debug)]
struct Entry {
    place: Place,
    pool: Pool,
    /// Not in the roster: a member of the implicit last wave.
    late: bool,
    report: MemberReport,
    /// When it was last heard of; `None` before the first record.
    heard_ms: Option<u64>,
    stage: Stage,
    /// Since when its stage is as it is.
    stage_since_ms: u64,
    /// The latest claim that it was seen with.
    last_claim: Option<ClaimName>,
    front_since_ms: Option<u64>,
    excused: bool,
    /// Excused when this observer saw its wave pass.
    remembered: bool,
    /// It is among those of its pool that could claim.
    ready: bool,
    standing: Standing,
    deadline_ms: Option<u64>,
}

/// What of an entry the counts know.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counted {
    place: Place,
    /// The implicit last wave counts over those seen.
    counts: bool,
    standing: Standing,
    excused: bool,
    blocks: bool,
    deadline_ms: Option<u64>,
}

impl Entry {
    fn counted(&self) -> Counted {
        let undecided = matches!(self.standing, Standing::Unseen | Standing::Waiting | Standing::InProgress);
        Counted {
            place: self.place,
            counts: !self.late || self.standing != Standing::Unseen,
            standing: self.standing,
            excused: self.excused,
            blocks: undecided && !self.excused && !self.remembered,
            deadline_ms: self.deadline_ms,
        }
    }
}

/// One wave's members beside their counts.
#[derive(Clone, Debug, Default)]
struct WaveState {
    opened_ms: Option<u64>,
    nodes: Vec<NodeId>,
    blocking: BTreeSet<NodeId>,
    excused: BTreeSet<NodeId>,
}

/// The tally of one rollout.
#[derive(Clone, Debug)]
pub struct Tally {
    terms: Terms,
    offline_after_ms: u64,
    /// When this generation came into force here.
    generation_since_ms: u64,
    pools: BTreeMap<Pool, PoolTerms>,
    members: BTreeMap<NodeId, usize>,
    /// By the number that `members` gives; taken out only while one is changed.
    entries: Vec<Option<Box<Entry>>>,
    counts: Vec<WaveCounts>,
    states: Vec<WaveState>,
    fronts: BTreeMap<Pool, Front>,
    deadlines: BTreeSet<(u64, NodeId)>,
    up_ms: u64,
}

impl Tally {
    /// Of `rollout` over the members of its waves; nobody has been heard of yet.
    #[must_use]
    pub fn new(rollout: &Rollout, waves: &Waves, members: &[Member<'_>], pools: &BTreeMap<Pool, PoolTerms>, up_ms: u64) -> Self {
        let slots = rollout.waves.len() + usize::from(waves.is_total());
        let mut tally = Self {
            terms: Terms::of(rollout),
            offline_after_ms: rollout.offline_after_seconds.saturating_mul(1_000),
            generation_since_ms: up_ms,
            pools: pools.clone(),
            members: BTreeMap::new(),
            entries: Vec::new(),
            counts: alloc::vec![WaveCounts::default(); slots],
            states: alloc::vec![WaveState::default(); slots],
            fronts: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            up_ms,
        };
        for member in members {
            if let (Some(place), Some(pool)) = (waves.place_of(&member.id), &member.certificate.pool) {
                tally.enter(place, pool, false);
            }
        }
        tally
    }

    /// Goes on from the tally of another generation of the same rollout: what was heard, and when, is kept.
    pub fn carry_over(&mut self, before: &Self) {
        if self.terms.generation == before.terms.generation {
            self.generation_since_ms = before.generation_since_ms;
        }
        self.up_ms = self.up_ms.max(before.up_ms);
        for (state, old) in self.states.iter_mut().zip(&before.states) {
            state.opened_ms = old.opened_ms;
        }
        for (node, old) in before.all() {
            if old.late && !self.members.contains_key(node) {
                let wave = self.terms.waves();
                self.enter(Place { wave, ..old.place }, &old.pool, true);
            }
            self.change(node, |entry| {
                entry.report = old.report.clone();
                entry.heard_ms = old.heard_ms;
                entry.stage = old.stage;
                entry.stage_since_ms = old.stage_since_ms;
                entry.last_claim = old.last_claim;
                entry.front_since_ms = old.front_since_ms;
                entry.excused = old.excused;
            });
        }
    }

    /// Adds a node that the roster does not list to the implicit last wave. `false` where there is no such wave,
    /// or no room for more.
    pub fn join(&mut self, rollout: &Rollout, member: &Member<'_>) -> bool {
        let Some(pool) = &member.certificate.pool else { return false };
        if self.members.contains_key(&member.id) {
            return true;
        }
        let there_is_one = self.states.len() > rollout.waves.len();
        if !there_is_one || self.members.len() >= NODES {
            return false;
        }
        self.enter(late_place(rollout, member), pool, true);
        true
    }

    /// Counts what `node`'s record says now; no effect for nodes in no wave.
    /// `up_ms`: this observer's up time when the record arrived; for a record read from the store, when it had.
    pub fn update(&mut self, node: &NodeId, report: MemberReport, up_ms: u64) {
        self.up_ms = self.up_ms.max(up_ms);
        self.change(node, |entry| {
            let stage = stage(&report);
            if stage != entry.stage {
                entry.stage = stage;
                entry.stage_since_ms = up_ms;
            }
            entry.last_claim = entry.last_claim.max(report.claim);
            entry.report = report;
            // The same record may be counted again because documents changed: that is not hearing of the node.
            if entry.heard_ms.is_none_or(|heard| up_ms > heard) {
                entry.heard_ms = Some(up_ms);
                entry.excused = false;
            }
        });
    }

    /// A wave opened, as seen here: its members' absence counts from now on. The first call counts.
    pub fn open(&mut self, wave: u32) {
        let up_ms = self.up_ms;
        let Some(state) = at_mut(&mut self.states, wave) else { return };
        if state.opened_ms.is_none() {
            state.opened_ms = Some(up_ms);
            let nodes = state.nodes.clone();
            for node in nodes {
                self.change(&node, |_| {});
            }
        }
    }

    /// These were excused when the wave was seen to pass: they do not shut it again, but their failures count.
    pub fn remember<'n>(&mut self, wave: u32, excused: impl IntoIterator<Item = &'n NodeId>) {
        for node in excused {
            if self.entry(node).is_some_and(|entry| entry.place.wave == wave && !entry.remembered) {
                self.change(node, |entry| entry.remembered = true);
            }
        }
    }

    /// Lets the observer's up time pass.
    pub fn advance(&mut self, up_ms: u64) {
        self.up_ms = self.up_ms.max(up_ms);
        while let Some((deadline, node)) = self.deadlines.first().copied()
            && deadline <= self.up_ms
        {
            self.deadlines.remove(&(deadline, node));
            self.change(&node, |_| {});
        }
    }

    /// The up time at which a count changes next if nothing is heard.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Counts per wave, the implicit last one included where there is one.
    #[must_use]
    pub fn counts(&self) -> &[WaveCounts] {
        &self.counts
    }

    /// Counts of one wave; all zero beyond the last.
    #[must_use]
    pub fn wave_counts(&self, wave: u32) -> WaveCounts {
        usize::try_from(wave).ok().and_then(|wave| self.counts.get(wave)).copied().unwrap_or_default()
    }

    /// Members of `wave` for whom the gate waits.
    pub fn blocking(&self, wave: u32) -> impl Iterator<Item = &NodeId> {
        at(&self.states, wave).into_iter().flat_map(|state| &state.blocking)
    }

    /// Members of `wave` that are excused now.
    #[must_use]
    pub fn excused(&self, wave: u32) -> Option<&BTreeSet<NodeId>> {
        at(&self.states, wave).map(|state| &state.excused)
    }

    /// How the gate counts `node`; `None` when it is in no wave.
    #[must_use]
    pub fn standing(&self, node: &NodeId) -> Option<Standing> {
        self.entry(node).map(|entry| entry.standing)
    }

    /// What `node` last said of the rollout; `None` when it is in no wave.
    #[must_use]
    pub fn report(&self, node: &NodeId) -> Option<&MemberReport> {
        self.entry(node).map(|entry| &entry.report)
    }

    /// Whether `node` is excused now.
    #[must_use]
    pub fn is_excused(&self, node: &NodeId) -> bool {
        self.entry(node).is_some_and(|entry| entry.excused)
    }

    /// The place of `node` in the order of starting.
    #[must_use]
    pub fn place_of(&self, node: &NodeId) -> Option<Place> {
        self.entry(node).map(|entry| entry.place)
    }

    /// All members in order of their ids.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.members.keys()
    }

    /// Every failure that is not forgiven, with the claim to name in order to forgive it.
    pub fn failures(&self) -> impl Iterator<Item = (NodeId, Option<ClaimName>)> {
        let failed = self.all().filter(|(_, entry)| entry.standing == Standing::Failed);
        failed.map(|(node, entry)| (*node, failed_claim(&entry.report, entry.last_claim)))
    }

    /// How often `node` renews its record.
    #[must_use]
    pub fn renewal(&self, node: &NodeId) -> Renewal {
        match self.entry(node) {
            Some(entry) if entry.stage.holds() || entry.front_since_ms.is_some() => Renewal::EveryThird,
            _ => Renewal::Daily,
        }
    }

    /// How many of its pool could claim before `node`; `None` when it is in no wave.
    #[must_use]
    pub fn ahead_of(&self, node: &NodeId) -> Option<usize> {
        let entry = self.entry(node)?;
        Some(self.fronts.get(&entry.pool).map_or(0, |front| front.ahead_of(&entry.place)))
    }

    /// The generation's forgiveness.
    #[must_use]
    pub fn forgiveness(&self) -> &Forgiveness {
        &self.terms.forgiveness
    }

    fn entry(&self, node: &NodeId) -> Option<&Entry> {
        self.entries.get(*self.members.get(node)?)?.as_deref()
    }

    /// All members in order of their ids.
    fn all(&self) -> impl Iterator<Item = (&NodeId, &Entry)> {
        self.members.iter().filter_map(|(node, at)| Some((node, self.entries.get(*at)?.as_deref()?)))
    }

    fn enter(&mut self, place: Place, pool: &Pool, late: bool) {
        let node = place.node;
        let entry = Entry {
            place,
            pool: pool.clone(),
            late,
            report: MemberReport::default(),
            heard_ms: None,
            stage: Stage::None,
            stage_since_ms: self.up_ms,
            last_claim: None,
            front_since_ms: None,
            excused: false,
            remembered: false,
            ready: false,
            standing: Standing::Unseen,
            deadline_ms: None,
        };
        if let Some(state) = at_mut(&mut self.states, place.wave) {
            state.nodes.push(node);
            self.count(&entry.counted(), true);
            self.members.insert(node, self.entries.len());
            self.entries.push(Some(Box::new(entry)));
            self.change(&node, |_| {});
        }
    }

    /// The one way to change a member: edited, judged anew, and counted again where that made a difference.
    fn change(&mut self, node: &NodeId, edit: impl FnOnce(&mut Entry)) {
        let mut edit = Some(edit);
        // Whoever crosses the line of a front because of it is due at another time now.
        let (mut first, mut crossed) = (Some(*node), Vec::new());
        while let Some(node) = first.take().or_else(|| crossed.pop()) {
            let Some(at) = self.members.get(&node).copied() else { continue };
            let Some(mut entry) = self.entries.get_mut(at).and_then(Option::take) else { continue };
            let before = entry.counted();
            if let Some(edit) = edit.take() {
                edit(&mut entry);
            }
            self.reassess(&mut entry, &mut crossed);
            let after = entry.counted();
            if before != after {
                self.count(&before, false);
                self.count(&after, true);
            }
            if let Some(place) = self.entries.get_mut(at) {
                *place = Some(entry);
            }
        }
    }

    fn reassess(&mut self, entry: &mut Entry, crossed: &mut Vec<NodeId>) {
        let start_within = self.pools.get(&entry.pool).copied().unwrap_or_default().start_within_seconds;
        let judged = judge(&self.terms, &entry.place, &entry.report, entry.last_claim, start_within);
        let silent_at = judged.silent_after_ms.map(|after| entry.stage_since_ms.saturating_add(after));
        let silent = silent_at.is_some_and(|at| at <= self.up_ms);
        entry.standing = if silent { Standing::Failed } else { judged.standing };
        entry.deadline_ms = silent_at.filter(|_| !silent);

        let opened_ms = at(&self.states, entry.place.wave).and_then(|state| state.opened_ms);
        let Some(opened_ms) = opened_ms.filter(|_| matches!(entry.standing, Standing::Unseen | Standing::Waiting)) else {
            entry.excused = false;
            self.stand(entry, false, crossed);
            return;
        };
        let ready = entry.standing == Standing::Waiting && !entry.excused && could_claim(&entry.report);
        self.stand(entry, ready, crossed);
        if entry.excused {
            return;
        }
        let excused_at = self.absent_since(entry, opened_ms).saturating_add(self.offline_after_ms);
        if excused_at > self.up_ms {
            entry.deadline_ms = Some(excused_at);
        } else {
            entry.excused = true;
            self.stand(entry, false, crossed);
        }
    }

    /// From when on its silence counts towards an excuse: see the words at the head of this file.
    fn absent_since(&self, entry: &Entry, opened_ms: u64) -> u64 {
        match (entry.standing, entry.heard_ms, entry.front_since_ms) {
            (Standing::Waiting, Some(heard), Some(front)) => heard.max(front),
            (Standing::Waiting, Some(heard), None) => heard.saturating_add(DAY_MS).max(opened_ms),
            _ => opened_ms.max(self.generation_since_ms),
        }
    }

    /// Puts the member among those of its pool that could claim, or takes it out.
    fn stand(&mut self, entry: &mut Entry, ready: bool, crossed: &mut Vec<NodeId>) {
        let was_ready = core::mem::replace(&mut entry.ready, ready);
        if !ready && !was_ready {
            entry.front_since_ms = None;
            return;
        }
        let slots = self.pools.get(&entry.pool).copied().unwrap_or_default().slots;
        if !self.fronts.contains_key(&entry.pool) {
            self.fronts.insert(entry.pool.clone(), Front::new(slots));
        }
        let Some(front) = self.fronts.get_mut(&entry.pool) else { return };
        let moved = if ready { front.insert(entry.place) } else { front.remove(&entry.place) };
        entry.front_since_ms = front.has(&entry.place).then(|| entry.front_since_ms.unwrap_or(self.up_ms));
        match moved {
            Crossed::Nobody => {}
            Crossed::In(place) | Crossed::Out(place) => crossed.push(place.node),
        }
    }

    /// Adds a member to its wave's counts, or takes it out of them.
    fn count(&mut self, counted: &Counted, add: bool) {
        let node = counted.place.node;
        if let Some(deadline) = counted.deadline_ms {
            put(&mut self.deadlines, (deadline, node), add);
        }
        if !counted.counts {
            return;
        }
        let wave = counted.place.wave;
        let (Some(counts), Some(state)) = (at_mut(&mut self.counts, wave), at_mut(&mut self.states, wave)) else { return };
        let by_standing = match counted.standing {
            Standing::NotApplicable => &mut counts.not_applicable,
            Standing::Unseen => &mut counts.unseen,
            Standing::Waiting => &mut counts.waiting,
            Standing::InProgress => &mut counts.in_progress,
            Standing::Soaked => &mut counts.soaked,
            Standing::Failed => &mut counts.failed,
            Standing::Forgiven => &mut counts.forgiven,
        };
        step(by_standing, add);
        step(&mut counts.members, add);
        if counted.excused {
            step(&mut counts.excused, add);
            put(&mut state.excused, node, add);
        }
        if counted.blocks {
            step(&mut counts.blocking, add);
            put(&mut state.blocking, node, add);
        }
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, thing: T, add: bool) {
    if add {
        set.insert(thing);
    } else {
        set.remove(&thing);
    }
}

fn step(count: &mut u32, up: bool) {
    let next = if up { count.checked_add(1) } else { count.checked_sub(1) };
    *count = next.expect("each member is counted once, and taken out only where it was counted");
}

fn at<T>(list: &[T], wave: u32) -> Option<&T> {
    usize::try_from(wave).ok().and_then(|wave| list.get(wave))
}

fn at_mut<T>(list: &mut [T], wave: u32) -> Option<&mut T> {
    usize::try_from(wave).ok().and_then(|wave| list.get_mut(wave))
}
