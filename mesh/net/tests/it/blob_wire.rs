//! The wire against hostile bytes, golden bytes, and requests that cannot be met.

use std::sync::Arc;
use std::time::Duration;

use futures::io::{AllowStdIo, AsyncReadExt as _, AsyncWriteExt as _};
use groundswell_core::blob::Layout;
use groundswell_core::digest::Digest;
use groundswell_net::blobs::limits::{ANSWER_WITHIN, REQUEST_BYTES, SERVED_STREAMS_PER_PEER};
use groundswell_net::blobs::wire::{self, Answer, Expected, Refusal, Request, WireError};
use groundswell_net::blobs::{Duplex, Server};
use groundswell_net::pieces::{Rate, Rates};
use proptest::prelude::*;
use tokio::sync::mpsc;
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use crate::blob_world::{Manner, PIECE, World, peer, sample};

const IDLE: Duration = Duration::from_secs(5);

fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

fn answer_from(bytes: &[u8], number: u32, expected: Expected) -> Result<Answer, WireError> {
    now(wire::read_answer(&mut AllowStdIo::new(std::io::Cursor::new(bytes.to_vec())), number, expected))
}

fn request_from(bytes: &[u8]) -> Result<Option<(u32, Request)>, WireError> {
    now(wire::read_request(&mut AllowStdIo::new(std::io::Cursor::new(bytes.to_vec())), IDLE))
}

fn written(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    now(wire::write_request(&mut bytes, 7, request)).unwrap();
    bytes
}

#[test]
fn requests_keep_their_bytes_for_ever() {
    let blob = Digest([0xab; 32]);
    let golden = [
        (Request::Describe { blob }, "0021_00000007_00", ""),
        (Request::HashList { blob }, "0021_00000007_01", ""),
        (Request::Have { blob }, "0021_00000007_02", ""),
        (Request::Piece { blob, piece: 300 }, "0023_00000007_03", "ac02"),
        (Request::Document { digest: blob, most_bytes: u32::MAX }, "0026_00000007_04", "ffffffff0f"),
    ];
    for (request, before, after) in golden {
        let hex: String = written(&request).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, format!("{}{}{after}", before.replace('_', ""), "ab".repeat(32)));
        assert_eq!(request_from(&written(&request)).unwrap(), Some((7, request)));
    }
}

#[test]
fn answers_keep_their_bytes_for_ever() {
    let layout = Layout::of(70_000).unwrap();
    let golden: [(Answer, Expected, &[u8]); 6] = [
        (Answer::Refused(Refusal::NotHeld), Expected::Piece(5), &[0, 0, 0, 9, 0, 0, 0, 0, 1, 2]),
        (
            Answer::Description { size_bytes: 70_000, held: 2 },
            Expected::Description,
            &[0, 0, 0, 9, 1, 0, 0, 0, 12, 0, 0, 0, 0, 0, 1, 0x11, 0x70, 0, 0, 0, 2],
        ),
        (Answer::HashList(vec![5; 64]), Expected::HashList(layout), &[&[0, 0, 0, 9, 2, 0, 0, 0, 64][..], &[5; 64]].concat()),
        (Answer::Have(vec![3]), Expected::Have(layout), &[0, 0, 0, 9, 3, 0, 0, 0, 1, 3]),
        (Answer::Piece(vec![1, 2, 3]), Expected::Piece(3), &[0, 0, 0, 9, 4, 0, 0, 0, 3, 1, 2, 3]),
        (Answer::Document(vec![1, 2]), Expected::Document(2), &[0, 0, 0, 9, 5, 0, 0, 0, 2, 1, 2]),
    ];
    for (answer, expected, bytes) in golden {
        let mut written = Vec::new();
        now(wire::write_answer(&mut written, 9, &answer)).unwrap();
        assert_eq!(written, bytes);
        assert_eq!(answer_from(bytes, 9, expected).unwrap(), answer);
    }
}

