//! What failed here stays known: when its space is given back, and under another release.

use groundswell_core::digest::Digest;
use groundswell_core::install::Contents;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::text::Reason;

use crate::workshop::{Workshop, claim};

#[tokio::test]
async fn i1_what_gives_the_space_of_a_failed_build_back_does_not_forget_that_it_failed() {
    let workshop = Workshop::noting_starts();
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let (mut bench, _) = workshop.device().await;
    bench.install(&one).await;
    bench.stage(&two).await;
    bench.activate(&two).await;
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
