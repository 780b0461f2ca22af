//! How one member is counted: a pure function of what its record says and of the generation (design, section 6).
//!
//! In this order, the first that holds: revoked; convicted; a failure that is not forgiven; soaked; retired or
//! removed; forgiven; at work; skipped; waiting; unseen. Silence and excuse need a clock: see [`super::tally`].

use alloc::vec::Vec;

use super::applies::Skip;
use super::forgiveness::Forgiveness;
use super::report::MemberReport;
use super::wave::Place;
use crate::documents::rollout::Rollout;
use crate::node::view::Standing;
use crate::record::ClaimName;
use crate::record::status::{HoldCode, Outcome, Phase};

/// What of a generation decides how members are counted.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) generation: u64,
    pub(super) forgiveness: Forgiveness,
    /// Per wave, in milliseconds.
    soak_ms: Vec<u64>,
    /// Timeout + revert + grace, in milliseconds: what a claim may take after it may start.
    work_ms: u64,
    grace_ms: u64,
}

impl Terms {
    pub(super) fn of(rollout: &Rollout) -> Self {
        let work = [rollout.upgrade_timeout_seconds, rollout.revert_timeout_seconds, rollout.grace_seconds];
        Self {
            generation: rollout.generation.get(),
            forgiveness: Forgiveness::of(rollout),
            soak_ms: rollout.waves.iter().map(|wave| wave.soak_seconds.saturating_mul(1_000)).collect(),
            work_ms: work.into_iter().fold(0, u64::saturating_add).saturating_mul(1_000),
            grace_ms: rollout.grace_seconds.saturating_mul(1_000),
        }
    }

    /// How many waves the descriptor has.
    pub(super) fn waves(&self) -> u32 {
        u32::try_from(self.soak_ms.len()).unwrap_or(u32::MAX)
    }

    /// The implicit last wave soaks as long as the last one.
    fn soak_ms(&self, wave: u32) -> u64 {
        let own = usize::try_from(wave).ok().and_then(|wave| self.soak_ms.get(wave));
        own.or(self.soak_ms.last()).copied().unwrap_or(0)
    }
}

/// How far a member is, as far as silence goes: the clock starts again when this changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing is claimed.
    None,
    /// A claim stands, and nothing is touched.
    Claiming(Option<ClaimName>),
    /// It may be touching its running version.
    Activating(Option<ClaimName>),
    /// Confirmed, not vouched. The number of verdicts tells one soak from the next.
    Confirmed(usize),
}

impl Stage {
    /// Whether it holds or asks for a slot.
    pub(super) fn holds(self) -> bool {
        matches!(self, Self::Claiming(_) | Self::Activating(_))
    }
}

/// The stage that a report tells of.
pub(super) fn stage(report: &MemberReport) -> Stage {
    match (report.phase, report.claim) {
        (Phase::Activating, claim) => Stage::Activating(claim),
        // A record that says soaked without a verdict vouches for nothing.
        (Phase::Confirmed | Phase::Soaked, _) => Stage::Confirmed(report.verdicts.len()),
        (Phase::Claiming, claim) | (_, claim @ Some(_)) => Stage::Claiming(claim),
        _ => Stage::None,
    }
}

/// How a member is counted, before silence and excuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) standing: Standing,
    /// Its stage may stay as it is for so long; then it is silent, which is a failure.
    pub(super) silent_after_ms: Option<u64>,
}

impl From<Standing> for Judged {
    fn from(standing: Standing) -> Self {
        Self { standing, silent_after_ms: None }
    }
}

/// Counts one member. `last_claim`: the latest claim that it was seen with.
pub(super) fn judge(
    terms: &Terms,
    place: &Place,
    report: &MemberReport,
    last_claim: Option<ClaimName>,
    start_within_seconds: u64,
) -> Judged {
    let (node, forgiveness) = (&place.node, &terms.forgiveness);
    if report.skip == Some(Skip::Revoked) {
        return Standing::NotApplicable.into();
    }
    if report.convicted {
        return convict(forgiveness, place, report).into();
    }
    let failure = failed_verdict(report);
    if failure.is_some_and(|claim| !forgiveness.clears(node, claim))
        || (failure.is_none() && failed_phase(report) && !forgiveness.names(node))
    {
        return Standing::Failed.into();
    }
    let vouches = |(claim, outcome): &(Option<ClaimName>, Outcome)| {
        *outcome == Outcome::Soaked && failure.is_none_or(|failed| *claim > failed)
    };
    if report.verdicts.iter().any(vouches) {
        return Standing::Soaked.into();
    }
    if matches!(report.skip, Some(Skip::Retired | Skip::Removed)) {
        return Standing::NotApplicable.into();
    }
    if forgiveness.clears(node, current_claim(report, last_claim)) {
        return Standing::Forgiven.into();
    }
    match stage(report) {
        Stage::Confirmed(_) => at_work(terms.soak_ms(place.wave).saturating_add(terms.grace_ms)),
        Stage::Claiming(_) | Stage::Activating(_) => {
            at_work(terms.work_ms.saturating_add(start_within_seconds.saturating_mul(1_000)))
        }
        Stage::None if report.skip.is_some() => Standing::NotApplicable.into(),
        Stage::None if report.generation.is_some_and(|seen| seen >= terms.generation) => Standing::Waiting.into(),
        Stage::None => Standing::Unseen.into(),
    }
}

/// Whether a waiting member says that only others, a slot or its turn, keep it from claiming.
pub(super) fn could_claim(report: &MemberReport) -> bool {
    let held_by_others = report.hold.is_none_or(|hold| {
        matches!(hold.code, HoldCode::Queued | HoldCode::SlotsTaken | HoldCode::Granting | HoldCode::RosterChange)
    });
    matches!(report.phase, Phase::Waiting | Phase::Staged) && held_by_others
}

/// The claim to name in order to forgive what failed.
pub(super) fn failed_claim(report: &MemberReport, last_claim: Option<ClaimName>) -> Option<ClaimName> {
    failed_verdict(report).unwrap_or_else(|| current_claim(report, last_claim))
}

/// A convict's verdicts count for nothing. With a claim it stays a failure until that is forgiven: it may have been
/// disrupted, and its slot stays taken. Without, it is unseen for good, and excused in time.
fn convict(forgiveness: &Forgiveness, place: &Place, report: &MemberReport) -> Standing {
    if forgiveness.clears(&place.node, report.claim) {
        Standing::Forgiven
    } else if report.claim.is_some() {
        Standing::Failed
    } else {
        Standing::Unseen
    }
}

/// The latest claim with a verdict of failure.
fn failed_verdict(report: &MemberReport) -> Option<Option<ClaimName>> {
    let failures = report.verdicts.iter().filter(|(_, outcome)| *outcome != Outcome::Soaked);
    failures.map(|(claim, _)| *claim).max()
}

fn failed_phase(report: &MemberReport) -> bool {
    matches!(report.phase, Phase::Failed | Phase::RolledBack)
}

/// The claim under which it is what it is. A record that has confirmed may carry its claim no more.
fn current_claim(report: &MemberReport, last_claim: Option<ClaimName>) -> Option<ClaimName> {
    match stage(report) {
        Stage::Confirmed(_) => report.claim.or(last_claim),
        _ => report.claim,
    }
}

fn at_work(silent_after_ms: u64) -> Judged {
    Judged { standing: Standing::InProgress, silent_after_ms: Some(silent_after_ms) }
}
