//! When a promise ends (rules 4, 5), by the cases' numbers.

use groundswell_core::lease::claim::{End, end_of};
use groundswell_core::lease::sight::Gone;
use groundswell_core::lease::warden::Decision;
use groundswell_core::record::status::{Outcome, Phase, Verdict};
use groundswell_core::text::{Reason, RolloutId};

use super::mesh::{Mesh, claim, name, node, policy, pool_map, seen, stamp, status};

use super::stage::{DAY_MS, Watch};

#[test]
fn l4_d13_a_grant_ends_with_the_holders_own_record_and_not_before() {
    let promise = seen(node(2), &claim(5, 0)).promise();
    let end_when = |counter, phase, claim| {
        let mut mesh = Mesh::default();
        mesh.says(node(2), counter, phase, claim);
        end_of(&promise, &mesh)
    };
    let given_back = Some(End::GivenBack);
    assert_eq!(end_when(5, Phase::Claiming, Some(claim(5, 0))), None);
    assert_eq!(end_when(6, Phase::Activating, Some(claim(5, 0))), None);
    for phase in [Phase::Confirmed, Phase::Soaked, Phase::RolledBack, Phase::Failed] {
        assert_eq!(end_when(6, phase, Some(claim(5, 0))), given_back, "{phase:?}: soak is not disruption");
    }
    assert_eq!(end_when(6, Phase::Staged, None), given_back, "withdrawn");
    assert_eq!(end_when(7, Phase::Claiming, Some(claim(7, 0))), given_back, "claimed anew");
    assert_eq!(end_when(4, Phase::Staged, None), None, "a record older than the claim knows nothing of it");
    assert_eq!(end_of(&promise, &Mesh::default()), None, "no record at all");
    let mut other_life = claim(5, 0);
    other_life.nonce += 1;
    assert_eq!(end_when(6, Phase::Claiming, Some(other_life)), None, "a set-back store frees nothing");
    // A verdict names the claim: it is over whatever the phase has moved on to.
    let mut mesh = Mesh::default();
    let mut ended = status(Phase::Waiting, Some(claim(5, 0)));
    let rollout = RolloutId::new("rollout_1").unwrap();
    let verdict = Verdict {
        rollout,
        claim: Some(name(5)),
        outcome: Outcome::RolledBack,
        reason: Reason::none(),
        confirmed_at: None,
        soaked_at: None,
    };
    ended.products.values_mut().for_each(|section| section.verdicts.push(verdict.clone()));
    mesh.statuses.insert(node(2), (stamp(6), ended));
    assert_eq!(end_of(&promise, &mesh), given_back);
}

#[test]
fn the_slot_passes_on_in_the_same_look_that_sees_it_given_back() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.considers();
    watch.mesh.says(node(4), 7, Phase::Claiming, Some(claim(7, 0)));
    watch.mesh.says(node(2), 6, Phase::Confirmed, None);
    let considered = watch.considers();
    let promise = seen(node(2), &claim(5, 0)).promise();
    let granted = seen(node(4), &claim(7, 0)).promise();
    assert_eq!(considered.decisions, [Decision::End { promise, why: End::GivenBack }, Decision::Grant(granted)]);
}

#[test]
fn d1_a_forgiven_claim_ends_what_was_and_never_what_comes() {
    let mut mesh = Mesh::default();
    mesh.written_off.insert(node(2), name(5));
    let promise = |counter| seen(node(2), &claim(counter, 0)).promise();
    assert_eq!(end_of(&promise(4), &mesh), Some(End::WrittenOff), "an earlier one of that node");
    assert_eq!(end_of(&promise(5), &mesh), Some(End::WrittenOff));
    assert_eq!(end_of(&promise(6), &mesh), None);
    let mut watch = Watch::over(9, 1);
    watch.mesh = mesh;
    watch.mesh.says(node(2), 6, Phase::Claiming, Some(claim(6, 0)));
    assert_eq!(watch.holders(), [node(2)], "it claims anew and is granted");
}

