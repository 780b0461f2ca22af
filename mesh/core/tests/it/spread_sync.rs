//! Sync: one exchange brings everything, costs little when there is nothing to bring, and never lies about it.

use super::spread_mesh::{Mesh, Papers, node, signed, status};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKey, RecordKind};
use groundswell_core::spread::{Documents, Spread};
use groundswell_core::time::Time;

/// Two nodes, not connected yet, of which the first knows `records` records and `papers` documents.
fn two(records: u64, papers: u64) -> (Mesh, NodeId, NodeId) {
    let mut mesh = Mesh::new(9, 2);
    let (one, other) = (mesh.id(0), mesh.id(1));
    for number in 0..records {
        mesh.at(one).ledger.merge(signed(node(number + 100), 5, status("a status of the usual size, more or less, with a log")));
    }
    for number in 0..papers {
        mesh.at(one).papers.offer([number.to_le_bytes().as_slice(), &[1]].concat());
    }
    (mesh, one, other)
}

#[test]
fn m2_a_late_joiner_has_everything_within_one_sync() {
    for (records, papers) in [(0, 0), (1, 1), (5, 3), (40, 20), (3_000, 1_500)] {
        for late in [0, 1] {
            let (mut mesh, one, other) = two(records, papers);
            if late == 0 {
                let kept = std::mem::take(&mut mesh.at(one).ledger);
                mesh.at(other).ledger = kept;
                let papers = std::mem::take(&mut mesh.at(one).papers);
                mesh.at(other).papers = papers;
            }
            mesh.connect(one, other);
            mesh.run(2_000);
            assert!(mesh.agree(), "{records} records and {papers} documents");
            assert_eq!(mesh.at(one).synced, [other]);
            assert_eq!(mesh.at(other).synced, [one]);
            assert_eq!(mesh.received().duplicates, 0, "only the difference moves");
        }
    }
}

#[test]
fn equal_maps_cost_less_than_two_kilobytes() {
    for (records, papers) in [(0, 0), (20, 10), (31, 0), (3_000, 3_000)] {
        let (mut mesh, one, other) = two(records, papers);
        let (ledger, documents) = (mesh.at(one).ledger.clone(), mesh.at(one).papers.clone());
        mesh.at(other).ledger = ledger;
        mesh.at(other).papers = documents;
        mesh.connect(one, other);
        mesh.run(1_000);
        assert_eq!(mesh.at(one).synced, [other]);
        println!("{records} records and {papers} documents, equal: {} bytes", mesh.total_bytes());
        assert!(mesh.total_bytes() <= 2_048, "{} bytes", mesh.total_bytes());
    }
}

#[test]
fn m2_a_document_that_comes_while_a_link_is_young_does_not_wait_for_the_next_round() {
    // During its first sync, and between that and the moment from which gossip goes over it.
    for after_ms in [0, 25, 50, 500, 9_000] {
        let (mut mesh, one, other) = two(20, 10);
        mesh.connect(one, other);
        mesh.run(after_ms);
        let now = mesh.now;
        let station = mesh.at(one);
        station.papers.offer(b"published just now\x01".to_vec());
        station.spread.note_document(now, None);
        mesh.run(8_000);
        assert!(mesh.agree(), "it came {after_ms} ms after the link");
    }
}

#[test]
fn m2_what_gossip_brought_too_early_is_made_good_by_a_sync_with_who_brought_it() {
    let (mut mesh, one, other) = two(20, 10);
    mesh.connect(one, other);
    mesh.run(20_000);
    mesh.at(one).papers.offer(b"what it needs\x01".to_vec());
    let now = mesh.now;
    mesh.at(other).spread.note_early(now, one);
    // Again and again costs no more than once.
    mesh.at(other).spread.note_early(now, one);
    mesh.run(5_000);
    assert!(mesh.agree());
    assert_eq!(mesh.at(one).synced.len(), 2);
    // One that is no peer is nobody to sync with.
    let now = mesh.now;
    mesh.at(other).spread.note_early(now, node(77));
    mesh.run(5_000);
    assert_eq!(mesh.at(other).synced.len(), 2);
}

