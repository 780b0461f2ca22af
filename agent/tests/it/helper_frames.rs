//! The frames between agent and helper: golden bytes, bounds, and any bytes at all.

use groundswell_agent::helper::wire::{
    FrameError, GoingBack, HEADER_BYTES, Header, Kind, LastFailure, ORDER_BYTES, Order, Outcome, REPLY_BYTES, Reply, State,
    TakenBack, Why, decode_order, decode_reply, encode_order, encode_reply,
};
use groundswell_core::digest::Digest;
use groundswell_core::install::Contents;
use groundswell_core::limits::{DENIED, REASON_CHARS};
use groundswell_core::number::Sequence;
use groundswell_core::record::status::Running;
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::{Product, Reason, Version};
use proptest::prelude::*;

const BOTH: [Kind; 2] = [Kind::Document, Kind::Order];

fn product() -> Product {
    Product::new("bcd").unwrap()
}

fn claim() -> ClaimName {
    ClaimName(Stamp { incarnation: 7, counter: 412 })
}

fn orders() -> Vec<Order> {
    let (product, release) = (product(), Digest([0xab; 32]));
    vec![
        Order::State { product: product.clone() },
        Order::Stage { product: product.clone(), release },
        Order::Activate { product: product.clone(), release, claim: claim() },
        Order::Confirm { product: product.clone(), release },
        Order::Revert { product: product.clone(), release, reason: Reason::lossy("unhealthy"), at_fault: true },
        Order::Failed { product },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn orders_have_these_bytes_for_ever() {
    let release = "ab".repeat(32);
    let golden = [
        "0003626364".to_owned(),
        format!("0103626364{release}"),
        format!("0203626364{release}079c03"),
        format!("0303626364{release}"),
        format!("0403626364{release}09756e6865616c74687901"),
        "0503626364".to_owned(),
    ];
    for (order, golden) in orders().iter().zip(golden) {
        let bytes = encode_order(order);
        assert_eq!(hex(&bytes), golden, "{order:?}");
        assert_eq!(decode_order(&bytes).as_ref(), Ok(order));
    }
    let header = Header { kind: Kind::Order, length: 5 }.encode();
    assert_eq!(hex(&header), "010200000005");
}

#[test]
fn refusals_have_these_bytes_for_ever() {
    let all = [
        Why::Frame,
        Why::Busy,
        Why::Stopping,
        Why::Product,
        Why::Document,
        Why::Warrant,
        Why::Held,
        Why::Denied,
        Why::File,
        Why::Disk,
    ];
    for (number, why) in all.into_iter().enumerate() {
        let bytes = encode_reply(&Reply::Refused { why, text: Reason::lossy("no") });
        assert_eq!(hex(&bytes), format!("01{number:02x}026e6f"));
    }
    let taken = Reply::Taken { digest: Digest([0xcd; 32]), fresh: true };
    assert_eq!(hex(&encode_reply(&taken)), format!("00{}01", "cd".repeat(32)));
}

#[test]
fn what_there_is_and_what_an_order_came_to_have_these_bytes_for_ever() {
    let (release, reason) = (Digest([0xab; 32]), Reason::lossy("no"));
    let state = State {
        running: None,
        floor: Sequence::new(5).unwrap(),
        trial: None,
        reverted: Some(TakenBack { release, reason: reason.clone(), at_fault: false }),
        staged: Some(release),
        denied: vec![release],
        launch: None,
    };
    let hex_release = "ab".repeat(32);
    let hex_state = format!("00050001{hex_release}026e6f0001{hex_release}01{hex_release}00");
    let golden = [
        (Outcome::Staged, "00"),
        (Outcome::StageFailed { disk_full: true, reason: reason.clone() }, "0101026e6f"),
        (Outcome::Activated, "02"),
        (Outcome::ActivateFailed { reason: reason.clone(), at_fault: false }, "03026e6f00"),
        (Outcome::ActivateFailed { reason: reason.clone(), at_fault: true }, "03026e6f01"),
        (Outcome::Confirmed, "04"),
        (Outcome::ConfirmFailed { reason: reason.clone() }, "05026e6f"),
        (Outcome::Reverted { running: None, output: reason.clone() }, "0600026e6f"),
        (Outcome::Again, "07"),
        (Outcome::Stopping, "08"),
        (Outcome::ConfirmRefused { reason }, "09026e6f"),
    ];
    for (outcome, golden) in golden {
        let reply = Reply::Done { outcome, state: state.clone() };
        let bytes = encode_reply(&reply);
        assert_eq!(hex(&bytes), format!("03{golden}{hex_state}"), "{reply:?}");
        assert_eq!(decode_reply(&bytes), Ok(reply));
    }
    assert_eq!(hex(&encode_reply(&Reply::State(state.clone()))), format!("02{hex_state}"));
    let going_back = GoingBack { release, reason: Reason::lossy("no"), at_fault: true, claim: Some(claim()) };
    let goes_back = Reply::GoesBack(going_back, state);
    let bytes = encode_reply(&goes_back);
    assert_eq!(hex(&bytes), format!("05{hex_release}026e6f0101079c03{hex_state}"));
    assert_eq!(decode_reply(&bytes), Ok(goes_back));
    let failed = Reply::Failed(Some(LastFailure { claim: claim(), release, reason: Reason::lossy("no") }));
    for (reply, golden) in [(Reply::Failed(None), "0400".to_owned()), (failed, format!("0401079c03{hex_release}026e6f"))] {
        let bytes = encode_reply(&reply);
        assert_eq!(hex(&bytes), golden, "{reply:?}");
        assert_eq!(decode_reply(&bytes), Ok(reply));
    }
}

#[test]
fn the_longest_order_and_the_longest_reply_fit_their_bounds() {
    let reason = Reason::new("\u{10ffff}".repeat(REASON_CHARS).replace('\u{10ffff}', "\u{1f30a}")).unwrap();
    let product = Product::new("p".repeat(64)).unwrap();
    let release = Digest([1; 32]);
    let order = Order::Revert { product, release, reason: reason.clone(), at_fault: false };
    assert!(encode_order(&order).len() <= ORDER_BYTES);
    let version = Version::new("v".repeat(64)).unwrap();
    let sequence = Sequence::new((1 << 53) - 1).unwrap();
    let contents = Contents { release, version: version.clone(), sequence, sha256: release, size_bytes: u64::MAX };
    let path = "p".repeat(4_096);
    let state = State {
        running: Some(Running { version, sequence, release }),
        floor: sequence,
        trial: Some(release),
        reverted: Some(TakenBack { release, reason: reason.clone(), at_fault: true }),
        staged: Some(release),
        denied: vec![release; 2 * DENIED],
        launch: Some(groundswell_agent::helper::wire::Launched {
            contents,
            slot: path.clone(),
            binary: path,
            claim: Some(claim()),
            trial: true,
        }),
    };
    let going_back = GoingBack { release, reason: reason.clone(), at_fault: true, claim: Some(claim()) };
    let failed = Outcome::ActivateFailed { reason, at_fault: true };
    for reply in [Reply::Done { outcome: failed, state: state.clone() }, Reply::GoesBack(going_back, state)] {
        let bytes = encode_reply(&reply);
        assert!(bytes.len() <= REPLY_BYTES, "{}", bytes.len());
        assert_eq!(decode_reply(&bytes), Ok(reply));
    }
}

#[test]
fn a_header_is_bounded_before_anything_is_read() {
    let bytes = |kind: u8, length: u32| {
        let [a, b, c, d] = length.to_be_bytes();
        [1, kind, a, b, c, d]
    };
    let most = u32::try_from(ORDER_BYTES).unwrap();
    assert!(Header::decode(bytes(2, most), &BOTH).is_ok());
    assert!(matches!(Header::decode(bytes(2, most + 1), &BOTH), Err(FrameError::TooLarge { .. })));
    assert!(matches!(Header::decode(bytes(1, u32::MAX), &BOTH), Err(FrameError::TooLarge { .. })));
    assert_eq!(Header::decode(bytes(3, 0), &BOTH), Err(FrameError::Kind(3)));
    assert_eq!(Header::decode([9, 2, 0, 0, 0, 0], &BOTH), Err(FrameError::Version(9)));
}

proptest! {
    #[test]
    fn any_header_is_read_or_refused_and_never_beyond_its_bound(bytes in any::<[u8; HEADER_BYTES]>()) {
        if let Ok(header) = Header::decode(bytes, &BOTH) {
            prop_assert!(header.length <= header.kind.most_bytes());
            prop_assert_eq!(header.encode(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_an_order_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(order) = decode_order(&bytes) {
            prop_assert_eq!(decode_order(&encode_order(&order)), Ok(order));
        }
        if let Ok(reply) = decode_reply(&bytes) {
            prop_assert_eq!(decode_reply(&encode_reply(&reply)), Ok(reply));
        }
    }

    #[test]
    fn an_order_that_was_cut_or_changed_is_another_order_or_an_error(
        number in 0..5_usize, cut in any::<prop::sample::Index>(), place in any::<prop::sample::Index>(), flip in 1..=255_u8,
    ) {
        let bytes = encode_order(&orders()[number]);
        prop_assert!(decode_order(&bytes[..cut.index(bytes.len())]).is_err());
        let mut changed = bytes.clone();
        changed[place.index(bytes.len())] ^= flip;
        prop_assert_ne!(decode_order(&changed).ok(), Some(orders()[number].clone()));
    }
}
