//! Pieces that are offered before they are here, and what is said about what is new: nobody waits for a word that could have
//! been said before, and nobody is blamed for what came to nothing upstream.

use groundswell_core::blob::PieceSet;
use groundswell_core::blob::exchange::{Exchange, Message, PartFate};
use groundswell_core::limits::BLOB_TAKEN_BACK;

use crate::blob_exchange::{START, greet, layout, leecher, ms, offer, offers, peer, said_to, some};

const PIECE: usize = 65_536;

/// A node in the middle: 1 has everything and promised piece 0, 2 lacks it.
fn between() -> Exchange {
    let l = layout(4);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    greet(&mut exchange, 2, some(l, &[3]));
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &offer(&[0], 30)).unwrap();
    exchange
}

#[test]
fn a_piece_that_is_about_to_arrive_is_offered_and_leaves_the_moment_it_is_stored() {
    let mut exchange = between();
    let said = exchange.take_messages(START);
    assert_eq!(said_to(&said, 1), [Message::Take(0)]);
    assert_eq!(offers(&said), [(peer(2), vec![0])]);
    exchange.heard(ms(10), peer(2), &Message::Take(0)).unwrap();
    assert_eq!(exchange.next_part(ms(10)), None, "nothing of it is here");
    exchange.part(ms(30), peer(1), 0, 0, PIECE).unwrap();
    assert_eq!(exchange.next_part(ms(30)), None, "it was not verified");
    exchange.stored(ms(31), 0);
    let part = exchange.next_part(ms(31)).expect("it goes out at once");
    assert_eq!((part.peer, part.piece, part.offset), (peer(2), 0, 0));
}

#[test]
fn how_long_it_takes_to_come_is_part_of_how_long_it_would_take() {
    let l = layout(4);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    greet(&mut exchange, 2, PieceSet::empty(l));
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &offer(&[0], 45)).unwrap();
    let said = exchange.take_messages(START);
    let wait = said.iter().find_map(|(_, word)| match word {
        Message::Offer { wait_ms, .. } => Some(*wait_ms),
        _ => None,
    });
    // At the rate that is assumed before anything was measured, a piece takes 32 ms.
    assert!(wait.is_some_and(|wait| (75..=80).contains(&wait)), "{wait:?}");
}

#[test]
fn what_comes_much_later_than_an_answer_takes_is_not_offered_yet() {
    let l = layout(4);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::full(l));
    greet(&mut exchange, 2, PieceSet::empty(l));
    exchange.take_messages(START);
    exchange.heard(START, peer(1), &offer(&[0], 2_000)).unwrap();
    assert_eq!(offers(&exchange.take_messages(START)), []);
}

#[test]
fn what_was_offered_and_then_does_not_come_is_withdrawn_from_whoever_took_it() {
    for upstream in ["leaves", "takes its word back"] {
        let mut exchange = between();
        exchange.take_messages(START);
        exchange.heard(ms(10), peer(2), &Message::Take(0)).unwrap();
        if upstream == "leaves" {
            exchange.leave(peer(1));
        } else {
            exchange.heard(ms(20), peer(1), &Message::Withdraw(0)).unwrap();
        }
        assert_eq!(said_to(&exchange.take_messages(ms(20)), 2), [Message::Withdraw(0)], "upstream {upstream}");
        assert_eq!(exchange.next_part(ms(20)), None);
    }
}

#[test]
fn what_does_not_begin_to_come_is_withdrawn_from_whoever_took_it_and_may_still_come() {
    let mut exchange = between();
    exchange.take_messages(START);
    exchange.heard(ms(10), peer(2), &Message::Take(0)).unwrap();
    exchange.tick(ms(500));
    assert_eq!(said_to(&exchange.take_messages(ms(500)), 2), []);
    exchange.tick(ms(1_100));
    assert_eq!(said_to(&exchange.take_messages(ms(1_100)), 2), [Message::Withdraw(0)]);
    assert_eq!(exchange.part(ms(1_200), peer(1), 0, 0, PIECE), Ok(PartFate::Whole));
}

