//! The real things behind the small numbers of a state: rosters, status records, grants records, wardens.
//!
//! A warden or a record is entered once and has a number from then on. [`Contents`] is what it says, in numbers: by it
//! records are read, names are exchanged, and ways are told.

use std::collections::{BTreeMap, HashMap};

use groundswell_core::digest::Digest;
use groundswell_core::documents::roster::PoolPolicy;
use groundswell_core::lease::budget::{PoolMap, Seat, Slot};
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::warden::Warden;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Ppm, Sequence};
use groundswell_core::record::grants::{Grants, Promise};
use groundswell_core::record::status::{Claim, Phase, Purpose, Section, Status};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::{Pool, Product};

use super::shape::Shape;
use super::state::{CLAIMANTS, CLAIMS, Place};

/// Most rosters of a world.
const ROSTERS: usize = 4;
/// Most slots of a roster.
const SLOTS: usize = 2;
/// Claims that can be told apart.
const CLAIM_IDS: usize = CLAIMANTS * CLAIMS * SLOTS * ROSTERS;

/// One claim: whose, its number from 1, and where it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    /// Index of the claimant.
    pub claimant: u8,
    /// Its number among that claimant's, from 1.
    pub number: u8,
    /// Where it was made.
    pub place: Place,
}

/// What a warden or a grants record says.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Contents {
    /// Index of the roster declared, from 1; 0: none.
    pub declared: u8,
    /// Promises, in order.
    pub promises: Vec<ClaimId>,
    /// The store was set back, and the wait is not over. Never so in a record.
    pub amnesia: bool,
}

/// What a status record says of the claim that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Says {
    /// Claimed.
    Claimed,
    /// `activating`.
    Active,
    /// Given back.
    Released,
}

/// Everything that was entered.
pub struct Book {
    maps: Vec<PoolMap>,
    statuses: Vec<[(Stamp, Status); 3]>,
    wardens: Vec<(Warden, Contents)>,
    warden_numbers: HashMap<Contents, u16>,
    records: Vec<(Grants, Contents)>,
    record_numbers: HashMap<Contents, u8>,
}

/// The node of a claimant.
#[must_use]
pub fn claimant_node(claimant: usize) -> NodeId {
    NodeId([100 + u8::try_from(claimant).expect("few claimants"); 32])
}

/// The node of a warden.
#[must_use]
pub fn warden_node(warden: usize) -> NodeId {
    NodeId([1 + u8::try_from(warden).expect("few wardens"); 32])
}

/// The one pool.
#[must_use]
pub fn pool() -> Pool {
    Pool::new("edge").expect("a pool's name")
}

/// A slot of the pool.
#[must_use]
pub fn slot(number: u8) -> Slot {
    Slot { pool: pool(), number: number.into() }
}

fn roster_digest(roster: usize) -> Digest {
    Digest([1 + u8::try_from(roster).expect("few rosters"); 32])
}

impl ClaimId {
    fn index(self) -> usize {
        let Self { claimant, number, place } = self;
        let claim = usize::from(claimant) * CLAIMS + usize::from(number) - 1;
        (claim * SLOTS + usize::from(place.slot)) * ROSTERS + usize::from(place.roster)
    }

    fn of_index(index: usize) -> Self {
        let small = |number: usize| u8::try_from(number).expect("few claims");
        let (claim, place) = (index / (SLOTS * ROSTERS), index % (SLOTS * ROSTERS));
        let place = Place { slot: small(place / ROSTERS), roster: small(place % ROSTERS) };
        Self { claimant: small(claim / CLAIMS), number: small(claim % CLAIMS + 1), place }
    }

    /// The claim's name: the stamp of its first record. Three records tell of a claim.
    #[must_use]
    pub fn name(self) -> ClaimName {
        ClaimName(stamp(u64::from(self.number) * 3 - 2))
    }

    fn claim(self) -> Claim {
        Claim {
            name: self.name(),
            nonce: u64::try_from(self.index()).expect("few claims") + 1_000,
            pool: pool(),
            slot: Some(self.place.slot.into()),
            roster: roster_digest(self.place.roster.into()),
            purpose: Purpose::Rollout(Digest([99; 32])),
        }
    }

    /// The claim as its holder's records show it.
    #[must_use]
    pub fn seen(self) -> SeenClaim {
        SeenClaim::of(claimant_node(self.claimant.into()), &self.claim(), false).expect("it names a slot")
    }

    /// Reads a promise.
    #[must_use]
    pub fn of(promise: &Promise) -> Self {
        let claimant = promise.holder.0.first().map_or(0, |first| first - 100);
        let number = u8::try_from(promise.claim.0.counter.div_ceil(3)).expect("few claims");
        let roster = promise.roster.0.first().map_or(0, |first| first - 1);
        let slot = u8::try_from(promise.slot).expect("few slots");
        Self { claimant, number, place: Place { slot, roster } }
    }
}

fn stamp(counter: u64) -> Stamp {
    Stamp { incarnation: 1, counter }
}

fn status(phase: Phase, claim: Option<Claim>) -> Status {
    let section = Section {
        running: None,
        from: None,
        floor: Sequence::default(),
        rollout: None,
        phase,
        hold: None,
        claim,
        started_at: None,
        verdicts: Vec::new(),
    };
    Status { products: [(Product::new("bcd").expect("a product's name"), section)].into(), ..Status::default() }
}

