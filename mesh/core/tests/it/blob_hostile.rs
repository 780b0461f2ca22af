//! The exchange of pieces against neighbours that keep the protocol and nothing else: they are slow to acknowledge, promise
//! more than they send, or take and pass nothing on.

use std::collections::BTreeMap;
use std::time::Duration;

use groundswell_core::blob::exchange::{Exchange, Message};
use groundswell_core::blob::{Layout, PieceSet};
use groundswell_core::node_id::NodeId;

use crate::blob_exchange::{START, greet, layout, leecher, ms, offer, offers, peer, said_to, seed};

/// How a neighbour acknowledges parts.
#[derive(Clone, Copy)]
struct Receipts {
    /// So long after they were sent …
    after: Duration,
    /// … or after the one before.
    one_by_one: bool,
}

/// Plays a seed whose uplink carries 5 MB a second for a while; whoever is not named acknowledges each part after 20 ms.
/// Returns the bytes that each was sent.
fn play_seed(exchange: &mut Exchange, slow: &BTreeMap<NodeId, Receipts>, lasts: Duration) -> BTreeMap<NodeId, u64> {
    let (mut now, mut sent, mut due) = (START, BTreeMap::new(), Vec::<(Duration, NodeId, u32)>::new());
    let mut budget = 0_u64;
    while now < lasts {
        now += ms(5);
        budget = (budget + 25_000).min(100_000);
        exchange.tick(now);
        due.retain(|(at, to, bytes)| {
            let is_due = *at <= now;
            if is_due {
                exchange.heard(now, *to, &Message::Got(*bytes)).unwrap();
            }
            !is_due
        });
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
        }
        while budget > 0
            && let Some(part) = exchange.next_part(now)
        {
            let bytes = u32::try_from(part.length).unwrap();
            budget = budget.saturating_sub(u64::from(bytes));
            *sent.entry(part.peer).or_default() += u64::from(bytes);
            let receipts = slow.get(&part.peer).copied().unwrap_or(Receipts { after: ms(20), one_by_one: false });
            let before = due.iter().filter(|(_, to, _)| *to == part.peer).map(|(at, ..)| *at).max();
            let from = before.filter(|_| receipts.one_by_one).unwrap_or(now);
            due.push((from + receipts.after, part.peer, bytes));
        }
    }
    sent
}

#[test]
fn neighbours_that_acknowledge_slowly_fill_neither_the_queue_nor_the_places_of_others() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    for after in [300, 900] {
        let mut exchange = seed(l);
        (1..=10).for_each(|n| greet(&mut exchange, n, PieceSet::empty(l)));
        // As many as there are places: each receipt comes just in time not to count as silence.
        let receipts = Receipts { after: ms(after), one_by_one: true };
        let slow: BTreeMap<NodeId, Receipts> = (1..=8).map(|n| (peer(n), receipts)).collect();
        let sent = play_seed(&mut exchange, &slow, Duration::from_secs(15));
        let others: u64 = [9, 10].iter().filter_map(|n| sent.get(&peer(*n))).sum();
        assert!(others >= 40_000_000, "{after} ms: {others} of 75,000,000 bytes went to those that take them: {sent:?}");
    }
}

#[test]
fn a_neighbour_that_was_fast_once_and_then_stops_takes_no_more_than_its_share() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = seed(l);
    greet(&mut exchange, 1, PieceSet::empty(l));
    let (mut now, mut taken) = (START, 0_u64);
    for _ in 0..400 {
        now += ms(5);
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
            taken += 131_072;
        }
        while let Some(part) = exchange.next_part(now) {
            exchange.heard(now, part.peer, &Message::Got(u32::try_from(part.length).unwrap())).unwrap();
        }
    }
    assert!(taken > 4 * 1024 * 1024, "{taken}");
    // It goes on to take, and acknowledges a part in a while.
    greet(&mut exchange, 2, PieceSet::empty(l));
    let (mut to_other, mut last) = (0_u64, now);
    for _ in 0..2_000 {
        now += ms(5);
        exchange.tick(now);
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
        }
        for _ in 0..1 {
            let Some(part) = exchange.next_part(now) else { break };
            let got = Message::Got(u32::try_from(part.length).unwrap());
            if part.peer == peer(2) {
                to_other += u64::try_from(part.length).unwrap();
                exchange.heard(now, part.peer, &got).unwrap();
            } else if now.saturating_sub(last) >= ms(800) {
                last = now;
                exchange.heard(now, part.peer, &got).unwrap();
            }
        }
    }
    assert!(to_other >= 20 * 1024 * 1024, "{to_other}");
}

