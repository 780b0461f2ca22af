//! The exchange of pieces as neighbours see it: what is offered, taken, sent, and what a neighbour that breaks its word costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundswell_core::blob::exchange::{Breach, Exchange, Message, PartFate, Terms};
use groundswell_core::blob::{Layout, PieceSet};
use groundswell_core::limits::{BLOB_NEIGHBOURS, BLOB_OFFERED, BLOB_OPEN_OFFERS};
use groundswell_core::node_id::NodeId;
use proptest::prelude::*;

pub(crate) const START: Duration = Duration::ZERO;

pub(crate) fn peer(n: u8) -> NodeId {
    NodeId([n; 32])
}

pub(crate) fn layout(pieces: u64) -> Layout {
    Layout::of(pieces * 65_536).unwrap()
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn some(layout: Layout, pieces: &[u32]) -> PieceSet {
    let mut set = PieceSet::empty(layout);
    pieces.iter().for_each(|piece| assert!(set.insert(*piece)));
    set
}

pub(crate) fn seed(layout: Layout) -> Exchange {
    Exchange::new(layout, PieceSet::full(layout), Terms::default(), 1, START)
}

pub(crate) fn leecher(layout: Layout) -> Exchange {
    Exchange::new(layout, PieceSet::empty(layout), Terms::default(), 1, START)
}

/// Takes a neighbour in that holds `held`.
pub(crate) fn greet(exchange: &mut Exchange, n: u8, held: PieceSet) {
    exchange.join(START, peer(n)).unwrap();
    exchange.heard(START, peer(n), &Message::Holding(held)).unwrap();
}

pub(crate) fn offers(messages: &[(NodeId, Message)]) -> Vec<(NodeId, Vec<u32>)> {
    let offer = |(to, message): &(NodeId, Message)| match message {
        Message::Offer { pieces, .. } => Some((*to, pieces.clone())),
        _ => None,
    };
    messages.iter().filter_map(offer).collect()
}

pub(crate) fn said_to(messages: &[(NodeId, Message)], n: u8) -> Vec<Message> {
    messages
        .iter()
        .filter(|(to, message)| *to == peer(n) && !matches!(message, Message::Got(_)))
        .map(|(_, it)| it.clone())
        .collect()
}

pub(crate) fn offer(pieces: &[u32], wait_ms: u32) -> Message {
    Message::Offer { wait_ms, pieces: pieces.to_vec() }
}

/// Sends all that is due; every part is acknowledged at once.
fn send_all(exchange: &mut Exchange, now: Duration) -> Vec<(NodeId, u32)> {
    let mut sent = Vec::new();
    while let Some(part) = exchange.next_part(now) {
        exchange.heard(now, part.peer, &Message::Got(u32::try_from(part.length).unwrap())).unwrap();
        if part.last {
            sent.push((part.peer, part.piece));
        }
    }
    sent
}

#[test]
fn a_seed_hands_out_each_piece_once_before_any_twice() {
    let l = layout(40);
    let mut exchange = seed(l);
    (1..=4).for_each(|n| greet(&mut exchange, n, PieceSet::empty(l)));
    let mut handed = Vec::new();
    let mut now = START;
    while handed.len() < 40 {
        now += ms(5);
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
        }
        handed.extend(send_all(&mut exchange, now));
        assert!(now < Duration::from_secs(60), "it goes on");
    }
    let pieces: PieceSet = handed.iter().take(40).fold(PieceSet::empty(l), |mut set, (_, piece)| {
        assert!(set.insert(*piece), "piece {piece} went out twice before every other went out once");
        set
    });
    assert!(pieces.is_full());
    let to = |n: u8| handed.iter().take(40).filter(|(to, _)| *to == peer(n)).count();
    assert!((1..=4).all(|n| to(n) >= 7), "all got about as many");
}

