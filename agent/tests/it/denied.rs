//! What failed here stays known: when its space is given back, and under another release.

use groundswell_agent::install::executor::Outcome;
use groundswell_core::digest::Digest;
use groundswell_core::install::Contents;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::Report;
use groundswell_core::text::Reason;

use crate::workshop::{Workshop, claim};

#[tokio::test]
async fn i1_what_gives_the_space_of_a_failed_build_back_does_not_forget_that_it_failed() {
    let workshop = Workshop::noting_starts();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let (mut bench, _) = workshop.device().await;
    bench.upgrade(&one, &two).await;
    bench.revert(&two).await;
    bench.shutdown().await;
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    let idle = executor.found().await.unwrap().idle().unwrap();
    assert!(executor.found().await.unwrap().described(idle).is_some(), "its slot");
    assert!(executor.reclaim().await);
    let found = executor.found().await.unwrap();
    assert_eq!(found.described(idle), None);
    assert!(found.denied.iter().any(|denied| denied.names(&Contents::of(&two))));
    assert!(!executor.reclaim().await, "nothing else is given back");
    drop(executor);
    // The next run tells the node, which never asks for it again.
    let (bench, recovered) = workshop.device().await;
    assert_eq!(recovered.denied, [two.release, Contents::of(&two).build()]);
    assert_eq!(recovered.running.map(|running| running.release), Some(one.release));
    bench.shutdown().await;
}

#[tokio::test]
async fn d1_the_node_is_told_of_the_build_that_failed_and_so_knows_it_in_another_release() {
    let workshop = Workshop::noting_starts();
    let two = workshop.release(2, "echo two");
    let again = Install { release: Digest::of(b"another release of the same bytes"), ..two.clone() };
    let other = workshop.release(3, "echo two");
    let mut executor = workshop.executor().await;
    executor.recover().await.unwrap();
    executor.execute(&Step::Stage { install: two.clone() }).await;
    executor.execute(&Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 }).await;
    let reason = Reason::lossy("unhealthy");
    executor.execute(&Step::Revert { release: two.release, reason, at_fault: true }).await;
    let denied = executor.recover().await.unwrap().denied;
    assert!(denied.contains(&two.release) && !denied.contains(&again.release));
    assert!(denied.contains(&Contents::of(&again).build()));
    assert!(!denied.contains(&Contents::of(&other).build()), "another version");
}

#[tokio::test]
async fn s3_a_slot_that_the_disk_changed_is_filled_again_and_its_release_is_not_to_blame() {
    use std::os::unix::fs::PermissionsExt as _;
    let workshop = Workshop::noting_starts();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let (mut bench, _) = workshop.device().await;
    bench.install(&one).await;
    bench.stage(&two).await;
    bench.shutdown().await;
    let binary = workshop.product_folder().join("slots/b/bcd");
    let mut bytes = std::fs::read(&binary).unwrap();
    bytes[20] ^= 1;
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&binary, bytes).unwrap();

    let mut executor = workshop.executor().await;
    let recovered = executor.recover().await.unwrap();
    assert_eq!(recovered.staged, None);
    let activate = Step::Activate { install: two.clone(), claim: claim(), within_ms: 900_000 };
    let failed = executor.execute(&activate).await;
    let Outcome::Report(Report::ActivateFailed { at_fault: false, reason, .. }) = &failed else { panic!("{failed:?}") };
    let revert = Step::Revert { release: two.release, reason: reason.clone(), at_fault: false };
    assert!(matches!(executor.execute(&revert).await, Outcome::Report(Report::Reverted { .. })));
    assert!(executor.found().await.unwrap().denied.is_empty());
    let staged = executor.execute(&Step::Stage { install: two.clone() }).await;
    assert_eq!(staged, Outcome::Report(Report::Staged { release: two.release }));
    assert_eq!(executor.execute(&activate).await, Outcome::Report(Report::Activated { release: two.release }));
}

#[tokio::test]
async fn i1_a_build_that_turns_out_to_be_to_blame_after_it_was_left_is_written_down() {
    let workshop = Workshop::noting_starts();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let (mut bench, _) = workshop.device().await;
    bench.upgrade(&one, &two).await;
    bench.abort(&two).await;
    bench.shutdown().await;
    let mut executor = workshop.executor().await;
    assert!(executor.recover().await.unwrap().denied.is_empty());
    let revert = Step::Revert { release: two.release, reason: Reason::lossy("no peer answered"), at_fault: true };
    for _ in 0..2 {
        assert!(matches!(executor.execute(&revert).await, Outcome::Report(Report::Reverted { .. })));
    }
    drop(executor);
    let recovered = workshop.executor().await.recover().await.unwrap();
    assert_eq!(recovered.denied, [two.release, Contents::of(&two).build()]);
    assert_eq!(recovered.running.map(|running| running.release), Some(one.release), "nothing else happened");
}
