//! What may come of a warden's look, whatever it reads: every reading is put before the core's own warden.
//!
//! A look that reads nothing of other wardens may read anything of claimants. Once rosters change it matters what other
//! wardens say: then a look reads of each the record that suits it best, with the rest of it in [`super::change`].

use std::collections::BTreeSet;

use groundswell_core::lease::governing::Rosters;

use super::book::{ClaimId, Says};
use super::change::{Told, told, views};
use super::lease::Leases;
use super::look::{Looked, PRESUME_LOST_AFTER_MS, View, look};
use super::names::absorb;
use super::shape::Mutant;
use super::state::{CLAIMANTS, Claimant, Keeper, Standing, State};

/// What may come of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Outcome {
    pub(super) warden: u16,
    pub(super) news: bool,
    /// Dead holders that it presumed lost, one bit each.
    pub(super) given_up: u8,
}

impl Leases {
    /// Everything that may come of a look of this warden now, whatever it reads of what was published.
    pub(super) fn outcomes(&mut self, state: &State, at: usize, keeper: &Keeper) -> Vec<Outcome> {
        let early = self.shape.mutant == Some(Mutant::EndsEarly);
        let (_, contents) = self.book.warden(keeper.warden);
        let lost = |claimant: u8| {
            let mut promised = contents.promises.iter().filter(|id| id.claimant == claimant).peekable();
            let standing = state.claimants.get(usize::from(claimant)).copied().unwrap_or_default();
            promised.peek().is_some() && promised.all(|id| early || !standing.is_live(id.number))
        };
        let can_be_lost: [bool; CLAIMANTS] = [0, 1, 2].map(lost);
        let like = u8::try_from(self.names.like(at)).expect("few wardens");
        let ignored = self.shape.mutant == Some(Mutant::AmnesiaIgnored);
        let live = (0_u8..).zip(&state.claimants).filter(|(_, claimant)| claimant.is_live(claimant.made));
        let live = live.fold(0, |set, (at, _)| set | 1 << at);
        // The wait outlasts every claim that it may have forgotten, but for those of the dead.
        let over = contents.amnesia && (ignored || keeper.blind & live == 0);
        let mut key = (u128::from(keeper.warden) << 8 | u128::from(keeper.blind)) << 4 | u128::from(over) << 3 | u128::from(like);
        key = key << 8 | u128::from(state.rosters);
        for (claimant, lost) in state.claimants.iter().zip(can_be_lost) {
            key = key << 20 | u128::from(shown(claimant)) << 1 | u128::from(lost);
        }
        if let Some(known) = self.looks.get(&key) {
            return known.clone();
        }
        let outcomes = self.look_every_way(state, at, keeper, can_be_lost, over);
        self.looks.insert(key, outcomes.clone());
        outcomes
    }

    fn look_every_way(
        &mut self,
        state: &State,
        at: usize,
        keeper: &Keeper,
        can_be_lost: [bool; CLAIMANTS],
        over: bool,
    ) -> Vec<Outcome> {
        let ways: Vec<Vec<Reading>> = state
            .claimants
            .iter()
            .zip(can_be_lost)
            .enumerate()
            .map(|(at, (claimant, lost))| readings(at, claimant, lost))
            .collect();
        let mut looked: Vec<Looked> = Vec::new();
        let (warden, _) = self.book.warden(keeper.warden);
        let [first, second, third] = &ways[..] else { unreachable!("one way for each claimant") };
        for known in self.known(state) {
            let rosters = self.rosters(known);
            for a in first {
                for b in second {
                    for c in third {
                        let mut view = View::blank(&self.book);
                        view.statuses = [a.status, b.status, c.status];
                        view.written_off = [a.written_off, b.written_off, c.written_off].map(|id| id.map(ClaimId::name));
                        view.unheard = [a.unheard, b.unheard, c.unheard];
                        looked.extend(look(warden, at, &view, &rosters, 0));
                        if over {
                            looked.extend(look(warden, at, &view, &rosters, PRESUME_LOST_AFTER_MS));
                        }
                    }
                }
            }
        }
        let outcomes: BTreeSet<Outcome> = looked.into_iter().map(|looked| self.enter(state, keeper, looked)).collect();
        outcomes.into_iter().collect()
    }

    /// Enters what came of a look.
    fn enter(&mut self, state: &State, keeper: &Keeper, looked: Looked) -> Outcome {
        let Looked { warden, news, lost, silent } = looked;
        let number = self.book.enter_warden(&warden);
        let [before, after] = [keeper.warden, number].map(|number| &self.book.warden(number).1);
        let waited = before.amnesia && !after.amnesia;
        let grants = after.promises.iter().any(|id| !before.promises.contains(id));
        let dead = (0_u8..).zip(&state.claimants).filter(|(_, claimant)| claimant.standing == Standing::Dead);
        let given_up = dead.filter(|(at, claimant)| {
            let it = |id: &ClaimId| id.claimant == *at && id.number == claimant.made;
            // Who has heard nothing of a holder for `presumeLostAfter` presumes it lost, also by waiting out its amnesia,
            // and by granting what others had promised to it.
            let waited_for = waited && keeper.blind >> at & 1 == 1 && !after.promises.iter().any(it);
            lost.iter().any(it) || waited_for || grants && silent >> at & 1 == 1
        });
        let given_up = given_up.fold(0, |set, (at, _)| set | 1 << at);
        Outcome { warden: number, news, given_up }
    }

