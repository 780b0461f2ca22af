//! What can happen in the small world: claims, grants, starts, ends, and faults.

use std::collections::{BTreeSet, HashMap};

use groundswell_core::lease::governing::Rosters;
use groundswell_core::lease::warden::Warden;

use super::book::{Book, Contents};
use super::explore::{Move, World};
use super::look::{PRESUME_LOST_AFTER_MS, View, can_start, look, records_in};
use super::names::Names;
use super::reading::Outcome;
use super::shape::{ENDLESS, Mutant, Shape};
use super::state::{CLAIMANTS, Claimant, Keeper, Left, Place, Stage, Standing, State, WARDENS};

/// The lease protocol among the nodes of a [`Shape`].
pub struct Leases {
    pub(super) shape: Shape,
    pub(super) book: Book,
    /// What a warden becomes that sees the end of the last claims of some claimants, and which of them gave theirs back.
    pub(super) ends: HashMap<(u16, u8, u8), u16>,
    pub(super) names: Names,
    /// Where states that differ in names only are visited one by one.
    apart: Option<Names>,
    pub(super) looks: HashMap<u128, Vec<Outcome>>,
    /// The same of looks at what other wardens say.
    pub(super) informed: HashMap<u128, Vec<Outcome>>,
}

impl Leases {
    /// A world of this shape.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let book = Book::new(&shape);
        let names = Names::new(&shape);
        Self { shape, book, ends: HashMap::new(), names, apart: None, looks: HashMap::new(), informed: HashMap::new() }
    }

    /// The same, with states that differ in names only visited one by one: to test that they may be taken for one.
    #[must_use]
    pub fn apart(shape: Shape) -> Self {
        Self { apart: Some(Names::apart()), ..Self::new(shape) }
    }

    /// Equal for states that differ in names only.
    pub fn key_but_for_names(&mut self, state: &State) -> u128 {
        self.names.key(state, &self.book)
    }

    fn claimants(&self) -> std::ops::Range<usize> {
        0..usize::from(self.shape.claimants)
    }

    fn claim_moves(&mut self, state: &State, at: usize, moves: &mut Vec<Move<State>>) {
        let Some(claimant) = state.claimants.get(at) else { return };
        let mut go = |standing: Standing, fault: bool| {
            moves.push(Move { to: stood(state, at, standing), fault });
        };
        match claimant.standing {
            Standing::Ready => {
                if claimant.made < self.shape.claims_each && state.left.claims > 0 {
                    for place in self.places(state) {
                        moves.push(Move { to: claimed(state, at, place), fault: false });
                    }
                }
            }
            Standing::Fresh | Standing::Spent => {
                go(Standing::Ready, false);
                if claimant.standing == Standing::Fresh {
                    go(Standing::Spent, true);
                }
                // Whether liars are needed for it: they help as long as they like to.
                let starts = |book: &mut Book, liars: bool| can_start(book, &self.shape, state, at, liars);
                let honest = starts(&mut self.book, false);
                if honest || starts(&mut self.book, true) {
                    moves.push(Move { to: stood(state, at, Standing::Active), fault: !honest });
                }
            }
            Standing::Active => {
                go(Standing::Done, false);
                go(Standing::Ready, true);
                if state.left.deaths > 0 {
                    let mut to = stood(state, at, Standing::Dead);
                    to.left.deaths = less(to.left.deaths);
                    moves.push(Move { to, fault: true });
                }
            }
            Standing::Done | Standing::Dead | Standing::GivenUp => {}
        }
        // The tools name no claim that may still be lived on.
        let may_be_named = matches!(claimant.standing, Standing::Spent | Standing::Dead | Standing::GivenUp);
        if self.shape.write_offs && may_be_named && claimant.written_off < claimant.made {
            let mut to = *state;
            if let Some(claimant) = to.claimants.get_mut(at) {
                claimant.written_off = claimant.made;
                if claimant.standing == Standing::Dead {
                    claimant.standing = Standing::GivenUp;
                }
            }
            moves.push(Move { to, fault: false });
        }
    }

    /// Where a claim can be made now.
    fn places(&self, state: &State) -> Vec<Place> {
        let signed = (0_u8..).zip(&self.shape.rosters).filter(|(roster, _)| state.rosters >> roster & 1 == 1);
        signed.flat_map(|(roster, shape)| (0..shape.slots).map(move |slot| Place { slot, roster })).collect()
    }

    fn keeper_moves(&mut self, state: &State, at: usize, moves: &mut Vec<Move<State>>) {
        let Some(keeper) = state.keepers.get(at) else { return };
        let mut go = |keeper: Keeper, fault: bool| {
            let mut to = *state;
            if let Some(old) = to.keepers.get_mut(at) {
                *old = keeper;
            }
            moves.push(Move { to, fault });
        };
        match keeper.stage {
            Stage::Kept => {
                // Should it lose power here, it stands here again after the start.
                let word = self.book.enter_word(keeper.warden);
                go(Keeper { stage: Stage::Settled, said: keeper.said | 1 << word, ..*keeper }, false);
                if self.shape.mutant == Some(Mutant::WordForgotten) {
                    go(Keeper { stage: Stage::Settled, ..*keeper }, true);
                }
            }
            Stage::Said => {
                go(Keeper { stage: Stage::Settled, durable: keeper.warden, ..*keeper }, false);
                go(Keeper { stage: Stage::Settled, warden: keeper.durable, ..*keeper }, true);
            }
            Stage::Settled => self.looks(state, at, keeper, moves),
        }
        if state.left.set_backs > 0 && keeper.stage == Stage::Settled {
            self.set_backs(state, at, keeper, moves);
        }
    }

    fn looks(&mut self, state: &State, at: usize, keeper: &Keeper, moves: &mut Vec<Move<State>>) {
        let outcomes: BTreeSet<Outcome> =
            self.outcomes(state, at, keeper).into_iter().chain(self.informed(state, at, keeper)).collect();
        for outcome in outcomes {
            let mut to = *state;
            for (claimant, one) in to.claimants.iter_mut().zip(0..) {
                if outcome.given_up >> one & 1 == 1 {
                    claimant.standing = Standing::GivenUp;
                }
            }
            let mut decided = Keeper { warden: outcome.warden, durable: outcome.warden, ..*keeper };
            if !self.book.warden(outcome.warden).1.amnesia {
                decided.blind = 0;
            }
            if outcome.news && self.shape.mutant == Some(Mutant::PublishedFirst) {
                let word = self.book.enter_word(outcome.warden);
                decided = Keeper { durable: keeper.durable, stage: Stage::Said, said: keeper.said | 1 << word, ..decided };
            } else if outcome.news {
                decided.stage = Stage::Kept;
            }
            if let Some(old) = to.keepers.get_mut(at) {
                *old = decided;
            }
            moves.push(Move { to, fault: false });
        }
    }

    /// The store comes back as it was before the first promise, and the node takes back one of the records that it had
    /// signed, or none that lists a promise (it noticed by its status).
    fn set_backs(&mut self, state: &State, at: usize, keeper: &Keeper, moves: &mut Vec<Move<State>>) {
        let stands = |claimant: &Claimant| claimant.is_live(claimant.made) || claimant.standing == Standing::Dead;
        let blind = (0_u8..).zip(&state.claimants).filter(|(_, claimant)| stands(claimant));
        let blind = blind.fold(0, |set, (at, _)| set | 1 << at);
        // Records that are forgotten listed only what has ended.
        let chain =
            usize::from(self.book.warden(keeper.durable).1.declared).checked_sub(1).map_or(1, |roster| self.shape.chain(roster));
        let declared = (0..8_u8).filter(|roster| self.shape.forgets && chain >> roster & 1 == 1).map(|roster| roster + 1);
        let forgotten: Vec<u8> =
            declared.map(|declared| self.book.enter_record(&Contents { declared, ..Contents::default() })).collect();
        let taken_back: BTreeSet<Option<u8>> = records_in(keeper.said).chain(forgotten).map(Some).chain([None]).collect();
        for record in taken_back {
            let mut warden = Warden::default();
            warden.set_back(record.map(|record| &self.book.record(record).0), 0, Some(PRESUME_LOST_AFTER_MS));
            let warden = self.book.enter_warden(&warden);
            let mut to = *state;
            to.left.set_backs = less(to.left.set_backs);
            if let Some(old) = to.keepers.get_mut(at) {
                *old = Keeper { warden, durable: warden, stage: Stage::Kept, blind, ..*keeper };
            }
            moves.push(Move { to, fault: true });
        }
    }
}

