//! Frames between neighbours.

use groundswell_core::limits::FRAME_BYTES;

use crate::node::{Over, TestNode, pair};

#[tokio::test]
async fn frames_flow_both_ways_in_order() {
    for over in [Over::Tcp, Over::Quic] {
        let (mut left, mut right) = pair(over).await;
        for n in 0..50_u8 {
            assert!(left.network.send(right.id(), vec![n; usize::from(n)]));
            assert!(right.network.send(left.id(), vec![n; usize::from(n) + 1]));
        }
        for n in 0..50_u8 {
            assert_eq!(right.frame().await, (left.id(), vec![n; usize::from(n)]));
            assert_eq!(left.frame().await, (right.id(), vec![n; usize::from(n) + 1]));
        }
    }
}

#[tokio::test]
async fn the_largest_frame_passes_and_a_larger_one_is_not_sent() {
    let (left, mut right) = pair(Over::Tcp).await;
    assert!(!left.network.send(right.id(), vec![7; FRAME_BYTES + 1]));
    assert_eq!(left.network.counters().frames_dropped, 1);
    assert!(left.network.send(right.id(), vec![7; FRAME_BYTES]));
    assert_eq!(right.frame().await.1.len(), FRAME_BYTES);
}

#[tokio::test]
async fn a_frame_to_a_peer_that_is_not_up_is_dropped_and_counted() {
    let (left, right) = (TestNode::member(1, Over::Tcp).await, TestNode::member(2, Over::Tcp).await);
    assert!(!left.network.send(right.id(), b"hello".to_vec()));
    assert_eq!(left.network.counters().frames_dropped, 1);
}

#[tokio::test]
async fn both_sides_write_more_than_a_window_at_once_without_a_deadlock() {
    // rust-libp2p 5410: one stream written from both ends without reading can stand still for ever.
    let (mut left, mut right) = pair(Over::Tcp).await;
    let (a, b) = (left.id(), right.id());
    for _ in 0..7 {
        assert!(left.network.send(b, vec![1; FRAME_BYTES]));
        assert!(right.network.send(a, vec![2; FRAME_BYTES]));
    }
    for _ in 0..7 {
        assert_eq!(left.frame().await, (b, vec![2; FRAME_BYTES]));
        assert_eq!(right.frame().await, (a, vec![1; FRAME_BYTES]));
    }
}

#[tokio::test]
async fn a_slow_peer_costs_a_bounded_queue_and_others_nothing() {
    let (left, right) = pair(Over::Tcp).await;
    let mut third = TestNode::member(3, Over::Tcp).await;
    third.dial(&left);
    third.up(left.id()).await;
    // `right` does not drain its events, so in the end its links are not read and the queue here fills.
    let mut sent = 0;
    while left.network.send(right.id(), vec![0; 64 * 1024]) || left.network.counters().frames_sent < 64 {
        sent += 1;
        tokio::task::yield_now().await;
        assert!(sent < 1_000_000, "the queue never fills");
    }
    while !left.network.send(third.id(), b"still here".to_vec()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(third.frame().await.1, b"still here");
}

#[tokio::test]
async fn a_sender_that_heeds_a_full_queue_loses_nothing() {
    let (left, mut right) = pair(Over::Tcp).await;
    let frame = |n: u32| n.to_be_bytes().repeat(100);
    let (mut sent, mut got) = (0, 0);
    while got < 5_000 {
        while sent < 5_000 && left.network.send(right.id(), frame(sent)) {
            sent += 1;
        }
        assert_eq!(right.frame().await.1, frame(got));
        got += 1;
    }
    let (ours, theirs) = (left.network.counters(), right.network.counters());
    assert_eq!((ours.frames_sent, ours.frame_bytes_sent), (5_000, 2_000_000));
    assert_eq!((theirs.frames_received, theirs.frame_bytes_received), (5_000, 2_000_000));
}
