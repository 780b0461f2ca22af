//! Whom a node dials: three of its own choice, given addresses while it is alone, nobody too often (feature C7).

use std::collections::{BTreeMap, BTreeSet};

use super::spread_mesh::node;
use groundswell_core::limits::{OWN_LINKS, PEERS, REMEMBERED_PEERS};
use groundswell_core::node_id::NodeId;
use groundswell_core::spread::neighbours::{Dial, Member, Neighbours, WANDER_MS};
use groundswell_core::time::Time;

type Book = BTreeMap<NodeId, Vec<String>>;

fn book(members: u64) -> Book {
    (1..=members).map(|number| (node(number), vec![format!("/ip4/10.0.0.{number}/tcp/7700")])).collect()
}

fn neighbours(bootstrap: &[&str]) -> Neighbours {
    Neighbours::new(node(0), [5; 32], bootstrap.iter().map(|address| (*address).to_string()).collect())
}

fn dials(neighbours: &mut Neighbours, now: u64, book: &Book, seek: &[NodeId]) -> Vec<Dial> {
    let members = book.iter().map(|(node, addresses)| Member { node: *node, addresses });
    neighbours.dials(Time(now), members, &seek.iter().copied().collect())
}

fn whom(dials: &[Dial]) -> BTreeSet<NodeId> {
    dials.iter().filter_map(|dial| dial.peer).collect()
}

#[test]
fn a_node_dials_three_members_of_its_own_choice_and_no_more() {
    let mut mine = neighbours(&[]);
    let first = dials(&mut mine, 0, &book(50), &[]);
    assert_eq!(first.len(), OWN_LINKS);
    for peer in whom(&first) {
        mine.peer_up(Time(500), peer, None);
    }
    assert_eq!(dials(&mut mine, 600, &book(50), &[]), []);
    let mut other = Neighbours::new(node(0), [6; 32], Vec::new());
    assert_ne!(whom(&dials(&mut other, 0, &book(50), &[])), whom(&first), "chosen at random");
}

#[test]
fn a_lonely_node_dials_its_bootstrap_and_meeting_addresses_and_with_three_links_those_not_yet_reached() {
    let mut mine = neighbours(&["/dns/seed/tcp/1"]);
    mine.set_meet(&["/ip4/10.9.9.9/tcp/1".into()]);
    let first = dials(&mut mine, 0, &Book::new(), &[]);
    assert_eq!(first.len(), 2);
    assert!(first.iter().all(|dial| dial.peer.is_none()));
    mine.peer_up(Time(100), node(1), Some("/dns/seed/tcp/1".into()));
    let again = dials(&mut mine, 3_600_000, &Book::new(), &[]);
    assert_eq!(again.len(), 1, "the one that is reached is not dialled again");
    mine.peer_up(Time(200), node(2), None);
    mine.peer_up(Time(200), node(3), None);
    let unreached = vec![Dial { peer: None, addresses: vec!["/ip4/10.9.9.9/tcp/1".to_owned()] }];
    assert_eq!(dials(&mut mine, 7_200_000, &Book::new(), &[]), unreached);
}