#[test]
fn a_single_neighbour_is_given_pieces_nearly_in_order() {
    let layout = layout(100);
    let mut exchange = seed(layout);
    greet(&mut exchange, 1, some(layout, &[2]));
    let mut lacks: BTreeSet<u32> = (0..100).filter(|piece| *piece != 2).collect();
    for step in 0..99 {
        let now = ms(10 * step);
        for (_, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, peer(1), &Message::Take(pieces[0])).unwrap();
            let first = *lacks.first().unwrap();
            assert!(lacks.remove(&pieces[0]), "each once");
            // What is in another offer is not in this one.
            assert!(pieces[0] < first + 2 * u32::try_from(BLOB_OFFERED).unwrap(), "{} while {first} is not there", pieces[0]);
        }
        send_all(&mut exchange, now);
    }
    assert_eq!(lacks, BTreeSet::new());
}

#[test]
fn a_neighbour_that_passes_nothing_on_is_given_few_pieces_that_nobody_else_has() {
    let l = layout(60);
    let mut exchange = seed(l);
    (1..=3).for_each(|n| greet(&mut exchange, n, PieceSet::empty(l)));
    let (mut got, mut now) = (BTreeMap::<NodeId, Vec<u32>>::new(), START);
    for _ in 0..600 {
        now += ms(5);
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
        }
        for (to, piece) in send_all(&mut exchange, now) {
            got.entry(to).or_default().push(piece);
            exchange.heard(now, to, &Message::Have(vec![piece])).unwrap();
            // 1 and 2 pass on to each other what they get; 3 keeps it.
            let other = if to == peer(1) { peer(2) } else { peer(1) };
            if to != peer(3) {
                exchange.heard(now, other, &Message::Have(vec![piece])).unwrap();
            }
        }
        if got.values().flatten().collect::<BTreeSet<_>>().len() == 60 {
            break;
        }
    }
    let alone = got[&peer(3)].len();
    assert!(alone <= 6, "{alone} of 60 pieces went to a neighbour that keeps them");
}

#[test]
fn who_gives_nothing_of_what_it_has_gets_what_nobody_else_needs() {
    let l = layout(40);
    let held: Vec<u32> = (4..40).collect();
    let mut exchange = Exchange::new(l, some(l, &held), Terms::default(), 1, START);
    greet(&mut exchange, 1, some(l, &[0]));
    greet(&mut exchange, 2, some(l, &[1]));
    exchange.heard(ms(3_900), peer(2), &offer(&[1], 20)).unwrap();
    exchange.part(ms(3_950), peer(2), 1, 0, 65_536).unwrap();
    exchange.tick(ms(4_000));
    let to: Vec<NodeId> = offers(&exchange.take_messages(ms(4_000))).into_iter().map(|(to, _)| to).collect();
    assert_eq!(to, [peer(2), peer(2)]);
}

#[test]
fn a_piece_that_is_on_its_way_is_not_taken_from_a_second() {
    let l = layout(3);
    let mut exchange = leecher(l);
    (1..=2).for_each(|n| greet(&mut exchange, n, PieceSet::full(l)));
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &offer(&[0, 1], 20)).unwrap();
    exchange.heard(START, peer(2), &offer(&[0, 1], 20)).unwrap();
    exchange.heard(START, peer(2), &offer(&[1, 0], 20)).unwrap();
    let said = exchange.take_messages(START);
    assert_eq!(said_to(&said, 1), [Message::Take(0)]);
    assert_eq!(said_to(&said, 2), [Message::Take(1), Message::Pass]);
}

#[test]
fn a_piece_that_another_keeps_waiting_is_taken_from_who_sends_it_sooner() {
    let l = layout(1);
    let mut exchange = leecher(l);
    (1..=2).for_each(|n| greet(&mut exchange, n, PieceSet::full(l)));
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &offer(&[0], 5_000)).unwrap();
    exchange.heard(ms(10), peer(2), &offer(&[0], 100)).unwrap();
    let said = exchange.take_messages(ms(10));
    assert_eq!(said_to(&said, 1), [Message::Take(0), Message::Cancel(0)]);
    assert_eq!(said_to(&said, 2), [Message::Take(0)]);
    // What the first sends all the same is taken off the stream and dropped.
    assert_eq!(exchange.part(ms(20), peer(1), 0, 0, 1000), Ok(PartFate::Drop));
    assert_eq!(exchange.part(ms(20), peer(2), 0, 0, 65_536), Ok(PartFate::Whole));
}

