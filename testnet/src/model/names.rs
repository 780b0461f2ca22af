//! States that differ in names only: claimants, slots and wardens exchanged. They get one key.
//!
//! Claimants and slots are exchanged in every way, and of the digests that come out the least is the key. Wardens of
//! one kind (listed by the same rosters) are not exchanged one by one: their digests are added up.

use super::book::{Book, ClaimId, Contents};
use super::shape::Shape;
use super::state::{CLAIMANTS, Claimant, Keeper, State, WARDENS};

/// Ways to exchange names, and the kind of each warden.
pub(super) struct Names {
    exchanges: Vec<Exchange>,
    kinds: [u8; WARDENS],
    /// Digest of what each warden of the book says, under every exchange.
    wardens: Vec<Vec<u128>>,
    /// The same of each record.
    records: Vec<Vec<u128>>,
}

#[derive(Clone, Copy)]
struct Exchange {
    /// The new index of each claimant.
    claimants: [u8; CLAIMANTS],
    slots: bool,
}

impl Names {
    /// Nothing is exchanged: every state is its own.
    pub(super) fn apart() -> Self {
        let same = Exchange { claimants: [0, 1, 2], slots: false };
        let mut kinds = [0; WARDENS];
        kinds.iter_mut().zip(0..).for_each(|(kind, at)| *kind = at);
        Self { exchanges: vec![same], kinds, wardens: Vec::new(), records: Vec::new() }
    }

    pub(super) fn new(shape: &Shape) -> Self {
        let orders: &[[u8; CLAIMANTS]] = match shape.claimants {
            1 => &[[0, 1, 2]],
            2 => &[[0, 1, 2], [1, 0, 2]],
            _ => &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
        };
        let swaps: &[bool] = if shape.rosters.iter().all(|roster| roster.slots == 2) { &[false, true] } else { &[false] };
        let exchanges = orders.iter().flat_map(|order| swaps.iter().map(|slots| Exchange { claimants: *order, slots: *slots }));
        let mut kinds = [0; WARDENS];
        for (at, kind) in kinds.iter_mut().enumerate() {
            let listed = |roster: &super::shape::RosterShape| roster.wardens.iter().any(|warden| usize::from(*warden) == at);
            *kind = shape.rosters.iter().fold(u8::from(shape.is_liar(at)), |kind, roster| kind << 1 | u8::from(listed(roster)));
        }
        Self { exchanges: exchanges.collect(), kinds, wardens: Vec::new(), records: Vec::new() }
    }

    /// The first warden of the same kind: what it does, this one would do.
    pub(super) fn like(&self, warden: usize) -> usize {
        let kind = self.kinds.get(warden);
        self.kinds.iter().position(|other| Some(other) == kind).unwrap_or(warden)
    }

    /// A digest of what all wardens but `me` have published; those of one kind are not told apart.
    pub(super) fn others(&self, state: &State, me: usize) -> u128 {
        let others = state.keepers.iter().zip(self.kinds).enumerate().filter(|(at, _)| *at != me);
        let digests = others.map(|(_, (keeper, kind))| {
            let (low, high) = halves(keeper.said);
            absorb(absorb(u128::from(kind), low), high)
        });
        digests.fold(0, u128::wrapping_add)
    }

    pub(super) fn key(&mut self, state: &State, book: &Book) -> u128 {
        self.learn(book);
        (0..self.exchanges.len()).map(|exchange| self.digest(state, exchange)).min().unwrap_or_default()
    }

    fn learn(&mut self, book: &Book) {
        for number in self.wardens.len()..book.wardens() {
            let contents = &book.warden(u16::try_from(number).expect("as the book numbers them")).1;
            self.wardens.push(self.exchanges.iter().map(|exchange| exchange.contents(contents)).collect());
        }
        for number in self.records.len()..book.records() {
            let contents = &book.record(u8::try_from(number).expect("as the book numbers them")).1;
            self.records.push(self.exchanges.iter().map(|exchange| exchange.contents(contents)).collect());
        }
    }

    fn digest(&self, state: &State, number: usize) -> u128 {
        let exchange = self.exchanges.get(number).expect("an exchange");
        let left = state.left;
        let counts = [state.rosters, left.deaths, left.set_backs, left.claims];
        let mut digest = absorb(0, counts.iter().fold(0, |packed, count| packed << 8 | u64::from(*count)));
        for (claimant, to) in state.claimants.iter().zip(exchange.claimants) {
            digest = digest.wrapping_add(absorb(u128::from(to) + 1, exchange.claimant(claimant)));
        }
        for (keeper, kind) in state.keepers.iter().zip(self.kinds) {
            digest = digest.wrapping_add(self.keeper(keeper, kind, number));
        }
        digest
    }

    fn keeper(&self, keeper: &Keeper, kind: u8, number: usize) -> u128 {
        let of = |table: &[Vec<u128>], entry: usize| -> u128 {
            table.get(entry).and_then(|digests| digests.get(number)).copied().expect("learnt before")
        };
        let exchange = self.exchanges.get(number).expect("an exchange");
        let said = super::look::records_in(keeper.said).map(|record| of(&self.records, record.into()));
        let said = said.fold(0, u128::wrapping_add);
        let volatile = of(&self.wardens, keeper.warden.into());
        let durable = of(&self.wardens, keeper.durable.into());
        let small = u64::from(kind) << 16 | u64::from(exchange.set(keeper.blind)) << 8 | keeper.stage as u64;
        [volatile, durable, said].into_iter().fold(absorb(99, small), |digest, part| {
            let (low, high) = halves(part);
            absorb(absorb(digest, low), high)
        })
    }
}

impl Exchange {
    fn set(self, claimants: u8) -> u8 {
        let moved = self.claimants.iter().enumerate().filter(|(from, _)| claimants >> from & 1 == 1);
        moved.fold(0, |set, (_, to)| set | 1 << to)
    }

    fn slot(self, slot: u8) -> u8 {
        if self.slots { slot ^ 1 } else { slot }
    }

    fn claimant(self, claimant: &Claimant) -> u64 {
        let made = claimant.places.iter().take(claimant.made.into());
        let places = made.fold(1, |packed, place| packed << 8 | u64::from(self.slot(place.slot)) << 4 | u64::from(place.roster));
        places << 16 | u64::from(claimant.written_off) << 8 | claimant.standing as u64
    }

    fn contents(self, contents: &Contents) -> u128 {
        let promise = |id: &ClaimId| {
            let claimant = self.claimants.get(usize::from(id.claimant)).copied().unwrap_or(id.claimant);
            let parts = [claimant, id.number, self.slot(id.place.slot), id.place.roster];
            absorb(7, parts.iter().fold(0, |packed, part| packed << 8 | u64::from(*part)))
        };
        let promises = contents.promises.iter().map(promise).fold(0, u128::wrapping_add);
        let (low, high) = halves(promises);
        absorb(absorb(absorb(3, u64::from(contents.declared) << 1 | u64::from(contents.amnesia)), low), high)
    }
}

fn halves(number: u128) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = number.to_le_bytes();
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]))
}

/// Stirs `part` into a digest: two streams of the finaliser of splitmix64, each with its own constants.
pub(super) fn absorb(digest: u128, part: u64) -> u128 {
    let (low, high) = halves(digest);
    let low = stir(low.rotate_left(23) ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let high = stir(high.wrapping_add(part ^ 0xd6e8_feb8_6659_fd93).wrapping_mul(0xa076_1d64_78bd_642f) ^ low.rotate_left(32));
    u128::from(high) << 64 | u128::from(low)
}

fn stir(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