/// One less of what is counted.
fn less(left: u8) -> u8 {
    if left == ENDLESS { ENDLESS } else { left - 1 }
}

/// The claimant at `at` stands so now.
fn stood(state: &State, at: usize, standing: Standing) -> State {
    let mut to = *state;
    if let Some(claimant) = to.claimants.get_mut(at) {
        claimant.standing = standing;
        if !claimant.is_live(claimant.made) && claimant.standing != Standing::Dead {
            // What a set-back warden had forgotten of this claim is over.
            to.keepers.iter_mut().for_each(|keeper| keeper.blind &= !(1 << at));
        }
    }
    to
}

fn claimed(state: &State, at: usize, place: Place) -> State {
    let mut to = *state;
    to.left.claims = less(to.left.claims);
    if let Some(claimant) = to.claimants.get_mut(at) {
        if let Some(free) = claimant.places.get_mut(usize::from(claimant.made)) {
            *free = place;
        }
        claimant.made += 1;
        claimant.standing = Standing::Fresh;
    }
    to
}

impl World for Leases {
    type State = State;

    fn beginning(&mut self) -> State {
        let mut state = State {
            claimants: [Claimant::default(); CLAIMANTS],
            keepers: [Keeper::default(); WARDENS],
            rosters: 1,
            left: Left { deaths: self.shape.deaths, set_backs: self.shape.set_backs, claims: self.shape.claims },
        };
        // The wardens of the first roster have declared it, and said so.
        for at in 0..WARDENS {
            let rosters = Rosters::new(self.book.maps().iter().take(1));
            let (warden, _) = self.book.warden(0);
            let Some(looked) = look(warden, at, &View::blank(&self.book), &rosters, 0) else { continue };
            let warden = self.book.enter_warden(&looked.warden);
            let said = 1 << self.book.enter_word(warden);
            if let Some(keeper) = state.keepers.get_mut(at).filter(|_| !self.shape.is_liar(at)) {
                *keeper = Keeper { warden, durable: warden, said, ..Keeper::default() };
            }
        }
        state
    }

