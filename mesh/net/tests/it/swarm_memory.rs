//! What a swarm keeps in memory: no more than its bounds beside a disk that hangs, and nothing that nobody takes any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::io::{AsyncReadExt as _, AsyncWriteExt as _};
use groundswell_core::blob::exchange::Message;
use groundswell_core::blob::exchange::message::Part;
use groundswell_core::limits::BLOB_EXPECTED_BYTES;
use groundswell_net::blobs::Charge;
use groundswell_net::pieces::frames::{self, Opening};
use groundswell_net::pieces::{Rate, Rates, Terms};
use tokio::time::{sleep, timeout};

use crate::blob_world::{PIECE, Sample, peer, sample};
use crate::swarm_world::{Lines, Node};

fn at_rate(bytes: u64) -> Terms {
    Terms { rates: Rates::new(Rate::bytes_per_second(bytes), Rate::UNBOUNDED), ..Terms::default() }
}

/// A stream of member 9 to node 1, on which it said that it has everything.
async fn joined(lines: &Lines, sample: &Sample) -> impl futures::io::AsyncRead + futures::io::AsyncWrite + Unpin + use<> {
    let mut stream = lines.open(9, 1).await;
    let opening = Opening { sha256: sample.name.sha256, size_bytes: sample.name.size_bytes, wants_list: false };
    frames::write_opening(&mut stream, &opening).await.unwrap();
    assert_eq!(frames::read_answer(&mut stream, sample.layout(), false).await.unwrap(), Ok(None));
    stream.write_all(&Message::Holding(sample.all()).to_frame()).await.unwrap();
    stream
}

/// Offers the first pieces, and sends the one that is taken; `None` when none is.
async fn bring(stream: &mut (impl futures::io::AsyncRead + futures::io::AsyncWrite + Unpin), sample: &Sample) -> Option<u32> {
    stream.write_all(&Message::Offer { wait_ms: 0, pieces: (0..8).collect() }.to_frame()).await.unwrap();
    let piece = loop {
        match frames::read_message(stream, sample.layout()).await.unwrap() {
            Some(Message::Take(piece)) => break piece,
            Some(Message::Pass) | None => return None,
            Some(_) => {}
        }
    };
    let part = Part { piece, offset: 0, bytes: sample.piece(piece) };
    stream.write_all(&Message::Part(part).to_frame()).await.unwrap();
    Some(piece)
}

#[tokio::test]
async fn b3_a_member_that_brings_the_same_pieces_again_and_again_while_the_disk_hangs_fills_no_more_memory_than_a_download_may() {
    let sample = sample(20 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let node = Node::new(&lines, 1, &sample, &[], Terms::default()).holding([]);
    let seed = Node::new(&lines, 0, &sample, &[], Terms::default()).holding(0..20);
    let attack = async {
        // In a thread of its own, that it may be held across what is awaited here.
        let (hangs, (let_go, gone)) = (Arc::clone(&node.shelf), std::sync::mpsc::channel::<()>());
        let (is_held, held) = tokio::sync::oneshot::channel();
        let hanging = std::thread::spawn(move || {
            let hung = hangs.hangs.lock().unwrap();
            is_held.send(()).unwrap();
            let _ = gone.recv();
            drop(hung);
        });
        held.await.unwrap();
        // Before it fetches, it refuses.
        while node.swarms.glimpses().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..600 {
            // It is not heard any more once too much waits for the disk: then nothing comes back.
            let brought = timeout(Duration::from_secs(3), async {
                let mut stream = joined(&lines, &sample).await;
                bring(&mut stream, &sample).await;
                stream.close().await.unwrap();
                stream.read_to_end(&mut Vec::new()).await.ok();
            });
            if brought.await.is_err() {
                break;
            }
        }
        let handed = node.shelf.handed_bytes.load(Ordering::Relaxed);
        let most = usize::try_from(BLOB_EXPECTED_BYTES).unwrap() + PIECE;
        assert!((most - 2 * PIECE..=most).contains(&handed), "{handed} bytes wait for the disk, at most {most} may");
        drop(let_go);
        hanging.join().unwrap();
        node.peers.send_replace(vec![peer(0)]);
    };
    let (fetched, ()) = tokio::join!(node.fetch(), attack);
    fetched.unwrap();
    assert!(node.shelf.is_whole());
    assert_eq!(node.swarms.charged(), [], "what it brought was right");
    drop(seed);
}

#[tokio::test(start_paused = true)]
async fn b3_a_member_that_sends_more_than_was_taken_loses_its_standing_and_nothing_else_is_lost() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default()).holding([]);
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(100_000)).holding(0..40);
    let attack = async {
        sleep(Duration::from_secs(1)).await;
        let mut stream = joined(&lines, &sample).await;
        let piece = bring(&mut stream, &sample).await.expect("something is missing yet");
        let more = Part { piece, offset: 0, bytes: sample.piece(piece) };
        stream.write_all(&Message::Part(more).to_frame()).await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        fetched = node.fetch() => fetched.unwrap(),
        () = attack => unreachable!(),
    }
    assert!(node.shelf.is_whole());
    assert_eq!(node.swarms.charged(), [(peer(9), Charge::Breach)]);
    drop(seed);
}

#[tokio::test(start_paused = true)]
async fn pieces_that_nobody_takes_any_more_are_not_kept_in_memory() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(500_000)).holding(0..40);
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
    let mut progress = node.progress.subscribe();
    let half_way = async {
        progress.wait_for(|progress| progress.held >= 20).await.unwrap();
        // The only one that takes part has everything already.
        assert_eq!(node.swarms.cached_bytes(), 0);
        assert!(seed.swarms.cached_bytes() > 0, "it sends parts of pieces");
    };
    let (fetched, ()) = tokio::join!(node.fetch(), half_way);
    fetched.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!([&seed, &node].map(|node| node.swarms.cached_bytes()), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_is_given_up_leaves_nothing_in_memory() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(500_000)).holding(0..40);
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
    // One that lacks everything and takes nothing, so that what comes is kept for it.
    let _idle = lines.door(2);
    let mut progress = node.progress.subscribe();
    let keeps = async {
        sleep(Duration::from_secs(1)).await;
        let mut stream = lines.open(2, 1).await;
        let opening = Opening { sha256: sample.name.sha256, size_bytes: sample.name.size_bytes, wants_list: false };
        frames::write_opening(&mut stream, &opening).await.unwrap();
        frames::read_answer(&mut stream, sample.layout(), false).await.unwrap().unwrap();
        let nothing = groundswell_core::blob::PieceSet::empty(sample.layout());
        stream.write_all(&Message::Holding(nothing).to_frame()).await.unwrap();
        progress.wait_for(|progress| progress.held >= 30).await.unwrap();
        assert!(node.swarms.cached_bytes() > 0);
        stream
    };
    let stream = tokio::select! {
        fetched = node.fetch() => panic!("it is not over yet: {fetched:?}"),
        stream = keeps => stream,
    };
    sleep(Duration::from_secs(1)).await;
    assert_eq!(node.swarms.cached_bytes(), 0);
    drop((seed, stream));
}
