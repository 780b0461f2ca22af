//! Whom a warden grants a slot, and every refusal (rules 1, 2), by the cases' numbers.

use groundswell_core::lease::sight::Gone;
use groundswell_core::lease::synced::{Synced, Syncing};
use groundswell_core::lease::warden::{Refusal, Urgency};
use groundswell_core::limits::{GRANTS_BYTES, PROMISES};
use groundswell_core::record::grants::{Grants, Promise};
use groundswell_core::record::status::{Claim, Phase};
use groundswell_core::text::Pool;

use super::mesh::{claim, name, node, policy, pool_map, roster, seen, slot};

use super::stage::{DAY_MS, START_WITHIN_MS, Watch};

#[test]
fn a_slot_goes_to_the_lower_place_and_to_nobody_else_while_it_is_promised() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(4), 7, Phase::Claiming, Some(claim(7, 0)));
    watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, 0)));
    let considered = watch.considers();
    assert_eq!(watch.holders(), [node(2)]);
    assert_eq!(considered.refusals, [(seen(node(4), &claim(7, 0)), Refusal::Outranked)]);
    watch.mesh.says(node(1), 9, Phase::Claiming, Some(claim(9, 0)));
    let considered = watch.considers();
    assert_eq!(considered.refusals[0].1, Refusal::Promised, "a lower place that comes later waits");
    assert_eq!(watch.holders(), [node(2)]);
}

#[test]
fn whoever_is_disrupted_already_comes_before_the_order() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(1), 9, Phase::Claiming, Some(claim(9, 0)));
    watch.mesh.says(node(4), 7, Phase::Activating, Some(claim(7, 0)));
    assert_eq!(watch.holders(), [node(4)]);
}

#[test]
fn a_refusal_of_the_documents_is_passed_on_and_nothing_is_granted() {
    let refusals = [
        Refusal::Paused,
        Refusal::Aborted,
        Refusal::Halted,
        Refusal::OlderGeneration,
        Refusal::OutOfScope,
        Refusal::UnknownPurpose,
        Refusal::NotMember,
    ];
    for refusal in refusals {
        let mut watch = Watch::over(9, 1);
        watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, 0)));
        let mut claims = watch.mesh.candidates();
        claims[0].eligible = Err(refusal);
        let considered = watch.considers_these(&claims);
        assert_eq!(considered.refusals, [(seen(node(2), &claim(5, 0)), refusal)]);
        assert_eq!(watch.warden.promises().count(), 0);
    }
}

#[test]
fn a_pause_after_the_grant_does_not_end_it() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, 0)));
    watch.considers();
    let mut claims = watch.mesh.candidates();
    claims[0].eligible = Err(Refusal::Paused);
    let considered = watch.considers_these(&claims);
    assert_eq!((considered.decisions, considered.refusals), (vec![], vec![]));
    assert_eq!(watch.warden.promises().count(), 1);
}

#[test]
fn what_a_warden_finds_against_a_claim_itself() {
    let refused = |prepare: &dyn Fn(&mut Watch, &mut Claim)| {
        let mut watch = Watch::over(9, 1);
        let mut claim = claim(5, 0);
        prepare(&mut watch, &mut claim);
        watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim));
        let considered = watch.considers();
        assert_eq!(watch.warden.promises().count(), 0);
        considered.refusals.first().map(|(_, refusal)| *refusal)
    };
    assert_eq!(refused(&|_, claim| claim.roster.0[0] = 99), Some(Refusal::Roster));
    assert_eq!(refused(&|_, claim| claim.slot = Some(1)), None, "no such slot: not a warden of it");
    assert_eq!(refused(&|_, claim| claim.pool = Pool::new("core").unwrap()), None);
    assert_eq!(refused(&|_, claim| claim.slot = None), None, "a repair without a slot is no warden's business");
    let convict = |watch: &mut Watch, _: &mut Claim| {
        watch.mesh.convicted.insert(node(2));
    };
    assert_eq!(refused(&convict), Some(Refusal::Convicted));
    let written_off = |watch: &mut Watch, _: &mut Claim| {
        watch.mesh.written_off.insert(node(2), name(5));
    };
    assert_eq!(refused(&written_off), Some(Refusal::WrittenOff));
    let retired = |watch: &mut Watch, _: &mut Claim| {
        watch.mesh.gone.insert(node(2), Gone::Retired);
    };
    assert_eq!(refused(&retired), Some(Refusal::WrittenOff));
    let silent = |watch: &mut Watch, _: &mut Claim| {
        watch.mesh.unheard_ms.insert(node(2), START_WITHIN_MS + 1);
    };
    assert_eq!(refused(&silent), Some(Refusal::Stale));
    let restarted = |watch: &mut Watch, _: &mut Claim| watch.synced = Synced::default();
    assert_eq!(refused(&restarted), Some(Refusal::Syncing(Syncing { have: 0, need: 2 })));
    let set_back = |watch: &mut Watch, _: &mut Claim| watch.warden.set_back(None, 0, Some(DAY_MS));
    assert_eq!(refused(&set_back), Some(Refusal::Amnesia { left_ms: DAY_MS }));
}

#[test]
fn a_full_grants_record_refuses_and_still_fits() {
    let mut watch = Watch::over(1, 1);
    let long = Pool::new("p".repeat(64)).unwrap();
    let far = groundswell_core::record::ClaimName(groundswell_core::record::Stamp { incarnation: u64::MAX, counter: u64::MAX });
    let promise = |slot: u16| {
        let slot = u16::MAX - slot;
        Promise { pool: long.clone(), slot, holder: node(7), claim: far, nonce: u64::MAX, roster: roster() }
    };
    let full = Grants { declared: Some(roster()), promises: (0..u16::try_from(PROMISES).unwrap()).map(promise).collect() };
    let bytes = postcard::to_allocvec(&full).unwrap();
    assert!(bytes.len() + 200 < GRANTS_BYTES, "{} bytes and room for head and signature", bytes.len());
    watch.warden.set_back(Some(&full), 0, Some(1));
    watch.up_ms = 1;
    watch.considers();
    watch.mesh.says(node(0), 5, Phase::Claiming, Some(claim(5, 0)));
    assert_eq!(watch.considers().refusals, [(seen(node(0), &claim(5, 0)), Refusal::Full)]);
}

#[test]
fn urgent_claims_may_use_slots_that_others_may_not() {
    let mut watch = Watch::over(9, 1);
    let mut policy = policy(1, 9);
    policy.urgent_budget_ppm = groundswell_core::number::Ppm::ALL;
    watch.map = pool_map(9, policy);
    let number = (1..9).find(|number| watch.map.wardens(&slot(*number)).unwrap().contains(&watch.me)).unwrap();
    watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, number)));
    let mut claims = watch.mesh.candidates();
    watch.considers_these(&claims);
    assert_eq!(watch.warden.promises().count(), 0);
    claims[0].eligible = Ok(Urgency::Urgent);
    watch.considers_these(&claims);
    assert_eq!(watch.warden.promises().count(), 1);
}