#[test]
fn what_came_over_a_young_link_or_before_it_costs_no_second_sync() {
    let (mut mesh, one, other) = two(20, 10);
    mesh.at(one).spread.note_document(Time(0), None);
    mesh.connect(one, other);
    mesh.run(1_000);
    let now = mesh.now;
    mesh.at(other).spread.note_document(now, Some(one));
    mesh.run(20_000);
    assert_eq!(mesh.at(one).synced, [other]);
    // And on an old link gossip is enough.
    let now = mesh.now;
    mesh.at(one).spread.note_document(now, None);
    mesh.run(10_000);
    assert_eq!(mesh.at(one).synced, [other]);
}

#[test]
fn a_few_differences_among_many_cost_little() {
    let (mut mesh, one, other) = two(20_000, 0);
    let ledger = mesh.at(one).ledger.clone();
    mesh.at(other).ledger = ledger;
    let mut moved = 0;
    for number in 0..100 {
        // Half are newer on one side, half on the other; the node that was away gives and gets.
        let side = if number % 2 == 0 { one } else { other };
        let record = signed(node(number * 150 + 100), 6, status("newer"));
        moved += record.bytes().len() as u64;
        mesh.at(side).ledger.merge(record);
    }
    mesh.connect(one, other);
    mesh.run(1_000);
    assert!(mesh.agree());
    // Announcements after the sync go nowhere: there are two nodes.
    let beyond = mesh.total_bytes() - moved;
    println!("100 differences among 20,000: {beyond} bytes beyond the records");
    assert!(beyond <= 150_000, "{beyond} bytes");
    assert_eq!(mesh.received().records, 100, "the newer of two goes to the older, and never the other way");
}

#[test]
fn added_signatures_travel_both_ways() {
    let (mut mesh, one, other) = two(10, 0);
    for (id, signatures) in [(one, [3, 1]), (other, [2, 9])] {
        mesh.at(id).papers.offer(vec![b'a', signatures[0]]);
        mesh.at(id).papers.offer(vec![b'b', signatures[1]]);
    }
    mesh.connect(one, other);
    mesh.run(1_000);
    assert!(mesh.agree());
    assert_eq!(mesh.at(one).papers.envelope(&Digest::of(b"a")), Some([b'a', 3].as_slice()));
    assert_eq!(mesh.at(one).papers.envelope(&Digest::of(b"b")), Some([b'b', 9].as_slice()));
}

#[test]
fn d20_sync_becomes_equal_whatever_pairs_the_two_sides_hold() {
    let liar = node(1_000);
    let key = RecordKey { node: liar, kind: RecordKind::Status };
    let said = |counter, text| signed(liar, counter, status(text));
    let cases = [
        (vec![said(1, "a")], vec![said(1, "b")]),
        (vec![said(1, "a"), said(1, "b")], vec![said(2, "c")]),
        (vec![said(1, "a"), said(1, "b")], vec![said(1, "c"), said(1, "d")]),
        (vec![said(3, "a"), said(3, "b")], vec![said(2, "c"), said(2, "d")]),
    ];
    for (first, second) in cases {
        let (mut mesh, one, other) = two(50, 0);
        let ledger = mesh.at(one).ledger.clone();
        mesh.at(other).ledger = ledger;
        first.into_iter().for_each(|record| _ = mesh.at(one).ledger.merge(record));
        second.into_iter().for_each(|record| _ = mesh.at(other).ledger.merge(record));
        mesh.connect(one, other);
        mesh.run(10_000);
        assert!(mesh.agree());
        assert!(mesh.at(one).ledger.is_convicted(&liar));
        let spent = mesh.total_bytes();
        mesh.run(100_000);
        assert!(mesh.total_bytes() - spent < 2_000, "equal now: {:?}", mesh.at(one).ledger.stamp(&key));
    }
}

#[test]
fn a_node_syncs_with_a_neighbour_every_minute_or_so() {
    let (mut mesh, one, other) = two(10, 10);
    mesh.connect(one, other);
    mesh.run(600_000);
    let syncs = mesh.at(one).synced.len();
    assert!((17..=26).contains(&syncs), "two nodes, ten minutes: {syncs}");
}