#[test]
fn an_answer_of_another_length_kind_or_number_is_refused_before_it_is_read() {
    let layout = Layout::of(10 * 65_536).unwrap();
    let header = |tag: u8, length: u32| [&[0, 0, 0, 9, tag][..], &length.to_be_bytes()].concat();
    let cases = [
        (Expected::Piece(65_536), 4, u32::MAX),
        (Expected::Piece(65_536), 4, 65_537),
        (Expected::Piece(65_536), 4, 65_535),
        (Expected::Piece(65_536), 4, 0),
        (Expected::Have(layout), 3, 1),
        (Expected::Have(layout), 3, 3),
        (Expected::HashList(layout), 2, 10 * 32 + 1),
        (Expected::Description, 1, 11),
        (Expected::Document(1_000), 5, 1_001),
        (Expected::Document(1_000), 5, 0),
        (Expected::Piece(65_536), 0, 2),
    ];
    for (expected, tag, length) in cases {
        let error = answer_from(&header(tag, length), 9, expected).unwrap_err();
        assert!(matches!(error, WireError::Length { found, .. } if found == length), "{expected:?} {tag} {length}: {error}");
        assert!(error.is_breach());
    }
    assert!(matches!(answer_from(&header(3, 2), 9, Expected::Piece(2)), Err(WireError::Tag { tag: 3, .. })));
    assert!(matches!(answer_from(&header(9, 2), 9, Expected::Piece(2)), Err(WireError::Tag { tag: 9, .. })));
    assert!(matches!(answer_from(&header(4, 2), 8, Expected::Piece(2)), Err(WireError::Number { expected: 8, found: 9 })));
    assert!(matches!(answer_from(&header(4, 2), 9, Expected::Piece(2)), Err(WireError::Closed)));
    assert!(matches!(answer_from(&[header(0, 1), vec![77]].concat(), 9, Expected::Piece(2)), Err(WireError::Tag { .. })));
}

#[test]
fn a_request_of_zero_huge_or_wrong_length_is_refused() {
    let good = written(&Request::Have { blob: Digest([1; 32]) });
    let with_length = |length: u16| [&length.to_be_bytes()[..], &good[2..], &[0; 100]].concat();
    for length in [0, 32, 34, u16::try_from(REQUEST_BYTES).unwrap() + 1, u16::MAX] {
        assert!(matches!(request_from(&with_length(length)), Err(WireError::Request)), "{length}");
    }
    assert!(matches!(request_from(&good[..20]), Err(WireError::Closed)));
    assert!(matches!(request_from(&[]), Ok(None)));
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_a_typed_error(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = request_from(&bytes);
    }

    #[test]
    fn any_bytes_are_an_answer_or_a_typed_error(bytes in prop::collection::vec(any::<u8>(), 0..120), size in 1..9_000_000_u64) {
        let layout = Layout::of(size).unwrap();
        let number = bytes.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
        for expected in [Expected::Description, Expected::HashList(layout), Expected::Have(layout), Expected::Piece(9), Expected::Document(50)] {
            let _ = answer_from(&bytes, number, expected);
        }
    }
}

/// A stream to a server of one honest peer.
fn served(world: &Arc<World>) -> impl Duplex + use<> {
    let (here, there) = tokio::io::duplex(1024 * 1024);
    let server = Server::new(world.holder(1), world.holder(1));
    tokio::spawn(async move { server.serve_stream(peer(9), there.compat()).await });
    here.compat()
}

