//! Leaving out of a state what can help nobody any more, so that worlds in which anybody claims any number of times
//! still have few states.
//!
//! A promise for a claim that was given back, may start no more, or whose dead holder was given up, binds a warden to
//! nothing: at any look it can see the end, and grant in the same look. So the same state without that promise can do
//! everything that the state with it can, and visiting the one is visiting more than the other: a violation could be
//! too many, never too few. The warden itself ends the promise; when it will not, the promise stays. Of published
//! records, those remain that list a claim which a holder might take for its right to start, or that declare a newer roster. A claimant of whose
//! claims nothing is left claims as if for the first time; that names are told apart is for worlds that forget nothing.

use super::book::{ClaimId, Contents};
use super::lease::Leases;
use super::look::{View, look, newest, records_in};
use super::state::{Claimant, Keeper, Standing, State};

impl Leases {
    /// The state without what can help nobody any more.
    pub(super) fn forgotten(&mut self, mut state: State) -> State {
        let over = (0_u8..).zip(&state.claimants).filter(|(_, claimant)| {
            claimant.made > 0
                && matches!(claimant.standing, Standing::Ready | Standing::Done | Standing::Spent | Standing::GivenUp)
        });
        let over = over.fold(0, |set, (at, _)| set | 1 << at);
        let before = state;
        for (at, keeper) in state.keepers.iter_mut().enumerate() {
            let warden = self.without(&before, at, keeper.warden, over);
            let durable = if keeper.durable == keeper.warden { warden } else { self.without(&before, at, keeper.durable, over) };
            let said = self.still_said(&before, keeper.said);
            *keeper = Keeper { warden, durable, said, ..*keeper };
        }
        let named = state.keepers.iter().fold(0, |set, keeper| set | self.named(keeper));
        for (at, claimant) in state.claimants.iter_mut().enumerate() {
            if matches!(claimant.standing, Standing::Ready | Standing::Done) && named >> at & 1 == 0 {
                // Who is done is told apart from who may claim again only where it matters who gets through.
                let done = claimant.standing == Standing::Done && self.shape.asks_for_traps();
                *claimant = Claimant { standing: if done { Standing::Done } else { Standing::Ready }, ..Claimant::default() };
            }
        }
        state
    }

    /// The claimants whose claims a warden knows or has published, one bit each.
    fn named(&self, keeper: &Keeper) -> u8 {
        let wardens = [keeper.warden, keeper.durable].map(|number| &self.book.warden(number).1);
        let records = records_in(keeper.said).map(|number| &self.book.record(number).1);
        let promises = wardens.into_iter().chain(records).flat_map(|contents| &contents.promises);
        promises.fold(0, |set, id| set | 1 << id.claimant)
    }

    /// The warden after it saw the end of every claim in `over`.
    fn without(&mut self, state: &State, at: usize, warden: u16, over: u8) -> u16 {
        let (real, contents) = self.book.warden(warden);
        let ends = contents.promises.iter().fold(0, |set, id| set | 1 << id.claimant) & over;
        if ends == 0 {
            return warden;
        }
        let released =
            (0_u8..).zip(&state.claimants).filter(|(_, claimant)| !claimant.stands()).fold(0, |set, (at, _)| set | 1 << at);
        let key = (warden, ends, ends & released);
        if let Some(known) = self.ends.get(&key) {
            return *known;
        }
        let declared = usize::from(contents.declared).checked_sub(1);
        let rosters = self.rosters(declared.map_or(0, |roster| self.shape.chain(roster)));
        let mut view = View::blank(&self.book);
        for (one, claimant) in state.claimants.iter().enumerate().filter(|(one, _)| ends >> one & 1 == 1) {
            if let (Some(status), Some(unheard)) = (view.statuses.get_mut(one), view.unheard.get_mut(one)) {
                (*status, *unheard) = (newest(one, claimant), true);
            }
        }
        let looked = look(real, at, &view, &rosters, 0);
        let after = looked.map_or(warden, |looked| self.book.enter_warden(&looked.warden));
        self.ends.insert(key, after);
        after
    }

    /// The records of `said` that list a claim which its holder might start on, without what else has ended.
    fn still_said(&mut self, state: &State, said: u128) -> u128 {
        let standing = |id: &ClaimId| {
            let claimant = state.claimants.get(usize::from(id.claimant));
            claimant.filter(|claimant| claimant.made == id.number).map(|claimant| claimant.standing)
        };
        let mut still = 0;
        for record in records_in(said) {
            let contents = &self.book.record(record).1;
            let declares = usize::from(contents.declared).checked_sub(1).and_then(|roster| self.shape.rosters.get(roster));
            let follows = declares.is_some_and(|roster| !roster.previous.is_empty());
            let helps = |id: &ClaimId| matches!(standing(id), Some(Standing::Fresh | Standing::Spent));
            if !follows && !contents.promises.iter().any(helps) {
                continue;
            }
            let stands =
                |id: &&ClaimId| !matches!(standing(id), None | Some(Standing::Ready | Standing::Done | Standing::GivenUp));
            let promises = contents.promises.iter().filter(stands).copied().collect();
            let contents = Contents { promises, ..contents.clone() };
            still |= 1 << self.book.enter_record(&contents);
        }
        still
    }
}