#[test]
fn an_answer_that_crosses_a_withdrawal_takes_nothing_and_is_no_breach() {
    let mut exchange = between();
    exchange.take_messages(START);
    exchange.leave(peer(1));
    assert_eq!(said_to(&exchange.take_messages(ms(5)), 2), [Message::Withdraw(0)]);
    // It comes from another by then, is offered anew, and both answers arrive.
    greet(&mut exchange, 4, PieceSet::full(layout(4)));
    exchange.heard(ms(6), peer(4), &offer(&[0], 30)).unwrap();
    assert_eq!(offers(&exchange.take_messages(ms(6))), [(peer(2), vec![0])]);
    exchange.heard(ms(10), peer(2), &Message::Take(0)).unwrap();
    exchange.heard(ms(20), peer(2), &Message::Take(0)).unwrap();
    exchange.part(ms(30), peer(4), 0, 0, PIECE).unwrap();
    exchange.stored(ms(31), 0);
    let mut sent = 0;
    while let Some(part) = exchange.next_part(ms(31)) {
        assert_eq!((part.peer, part.piece), (peer(2), 0));
        exchange.heard(ms(32), peer(2), &Message::Got(u32::try_from(part.length).unwrap())).unwrap();
        sent += part.length;
    }
    assert_eq!(sent, PIECE, "it goes there once");
}

#[test]
fn a_neighbour_that_passes_on_what_it_lost_upstream_is_not_given_up_before_it_does_so_many_times_in_a_row() {
    let l = layout(100);
    let mut exchange = leecher(l);
    greet(&mut exchange, 1, PieceSet::empty(l));
    exchange.take_messages(START);
    for piece in 0..BLOB_TAKEN_BACK {
        exchange.tick(ms(500));
        assert_eq!(exchange.take_silent(), [], "{piece}");
        exchange.heard(START, peer(1), &offer(&[piece], 30)).unwrap();
        assert_eq!(said_to(&exchange.take_messages(START), 1), [Message::Take(piece)]);
        assert!(exchange.standing(START).has_source);
        exchange.heard(START, peer(1), &Message::Withdraw(piece)).unwrap();
        assert!(!exchange.standing(START).has_source, "it does not have it after all");
    }
    exchange.tick(ms(1_000));
    assert_eq!(exchange.take_silent(), [peer(1)]);
}

#[test]
fn a_piece_that_was_called_off_is_still_there() {
    let l = layout(2);
    let mut exchange = Exchange::new(l, PieceSet::full(l), Default::default(), 1, START);
    greet(&mut exchange, 1, PieceSet::empty(l));
    let (_, first) = offers(&exchange.take_messages(START)).remove(0);
    exchange.heard(START, peer(1), &Message::Take(first[0])).unwrap();
    exchange.heard(START, peer(1), &Message::Cancel(first[0])).unwrap();
    let said = said_to(&exchange.take_messages(START), 1);
    assert_eq!(said.first_chunk(), Some(&[Message::Withdraw(first[0]), Message::Have(vec![first[0]])]));
}

#[test]
fn news_goes_along_with_what_is_said_anyhow_and_by_itself_after_a_while() {
    let l = layout(40);
    let mut exchange = leecher(l);
    (1..=3).for_each(|n| greet(&mut exchange, n, PieceSet::full(l)));
    exchange.take_messages(START);
    exchange.stored(ms(1), 7);
    exchange.heard(ms(2), peer(1), &offer(&[9], 2_000)).unwrap();
    let said = exchange.take_messages(ms(2));
    assert_eq!(said, [(peer(1), Message::Take(9)), (peer(1), Message::Have(vec![7]))]);
    exchange.stored(ms(3), 8);
    assert_eq!(exchange.take_messages(ms(4)), []);
    let due = exchange.next_wakeup();
    assert!(due <= ms(50), "{due:?}");
    let said = exchange.take_messages(due);
    assert_eq!(said_to(&said, 1), [Message::Have(vec![8])], "what it heard is not said twice");
    assert_eq!(said_to(&said, 2), [Message::Have(vec![7, 8])]);
    assert_eq!(exchange.take_messages(ms(500)), []);
}
