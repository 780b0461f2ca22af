//! How a node of the small world sees it, and what the core decides from what it sees.

use groundswell_core::lease::claim::{End, SeenClaim};
use groundswell_core::lease::governing::Rosters;
use groundswell_core::lease::sight::{Gone, Sight};
use groundswell_core::lease::start::{MadeAt, Start, StartFacts, may_start};
use groundswell_core::lease::synced::Synced;
use groundswell_core::lease::warden::{Candidate, Decision, Facts, Refusal, Urgency, Warden};
use groundswell_core::lease::wardens::Wardens;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::grants::{Grants, Promise};
use groundswell_core::record::status::Status;
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::time::{Now, Time, Timestamp};

use super::book::{Book, ClaimId, Contents, Says, claimant_node, slot, warden_node};
use super::shape::{Mutant, Shape};
use super::state::{CLAIMANTS, Standing, State, WARDENS};

/// `presumeLostAfter` of the pool: its default, 24 hours.
pub(super) const PRESUME_LOST_AFTER_MS: u64 = 86_400_000;
/// `startWithin` of the pool: its default, 60 seconds.
const START_WITHIN_MS: u64 = 60_000;

/// What one node sees at one look.
pub(super) struct View<'a> {
    pub(super) book: &'a Book,
    /// The record read of each claimant.
    pub(super) statuses: [Option<(ClaimId, Says)>; CLAIMANTS],
    /// The record read of each warden.
    pub(super) grants: [Option<&'a Grants>; WARDENS],
    /// The highest claim of each claimant that is seen written off.
    pub(super) written_off: [Option<ClaimName>; CLAIMANTS],
    /// Claimants not heard of for `presumeLostAfter`.
    pub(super) unheard: [bool; CLAIMANTS],
    /// The one claimant whose claims may be granted at this look; `None`: anybody's.
    pub(super) only: Option<usize>,
}

impl<'a> View<'a> {
    pub(super) fn blank(book: &'a Book) -> Self {
        Self {
            book,
            statuses: [None; CLAIMANTS],
            grants: [None; WARDENS],
            written_off: [None; CLAIMANTS],
            unheard: [false; CLAIMANTS],
            only: None,
        }
    }

    /// Claimants not heard of for `presumeLostAfter`, one bit each.
    pub(super) fn silent(&self) -> u8 {
        (0_u8..).zip(self.unheard).filter(|(_, unheard)| *unheard).fold(0, |set, (at, _)| set | 1 << at)
    }

    /// Every standing claim in what is read.
    fn candidates(&self) -> Vec<Candidate> {
        let read = self.statuses.iter().enumerate().filter_map(|(at, read)| Some((at, (*read)?)));
        let claims = read.flat_map(|(at, (id, says))| {
            let (_, status) = self.book.status(id, says);
            SeenClaim::standing(claimant_node(at), status).map(move |claim| (at, claim))
        });
        let place = |at: usize| u64::try_from(at).expect("few claimants");
        let eligible = |at: usize| match self.only {
            Some(only) if only != at => Err(Refusal::Paused),
            _ => Ok(Urgency::Ordinary),
        };
        claims.map(|(at, claim)| Candidate { claim, place: place(at), eligible: eligible(at) }).collect()
    }
}

/// Claimant or warden, with its index.
enum Who {
    Claimant(usize),
    Warden(usize),
}

fn who(node: &NodeId) -> Who {
    let first = usize::from(node.0.first().copied().expect("32 bytes"));
    if first >= 100 { Who::Claimant(first - 100) } else { Who::Warden(first - 1) }
}

impl Sight for View<'_> {
    fn status(&self, node: &NodeId) -> Option<(Stamp, &Status)> {
        let Who::Claimant(at) = who(node) else { return None };
        let (id, says) = (*self.statuses.get(at)?)?;
        Some(self.book.status(id, says))
    }
    fn grants(&self, node: &NodeId) -> Option<&Grants> {
        let Who::Warden(at) = who(node) else { return None };
        *self.grants.get(at)?
    }
    fn promises<'a>(&'a self, node: &NodeId) -> impl Iterator<Item = &'a Promise> + 'a {
        self.grants(node).into_iter().flat_map(|grants| &grants.promises)
    }
    fn is_convicted(&self, _: &NodeId) -> bool {
        false
    }
    fn gone(&self, _: &NodeId) -> Option<Gone> {
        None
    }
    fn gone_for_ms(&self, _: &NodeId) -> Option<u64> {
        None
    }
    fn written_off(&self, node: &NodeId) -> Option<ClaimName> {
        let Who::Claimant(at) = who(node) else { return None };
        *self.written_off.get(at)?
    }
    fn unheard_ms(&self, node: &NodeId) -> Option<u64> {
        let Who::Claimant(at) = who(node) else { return None };
        Some(if *self.unheard.get(at)? { PRESUME_LOST_AFTER_MS } else { 0 })
    }
}

/// What came of a warden's look.
pub(super) struct Looked {
    pub(super) warden: Warden,
    /// It has something to publish, as the node sees it: an end alone needs no word.
    pub(super) news: bool,
    /// Claims whose holders it presumed lost.
    pub(super) lost: Vec<ClaimId>,
    /// Claimants that it had not heard of for `presumeLostAfter`, one bit each.
    pub(super) silent: u8,
}

