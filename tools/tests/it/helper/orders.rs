//! Orders out of turn, about things that are not there, or from somebody else.

use std::fs;

use groundswell_agent::helper::wire::{LastFailure, Order, Outcome, Reply, Why};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::rollout::{Rollout, State};
use groundswell_core::text::{Product, Reason};

use super::bench::{Bench, PATIENCE, claim, outcome, refused};
use super::world::{next, product, program, sign};

#[tokio::test]
async fn to_confirm_what_was_never_activated() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let reply = client.confirm(papers.id()).await;
    assert!(matches!(outcome(&reply), Outcome::ConfirmFailed { .. }), "{reply:?}");
    let state = client.state().await;
    assert_eq!((state.floor.get(), state.running), (0, None));
}

#[tokio::test]
async fn to_confirm_another_release_than_the_one_on_trial() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    client.activate(papers.id()).await;
    let reply = client.confirm(Digest::of(b"another")).await;
    assert!(matches!(outcome(&reply), Outcome::ConfirmFailed { .. }), "{reply:?}");
    assert_eq!(client.state().await.trial, Some(papers.id()));
}

#[tokio::test]
async fn to_activate_what_was_never_staged() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.client().await;
    for document in bench.world.published(&papers) {
        client.document(&document).await;
    }
    let reply = client.activate(papers.id()).await;
    assert!(
        matches!(outcome(&reply), Outcome::ActivateFailed { reason, at_fault: false } if reason.contains("does not hold")),
        "{reply:?}"
    );
    assert!(bench.holds_nothing() && bench.started().is_empty());
}

#[tokio::test]
async fn to_activate_a_digest_that_no_document_knows() {
    let bench = Bench::running();
    let mut client = bench.staged(&bench.world.papers(1), &program(1)).await;
    refused(&client.activate(Digest::of(b"unknown")).await, Why::Held, "release");
    assert!(bench.started().is_empty());
}

#[tokio::test]
async fn to_activate_the_old_release_that_lies_in_the_other_slot() {
    let bench = Bench::running();
    let one = bench.world.papers(1);
    bench.installed(&one, &program(1)).await;
    let mut client = bench.installed(&bench.world.papers(2), &program(2)).await;
    refused(&client.activate(one.id()).await, Why::Warrant, "moves to release");
    assert_eq!(bench.current(), Some(program(2)));
}

#[tokio::test]
async fn to_activate_what_was_paused_after_it_was_staged() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let paused = Rollout { state: State::Paused, ..next(&papers.rollout) };
    client.document(&sign(&Body::Rollout(paused), &[&bench.world.movers[0]])).await;
    refused(&client.activate(papers.id()).await, Why::Held, "paused");
    assert!(bench.started().is_empty());
}

#[tokio::test]
async fn to_stage_while_another_version_is_on_trial() {
    let bench = Bench::running();
    let one = bench.world.papers(1);
    let mut client = bench.staged(&one, &program(1)).await;
    client.activate(one.id()).await;
    let two = bench.world.papers(2);
    let reply = bench.stage(&bench.world.published(&two), two.id(), &program(2)).await;
    assert!(matches!(outcome(&reply), Outcome::StageFailed { reason, .. } if reason.contains("not confirmed")), "{reply:?}");
    assert_eq!(bench.current(), Some(program(1)));
}

#[tokio::test]
async fn to_go_back_behind_what_is_confirmed() {
    let bench = Bench::running();
    bench.installed(&bench.world.papers(1), &program(1)).await;
    let two = bench.world.papers(2);
    let mut client = bench.installed(&two, &program(2)).await;
    let reply = client.revert(two.id()).await;
    assert_eq!(outcome(&reply), &Outcome::Confirmed, "confirmed is the point of no return");
    assert_eq!(bench.current(), Some(program(2)));
    assert_eq!(client.state().await.floor.get(), 2);
}

#[tokio::test]
async fn to_go_back_where_nothing_is_on_trial() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.installed(&papers, &program(1)).await;
    let reply = client.revert(Digest::of(b"nothing")).await;
    assert!(matches!(outcome(&reply), Outcome::Reverted { .. }), "{reply:?}");
    assert_eq!(bench.current(), Some(program(1)));
}