#[test]
fn an_address_at_which_nobody_has_answered_yet_is_dialled_whatever_links_there_are() {
    let (seed, late) = ("/dns/seed/tcp/1".to_string(), "/dns/late/tcp/1".to_string());
    let mut mine = neighbours(&[&seed, &late]);
    assert_eq!(dials(&mut mine, 0, &Book::new(), &[]).len(), 2);
    mine.peer_up(Time(50), node(1), Some(seed.clone()));
    mine.dial_failed(Time(50), None, std::slice::from_ref(&late));
    for number in 2..=4 {
        mine.peer_up(Time(60), node(number), None);
    }
    // Whoever starts there later has nobody else that knows of it.
    assert!(mine.next_wakeup().is_some_and(|at| at <= Time(1_600)));
    let wanted = vec![Dial { peer: None, addresses: vec![late.clone()] }];
    assert_eq!(dials(&mut mine, 1_600, &Book::new(), &[]), wanted);
    let mut now = 1_600;
    for _ in 0..20 {
        mine.dial_failed(Time(now), None, std::slice::from_ref(&late));
        let failed_at = now;
        let again = loop {
            let next = mine.next_wakeup().expect("it is tried for ever");
            assert!(next.0 > now, "it looks again and again at {now}");
            now = next.0;
            // It also wakes to look for more members.
            let dials = dials(&mut mine, now, &Book::new(), &[]);
            if !dials.is_empty() {
                break dials;
            }
        };
        assert_eq!(again, wanted);
        assert!(now - failed_at <= 450_000, "after {} ms", now - failed_at);
    }
    // It turns out to be one that has a link already, which it made itself.
    mine.reached(node(4), late.clone());
    assert_eq!(dials(&mut mine, now + 3_600_000, &Book::new(), &[]), []);
    assert_eq!(mine.remembered().find(|(peer, _)| **peer == node(4)).map(|(_, address)| address), Some(&late));
    // Both are known now: only a node with few links dials them again.
    for number in 1..=4 {
        mine.peer_down(Time(now + 3_700_000), &node(number));
    }
    assert_eq!(dials(&mut mine, now + 7_200_000, &Book::new(), &[]).len(), 2);
}

#[test]
fn a_dial_that_is_known_to_have_failed_is_tried_again_after_its_pause_alone() {
    let seed = "/dns/seed/tcp/1".to_string();
    let mut mine = neighbours(&[&seed]);
    assert_eq!(dials(&mut mine, 0, &Book::new(), &[]).len(), 1);
    assert_eq!(dials(&mut mine, 5_000, &Book::new(), &[]), [], "it may still be under way");
    let mut other = neighbours(&[&seed]);
    dials(&mut other, 0, &Book::new(), &[]);
    other.dial_failed(Time(10), None, std::slice::from_ref(&seed));
    other.dial_failed(Time(20), None, std::slice::from_ref(&seed));
    assert!(other.next_wakeup().is_some_and(|at| at <= Time(1_500)));
    assert_eq!(dials(&mut other, 900, &Book::new(), &[]), [], "the pause is kept");
    assert_eq!(dials(&mut other, 1_500, &Book::new(), &[]).len(), 1);
}

#[test]
fn c7_a_remembered_address_is_tried_first() {
    let mut mine = neighbours(&[]);
    mine.remember(node(1), "/ip4/192.168.1.5/tcp/7700".into());
    let dial = dials(&mut mine, 0, &book(1), &[]).pop().unwrap();
    assert_eq!(dial.addresses, ["/ip4/192.168.1.5/tcp/7700", "/ip4/10.0.0.1/tcp/7700"]);
    mine.peer_up(Time(5), node(1), Some("/ip4/10.0.0.1/tcp/7700".into()));
    assert_eq!(mine.remembered().collect::<Vec<_>>(), [(&node(1), &"/ip4/10.0.0.1/tcp/7700".to_string())]);
}

#[test]
fn c7_memory_of_peers_is_bounded() {
    let mut mine = neighbours(&[]);
    for number in 1..=(REMEMBERED_PEERS as u64 + 50) {
        mine.remember(node(number), "/ip4/192.168.1.5/tcp/7700".into());
    }
    mine.remember(node(9_000), "x".repeat(4_000));
    mine.remember(node(9_001), "with blanks\n".into());
    assert_eq!(mine.remembered().count(), REMEMBERED_PEERS);
}

#[test]
fn failures_are_retried_after_growing_pauses_and_the_dead_are_replaced() {
    let mut mine = neighbours(&[]);
    let book = book(4);
    let mut tries: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
    let mut now = 0;
    while now < 3_600_000 {
        for peer in whom(&dials(&mut mine, now, &book, &[])) {
            tries.entry(peer).or_default().push(now);
        }
        now = mine.next_wakeup().expect("never gives up").0.max(now + 1);
    }
    assert_eq!(tries.len(), 4, "the fourth got its turn");
    for (peer, times) in tries {
        assert!((4..40).contains(&times.len()), "{peer}: {} tries in an hour", times.len());
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 11_000), "never at once");
    }
}