    /// The sets of rosters that a warden may know, one bit each: a roster with all that lie before it, or all signed.
    fn known(&self, state: &State) -> BTreeSet<u8> {
        let signed = (0..self.shape.rosters.len()).filter(|roster| state.rosters >> roster & 1 == 1);
        signed.map(|roster| self.shape.chain(roster)).chain([state.rosters]).collect()
    }

    pub(super) fn rosters(&self, known: u8) -> Rosters<'_> {
        let maps = (0_u8..).zip(self.book.maps()).filter(|(roster, _)| known >> roster & 1 == 1);
        Rosters::new(maps.map(|(_, map)| map))
    }

    /// What may come of a look under a roster with forerunners, at what other wardens say: the most helpful reading.
    pub(super) fn informed(&mut self, state: &State, at: usize, keeper: &Keeper) -> Vec<Outcome> {
        let follows = |roster: &usize| {
            let described = self.shape.rosters.get(*roster);
            state.rosters >> roster & 1 == 1 && described.is_some_and(|described| !described.previous.is_empty())
        };
        let following: Vec<usize> = (0..self.shape.rosters.len()).filter(follows).collect();
        if following.is_empty() || self.book.warden(keeper.warden).1.amnesia {
            return Vec::new();
        }
        let mut key =
            state.claimants.iter().fold(u128::from(keeper.warden), |key, claimant| key << 20 | u128::from(shown(claimant)));
        key = absorb(absorb(key, u64::from(state.rosters)), u64::try_from(self.names.like(at)).expect("few wardens"));
        key = key.wrapping_add(self.names.others(state, at));
        if let Some(known) = self.informed.get(&key) {
            return known.clone();
        }
        let mut looked = Vec::new();
        for roster in following {
            looked.extend(self.look_informed(state, at, keeper, roster));
        }
        let outcomes: BTreeSet<Outcome> = looked.into_iter().map(|looked| self.enter(state, keeper, looked)).collect();
        let outcomes: Vec<Outcome> = outcomes.into_iter().collect();
        self.informed.insert(key, outcomes.clone());
        outcomes
    }

    fn look_informed(&mut self, state: &State, at: usize, keeper: &Keeper, roster: usize) -> Vec<Looked> {
        let words = self.words(state, Some(at), roster);
        let (warden, contents) = self.book.warden(keeper.warden);
        let rosters = self.rosters(self.shape.chain(roster));
        let told: [Vec<Told>; CLAIMANTS] = [0, 1, 2].map(|claimant| told(state, claimant, &contents.promises));
        let mut looked = Vec::new();
        for view in views(&self.book, state, &words, &told) {
            for only in 0..usize::from(self.shape.claimants) {
                let view = View { only: Some(only), ..view };
                looked.extend(look(warden, at, &view, &rosters, 0));
            }
        }
        looked
    }
}

/// One way to read what a claimant published.
struct Reading {
    status: Option<(ClaimId, Says)>,
    written_off: Option<ClaimId>,
    unheard: bool,
}

/// Every way to read what a claimant published, and what is known of it beside.
fn readings(at: usize, claimant: &Claimant, can_be_lost: bool) -> Vec<Reading> {
    let id = |number: u8| {
        let place = claimant.places.get(usize::from(number) - 1).copied().unwrap_or_default();
        ClaimId { claimant: u8::try_from(at).expect("few claimants"), number, place }
    };
    let mut statuses = vec![None];
    for number in 1..=claimant.made {
        statuses.push(Some((id(number), Says::Claimed)));
        if number == claimant.made && claimant.is_active() {
            statuses.push(Some((id(number), Says::Active)));
        }
        if number < claimant.made || !claimant.stands() {
            statuses.push(Some((id(number), Says::Released)));
        }
    }
    let entries: &[u8] = if claimant.written_off > 0 { &[0, claimant.written_off] } else { &[0] };
    let silences: &[bool] = if can_be_lost { &[false, true] } else { &[false] };
    let mut readings = Vec::new();
    for status in statuses {
        for entry in entries {
            for unheard in silences {
                let written_off = (*entry > 0).then(|| id(*entry));
                readings.push(Reading { status, written_off, unheard: *unheard });
            }
        }
    }
    readings
}

/// Everything of a claimant that decides what may come of a look, as a number.
fn shown(claimant: &Claimant) -> u32 {
    let places =
        claimant.places.iter().fold(0, |number, place| number << 3 | u32::from(place.slot) << 2 | u32::from(place.roster));
    ((places << 2 | u32::from(claimant.made)) << 2 | u32::from(claimant.written_off)) << 3 | claimant.standing as u32
}