#[test]
fn bytes_that_were_not_asked_for_or_are_out_of_order_or_too_many_are_a_breach() {
    let l = layout(3);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    assert_eq!(exchange.part(START, peer(1), 0, 0, 10), Err(Breach::Bytes));
    exchange.heard(START, peer(1), &offer(&[0], 20)).unwrap();
    assert_eq!(exchange.part(START, peer(1), 1, 0, 10), Err(Breach::Bytes));
    assert_eq!(exchange.part(START, peer(1), 0, 10, 10), Err(Breach::Bytes));
    assert_eq!(exchange.part(START, peer(1), 0, 0, 65_537), Err(Breach::Bytes));
    assert_eq!(exchange.part(START, peer(1), 0, 0, 0), Err(Breach::Bytes));
    assert_eq!(exchange.part(START, peer(1), 0, usize::MAX, 2), Err(Breach::Bytes));
    assert_eq!(exchange.part(START, peer(1), 7, 0, 1), Err(Breach::Bytes));
    assert_eq!(exchange.part(START, peer(1), 0, 0, 65_536), Ok(PartFate::Whole));
    assert_eq!(exchange.part(START, peer(1), 0, 0, 10), Err(Breach::Bytes), "it was sent already");
    assert_eq!(exchange.part(START, peer(2), 0, 0, 10), Err(Breach::Stranger));
}

#[test]
fn answers_and_receipts_for_what_was_not_are_a_breach() {
    let l = layout(3);
    let mut exchange = seed(l);
    exchange.join(START, peer(1)).unwrap();
    assert_eq!(exchange.heard(START, peer(1), &Message::Have(vec![1])), Err(Breach::Order));
    exchange.heard(START, peer(1), &Message::Holding(some(l, &[2]))).unwrap();
    assert_eq!(exchange.heard(START, peer(1), &Message::Take(0)), Err(Breach::Answer));
    assert_eq!(exchange.heard(START, peer(1), &Message::Pass), Err(Breach::Answer));
    assert_eq!(exchange.heard(START, peer(1), &Message::Got(1)), Err(Breach::Receipt));
    assert_eq!(exchange.heard(START, peer(1), &Message::Got(0)), Err(Breach::Receipt));
    let made = offers(&exchange.take_messages(START));
    assert!(!made.is_empty() && made.iter().all(|(_, pieces)| !pieces.contains(&2)), "it has that already");
    assert_eq!(exchange.heard(START, peer(1), &Message::Take(2)), Err(Breach::Answer));
}

#[test]
fn a_neighbour_that_says_it_has_all_and_gives_nothing_costs_nothing() {
    let l = layout(2);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    greet(&mut exchange, 2, PieceSet::full(l));
    exchange.take_messages(START);
    exchange.heard(START, peer(2), &offer(&[0, 1], 20)).unwrap();
    exchange.heard(START, peer(2), &offer(&[1], 20)).unwrap();
    assert_eq!(said_to(&exchange.take_messages(START), 2), [Message::Take(0), Message::Take(1)]);
}

#[test]
fn what_was_promised_and_does_not_come_is_free_again_and_who_promised_it_is_given_up() {
    let l = layout(20);
    let mut exchange = leecher(l);
    (1..=2).for_each(|n| greet(&mut exchange, n, PieceSet::full(l)));
    (0..6).for_each(|piece| exchange.heard(START, peer(1), &offer(&[piece], 20)).unwrap());
    exchange.take_messages(START);
    exchange.tick(ms(20_000));
    let said = exchange.take_messages(ms(20_000));
    assert_eq!(said_to(&said, 1), (0..6).map(Message::Cancel).collect::<Vec<_>>());
    exchange.tick(ms(21_000));
    assert!(exchange.take_silent().contains(&peer(1)));
    exchange.heard(ms(21_000), peer(2), &offer(&[0], 20)).unwrap();
    assert_eq!(said_to(&exchange.take_messages(ms(21_000)), 2), [Message::Take(0)]);
}

