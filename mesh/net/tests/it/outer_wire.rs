//! The bytes of `/groundswell/door/1`: they never change.

use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKind, Stamp};
use groundswell_net::outer::limits::{CERTIFICATE_BYTES, CHUNK_BYTES, FRAME_BYTES, LIST_ENTRIES, RECORD_BYTES, STAMP_ENTRIES};
use groundswell_net::outer::wire::{self, Answer, Ask, Listed, Refused, Standing, WireError};
use proptest::prelude::*;

const GOLDEN: &str = include_str!("../golden/door.txt");

fn asks() -> Vec<(&'static str, Ask)> {
    let digest = Digest([0xd1; 32]);
    let node = NodeId([0x0e; 32]);
    let hello = |certificate: &[u8]| Ask::Hello { fleet: Digest([0xf1; 32]), certificate: certificate.to_vec() };
    vec![
        ("ask hello, no certificate", hello(b"")),
        ("ask hello", hello(b"{\"certificate\"}")),
        ("ask fleets", Ask::Fleets { after: 3 }),
        ("ask certificate", Ask::Certificate),
        ("ask documents", Ask::Documents { after: digest }),
        ("ask document", Ask::Document { digest, offset: 65_536 }),
        ("ask blob", Ask::Blob { sha256: digest, offset: u64::MAX }),
        ("ask hashes", Ask::Hashes { sha256: digest, offset: 0 }),
        ("ask stamps of status", Ask::Stamps { kind: RecordKind::Status, after: NodeId([0; 32]) }),
        ("ask stamps of grants", Ask::Stamps { kind: RecordKind::Grants, after: node }),
        ("ask record", Ask::Record { kind: RecordKind::Grants, node }),
        ("ask push", Ask::Push { record: vec![1, 2, 3] }),
    ]
}

