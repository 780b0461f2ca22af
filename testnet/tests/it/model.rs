//! Every state of small worlds of the lease protocol; each rule broken on purpose is found; what makes worlds small loses nothing.

use std::collections::HashSet;

use groundswell_testnet::model::explore::{Bounds, Found, Move, World, explore};
use groundswell_testnet::model::lease::Leases;
use groundswell_testnet::model::shape::{Mutant, Shape};
use groundswell_testnet::model::state::State;

const MOST: usize = 1_000_000;

fn explored(shape: Shape) -> Found {
    let traps = shape.asks_for_traps();
    explore(&mut Leases::new(shape), Bounds { states: MOST, traps })
}

#[test]
fn one_slot_with_four_wardens_and_a_liar_never_has_two_holders_however_often_three_claim() {
    let found = explored(Shape::one_slot());
    assert!(found.complete && found.broken.is_none(), "{found:?}");
    assert!(found.states > 5_000, "claims, grants and starts are reached: {}", found.states);
}

#[test]
fn d34_nor_when_an_honest_warden_is_set_back_beside_the_liar() {
    let found = explored(Shape::set_back());
    assert!(found.complete && found.broken.is_none(), "{found:?}");
}

#[test]
fn d5_d11_nor_when_old_grants_and_old_records_stay_in_sight() {
    let found = explored(Shape::names());
    assert!(found.complete && found.broken.is_none(), "{found:?}");
}

#[test]
fn d2_d27_nor_along_a_chain_of_rosters_whose_last_calls_the_one_before_it_settled_and_all_get_through() {
    let found = explored(Shape::chain_of_three());
    assert!(found.complete && found.broken.is_none() && found.trap.is_none(), "{found:?}");
}

#[test]
fn d3_d30_nor_when_a_roster_change_brings_other_wardens_or_takes_a_slot_away() {
    for shape in [Shape::other_wardens(), Shape::shrinks()] {
        let name = shape.name;
        let found = explored(shape);
        assert!(found.complete && found.broken.is_none(), "{name}: {found:?}");
    }
}

#[test]
fn from_every_state_everybody_gets_through_without_a_further_fault() {
    let found = explored(Shape::no_trap());
    assert!(found.complete && found.broken.is_none() && found.trap.is_none(), "{found:?}");
}

#[test]
fn one_liar_more_than_allowed_breaks_it() {
    assert!(explored(Shape::two_liars()).broken.is_some());
}

#[test]
fn every_rule_broken_on_purpose_is_found_and_told() {
    for (mutant, name) in Mutant::ALL {
        let found = explored(mutant.shape());
        let ways = (found.broken, found.trap);
        assert_eq!(ways.0.is_none(), mutant == Mutant::WordForgotten, "{name}: it keeps the budget, and nobody gets on");
        let way = ways.0.or(ways.1).unwrap_or_else(|| panic!("{name}: nothing found in {} states", found.states));
        assert!(way.steps.iter().all(|step| !step.is_empty()), "{name}: each step is told:\n{way}");
    }
}

#[test]
fn a_world_that_forgets_breaks_where_one_that_forgets_nothing_does() {
    let small =
        |mutant, forgets| Shape { claimants: 2, claims_each: 2, claims: 2, deaths: 1, forgets, mutant, ..Shape::one_slot() };
    for mutant in [None, Some(Mutant::QuorumOneLower), Some(Mutant::EndsEarly), Some(Mutant::SpentStarts)] {
        let [all, some] = [false, true].map(|forgets| explored(small(mutant, forgets)));
        assert_eq!((all.broken.is_some(), all.complete), (some.broken.is_some(), some.complete), "{mutant:?}");
        assert_eq!(all.broken.is_some(), mutant.is_some(), "{mutant:?}");
    }
}

/// Visits states that differ in names only one by one, and counts what is left when names are not looked at.
struct Apart {
    leases: Leases,
    but_for_names: HashSet<u128>,
}

impl World for Apart {
    type State = State;

    fn beginning(&mut self) -> State {
        self.leases.beginning()
    }
    fn moves(&mut self, state: &State, moves: &mut Vec<Move<State>>) {
        self.leases.moves(state, moves);
    }
    fn key(&mut self, state: &State) -> u128 {
        let key = self.leases.key_but_for_names(state);
        self.but_for_names.insert(key);
        self.leases.key(state)
    }
    fn broken(&self, state: &State) -> Option<String> {
        self.leases.broken(state)
    }
    fn is_fulfilled(&self, state: &State) -> bool {
        self.leases.is_fulfilled(state)
    }
    fn must_be_fulfilled(&self, state: &State) -> bool {
        self.leases.must_be_fulfilled(state)
    }
    fn tell(&self, before: &State, after: &State) -> String {
        self.leases.tell(before, after)
    }
}

#[test]
fn states_that_differ_in_names_only_are_one_and_no_others_are() {
    let shape = Shape { claimants: 2, write_offs: false, ..Shape::one_slot() };
    let merged = explored(shape.clone());
    let mut apart = Apart { leases: Leases::apart(shape), but_for_names: HashSet::new() };
    let every = explore(&mut apart, Bounds { states: MOST, traps: false });
    assert!(merged.complete && every.complete && merged.broken.is_none() && every.broken.is_none());
    assert_eq!(apart.but_for_names.len(), merged.states);
    assert!(every.states > 5 * merged.states, "{} of {}", merged.states, every.states);
}
