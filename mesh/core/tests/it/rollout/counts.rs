//! Which rollout counts for a node.

use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::rollout::{Mode, Rollout, State};
use groundswell_core::number::Sequence;
use groundswell_core::rollout::counts::{Candidate, Counting, supersedes, which};
use groundswell_core::text::Product;

use super::fixture::*;

fn at(id: &str, sequence: u64, pools: &[&str]) -> Rollout {
    let mut rollout = rollout(id, percents(&[100_000, 1_000_000]));
    rollout.release.sequence = Sequence::new(sequence).unwrap();
    rollout.scope.pools = pools.iter().map(|name| pool(name)).collect();
    rollout
}

fn counting<'a>(certificate: &Certificate, candidates: &[Candidate<'a>]) -> Counting<'a> {
    which(&Product::new("bcd").unwrap(), certificate, candidates)
}

fn listed<'a>(rollout: &'a Rollout, certificate: &'a Certificate) -> Candidate<'a> {
    Candidate { rollout, listed: Some(certificate), complete: false }
}

fn unlisted(rollout: &Rollout, complete: bool) -> Candidate<'_> {
    Candidate { rollout, listed: None, complete }
}

#[test]
fn the_highest_sequence_whose_scope_has_the_node_counts() {
    let (old, new, other) = (at("a", 14, &["edge"]), at("b", 15, &["edge"]), at("c", 16, &["core"]));
    let edge = certificate(1, "edge");
    let candidates = [listed(&old, &edge), listed(&new, &edge), listed(&other, &edge)];
    assert_eq!(counting(&edge, &candidates), Counting::Listed(&new));
    assert_eq!(counting(&certificate(2, "site"), &candidates[..0]), Counting::None);
}

#[test]
fn d9_a_hotfix_for_one_pool_ends_the_older_rollout_for_all() {
    let both = at("a", 14, &["core", "edge"]);
    let hotfix = at("b", 15, &["edge"]);
    let core = certificate(1, "core");
    assert!(supersedes(&hotfix, &both) && !supersedes(&both, &hotfix));
    let candidates = [listed(&both, &core), listed(&hotfix, &core)];
    assert_eq!(counting(&core, &candidates), Counting::Over { rollout: &both, by: &hotfix });
}

#[test]
fn l2_a_node_that_was_away_when_its_rollout_passed_still_converges() {
    let both = at("a", 14, &["core", "edge"]);
    let hotfix = at("b", 15, &["edge"]);
    let core = certificate(1, "core");
    let passed = Candidate { complete: true, ..listed(&both, &core) };
    assert_eq!(counting(&core, &[passed, listed(&hotfix, &core)]), Counting::Listed(&both));
}

#[test]
fn a_newcomer_gets_the_newest_rollout_that_has_passed_even_if_superseded() {
    let (old, new) = (at("a", 14, &[]), at("b", 15, &[]));
    let newcomer = certificate(9, "edge");
    assert_eq!(counting(&newcomer, &[unlisted(&old, true), unlisted(&new, false)]), Counting::Late(&old));
    assert_eq!(counting(&newcomer, &[unlisted(&old, true), unlisted(&new, true)]), Counting::Late(&new));
    assert_eq!(counting(&newcomer, &[unlisted(&old, false), unlisted(&new, false)]), Counting::None);
}

#[test]
fn d23_what_was_aborted_is_never_offered_to_newcomers() {
    let (old, mut new) = (at("a", 14, &[]), at("b", 15, &[]));
    new.state = State::Aborted;
    let newcomer = certificate(9, "edge");
    assert_eq!(counting(&newcomer, &[unlisted(&old, true), unlisted(&new, false)]), Counting::Late(&old));
    assert_eq!(counting(&newcomer, &[unlisted(&old, true), unlisted(&new, true)]), Counting::Late(&old));
    let member = certificate(1, "edge");
    assert_eq!(counting(&member, &[listed(&old, &member), listed(&new, &member)]), Counting::Listed(&new));
}

#[test]
fn d10_a_rollout_for_named_nodes_is_not_offered_to_newcomers() {
    let mut named = at("a", 14, &[]);
    named.waves = vec![groundswell_core::documents::rollout::Wave { labels: Some([].into()), ..Default::default() }];
    assert_eq!(counting(&certificate(9, "edge"), &[unlisted(&named, true)]), Counting::None);
}

#[test]
fn of_two_with_one_sequence_an_aborted_one_yields_and_two_live_ones_pause() {
    let (one, mut two) = (at("a", 14, &["edge"]), at("b", 14, &[]));
    let edge = certificate(1, "edge");
    let (first, second) = (one.id.clone(), two.id.clone());
    let clash = Counting::Conflict(&first, &second);
    assert_eq!(counting(&edge, &[listed(&one, &edge), listed(&two, &edge)]), clash);
    let core = certificate(2, "core");
    assert_eq!(counting(&core, &[listed(&one, &core), listed(&two, &core)]), clash, "both count as paused, everywhere");
    two.state = State::Aborted;
    assert_eq!(counting(&edge, &[listed(&one, &edge), listed(&two, &edge)]), Counting::Listed(&one));
    let apart = at("c", 14, &["core"]);
    assert_eq!(counting(&edge, &[listed(&one, &edge), listed(&apart, &edge)]), Counting::Listed(&one));
}

#[test]
fn a_rehearsal_moves_nobody_and_ends_nothing() {
    let (real, mut rehearsal) = (at("a", 14, &[]), at("b", 15, &[]));
    rehearsal.mode = Mode::Rehearse;
    let edge = certificate(1, "edge");
    assert_eq!(counting(&edge, &[listed(&real, &edge), listed(&rehearsal, &edge)]), Counting::Listed(&real));
}

#[test]
fn labels_with_two_values_keep_scopes_apart() {
    let (mut fast, mut stable) = (at("a", 14, &[]), at("b", 15, &[]));
    let channel = || groundswell_core::text::LabelKey::new("channel").unwrap();
    fast.scope.labels.insert(channel(), groundswell_core::text::LabelValue::new("fast").unwrap());
    stable.scope.labels.insert(channel(), groundswell_core::text::LabelValue::new("stable").unwrap());
    assert!(!supersedes(&stable, &fast));
    stable.scope.labels.clear();
    assert!(supersedes(&stable, &fast));
}