#[test]
fn a_neighbour_that_does_not_answer_holds_up_nobody_else_and_is_given_up() {
    let l = layout(200);
    let mut exchange = seed(l);
    (1..=2).for_each(|n| greet(&mut exchange, n, PieceSet::empty(l)));
    let mut now = START;
    let mut sent = 0;
    while sent < 100 {
        now += ms(20);
        exchange.tick(now);
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            if to == peer(2) {
                exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
            }
        }
        sent += send_all(&mut exchange, now).len();
        assert!(now < Duration::from_secs(30), "{sent} pieces in {now:?}");
    }
    exchange.tick(now + ms(16_000));
    assert_eq!(exchange.take_silent(), [peer(1)]);
}

#[test]
fn who_does_not_acknowledge_gets_no_more_than_a_window_and_holds_up_nobody_else() {
    let l = Layout::of(100 * 1024 * 1024).unwrap();
    let mut exchange = seed(l);
    (1..=2).for_each(|n| greet(&mut exchange, n, PieceSet::empty(l)));
    let (mut now, mut unacknowledged, mut acknowledged) = (START, 0, 0);
    for _ in 0..1_000 {
        now += ms(5);
        for (to, pieces) in offers(&exchange.take_messages(now)) {
            exchange.heard(now, to, &Message::Take(pieces[0])).unwrap();
        }
        while let Some(part) = exchange.next_part(now) {
            if part.peer == peer(1) {
                unacknowledged += part.length;
            } else {
                acknowledged += part.length;
                exchange.heard(now, peer(2), &Message::Got(u32::try_from(part.length).unwrap())).unwrap();
            }
        }
    }
    assert!(unacknowledged <= 256 * 1024, "{unacknowledged}");
    assert!(acknowledged >= 4 * 1024 * 1024, "{acknowledged}");
}

#[test]
fn whoever_does_not_serve_offers_nothing() {
    let l = layout(3);
    let mut exchange = Exchange::new(l, PieceSet::full(l), Terms { serves: false, ..Terms::default() }, 1, START);
    greet(&mut exchange, 1, PieceSet::empty(l));
    assert_eq!(offers(&exchange.take_messages(ms(100))), []);
}

#[test]
fn whoever_does_not_fetch_takes_nothing() {
    let l = layout(3);
    let mut exchange = Exchange::new(l, some(l, &[0]), Terms { takes: false, ..Terms::default() }, 1, START);
    greet(&mut exchange, 1, PieceSet::full(l));
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &offer(&[1], 20)).unwrap();
    assert_eq!(said_to(&exchange.take_messages(START), 1), [Message::Pass]);
}

#[test]
fn no_more_neighbours_are_sent_to_at_once_than_the_terms_allow() {
    let l = layout(200);
    let mut exchange = Exchange::new(l, PieceSet::full(l), Terms { uploads: 2, ..Terms::default() }, 1, START);
    (1..=5).for_each(|n| greet(&mut exchange, n, PieceSet::empty(l)));
    let made = offers(&exchange.take_messages(START));
    let to: BTreeSet<NodeId> = made.iter().map(|(to, _)| *to).collect();
    assert!(!to.is_empty() && to.len() <= 2, "{to:?}");
}

#[test]
fn no_more_is_taken_at_once_than_there_is_room_for_and_one_piece_always() {
    let l = layout(40);
    for (room_bytes, pieces) in [(200_000, 4), (65_536, 1), (1_000, 1), (0, 1)] {
        let mut exchange = Exchange::new(l, PieceSet::empty(l), Terms { room_bytes, ..Terms::default() }, 1, START);
        (1..=8).for_each(|n| greet(&mut exchange, n, PieceSet::full(l)));
        exchange.take_messages(START);
        (1..=8_u8).for_each(|n| exchange.heard(START, peer(n), &offer(&[u32::from(n)], 20)).unwrap());
        let said = exchange.take_messages(START);
        let taken = said.iter().filter(|(_, message)| matches!(message, Message::Take(_))).count();
        assert_eq!(taken, pieces, "room for {room_bytes} bytes");
    }
}