#[tokio::test]
async fn about_a_product_that_is_not_configured() {
    let bench = Bench::running();
    let mut client = bench.client().await;
    let order = Order::State { product: Product::new("other").unwrap() };
    refused(&client.order(&order, None).await, Why::Product, "not in this helper's configuration");
}

#[tokio::test]
async fn everything_twice_is_everything_once() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let file = bench.file("again", &program(1));
    assert_eq!(outcome(&client.stage(papers.id(), Some(&file)).await), &Outcome::Staged);
    for _ in 0..2 {
        assert_eq!(outcome(&client.activate(papers.id()).await), &Outcome::Activated);
    }
    for _ in 0..2 {
        assert_eq!(outcome(&client.confirm(papers.id()).await), &Outcome::Confirmed);
    }
    assert_eq!(bench.started(), ["release 1"]);
}

#[tokio::test]
async fn everything_by_two_agents_at_once_is_everything_once() {
    let bench = Bench::running();
    let (one, two) = (bench.world.papers(1), bench.world.papers(2));
    bench.installed(&one, &program(1)).await;
    let (mut first, mut second) = (bench.client().await, bench.client().await);
    let published = bench.world.published(&two);
    for document in &published {
        let (a, b) = tokio::join!(first.document(document), second.document(document));
        assert!(matches!((&a, &b), (Reply::Taken { .. }, Reply::Taken { .. })), "{a:?}, {b:?}");
    }
    let (right, wrong) = (bench.file("right", &program(2)), bench.file("wrong", &program(9)));
    let (a, b) = tokio::join!(first.stage(two.id(), Some(&right)), second.stage(two.id(), Some(&wrong)));
    assert_eq!(outcome(&a), &Outcome::Staged);
    // Behind the right one it finds that there; before it, it is refused. It takes nothing away in either case.
    assert!(matches!(outcome(&b), Outcome::Staged | Outcome::StageFailed { disk_full: false, .. }), "{b:?}");
    let (a, b) = tokio::join!(first.activate(two.id()), second.activate(two.id()));
    assert_eq!([outcome(&a), outcome(&b)], [&Outcome::Activated; 2]);
    let (a, b) = tokio::join!(first.confirm(two.id()), second.revert(two.id()));
    let state = first.state().await;
    // Whichever came first holds for both.
    match outcome(&a) {
        Outcome::Confirmed => {
            assert_eq!((outcome(&b), state.floor.get(), bench.current()), (&Outcome::Confirmed, 2, Some(program(2))));
        }
        _ => {
            assert!(matches!(outcome(&b), Outcome::Reverted { .. }), "{a:?}, {b:?}");
            assert_eq!((state.floor.get(), bench.current()), (1, Some(program(1))));
        }
    }
    assert_eq!(bench.started().iter().filter(|line| *line == "release 2").count(), 1);
}

#[tokio::test]
async fn to_activate_a_slot_whose_file_was_changed_by_somebody_with_rights() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let binary = bench.path("data/products/bcd/slots/a/bcd");
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&binary, program(9)).unwrap();
    let reply = client.activate(papers.id()).await;
    assert!(
        matches!(outcome(&reply), Outcome::ActivateFailed { reason, at_fault: false } if reason.contains("digest")),
        "{reply:?}"
    );
    assert!(bench.started().is_empty());
}

#[tokio::test]
async fn a_helper_that_is_killed_in_every_state_of_an_install_goes_on_where_it_was() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    bench.staged(&papers, &program(1)).await;
    bench.restart();
    let mut client = bench.client().await;
    assert_eq!(client.state().await.staged, Some(papers.id()));
    assert_eq!(outcome(&client.activate(papers.id()).await), &Outcome::Activated, "the documents are still here");
    bench.restart();
    let mut client = bench.client().await;
    assert_eq!(client.state().await.trial, Some(papers.id()));
    assert_eq!(outcome(&client.confirm(papers.id()).await), &Outcome::Confirmed);
    bench.restart();
    let state = bench.client().await.state().await;
    assert_eq!((state.floor.get(), state.trial), (1, None));
    assert_eq!(state.running.map(|running| running.release), Some(papers.id()));
    assert_eq!(bench.started(), ["release 1"], "nothing is started twice");
}