#[test]
fn wanted_wardens_are_dialled_beside_the_own_three() {
    let mut mine = neighbours(&[]);
    let book = book(50);
    for peer in whom(&dials(&mut mine, 0, &book, &[])) {
        mine.peer_up(Time(1), peer, None);
    }
    let wardens = [node(7), node(8), node(999)];
    let asked = whom(&dials(&mut mine, 2, &book, &wardens));
    assert!(asked.is_subset(&wardens.into()) && !asked.contains(&node(999)), "nobody is dialled without an address");
}

#[test]
fn a_link_to_a_warden_ends_a_minute_after_it_is_needed_no_more_and_its_own_links_stay() {
    let mut mine = neighbours(&[]);
    let book = book(50);
    let at = |peer: &NodeId| book.get(peer).map(|addresses| addresses[0].clone());
    let own = whom(&dials(&mut mine, 0, &book, &[]));
    let warden = *book.keys().find(|peer| !own.contains(peer)).expect("fifty members");
    let needed: Vec<NodeId> = own.iter().take(1).copied().chain([warden]).collect();
    for peer in &own {
        mine.peer_up(Time(100), *peer, at(peer));
    }
    assert_eq!(whom(&dials(&mut mine, 200, &book, &needed)), [warden].into());
    mine.peer_up(Time(300), warden, at(&warden));
    assert!(mine.is_sought(&warden) && !own.iter().any(|peer| mine.is_sought(peer)));
    // As long as it is needed it stays.
    assert_eq!((dials(&mut mine, 200_000, &book, &needed), mine.take_left()), (Vec::new(), Vec::new()));
    assert_eq!((dials(&mut mine, 200_100, &book, &[]), mine.take_left()), (Vec::new(), Vec::new()));
    let ends = mine.next_wakeup().expect("it looks again");
    assert!(ends <= Time(260_000), "{ends:?}");
    assert_eq!((dials(&mut mine, ends.0, &book, &[]), mine.take_left()), (Vec::new(), vec![warden]));
    mine.peer_down(ends, &warden);
    assert_eq!(dials(&mut mine, ends.0 + 60_000, &book, &[]), [], "it is not missed");
    assert_eq!(mine.take_left(), []);
}

#[test]
fn a_link_to_a_warden_stays_while_own_links_are_missing_and_one_that_the_warden_made_always() {
    let mut mine = neighbours(&[]);
    let book = book(50);
    let at = |peer: &NodeId| book.get(peer).map(|addresses| addresses[0].clone());
    let own = whom(&dials(&mut mine, 0, &book, &[]));
    let wardens: Vec<NodeId> = book.keys().filter(|peer| !own.contains(peer)).take(2).copied().collect();
    assert!(whom(&dials(&mut mine, 100, &book, &wardens)).is_superset(&wardens.iter().copied().collect()));
    mine.peer_up(Time(200), wardens[0], at(&wardens[0]));
    mine.peer_up(Time(200), wardens[1], None);
    dials(&mut mine, 300_000, &book, &[]);
    assert_eq!(mine.take_left(), []);
    for peer in &own {
        mine.peer_up(Time(300_100), *peer, at(peer));
    }
    dials(&mut mine, 300_200, &book, &[]);
    let ends = mine.next_wakeup().expect("it looks again");
    dials(&mut mine, ends.0, &book, &[]);
    assert_eq!(mine.take_left(), [wardens[0]]);
}

#[test]
fn a_link_made_at_a_given_address_ends_once_its_own_hold() {
    let seed = "/dns/seed/tcp/1".to_string();
    let mut mine = neighbours(&[&seed]);
    dials(&mut mine, 0, &Book::new(), &[]);
    mine.peer_up(Time(50), node(99), Some(seed));
    let book = book(50);
    let own = whom(&dials(&mut mine, 100, &book, &[]));
    assert_eq!((own.len(), mine.is_sought(&node(99))), (OWN_LINKS, false));
    dials(&mut mine, 300_000, &book, &[]);
    assert_eq!(mine.take_left(), [], "its own do not hold yet");
    for peer in &own {
        mine.peer_up(Time(300_100), *peer, None);
    }
    dials(&mut mine, 300_200, &book, &[]);
    let ends = mine.next_wakeup().expect("it looks again");
    dials(&mut mine, ends.0, &book, &[]);
    assert_eq!(mine.take_left(), [node(99)]);
    mine.peer_down(ends, &node(99));
    assert_eq!(dials(&mut mine, ends.0 + 1, &book, &[]), [], "nor dialled again");
}