#[test]
fn what_nobody_lacks_and_nobody_is_to_be_sent_need_not_be_kept_at_hand() {
    let layout = layout(2);
    let mut exchange = seed(layout);
    assert!(!exchange.may_be_taken(0), "nobody takes part");
    exchange.join(START, peer(1)).unwrap();
    assert!(exchange.may_be_taken(0), "who has not said what it holds may lack anything");
    exchange.heard(START, peer(1), &Message::Holding(some(layout, &[0]))).unwrap();
    assert_eq!([0, 1].map(|piece| exchange.may_be_taken(piece)), [false, true]);
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &Message::Take(1)).unwrap();
    exchange.heard(START, peer(1), &Message::Have(vec![1])).unwrap();
    assert!(exchange.may_be_taken(1), "it has it from another by now, and has not called it off");
    exchange.heard(START, peer(1), &Message::Cancel(1)).unwrap();
    assert!(!exchange.may_be_taken(1));
    let terms = Terms { serves: false, takes: true, uploads: 8, room_bytes: u64::MAX };
    let mut metered = Exchange::new(layout, PieceSet::full(layout), terms, 1, START);
    greet(&mut metered, 1, PieceSet::empty(layout));
    assert!(!metered.may_be_taken(0));
}

#[test]
fn a_piece_that_the_disk_damaged_is_missing_again_and_all_are_told() {
    let l = layout(3);
    let mut exchange = seed(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    exchange.take_messages(START);
    exchange.forget(1);
    assert_eq!(exchange.take_messages(START), [(peer(1), Message::Holding(some(l, &[0, 2])))]);
    // However many, they are told of once.
    exchange.forget(0);
    exchange.forget(2);
    assert_eq!(exchange.take_messages(START), [(peer(1), Message::Holding(some(l, &[])))]);
    assert!(!exchange.is_complete() && exchange.standing(START).has_source);
}

#[test]
fn a_piece_that_cannot_be_read_is_withdrawn() {
    let l = layout(1);
    let mut exchange = seed(l);
    greet(&mut exchange, 1, PieceSet::empty(l));
    let made = offers(&exchange.take_messages(START));
    exchange.heard(START, peer(1), &Message::Take(made[0].1[0])).unwrap();
    exchange.unreadable(0);
    assert!(!exchange.held().contains(0));
    assert!(said_to(&exchange.take_messages(START), 1).contains(&Message::Withdraw(0)));
    assert_eq!(exchange.next_part(START), None);
}

#[test]
fn on_a_thin_line_what_waits_behind_a_piece_that_comes_is_waited_for() {
    let l = layout(6);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    let taken = |exchange: &mut Exchange, now, pieces: &[u32]| {
        exchange.heard(now, peer(1), &offer(pieces, 1_000)).unwrap();
        assert!(said_to(&exchange.take_messages(now), 1).contains(&Message::Take(pieces[0])));
    };
    exchange.take_messages(START);
    taken(&mut exchange, START, &[0]);
    // 4 KiB every two seconds: a piece takes half a minute, and the next was promised when its first part came.
    for (at, piece) in (0..5_u32).enumerate() {
        let begins = ms(32_000 * u64::try_from(at).unwrap());
        for part in 0..16_usize {
            let now = begins + ms(2_000 * u64::try_from(part + 1).unwrap());
            exchange.part(now, peer(1), piece, part * 4_096, 4_096).unwrap();
            if part == 0 {
                taken(&mut exchange, now, &[piece + 1]);
            }
            exchange.tick(now);
            let said = said_to(&exchange.take_messages(now), 1);
            assert!(!said.iter().any(|word| matches!(word, Message::Cancel(_))), "piece {piece}, part {part}: {said:?}");
            assert_eq!(exchange.take_silent(), []);
        }
        exchange.stored(begins + ms(32_000), piece);
    }
    // Nothing comes any more: then it is given up.
    for second in 160..500 {
        exchange.tick(ms(second * 1_000));
    }
    assert!(said_to(&exchange.take_messages(ms(500_000)), 1).contains(&Message::Cancel(5)));
}

#[test]
fn whoever_takes_its_word_back_again_and_again_is_given_up() {
    let l = layout(8);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    for piece in 0..4 {
        exchange.heard(START, peer(1), &offer(&[piece], 100)).unwrap();
        exchange.take_messages(START);
        exchange.part(START, peer(1), piece, 0, 1_000).unwrap();
        assert!(exchange.expects(piece));
        exchange.heard(START, peer(1), &Message::Withdraw(piece)).unwrap();
        assert!(!exchange.expects(piece), "what came of it is of no use");
    }
    exchange.tick(ms(500));
    assert_eq!(exchange.take_silent(), [peer(1)]);
}

#[test]
fn one_neighbour_too_many_is_refused() {
    let l = layout(3);
    let mut exchange = seed(l);
    (0..u8::try_from(BLOB_NEIGHBOURS).unwrap()).for_each(|n| exchange.join(START, peer(n)).unwrap());
    assert!(exchange.join(START, peer(200)).is_err());
    exchange.leave(peer(0));
    assert_eq!(exchange.join(START, peer(200)), Ok(()));
}

/// What a neighbour in the random walk says next.
#[derive(Clone, Debug)]
enum Act {
    Say(u8, Message),
    Part(u8, u32, usize, usize),
    Stored(u32),
    Leave(u8),
    Join(u8),
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let piece = 0..12_u32;
    let pieces = prop::collection::vec(0..12_u32, 1..5);
    let held = prop::collection::btree_set(0..12_u32, 0..12);
    let message = prop_oneof![
        held.prop_map(|held| Message::Holding(some(layout(12), &held.into_iter().collect::<Vec<_>>()))),
        pieces.clone().prop_map(Message::Have),
        (0..3_000_u32, pieces).prop_map(|(wait_ms, pieces)| Message::Offer { wait_ms, pieces }),
        piece.clone().prop_map(Message::Take),
        Just(Message::Pass),
        piece.clone().prop_map(Message::Cancel),
        piece.clone().prop_map(Message::Withdraw),
        (0..200_000_u32).prop_map(Message::Got),
    ];
    prop_oneof![
        12 => (0..5_u8, message).prop_map(|(n, message)| Act::Say(n, message)),
        4 => (0..5_u8, piece.clone(), prop_oneof![Just(0), 0..70_000_usize], 0..70_000_usize).prop_map(|(n, p, o, l)| Act::Part(n, p, o, l)),
        2 => piece.prop_map(Act::Stored),
        1 => (0..5_u8).prop_map(Act::Leave),
        2 => (0..5_u8).prop_map(Act::Join),
        2 => (0..20_000_u64).prop_map(Act::Wait),
    ]
}

proptest! {
    /// Whatever neighbours say, in whatever order: nothing panics, every offer is of what is held here and not there,
    /// open offers stay bounded, and what is sent was offered and taken.
    #[test]
    fn whatever_neighbours_say_an_exchange_stays_within_its_bounds(
        acts in prop::collection::vec(act(), 0..300), held in prop::collection::btree_set(0..12_u32, 0..12),
    ) {
        let l = layout(12);
        let mut exchange = Exchange::new(l, some(l, &held.into_iter().collect::<Vec<_>>()), Terms::default(), 3, START);
        let mut now = START;
        let mut open: BTreeMap<NodeId, usize> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Say(n, message) => {
                    let heard = exchange.heard(now, peer(n), &message);
                    if heard.is_ok() && matches!(message, Message::Take(_) | Message::Pass) {
                        *open.get_mut(&peer(n)).unwrap() -= 1;
                    }
                }
                Act::Part(n, piece, offset, length) => {
                    let _ = exchange.part(now, peer(n), piece, offset, length);
                }
                Act::Stored(piece) => exchange.stored(now, piece),
                Act::Leave(n) => {
                    exchange.leave(peer(n));
                    open.remove(&peer(n));
                }
                Act::Join(n) => {
                    exchange.join(now, peer(n)).unwrap();
                    open.remove(&peer(n));
                }
                Act::Wait(wait) => {
                    now += ms(wait);
                    exchange.tick(now);
                    for silent in exchange.take_silent() {
                        exchange.leave(silent);
                        open.remove(&silent);
                    }
                }
            }
            for (to, pieces) in offers(&exchange.take_messages(now)) {
                prop_assert!(pieces.iter().all(|piece| exchange.held().contains(*piece) || exchange.is_expected(*piece)));
                let count = open.entry(to).or_default();
                *count += 1;
                prop_assert!(*count <= BLOB_OPEN_OFFERS);
            }
            while let Some(part) = exchange.next_part(now) {
                prop_assert!(exchange.held().contains(part.piece) && part.length > 0);
                prop_assert!(part.offset + part.length <= 65_536);
            }
        }
    }
}
