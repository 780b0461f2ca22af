//! The exchange of pieces against neighbours that keep the protocol and nothing else: they are slow to acknowledge, promise
//! more than they send, or take and pass nothing on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use groundswell_core::blob::exchange::{Exchange, Message};
use groundswell_core::blob::{Layout, PieceSet};
use groundswell_core::limits::BLOB_WIRE_BYTES;
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

/// One that has nothing beside twenty that have everything.
fn beside_twenty(layout: Layout) -> Exchange {
    let mut exchange = leecher(layout);
    (1..=20).for_each(|n| greet(&mut exchange, n, PieceSet::full(layout)));
    exchange.take_messages(START);
    exchange
}

#[test]
fn promises_of_many_that_keep_them_waiting_make_room_for_who_sends_sooner() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = beside_twenty(l);
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

#[test]
fn whoever_takes_and_calls_off_without_end_is_given_up() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = seed(l);
    greet(&mut exchange, 1, PieceSet::empty(l));
    let (mut now, mut called_off) = (START, 0);
    while exchange.take_silent().is_empty() {
        now += ms(500);
        exchange.tick(now);
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
            exchange.heard(now, to, &Message::Cancel(pieces[0])).unwrap();
            called_off += 1;
        }
        assert!(called_off < 200, "it goes on for ever");
    }
}

#[test]
fn a_piece_that_a_disk_is_slow_to_give_keeps_no_other_waiting_and_no_more_than_two_are_read_ahead() {
    let l = layout(20);
    let mut exchange = seed(l);
    greet(&mut exchange, 1, PieceSet::empty(l));
    let (mut now, mut taken) = (START, Vec::new());
    // The longer answers take, the more is agreed on ahead.
    while taken.len() < 4 {
        let made = offers(&exchange.take_messages(now));
        now += ms(400);
        for (to, pieces) in made {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
            taken.push(pieces[0]);
        }
        assert!(now < ms(10_000), "{taken:?}");
    }
    let first = exchange.next_to_read(now, |_| false).expect("nothing is at hand");
    let second = exchange.next_to_read(now, |piece| piece == first).expect("the next one");
    assert_eq!(exchange.next_to_read(now, |piece| piece == first || piece == second), None);
    let ready = *taken.iter().find(|piece| ![first, second].contains(piece)).unwrap();
    assert_eq!(exchange.next_part_of(now, |piece| piece == ready).map(|part| part.piece), Some(ready));
    assert_eq!(exchange.next_part_of(now, |_| false), None);
}

#[test]
fn a_byte_of_each_promised_piece_keeps_no_room_from_who_sends_whole_ones() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = beside_twenty(l);
    for n in 1..=16_u32 {
        let from = peer(u8::try_from(n).unwrap());
        for nth in 0..16 {
            exchange.heard(START, from, &offer(&[n * 16 + nth], 100)).unwrap();
        }
    }
    for (to, word) in exchange.take_messages(START) {
        if let Message::Take(piece) = word {
            exchange.part(ms(100), to, piece, 0, 1).unwrap();
        }
    }
    for piece in 600..610 {
        exchange.heard(ms(110), peer(20), &offer(&[piece], 200)).unwrap();
    }
    let said = exchange.take_messages(ms(110));
    assert_eq!(said_to(&said, 20), (600..610).map(Message::Take).collect::<Vec<_>>());
}

#[test]
fn one_that_says_a_piece_takes_two_minutes_is_given_no_other_meanwhile() {
    let l = layout(100);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &offer(&[0], 120_000)).unwrap();
    assert_eq!(said_to(&exchange.take_messages(START), 1), [Message::Take(0)]);
    let later = Duration::from_secs(20);
    exchange.heard(later, peer(1), &offer(&[1], 100)).unwrap();
    assert_eq!(said_to(&exchange.take_messages(later), 1), [Message::Pass]);
}