#[test]
fn d41_a_lean_node_syncs_every_quarter_of_an_hour_and_what_it_missed_comes_then() {
    let mut mesh = Mesh::new(1, 4);
    let lean = node(1_000);
    mesh.add_lean(lean);
    let others: Vec<NodeId> = mesh.stations.keys().copied().filter(|id| *id != lean).collect();
    for other in &others {
        mesh.connect(lean, *other);
        mesh.connect(*other, *others.first().expect("four"));
    }
    mesh.run(30_000);
    assert!(mesh.agree(), "everybody knows that it is lean");
    for id in mesh.stations.keys().copied().collect::<Vec<_>>() {
        mesh.at(id).synced.clear();
    }
    // A record that one of them got by no push.
    let missed = signed(node(2_000), 1, status("missed"));
    let key = missed.key();
    for other in &others {
        mesh.at(*other).ledger.merge(missed.clone());
    }
    mesh.run(600_000);
    assert!(mesh.at(lean).ledger.entry(&key).is_none(), "ten minutes without a sync");
    mesh.run(3_000_000);
    assert!(mesh.at(lean).ledger.entry(&key).is_some());
    let syncs = mesh.at(lean).synced.len();
    assert!((3..=5).contains(&syncs), "in an hour: {syncs}");
    for other in others {
        let syncs = mesh.at(other).synced.len();
        assert!(syncs >= 50, "the others go on: {syncs}");
    }
}

#[test]
fn lean_nodes_alone_sync_with_each_other() {
    let mut mesh = Mesh::new(2, 0);
    let (one, other) = (node(0), node(1));
    mesh.add_lean(one);
    mesh.add_lean(other);
    mesh.connect(one, other);
    mesh.run(30_000);
    mesh.at(one).synced.clear();
    mesh.run(3_600_000);
    let syncs = mesh.at(one).synced.len();
    assert!((6..=10).contains(&syncs), "two nodes, an hour: {syncs}");
}

#[test]
fn a_peer_that_stalls_is_given_up_and_keeps_nobody_waiting() {
    let me = node(0);
    let mut spread = Spread::new(me, [3; 32]);
    let (ledger, papers) = (groundswell_core::record::ledger::Ledger::new(), Papers::default());
    let peers: Vec<NodeId> = (1..=3).map(node).collect();
    for peer in &peers {
        spread.peer_up(Time(0), *peer);
    }
    let mut asked = std::collections::BTreeSet::new();
    let mut now = Time(0);
    while let Some(next) = spread.next_wakeup().filter(|at| *at < Time(20_000)) {
        now = next.max(now);
        spread.wake(now, &ledger, &papers);
        asked.extend(spread.take_frames().into_iter().map(|(peer, _)| peer));
    }
    assert_eq!(asked.len(), 3, "a silent peer does not keep the others waiting");
    let again = spread.next_wakeup().expect("gives up in time");
    assert!(again <= Time(45_000), "{again:?}");
}

#[test]
fn a_lost_frame_never_ends_in_synced() {
    // Every possible single loss: either the session starts over, or nobody says that it is done too early.
    for lost in 0..30 {
        let (mut mesh, one, other) = two(300, 100);
        for number in 0..200 {
            mesh.at(other).ledger.merge(signed(node(number + 5_000), 1, status("theirs")));
        }
        mesh.lose_frame(lost);
        mesh.connect(one, other);
        for _ in 0..2_000 {
            mesh.run(10);
            for id in [one, other] {
                if !mesh.at(id).synced.is_empty() {
                    assert_eq!(mesh.at(id).ledger.len(), 500, "frame {lost} lost");
                    assert_eq!(mesh.at(id).papers.0.len(), 100, "frame {lost} lost");
                }
            }
        }
        mesh.run(60_000);
        assert!(mesh.agree());
        assert!(!mesh.at(one).synced.is_empty() && !mesh.at(other).synced.is_empty());
    }
}