/// A warden looks once, `up_ms` after its store was set back if it was. `None`: nothing changed.
pub(super) fn look(warden: &Warden, me: usize, view: &View<'_>, rosters: &Rosters<'_>, up_ms: u64) -> Option<Looked> {
    let mut warden = warden.clone();
    let claims = view.candidates();
    let synced = synced();
    let facts = Facts { me: warden_node(me), rosters, claims: &claims, sight: view, synced: &synced, up_ms };
    let considered = warden.consider(&facts);
    let decisions = considered.decisions;
    if decisions.is_empty() {
        return None;
    }
    let lost = decisions.iter().filter_map(|decision| match decision {
        Decision::End { promise, why: End::PresumedLost } => Some(ClaimId::of(promise)),
        _ => None,
    });
    let lost = lost.collect();
    Some(Looked { warden, news: decisions.iter().any(Decision::needs_word), lost, silent: view.silent() })
}

/// In touch with every warden.
pub(super) fn synced() -> Synced {
    let mut synced = Synced::default();
    (0..WARDENS).for_each(|warden| synced.note(warden_node(warden)));
    synced
}

/// The records that a claimant could find most helpful: the newest of the others, and of each warden those that list its claim.
pub(super) fn can_start(book: &mut Book, shape: &Shape, state: &State, at: usize, liars: bool) -> bool {
    let Some(claimant) = state.claimants.get(at) else { return false };
    let Some(place) = claimant.place() else { return false };
    let index = u8::try_from(at).expect("few claimants");
    let mine = ClaimId { claimant: index, number: claimant.made, place };
    let lie = book.enter_record(&Contents { declared: place.roster + 1, promises: vec![mine], amnesia: false });
    let book = &*book;
    let map = book.maps().get(usize::from(place.roster)).expect("a roster of the shape");
    let Some(wardens) = map.wardens(&slot(place.slot)) else { return false };
    let cut = usize::from(shape.mutant == Some(Mutant::QuorumOneLower));
    let wardens = Wardens { quorum: wardens.quorum - cut, ..wardens.clone() };

    let mut view = View::blank(book);
    for (other, (claimant, read)) in state.claimants.iter().zip(&mut view.statuses).enumerate() {
        *read = newest(other, claimant);
    }
    // What each warden may show it, best first.
    let ignored = shape.mutant == Some(Mutant::NameIgnored);
    let helps = |id: &ClaimId| if ignored { id.claimant == index && id.place == place } else { *id == mine };
    let shows = |warden: usize| -> Vec<u8> {
        if shape.is_liar(warden) {
            return if liars { vec![lie] } else { Vec::new() };
        }
        let said = state.keepers.get(warden).map_or(0, |keeper| keeper.said);
        records_in(said).filter(|record| book.record(*record).1.promises.iter().any(helps)).collect()
    };
    let choices: Vec<Vec<u8>> = (0..WARDENS).map(shows).collect();
    let mut picked = [0; WARDENS];
    loop {
        let read = picked.iter().zip(&choices).map(|(pick, choices)| choices.get(*pick).copied());
        for (grants, read) in view.grants.iter_mut().zip(read) {
            // The mutant takes what was meant for another claim of its own: as if the record said so.
            *grants = read.map(|record| &book.record(if ignored { lie } else { record }).0);
        }
        let spent_starts = shape.mutant == Some(Mutant::SpentStarts);
        if decides_to_start(mine, claimant.standing, &wardens, &view, spent_starts) {
            return true;
        }
        if !next(&mut picked, &choices) {
            return false;
        }
    }
}

/// The next combination; whether there was one.
pub(super) fn next(picked: &mut [usize; WARDENS], choices: &[Vec<u8>]) -> bool {
    for (pick, choices) in picked.iter_mut().zip(choices) {
        *pick += 1;
        if *pick < choices.len() {
            return true;
        }
        *pick = 0;
    }
    false
}

/// The core's own decision, under every clock that the standing allows.
fn decides_to_start(mine: ClaimId, standing: Standing, wardens: &Wardens, view: &View<'_>, spent_starts: bool) -> bool {
    let at = |ms: u64| Now { awake_ms: ms, boot: Time(ms), wall: Timestamp::from_seconds(ms / 1_000) };
    let made = MadeAt::now(&at(0));
    let clocks: &[(Option<MadeAt>, Now)] = match standing {
        Standing::Fresh => &[(Some(made), at(0))],
        Standing::Spent if spent_starts => &[(Some(made), at(0))],
        Standing::Spent => &[(None, at(0)), (Some(made), at(START_WITHIN_MS + 1))],
        _ => return false,
    };
    clocks.iter().any(|(made, now)| {
        let facts = StartFacts {
            made: *made,
            now: *now,
            start_within_ms: START_WITHIN_MS,
            stopped: false,
            older_generation: false,
            roster_moved: false,
            wardens: Some(wardens),
            synced: Ok(()),
        };
        may_start(&mine.seen(), &facts, view) == Start::Yes
    })
}

/// The newest record of a claimant; `None`: it has said nothing.
pub(super) fn newest(at: usize, claimant: &super::state::Claimant) -> Option<(ClaimId, Says)> {
    let place = claimant.place()?;
    let id = ClaimId { claimant: u8::try_from(at).expect("few claimants"), number: claimant.made, place };
    Some((
        id,
        if claimant.is_active() {
            Says::Active
        } else if claimant.stands() {
            Says::Claimed
        } else {
            Says::Released
        },
    ))
}

/// The numbers of the records in a set of them.
pub(super) fn records_in(mut said: u128) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let next = u8::try_from(said.trailing_zeros()).ok().filter(|next| *next < 128)?;
        said &= said - 1;
        Some(next)
    })
}
