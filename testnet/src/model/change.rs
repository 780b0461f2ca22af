//! Roster changes (rule 8): what wardens say to each other of older rosters, and which rosters get signed.
//!
//! Here a node reads what helps it most: of every claimant the newest record (or, where it has not heard of it for
//! `presumeLostAfter`, the last one before the claim that it missed), and of every other warden any record that it ever
//! published. What helps less only makes it wait.

use std::collections::BTreeSet;

use groundswell_core::lease::handover::{Handover, Reader};
use groundswell_core::node_id::NodeId;
use groundswell_core::record::grants::Grants;

use super::book::{Book, ClaimId, Contents, Says};
use super::explore::Move;
use super::lease::Leases;
use super::look::{View, newest, next, records_in, synced};
use super::shape::Mutant;
use super::state::{CLAIMANTS, Standing, State, WARDENS};

/// What is told of one claimant, and whether it has been silent for `presumeLostAfter`.
#[derive(Clone, Copy)]
pub(super) struct Told {
    status: Option<(ClaimId, Says)>,
    unheard: bool,
}

/// What may be told of a claimant to a reader that promised the claims in `promised`.
pub(super) fn told(state: &State, at: usize, promised: &[ClaimId]) -> Vec<Told> {
    let Some(claimant) = state.claimants.get(at) else { return Vec::new() };
    let status = newest(at, claimant);
    let mut told = vec![Told { status, unheard: false }];
    if !claimant.stands() {
        return told;
    }
    let mine = |number: u8| promised.iter().any(|id| usize::from(id.claimant) == at && id.number == number);
    if !claimant.is_live(claimant.made) {
        told.push(Told { status, unheard: true });
    } else if !mine(claimant.made) {
        // It missed the claim, and what it heard before is long ago.
        let before = claimant.made.checked_sub(1).filter(|number| *number > 0);
        let place = |number: u8| claimant.places.get(usize::from(number) - 1).copied().unwrap_or_default();
        let id = |number| ClaimId { claimant: u8::try_from(at).expect("few claimants"), number, place: place(number) };
        told.push(Told { status: before.map(|number| (id(number), Says::Released)), unheard: true });
    }
    told
}

/// Every view that these records of wardens and claimants give.
pub(super) fn views<'a>(book: &'a Book, state: &State, words: &[Vec<u8>], told: &[Vec<Told>; CLAIMANTS]) -> Vec<View<'a>> {
    let mut views = Vec::new();
    let [first, second, third] = told;
    let mut picked = [0; WARDENS];
    loop {
        for a in first {
            for b in second {
                for c in third {
                    let mut view = View::blank(book);
                    for (grants, (pick, words)) in view.grants.iter_mut().zip(picked.iter().zip(words)) {
                        *grants = words.get(*pick).map(|word| &book.record(*word).0);
                    }
                    view.statuses = [a.status, b.status, c.status];
                    view.unheard = [a.unheard, b.unheard, c.unheard];
                    for ((entry, claimant), at) in view.written_off.iter_mut().zip(&state.claimants).zip(0..) {
                        let named = claimant.written_off.checked_sub(1).and_then(|index| claimant.places.get(usize::from(index)));
                        let id = named.map(|place| ClaimId { claimant: at, number: claimant.written_off, place: *place });
                        *entry = id.map(ClaimId::name);
                    }
                    views.push(view);
                }
            }
        }
        if !next(&mut picked, words) {
            return views;
        }
    }
}

impl Leases {
    /// What each warden but `me` may show to a reader that goes by `roster`: those that a roster before it lists show any
    /// record that declares a roster with forerunners, and liars whatever helps.
    pub(super) fn words(&mut self, state: &State, me: Option<usize>, roster: usize) -> Vec<Vec<u8>> {
        let follows = |declared: u8| {
            let named = usize::from(declared).checked_sub(1).and_then(|index| self.shape.rosters.get(index));
            named.is_some_and(|described| !described.previous.is_empty())
        };
        let signed: Vec<u8> = (1..=4).filter(|declared| state.rosters >> (declared - 1) & 1 == 1 && follows(*declared)).collect();
        let lies: Vec<u8> = signed
            .iter()
            .map(|declared| self.book.enter_record(&Contents { declared: *declared, ..Contents::default() }))
            .collect();
        let older = self.shape.chain(roster) & !(1 << roster);
        let listed = |warden: usize| {
            let old = (0_u8..).zip(&self.shape.rosters).filter(|(index, _)| older >> index & 1 == 1);
            old.flat_map(|(_, roster)| &roster.wardens).any(|one| usize::from(*one) == warden)
        };
        let shows = |warden: usize| -> Vec<u8> {
            if me == Some(warden) || !listed(warden) {
                return Vec::new();
            }
            if self.shape.is_liar(warden) {
                return lies.clone();
            }
            let said = state.keepers.get(warden).map_or(0, |keeper| keeper.said);
            records_in(said).filter(|record| follows(self.book.record(*record).1.declared)).collect()
        };
        (0..WARDENS).map(shows).collect()
    }

    /// Rosters that operators may sign now.
    pub(super) fn sign_moves(&mut self, state: &State, moves: &mut Vec<Move<State>>) {
        for roster in 0..self.shape.rosters.len() {
            let Some(described) = self.shape.rosters.get(roster) else { continue };
            let before = self.shape.chain(roster) & !(1 << roster);
            if state.rosters >> roster & 1 == 1 || state.rosters & before != before {
                continue;
            }
            let (signed, settled) = (state.rosters | 1 << roster, described.settled);
            let unasked = settled == 1 || self.shape.mutant == Some(Mutant::SettledEarly);
            let silent = if unasked { BTreeSet::from([0]) } else { self.settled_after(state, roster, settled) };
            for silent in silent {
                let mut to = State { rosters: signed, ..*state };
                for (claimant, at) in to.claimants.iter_mut().zip(0..) {
                    // The reader of the tools had not heard of it for `presumeLostAfter`.
                    if silent >> at & 1 == 1 && claimant.standing == Standing::Dead {
                        claimant.standing = Standing::GivenUp;
                    }
                }
                moves.push(Move { to, fault: false });
            }
        }
    }

    /// Whom a node at which the tools ask must not have heard of, so that the roster before `roster` of version `settled` is
    /// settled, one bit each: every least set of them.
    fn settled_after(&mut self, state: &State, roster: usize, settled: u8) -> BTreeSet<u8> {
        let chain = self.shape.chain(roster);
        let mut named = (0_u8..).zip(&self.shape.rosters).filter(|(index, _)| chain >> index & 1 == 1);
        let Some((under, _)) = named.find(|(_, described)| described.version == settled) else { return BTreeSet::new() };
        let words = self.words(state, None, under.into());
        let rosters = self.rosters(self.shape.chain(under.into()));
        let Some(map) = self.book.maps().get(usize::from(under)) else { return BTreeSet::new() };
        let (own, synced) = (Grants::default(), synced());
        let told: [Vec<Told>; CLAIMANTS] = [0, 1, 2].map(|claimant| told(state, claimant, &[]));
        let views = views(&self.book, state, &words, &told);
        let enough = views.iter().filter(|view| {
            let reader = Reader { me: NodeId([255; 32]), own: &own, rosters: &rosters, sight: *view, synced: &synced };
            Handover::to(map, reader).settled() == (settled.into(), None)
        });
        let all: BTreeSet<u8> = enough.map(View::silent).collect();
        all.iter().copied().filter(|set| all.iter().all(|less| less == set || less & set != *less)).collect()
    }
}