fn answers() -> Vec<(&'static str, Answer)> {
    let kinds = [Kind::Fleet, Kind::Node, Kind::Token, Kind::Release, Kind::Roster, Kind::Rollout];
    let listed = kinds.map(|kind| Listed { kind, digest: Digest([0xd1; 32]), published: Digest([0xd2; 32]) });
    vec![
        ("answer refused malformed", Answer::Refused(Refused::Malformed)),
        ("answer refused fleet", Answer::Refused(Refused::Fleet)),
        ("answer refused standing", Answer::Refused(Refused::Standing)),
        ("answer refused not here", Answer::Refused(Refused::NotHere)),
        ("answer refused later", Answer::Refused(Refused::Later(1_500))),
        ("answer refused record", Answer::Refused(Refused::Record)),
        ("answer welcome stranger", Answer::Welcome(Standing::Stranger)),
        ("answer welcome former", Answer::Welcome(Standing::Former)),
        ("answer welcome member", Answer::Welcome(Standing::Member)),
        ("answer list", Answer::List(listed.to_vec())),
        ("answer list, empty", Answer::List(Vec::new())),
        ("answer chunk", Answer::Chunk { total: 70_000, bytes: vec![0xab, 0xcd] }),
        ("answer chunk at the end", Answer::Chunk { total: 70_000, bytes: Vec::new() }),
        (
            "answer stamps",
            Answer::Stamps(vec![
                (NodeId([0x0e; 32]), Stamp { incarnation: 2, counter: 258 }),
                (NodeId([0x0f; 32]), Stamp::PROOF),
            ]),
        ),
        ("answer record", Answer::Records(vec![vec![1, 2, 3]])),
        ("answer proof", Answer::Records(vec![vec![1], vec![2, 2]])),
        ("answer taken", Answer::Taken),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The messages as they go over the wire, length in front.
fn golden() -> String {
    let framed = |message: Vec<u8>| [u32::try_from(message.len()).unwrap().to_be_bytes().to_vec(), message].concat();
    let asks = asks().into_iter().map(|(name, ask)| (name, framed(ask.encode())));
    let answers = answers().into_iter().map(|(name, answer)| (name, framed(answer.encode())));
    asks.chain(answers).map(|(name, bytes)| format!("{name}: {}\n", hex(&bytes))).collect()
}

#[test]
fn the_bytes_of_the_outer_door_are_those_of_its_first_day() {
    assert_eq!(golden(), GOLDEN, "these bytes are promised for ever: a build of any year must understand them");
}

#[test]
fn its_limits_and_pieces_are_part_of_the_promise() {
    assert_eq!(
        (CHUNK_BYTES, CERTIFICATE_BYTES, RECORD_BYTES, FRAME_BYTES, LIST_ENTRIES, STAMP_ENTRIES),
        (65_536, 65_536, 16_384, 65_600, 1_000, 1_360)
    );
    // What hash lists count in: the pieces of a blob by its size.
    let piece = |size| groundswell_core::blob::Layout::of(size).unwrap().piece_bytes();
    let pieces = [1, 16 << 20, (16 << 20) + 1, 200_000_000, 200_000_001].map(piece);
    assert_eq!(pieces, [65_536, 65_536, 131_072, 131_072, 1_048_576]);
}

#[test]
fn every_message_reads_back_as_itself_and_no_part_or_longer_form_of_it_does() {
    for (name, ask) in asks() {
        let bytes = ask.encode();
        assert_eq!(Ask::decode(&bytes).unwrap(), ask, "{name}");
        for cut in 0..bytes.len() {
            let part = Ask::decode(&bytes[..cut]);
            assert!(part.as_ref().map_or(true, |part| part.encode() == bytes[..cut]), "{name} cut at {cut}");
        }
    }
    for (name, answer) in answers() {
        let bytes = answer.encode();
        assert_eq!(Answer::decode(&bytes).unwrap(), answer, "{name}");
        assert!(!matches!(Answer::decode(&[bytes.as_slice(), &[0]].concat()), Ok(again) if again == answer), "{name}");
    }
}

#[test]
fn what_is_longer_than_its_limit_does_not_decode() {
    let over = |tag: u8, length: usize| [vec![tag], vec![0; length]].concat();
    assert!(Ask::decode(&over(1, 32 + CERTIFICATE_BYTES)).is_ok() && Ask::decode(&over(1, 32 + CERTIFICATE_BYTES + 1)).is_err());
    assert!(Ask::decode(&over(10, RECORD_BYTES)).is_ok() && Ask::decode(&over(10, RECORD_BYTES + 1)).is_err());
    assert!(Answer::decode(&over(3, 8 + CHUNK_BYTES)).is_ok() && Answer::decode(&over(3, 8 + CHUNK_BYTES + 1)).is_err());
    assert!(Answer::decode(&over(4, 48 * STAMP_ENTRIES)).is_ok() && Answer::decode(&over(4, 48 * (STAMP_ENTRIES + 1))).is_err());
    assert!(Answer::decode(&over(4, 47)).is_err() && Answer::decode(&[5]).is_err() && Answer::decode(&over(5, 6)).is_err());
}

#[tokio::test]
async fn a_length_beyond_the_limit_is_refused_before_anything_is_allocated() {
    let mut stream = futures::io::Cursor::new(b"\xff\xff\xff\xff".to_vec());
    assert!(matches!(wire::read_frame(&mut stream, FRAME_BYTES).await, Err(WireError::TooLong(4_294_967_295, FRAME_BYTES))));
    let mut stream = futures::io::Cursor::new(b"\0\0\0\0".to_vec());
    assert!(matches!(wire::read_frame(&mut stream, FRAME_BYTES).await, Err(WireError::Malformed)));
    let mut stream = futures::io::Cursor::new(b"\0\0\0\x05ab".to_vec());
    assert!(matches!(wire::read_frame(&mut stream, FRAME_BYTES).await, Err(WireError::Io(_))));
    let mut stream = futures::io::Cursor::new(Vec::new());
    assert!(matches!(wire::read_frame(&mut stream, FRAME_BYTES).await, Ok(None)));
}

proptest! {
    #[test]
    fn bytes_that_decode_as_a_request_are_its_one_form(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(ask) = Ask::decode(&bytes) {
            prop_assert_eq!(ask.encode(), bytes);
        }
    }

    #[test]
    fn bytes_that_decode_as_an_answer_are_its_one_form(tag in 0_u8..8, body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let bytes = [vec![tag], body].concat();
        if let Ok(answer) = Answer::decode(&bytes) {
            prop_assert_eq!(answer.encode(), bytes);
        }
    }

    #[test]
    fn a_golden_message_with_one_byte_changed_is_another_or_none(at in 0_usize..200, to in any::<u8>(), which in 0_usize..64) {
        let messages: Vec<Vec<u8>> = asks().iter().map(|(_, ask)| ask.encode()).collect();
        let message = &messages[which % messages.len()];
        let mut changed = message.clone();
        let at = at % changed.len();
        changed[at] = to;
        if let Ok(ask) = Ask::decode(&changed) {
            prop_assert_eq!(ask.encode(), changed);
        }
    }
}