#[tokio::test(start_paused = true)]
async fn requests_that_cannot_be_met_are_refused_by_reason_and_the_stream_goes_on() {
    let sample = sample(10 * PIECE);
    let world = World::with(&[]);
    world.add(1, &sample, Manner::Honest, sample.some([0, 1]));
    let mut stream = served(&world);
    let (blob, unknown) = (sample.name.sha256, Digest([1; 32]));
    let cases = [
        (Request::Describe { blob: unknown }, Expected::Description, Refusal::NotHere),
        (Request::HashList { blob: unknown }, Expected::HashList(sample.layout()), Refusal::NotHere),
        (Request::Have { blob: unknown }, Expected::Have(sample.layout()), Refusal::NotHere),
        (Request::Piece { blob, piece: 5 }, Expected::Piece(PIECE), Refusal::NotHeld),
        (Request::Piece { blob, piece: 10 }, Expected::Piece(PIECE), Refusal::Beyond),
        (Request::Piece { blob, piece: u32::MAX }, Expected::Piece(PIECE), Refusal::Beyond),
        (Request::Document { digest: unknown, most_bytes: 100 }, Expected::Document(100), Refusal::NotHere),
        (Request::Document { digest: blob, most_bytes: 0 }, Expected::Document(100), Refusal::TooLarge),
        (Request::Document { digest: blob, most_bytes: 655_359 }, Expected::Document(655_359), Refusal::TooLarge),
    ];
    for (number, (request, expected, refusal)) in (0..).zip(cases) {
        wire::write_request(&mut stream, number, &request).await.unwrap();
        assert_eq!(wire::read_answer(&mut stream, number, expected).await.unwrap(), Answer::Refused(refusal), "{request:?}");
    }
    for piece in [0, 1] {
        wire::write_request(&mut stream, 70, &Request::Piece { blob, piece }).await.unwrap();
        let answer = wire::read_answer(&mut stream, 70, Expected::Piece(PIECE)).await.unwrap();
        assert_eq!(answer, Answer::Piece(sample.piece(piece)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_by_requests_comes_no_faster_than_the_nodes_upload_rate() {
    let sample = sample(20 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Honest)]);
    let (mut here, there) = tokio::io::duplex(1024 * 1024);
    let rates = Rates::new(Rate::bytes_per_second(128 * 1024), Rate::UNBOUNDED);
    let server = Server::new(world.holder(1), world.holder(1)).within(rates);
    tokio::spawn(async move { server.serve_stream(peer(9), there.compat()).await });
    let mut stream = (&mut here).compat();
    let began = tokio::time::Instant::now();
    for piece in 0..20 {
        wire::write_request(&mut stream, piece, &Request::Piece { blob: sample.name.sha256, piece }).await.unwrap();
        wire::read_answer(&mut stream, piece, Expected::Piece(PIECE)).await.unwrap();
    }
    let took = began.elapsed();
    assert!((Duration::from_secs(9)..=Duration::from_secs(10)).contains(&took), "20 pieces of 64 KiB: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_closes_a_stream_that_breaks_the_protocol_or_asks_nothing() {
    let sample = sample(10 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Honest)]);
    let mut stream = served(&world);
    stream.write_all(&[0xff; 64]).await.unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    let mut silent = served(&world);
    assert_eq!(silent.read_to_end(&mut Vec::new()).await.unwrap(), 0, "closed when idle for long");
    let mut half = served(&world);
    half.write_all(&[0, 33, 0]).await.unwrap();
    assert_eq!(half.read_to_end(&mut Vec::new()).await.unwrap(), 0, "half a request does not hold a stream for ever");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_trickles_is_given_up() {
    let (mut here, there) = tokio::io::duplex(64);
    let trickle = async move {
        let mut there = there.compat();
        let _ = there.write_all(&[0, 0, 0, 1, 4, 0, 1, 0, 0]).await;
        while there.write_all(&[0]).await.is_ok() && there.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_secs(9)).await;
        }
    };
    let begun = tokio::time::Instant::now();
    let read = async {
        let mut stream = (&mut here).compat();
        wire::read_answer(&mut stream, 1, Expected::Piece(65_536)).await
    };
    let error = tokio::select! { read = read => read.unwrap_err(), () = trickle => panic!("the reader is still there") };
    assert!(matches!(error, WireError::Stalled));
    assert_eq!(begun.elapsed(), ANSWER_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn one_peer_cannot_take_all_places_of_a_server() {
    let sample = sample(10 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Honest)]);
    let server = Server::new(world.holder(1), world.holder(1));
    let (incoming, receiver) = mpsc::channel(8);
    let ask = async |n: u8| {
        let (here, there) = tokio::io::duplex(1024);
        incoming.send((peer(n), there.compat())).await.unwrap();
        let mut stream = here.compat();
        let blob = sample.name.sha256;
        let _ = wire::write_request(&mut stream, 1, &Request::Describe { blob }).await;
        wire::read_answer(&mut stream, 1, Expected::Description).await.map(|_| stream)
    };
    let asking = async {
        let mut open = Vec::new();
        for _ in 0..SERVED_STREAMS_PER_PEER {
            open.push(ask(9).await.unwrap());
        }
        assert!(ask(9).await.is_err());
        assert_eq!(server.counters().streams_dropped, 1);
        assert!(ask(8).await.is_ok(), "another peer is served");
        drop(open.pop());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(ask(9).await.is_ok(), "a place that was given back is free");
    };
    tokio::select! { () = server.serve(receiver) => panic!("it serves on"), () = asking => {} }
}