    fn moves(&mut self, state: &State, moves: &mut Vec<Move<State>>) {
        for at in self.claimants() {
            self.claim_moves(state, at, moves);
        }
        for at in self.shape.keepers() {
            self.keeper_moves(state, at, moves);
        }
        self.sign_moves(state, moves);
        if self.shape.forgets {
            for next in moves {
                next.to = self.forgotten(next.to);
            }
        }
    }

    fn key(&mut self, state: &State) -> u128 {
        match &mut self.apart {
            Some(apart) => apart.key(state, &self.book),
            None => self.names.key(state, &self.book),
        }
    }

    fn broken(&self, state: &State) -> Option<String> {
        let disrupted = |at: &usize| state.claimants.get(*at).is_some_and(Claimant::is_disrupted);
        let holders: Vec<usize> = self.claimants().filter(disrupted).collect();
        let places: Vec<Place> = holders.iter().filter_map(|at| state.claimants.get(*at)?.place()).collect();
        for (at, place) in places.iter().enumerate() {
            if places.iter().skip(at + 1).any(|other| other.slot == place.slot) {
                return Some(format!("slot {} has two holders", place.slot));
            }
        }
        // The newest roster that somebody holds under, of rivals the smaller.
        let under = places.iter().filter_map(|place| self.shape.rosters.get(usize::from(place.roster)));
        let newest = under.max_by_key(|roster| (roster.version, std::cmp::Reverse(roster.slots)))?;
        let (slots, version) = (usize::from(newest.slots), newest.version);
        (places.len() > slots)
            .then(|| format!("{} are disrupted, and a roster of version {version} has {slots} slots", places.len()))
    }

    fn is_fulfilled(&self, state: &State) -> bool {
        let over = |standing| matches!(standing, Standing::Done | Standing::Dead | Standing::GivenUp);
        state.claimants.iter().take(self.shape.claimants.into()).all(|claimant| over(claimant.standing))
    }

    fn must_be_fulfilled(&self, state: &State) -> bool {
        // Those that cannot claim any more have no way to get through: that is the world's end, not the rules'.
        let through = |standing| matches!(standing, Standing::Done | Standing::Dead | Standing::GivenUp | Standing::Active);
        let mut waiting = state.claimants.iter().take(self.shape.claimants.into()).filter(|claimant| !through(claimant.standing));
        let enough = waiting.clone().count() <= usize::from(state.left.claims);
        enough && waiting.all(|claimant| claimant.made < self.shape.claims_each)
    }

    fn tell(&self, before: &State, after: &State) -> String {
        super::tell::tell(&self.book, before, after)
    }
}