#[test]
fn no_neighbour_promises_more_than_it_sends_in_a_while() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = leecher(l);
    (1..=2).for_each(|n| greet(&mut exchange, n, PieceSet::full(l)));
    exchange.take_messages(START);
    (0..200).for_each(|piece| exchange.heard(START, peer(1), &offer(&[piece], 100_000)).unwrap());
    let taken = said_to(&exchange.take_messages(START), 1).iter().filter(|word| matches!(word, Message::Take(_))).count();
    assert!((2..=17).contains(&taken), "{taken} pieces of 128 KiB before anything came");
    // A piece comes in four seconds: so slow a neighbour has two pieces ahead and no more.
    let mut now = START;
    for piece in 0..u32::try_from(taken).unwrap() {
        for part in 0..4 {
            now += ms(1_000);
            exchange.part(now, peer(1), piece, part * 32_768, 32_768).unwrap();
        }
        exchange.stored(now, piece);
    }
    exchange.take_messages(now);
    (300..320).for_each(|piece| exchange.heard(now, peer(1), &offer(&[piece], 1_000)).unwrap());
    let taken = said_to(&exchange.take_messages(now), 1).iter().filter(|word| matches!(word, Message::Take(_))).count();
    assert_eq!(taken, 2);
}

#[test]
fn promises_of_many_that_keep_them_waiting_make_room_for_who_sends_sooner() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = leecher(l);
    (1..=20).for_each(|n| greet(&mut exchange, n, PieceSet::full(l)));
    exchange.take_messages(START);
    // Together they promise all that a node expects at once, and give nothing.
    for n in 1..=16_u32 {
        let from = peer(u8::try_from(n).unwrap());
        (0..16).for_each(|nth| exchange.heard(START, from, &offer(&[n * 16 + nth], 100_000)).unwrap());
    }
    exchange.take_messages(START);
    let honest = peer(20);
    for piece in 600..610 {
        exchange.heard(ms(10), honest, &offer(&[piece], 200)).unwrap();
    }
    let said = exchange.take_messages(ms(10));
    assert_eq!(said_to(&said, 20), (600..610).map(Message::Take).collect::<Vec<_>>());
    assert_eq!(said.iter().filter(|(_, word)| matches!(word, Message::Cancel(_))).count(), 10, "each in place of another");
}

#[test]
fn a_link_of_more_than_a_second_is_no_stuck_one() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = seed(l);
    greet(&mut exchange, 1, PieceSet::empty(l));
    let slow = BTreeMap::from([(peer(1), Receipts { after: ms(1_500), one_by_one: false })]);
    let sent = play_seed(&mut exchange, &slow, Duration::from_secs(60));
    // What fits in 1.5 s is on its way at once; 16 KiB at a time would be under one megabyte.
    assert!(sent[&peer(1)] >= 20_000_000, "{sent:?}");
}

#[test]
fn nothing_is_offered_to_one_that_only_gives() {
    let l = layout(3);
    let mut exchange = seed(l);
    exchange.join_giver(START, peer(1)).unwrap();
    exchange.heard(START, peer(1), &Message::Holding(PieceSet::empty(l))).unwrap();
    assert_eq!(offers(&exchange.take_messages(ms(100))), []);
}