#[test]
fn nobody_is_dialled_when_the_node_has_all_the_links_that_it_may() {
    let mut mine = neighbours(&["/dns/seed/tcp/1"]);
    let book = book(200);
    for number in 100..100 + PEERS as u64 {
        mine.peer_up(Time(0), node(number), None);
    }
    assert_eq!(dials(&mut mine, 1, &book, &[node(1), node(2)]), []);
}

#[test]
fn a_link_that_held_clears_its_failures() {
    let mut mine = neighbours(&[]);
    let book = book(1);
    let mut now = 0;
    for _ in 0..6 {
        dials(&mut mine, now, &book, &[]);
        now = mine.next_wakeup().unwrap().0;
    }
    mine.peer_up(Time(now), node(1), None);
    mine.peer_down(Time(now + 120_000), &node(1));
    assert_eq!(dials(&mut mine, now + 120_000, &book, &[]).len(), 1, "dialled at once");
}

#[test]
fn there_is_something_to_ask_at_the_start_after_a_loss_and_while_few_are_known() {
    let mut mine = neighbours(&[]);
    assert_eq!(mine.next_wakeup(), Some(Time(0)));
    assert_eq!(dials(&mut mine, 5, &Book::new(), &[]), []);
    let again = mine.next_wakeup().expect("members may become known");
    let book = book(3);
    for peer in whom(&dials(&mut mine, again.0, &book, &[])) {
        mine.peer_up(again, peer, None);
    }
    assert_eq!(dials(&mut mine, again.0 + 20_000, &book, &[]), []);
    assert!(mine.next_wakeup() >= Some(Time(WANDER_MS / 2)), "content for long");
    mine.peer_down(Time(90_000), &node(2));
    assert_eq!(mine.next_wakeup(), Some(Time(90_000)));
    assert_eq!(whom(&dials(&mut mine, 90_000, &book, &[])), [node(2)].into());
}

#[test]
fn a_node_that_is_content_exchanges_one_of_its_links_now_and_then() {
    let mut mine = neighbours(&[]);
    let book = book(50);
    let own = whom(&dials(&mut mine, 0, &book, &[]));
    for peer in &own {
        mine.peer_up(Time(100), *peer, book.get(peer).map(|addresses| addresses[0].clone()));
    }
    assert_eq!(dials(&mut mine, 200, &book, &[]), []);
    let wanders = mine.next_wakeup().expect("it looks for another");
    let found = whom(&dials(&mut mine, wanders.0, &book, &[]));
    assert_eq!(found.intersection(&own).count(), 0);
    assert_eq!((found.len(), mine.take_left()), (1, Vec::new()), "nobody goes before the other is there");
    for peer in &found {
        mine.peer_up(Time(wanders.0 + 100), *peer, book.get(peer).map(|addresses| addresses[0].clone()));
    }
    assert_eq!(dials(&mut mine, wanders.0 + 200, &book, &[]), []);
    let left = mine.take_left();
    assert_eq!((left.len(), own.contains(&left[0])), (1, true));
    mine.peer_down(Time(wanders.0 + 300), &left[0]);
    assert_eq!(dials(&mut mine, wanders.0 + 300, &book, &[]), [], "it is not missed");
}

#[test]
fn a_link_that_the_other_side_made_is_not_hung_up_on() {
    let mut mine = neighbours(&[]);
    let book = book(4);
    let own = whom(&dials(&mut mine, 0, &book, &[]));
    for peer in &own {
        mine.peer_up(Time(100), *peer, None);
    }
    dials(&mut mine, 200, &book, &[]);
    let wanders = mine.next_wakeup().expect("it looks for another");
    for peer in whom(&dials(&mut mine, wanders.0, &book, &[])) {
        mine.peer_up(Time(wanders.0 + 100), peer, None);
    }
    dials(&mut mine, wanders.0 + 200, &book, &[]);
    assert_eq!(mine.take_left(), []);
}