#[test]
fn l1_a_holder_that_vanished_is_freed_by_forgiving_revoking_removing_or_a_day_of_silence() {
    let vanished = || {
        let mut watch = Watch::over(9, 1);
        watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
        watch.considers();
        assert_eq!(watch.warden.promises().count(), 1);
        watch
    };
    let ends = |mut watch: Watch| {
        watch.considers().decisions.into_iter().find_map(|decision| match decision {
            Decision::End { why, .. } => Some(why),
            _ => None,
        })
    };
    let mut watch = vanished();
    watch.mesh.written_off.insert(node(2), name(5));
    assert_eq!(ends(watch), Some(End::WrittenOff));
    for gone in [Gone::Retired, Gone::Revoked, Gone::Removed] {
        let mut watch = vanished();
        watch.mesh.gone.insert(node(2), gone);
        assert_eq!(ends(watch), Some(End::Gone(gone)));
    }
    let mut watch = vanished();
    watch.mesh.unheard_ms.insert(node(2), DAY_MS - 1);
    let considered = watch.considers();
    assert_eq!((considered.decisions.len(), considered.look_again_after_ms), (0, Some(1)));
    watch.mesh.unheard_ms.insert(node(2), DAY_MS);
    assert_eq!(ends(watch), Some(End::PresumedLost));
}

#[test]
fn l2_a_node_that_dies_in_its_upgrade_keeps_its_slot_for_hours() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.considers();
    watch.mesh.unheard_ms.insert(node(2), DAY_MS / 2);
    watch.mesh.says(node(4), 7, Phase::Claiming, Some(claim(7, 0)));
    assert_eq!(watch.holders(), [node(2)]);
}

#[test]
fn where_nobody_is_presumed_lost_silence_ends_nothing() {
    let mut watch = Watch::over(9, 1);
    watch.map = pool_map(9, groundswell_core::documents::roster::PoolPolicy { presume_lost_after_seconds: 0, ..policy(1, 9) });
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.considers();
    watch.mesh.unheard_ms.insert(node(2), 1_000 * DAY_MS);
    assert_eq!(watch.considers().decisions, []);
}

#[test]
fn nobody_is_presumed_lost_before_the_warden_has_synced_again() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.considers();
    watch.mesh.unheard_ms.insert(node(2), DAY_MS);
    watch.restarts();
    assert_eq!(watch.considers().decisions, [], "what it missed may be news of the holder");
    (0..9).for_each(|number| watch.synced.note(node(number)));
    assert_eq!(watch.considers().decisions.len(), 1);
}

#[test]
fn d20_a_convicts_slot_stays_taken_until_it_is_written_off() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.considers();
    watch.mesh.convicted.insert(node(2));
    watch.mesh.says(node(2), 6, Phase::Confirmed, None);
    watch.mesh.unheard_ms.insert(node(2), 10 * DAY_MS);
    assert_eq!(watch.considers().decisions, []);
    watch.mesh.written_off.insert(node(2), name(5));
    assert_eq!(watch.considers().decisions.len(), 1);
}

#[test]
fn a_presumed_lost_holder_that_returns_in_its_upgrade_is_granted_its_slot_again() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.considers();
    watch.mesh.unheard_ms.insert(node(2), DAY_MS);
    // Not while it is silent: the claim would come back in the same look.
    watch.considers();
    assert_eq!(watch.warden.promises().count(), 0);
    watch.mesh.unheard_ms.insert(node(2), 0);
    watch.mesh.says(node(2), 6, Phase::Activating, Some(claim(5, 0)));
    assert_eq!(watch.holders(), [node(2)]);
}

#[test]
fn an_end_by_silence_is_told_for_nobody_else_can_read_it_and_others_need_no_word() {
    let told_when = |unheard_ms: u64, written_off: Option<u64>, confirms: bool| {
        let mut watch = Watch::over(9, 1);
        watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
        watch.considers();
        watch.mesh.unheard_ms.insert(node(2), unheard_ms);
        watch.mesh.written_off.extend(written_off.map(|counter| (node(2), name(counter))));
        if confirms {
            watch.mesh.says(node(2), 6, Phase::Confirmed, None);
        }
        watch.considers().decisions.iter().map(Decision::needs_word).collect::<Vec<_>>()
    };
    assert_eq!(told_when(DAY_MS, None, false), [true]);
    assert_eq!(told_when(0, None, true), [false]);
    assert_eq!(told_when(0, Some(5), false), [false]);
}