/// The three records that tell of a claim.
fn told(id: ClaimId) -> [(Stamp, Status); 3] {
    let first = id.name().0.counter;
    [
        (stamp(first), status(Phase::Claiming, Some(id.claim()))),
        (stamp(first + 1), status(Phase::Activating, Some(id.claim()))),
        (stamp(first + 2), status(Phase::Staged, None)),
    ]
}

impl Book {
    /// A book with the rosters of `shape`, and nobody's promises.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        let maps = (0..shape.rosters.len()).map(|roster| map(shape, roster)).collect();
        let statuses = (0..CLAIM_IDS).map(|index| told(ClaimId::of_index(index))).collect();
        let mut book = Self {
            maps,
            statuses,
            wardens: Vec::new(),
            warden_numbers: HashMap::new(),
            records: Vec::new(),
            record_numbers: HashMap::new(),
        };
        book.enter_warden(&Warden::default());
        book.enter_record(&Contents::default());
        book
    }

    /// Every roster as leases read it.
    #[must_use]
    pub fn maps(&self) -> &[PoolMap] {
        &self.maps
    }

    /// The record that says `says` of a claim.
    #[must_use]
    pub fn status(&self, id: ClaimId, says: Says) -> (Stamp, &Status) {
        let [claimed, active, released] = self.statuses.get(id.index()).expect("every claim is in the book");
        let (stamp, status) = match says {
            Says::Claimed => claimed,
            Says::Active => active,
            Says::Released => released,
        };
        (*stamp, status)
    }

    /// A warden by its number.
    #[must_use]
    pub fn warden(&self, number: u16) -> &(Warden, Contents) {
        self.wardens.get(usize::from(number)).expect("every number is in the book")
    }

    /// A grants record by its number.
    #[must_use]
    pub fn record(&self, number: u8) -> &(Grants, Contents) {
        self.records.get(usize::from(number)).expect("every number is in the book")
    }

    /// How many wardens were entered.
    #[must_use]
    pub fn wardens(&self) -> usize {
        self.wardens.len()
    }

    /// How many records were entered.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// Enters what a warden decided.
    pub fn enter_warden(&mut self, warden: &Warden) -> u16 {
        let declared = warden.declared().and_then(|digest| self.maps.iter().position(|map| map.roster() == digest));
        let contents = Contents {
            declared: declared.map_or(0, |index| u8::try_from(index + 1).expect("few rosters")),
            promises: sorted(warden.promises()),
            amnesia: warden.amnesia_left_ms(0).is_some(),
        };
        if let Some(number) = self.warden_numbers.get(&contents) {
            // Otherwise a warden remembers something that states do not show, and unequal states would be taken for equal.
            assert_eq!(self.warden(*number).0, *warden, "two wardens say the same and are not the same");
            return *number;
        }
        let number = u16::try_from(self.wardens.len()).expect("fewer than 65,536 wardens");
        self.warden_numbers.insert(contents.clone(), number);
        self.wardens.push((warden.clone(), contents));
        number
    }

    /// Enters the record that a warden publishes.
    pub fn enter_word(&mut self, warden: u16) -> u8 {
        let (warden, contents) = self.warden(warden);
        let grants = warden.record();
        let declared = if grants.declared.is_some() { contents.declared } else { 0 };
        let contents = Contents { declared, promises: sorted(grants.promises.iter()), amnesia: false };
        self.enter_record(&contents)
    }

    /// Enters a record that says `contents`.
    pub fn enter_record(&mut self, contents: &Contents) -> u8 {
        if let Some(number) = self.record_numbers.get(contents) {
            return *number;
        }
        let declared = usize::from(contents.declared).checked_sub(1).map(roster_digest);
        let promises = contents.promises.iter().map(|id| id.seen().promise()).collect();
        let number = u8::try_from(self.records.len()).ok().filter(|number| *number < 128);
        let number = number.expect("more than 128 different grants records: too large a world");
        self.record_numbers.insert(contents.clone(), number);
        self.records.push((Grants { declared, promises }, contents.clone()));
        number
    }
}

fn sorted<'a>(promises: impl Iterator<Item = &'a Promise>) -> Vec<ClaimId> {
    let mut ids: Vec<ClaimId> = promises.map(ClaimId::of).collect();
    ids.sort_unstable();
    ids
}

fn map(shape: &Shape, roster: usize) -> PoolMap {
    let described = shape.rosters.get(roster).expect("a roster of the shape");
    let nodes = u32::try_from(described.wardens.len()).expect("few wardens");
    let budget = Ppm::new((u32::from(described.slots) * 1_000_000).div_ceil(nodes)).expect("no more slots than nodes");
    let policy = PoolPolicy { budget_ppm: budget, urgent_budget_ppm: budget, ..PoolPolicy::default() };
    let seats = described.wardens.iter().map(|warden| Seat { node: warden_node((*warden).into()), pool: pool(), dormant: false });
    let mut previous: Vec<Digest> = described.previous.iter().map(|roster| roster_digest((*roster).into())).collect();
    previous.sort_unstable();
    let (version, settled) = (described.version.into(), described.settled.into());
    PoolMap::new(roster_digest(roster), version, &previous, settled, &BTreeMap::from([(pool(), policy)]), seats)
}