/// As if the version on trial had been started in so many other runs of the machine.
fn start_in_other_runs(bench: &Bench, starts: u32) {
    bench.rewrite_mark(|mark| mark["watch"] = serde_json::json!({ "starts": starts, "boot": "another run" }));
}

#[tokio::test]
async fn a_trial_that_is_never_confirmed_is_ended_by_restarts_of_the_machine_and_not_of_the_helper() {
    let mut bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    client.activate(papers.id()).await;
    for _ in 0..4 {
        bench.restart();
        // Asked, it has finished what its start had to do.
        let state = bench.client().await.state().await;
        assert_eq!((state.trial, state.reverted), (Some(papers.id()), None));
    }
    bench.kill();
    start_in_other_runs(&bench, 3);
    bench.start();
    let state = bench.client().await.state().await;
    assert_eq!((state.trial, state.running), (None, None));
    assert_eq!(state.reverted.map(|taken| (taken.release, taken.at_fault)), Some((papers.id(), true)));
    // By its release, and by its build.
    assert_eq!((state.denied.first(), state.denied.len()), (Some(&papers.id()), 2));
}

#[tokio::test]
async fn an_agent_that_hangs_up_in_the_middle_changes_nothing_about_what_was_begun() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let order = Order::Activate { product: product(), release: papers.id(), claim: claim() };
    let body = groundswell_agent::helper::wire::encode_order(&order);
    let kind = groundswell_agent::helper::wire::Kind::Order;
    let header = groundswell_agent::helper::wire::Header { kind, length: body.len() }.encode();
    client.raw(&[header.to_vec(), body].concat()).await;
    drop(client);
    let mut client = bench.client().await;
    // The order was first in line; whoever asks next waits for it, or comes before it was read and asks again.
    let reply = client.activate(papers.id()).await;
    assert_eq!(outcome(&reply), &Outcome::Activated);
    assert!(matches!(reply, Reply::Done { state, .. } if state.trial == Some(papers.id())));
    assert_eq!(bench.started(), ["release 1"]);
}

/// Two versions were installed, and the bounds of the next start leave no room for the one that was left.
async fn with_limits(limits: &str) -> Bench {
    let mut bench = Bench::running();
    let papers = [1, 2].map(|number| bench.world.papers(number));
    for (number, papers) in (1..).zip(&papers) {
        bench.installed(papers, &program(number)).await;
    }
    assert!(bench.path("data/products/bcd/slots/a/bcd").exists() && bench.path("data/products/bcd/slots/b/bcd").exists());
    bench.append(&format!("[limits]\n{limits}\n"));
    bench.restart();
    bench
}

#[tokio::test]
async fn b2_the_helper_gives_back_what_can_never_run_again_below_keep_free_and_above_its_quota_without_being_asked() {
    for limits in ["keep-free = \"9000000TiB\"", "slots = \"40B\""] {
        let bench = with_limits(limits).await;
        let gone = async {
            while bench.path("data/products/bcd/slots/a").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{limits}: the old slot stays"));
        assert_eq!(bench.current(), Some(program(2)), "{limits}: what runs is never touched");
        let state = bench.client().await.state().await;
        assert_eq!((state.floor.get(), state.running.map(|running| running.sequence.get())), (2, Some(2)));
    }
}

#[tokio::test]
async fn what_failed_last_is_told_by_its_claim_until_something_else_went_well() {
    let mut bench = Bench::running();
    let one = bench.world.papers(1);
    let failed = async |bench: &Bench| match bench.client().await.order(&Order::Failed { product: product() }, None).await {
        Reply::Failed(failed) => failed,
        reply => panic!("{reply:?}"),
    };
    let mut client = bench.installed(&one, &program(1)).await;
    assert_eq!(failed(&bench).await, None);
    drop(client);
    let two = bench.world.papers(2);
    client = bench.staged(&two, &program(2)).await;
    client.activate(two.id()).await;
    // The agent ends here, and hears nothing of how that came out.
    client.revert(two.id()).await;
    let expected = Some(LastFailure { claim: claim(), release: two.id(), reason: Reason::lossy("unhealthy") });
    for _ in 0..2 {
        assert_eq!(failed(&bench).await, expected);
        bench.restart();
    }
    bench.installed(&bench.world.papers(3), &program(3)).await;
    assert_eq!(failed(&bench).await, None);
}