#[test]
fn one_that_never_says_what_it_holds_is_given_up_and_one_of_no_use_makes_room() {
    let l = layout(20);
    let mut exchange = leecher(l);
    exchange.join(START, peer(1)).unwrap();
    greet(&mut exchange, 2, PieceSet::full(l));
    greet(&mut exchange, 3, PieceSet::full(l));
    let later = Duration::from_secs(11);
    assert_eq!(exchange.least_useful(ms(1_500), Duration::from_secs(10)), None);
    assert_eq!(exchange.least_useful(ms(5_000), Duration::from_secs(10)), Some(peer(1)), "it has not said a word");
    exchange.tick(later);
    assert_eq!(exchange.take_silent(), [peer(1)]);
    exchange.leave(peer(1));
    exchange.heard(later, peer(2), &offer(&[0], 20)).unwrap();
    exchange.part(later, peer(2), 0, 0, 65_536).unwrap();
    exchange.stored(later, 0);
    assert!(exchange.was_useful(&peer(2)) && !exchange.was_useful(&peer(3)));
    assert_eq!(exchange.least_useful(later, Duration::from_secs(10)), Some(peer(3)));
    // Over a new stream it has as much time again to say what it holds.
    exchange.join(later, peer(3)).unwrap();
    exchange.tick(later + ms(1_000));
    assert_eq!(exchange.take_silent(), []);
    exchange.heard(later, peer(3), &Message::Holding(PieceSet::full(l))).unwrap();
    // One that says it has everything and gives nothing is no source for long.
    exchange.leave(peer(2));
    assert!(exchange.standing(later).has_source);
    assert!(!exchange.standing(Duration::from_secs(31)).has_source);
}

#[test]
fn a_stream_opened_anew_does_not_make_a_broken_promise_undone() {
    let l = layout(20);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    exchange.take_messages(START);
    for piece in 0..4 {
        exchange.heard(START, peer(1), &offer(&[piece], 20)).unwrap();
        exchange.part(START, peer(1), piece, 0, 100).unwrap();
        exchange.heard(START, peer(1), &Message::Withdraw(piece)).unwrap();
        greet(&mut exchange, 1, PieceSet::full(l));
        exchange.take_messages(START);
    }
    exchange.tick(ms(500));
    assert_eq!(exchange.take_silent(), [peer(1)]);
}

#[test]
fn neighbours_that_take_much_and_then_acknowledge_nothing_hold_little_on_the_wire_all_together() {
    let l = Layout::of(2_000_000_000).unwrap();
    let mut exchange = seed(l);
    let (mut now, mut on_wire) = (START, 0_u64);
    // One after the other is quick for a while, and has 8 MiB on the wire when it falls silent.
    for n in 1..=6 {
        exchange.join(now, peer(n)).unwrap();
        exchange.heard(now, peer(n), &Message::Holding(PieceSet::empty(l))).unwrap();
        let (silent, ends) = (now + ms(600), now + ms(800));
        let mut due = VecDeque::<(Duration, u32)>::new();
        while now < ends {
            now += ms(1);
            // Something is underway always: a link that has nothing to carry is not measured.
            while now < silent
                && due.len() > 1
                && let Some((_, length)) = due.pop_front_if(|(at, _)| *at <= now)
            {
                on_wire -= u64::from(length);
                exchange.heard(now, peer(n), &Message::Got(length)).unwrap();
            }
            exchange.tick(now);
            let mut sent = 0;
            while sent < 1_000_000 {
                for (to, pieces) in offers(&exchange.take_messages(now)) {
                    exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
                }
                let Some(part) = exchange.next_part(now) else { break };
                let length = u32::try_from(part.length).unwrap();
                (sent, on_wire) = (sent + length, on_wire + u64::from(length));
                due.push_back((now + ms(3), length));
            }
        }
    }
    assert!(on_wire > BLOB_WIRE_BYTES / 2, "{on_wire}: much is on the wire");
    assert!(on_wire <= BLOB_WIRE_BYTES + 65_536, "{on_wire}");
}
