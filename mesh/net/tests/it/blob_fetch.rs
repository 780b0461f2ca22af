//! Downloads from several peers at once, some of whom lie, stall, or have only part. Time is virtual.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::node_id::NodeId;
use groundswell_net::blobs::limits::{RETRY_MOST, STALLED_AFTER};
use groundswell_net::blobs::{Charge, FetchError, Fetcher, Progress, SinkError};
use groundswell_net::pieces::{Rate, Rates};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::blob_world::{Manner, PIECE, Sample, Shelf, World, fetcher, fetcher_within, peer, sample};

/// One node's download, with the ends of its channels.
struct Fetch {
    fetcher: Fetcher,
    shelf: Arc<Shelf>,
    peers: watch::Sender<Vec<NodeId>>,
    progress: watch::Sender<Progress>,
}

impl Fetch {
    fn new(world: &Arc<World>, sample: &Sample, peers: &[u8]) -> Self {
        let connect = Arc::clone(world);
        Self {
            fetcher: fetcher(connect, peer(100)),
            shelf: Shelf::new(sample),
            peers: watch::Sender::new(peers.iter().copied().map(peer).collect()),
            progress: watch::Sender::new(Progress::default()),
        }
    }

    async fn run(&self, sample: &Sample) -> Result<(), FetchError> {
        self.fetcher.fetch(sample.name, self.shelf.clone(), self.peers.subscribe(), self.progress.clone()).await
    }

    fn charged(&self, n: u8) -> Option<Charge> {
        self.progress.borrow().charged.get(&peer(n)).copied()
    }
}

#[tokio::test(start_paused = true)]
async fn a_blob_comes_from_two_peers_at_once_and_each_piece_once() {
    let sample = sample(60 * PIECE + 11);
    let world = World::with(&[(1, &sample, Manner::Honest), (2, &sample, Manner::Honest)]);
    world.meet(&[1, 2]);
    let fetch = Fetch::new(&world, &sample, &[1, 2]);
    fetch.run(&sample).await.unwrap();
    assert!(fetch.shelf.is_whole());
    let (first, second) = (world.holder(1).asked(), world.holder(2).asked());
    let all: BTreeSet<u32> = first.iter().chain(&second).copied().collect();
    assert_eq!(all.len(), 61);
    assert!(first.len() + second.len() <= 61 + 17, "only the end game asks twice");
    assert_eq!(fetch.progress.borrow().held, 61);
}

#[tokio::test(start_paused = true)]
async fn what_is_had_by_requests_comes_no_faster_than_the_nodes_download_rate() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Honest), (2, &sample, Manner::Honest)]);
    world.meet(&[1, 2]);
    let connect = Arc::clone(&world);
    let rates = Rates::new(Rate::UNBOUNDED, Rate::bytes_per_second(256 * 1024));
    let fetch = Fetch { fetcher: fetcher_within(connect, peer(100), rates), ..Fetch::new(&world, &sample, &[1, 2]) };
    let began = Instant::now();
    fetch.run(&sample).await.unwrap();
    let took = began.elapsed();
    assert!((Duration::from_millis(9_500)..Duration::from_secs(12)).contains(&took), "40 pieces of 64 KiB: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_blob_of_one_piece_or_one_byte_needs_no_hash_list() {
    for size in [1, 1000, PIECE, PIECE + 1] {
        let sample = sample(size);
        let world = World::with(&[(1, &sample, Manner::Honest)]);
        let fetch = Fetch::new(&world, &sample, &[1]);
        fetch.run(&sample).await.unwrap();
        assert!(fetch.shelf.is_whole(), "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn b3_a_peer_that_lies_in_its_pieces_is_charged_and_the_blob_comes_from_the_other() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Liar)]);
    let other = world.add(2, &sample, Manner::Honest, sample.some(0..20));
    let fetch = Fetch::new(&world, &sample, &[1, 2]);
    let mut progress = fetch.progress.subscribe();
    let grow = async {
        progress.wait_for(|progress| !progress.charged.is_empty()).await.unwrap();
        *other.held.lock().unwrap() = sample.all();
    };
    let (fetched, ()) = tokio::join!(fetch.run(&sample), grow);
    fetched.unwrap();
    assert!(fetch.shelf.is_whole());
    assert_eq!((fetch.charged(1), fetch.charged(2)), (Some(Charge::BadPiece), None));
    assert_eq!(fetch.fetcher.charged(), [(peer(1), Charge::BadPiece)]);
    assert_eq!(world.times_connected(1), 1, "a liar is not asked again");
    assert_eq!(fetch.fetcher.charged().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn b3_whatever_else_a_peer_lies_about_is_charged_too() {
    let cases =
        [(Manner::BadList, Charge::BadHashList), (Manner::BadSize, Charge::BadDescription), (Manner::Chatterbox, Charge::Breach)];
    for (manner, charge) in cases {
        let sample = sample(40 * PIECE);
        let world = World::with(&[(1, &sample, manner)]);
        let fetch = Fetch::new(&world, &sample, &[1]);
        let mut progress = fetch.progress.subscribe();
        let spoken = progress.wait_for(|progress| !progress.charged.is_empty());
        tokio::select! {
            _ = fetch.run(&sample) => panic!("the only peer is not honest"),
            _ = spoken => {}
        }
        assert_eq!(fetch.charged(1), Some(charge));
        world.add(2, &sample, Manner::Honest, sample.all());
        fetch.peers.send_replace(vec![peer(1), peer(2)]);
        fetch.run(&sample).await.unwrap();
        assert!(fetch.shelf.is_whole());
        assert_eq!(world.times_connected(1), 1, "{charge:?} is known to be no source in the next download too");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stalls_is_given_up_and_its_pieces_come_from_another() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Stalling)]);
    let fetch = Fetch::new(&world, &sample, &[1]);
    let begun = Instant::now();
    let late = async {
        tokio::time::sleep(STALLED_AFTER * 2).await;
        world.add(2, &sample, Manner::Honest, sample.all());
        fetch.peers.send_replace(vec![peer(1), peer(2)]);
    };
    let (fetched, ()) = tokio::join!(fetch.run(&sample), late);
    fetched.unwrap();
    assert!(fetch.shelf.is_whole());
    assert!(begun.elapsed() < STALLED_AFTER * 4, "{:?}", begun.elapsed());
    assert_eq!(fetch.charged(1), None, "slowness is no lie");
}

#[tokio::test(start_paused = true)]
async fn a_stalling_peer_beside_an_honest_one_delays_nothing() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Stalling), (2, &sample, Manner::Honest)]);
    let fetch = Fetch::new(&world, &sample, &[1, 2]);
    let begun = Instant::now();
    fetch.run(&sample).await.unwrap();
    assert!(begun.elapsed() < STALLED_AFTER, "the end game asks the other: {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_half_gives_its_half_and_later_what_it_got_meanwhile() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[]);
    let half = world.add(1, &sample, Manner::Honest, sample.some(0..20));
    let fetch = Fetch::new(&world, &sample, &[1]);
    let mut progress = fetch.progress.subscribe();
    let grow = async {
        progress.wait_for(|progress| progress.held == 20 && !progress.has_source).await.unwrap();
        *half.held.lock().unwrap() = sample.all();
    };
    let (fetched, ()) = tokio::join!(fetch.run(&sample), grow);
    fetched.unwrap();
    assert!(fetch.shelf.is_whole());
    assert_eq!(half.asked().len(), 40);
    assert_eq!(world.times_connected(1), 1, "one conversation");
}

#[tokio::test(start_paused = true)]
async fn two_halves_make_a_whole() {
    let sample = sample(41 * PIECE - 3);
    let world = World::with(&[]);
    world.add(1, &sample, Manner::Honest, sample.some((0..41).filter(|piece| piece % 2 == 0)));
    world.add(2, &sample, Manner::Honest, sample.some((0..41).filter(|piece| piece % 2 == 1)));
    let fetch = Fetch::new(&world, &sample, &[1, 2]);
    fetch.run(&sample).await.unwrap();
    assert!(fetch.shelf.is_whole());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_announces_all_and_gives_nothing_does_not_hold_up_the_download() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Miser), (2, &sample, Manner::Honest)]);
    let fetch = Fetch::new(&world, &sample, &[1, 2]);
    fetch.run(&sample).await.unwrap();
    assert!(fetch.shelf.is_whole());
    assert!(world.holder(1).asked().len() < 40);
}

#[tokio::test(start_paused = true)]
async fn b4_after_a_stop_at_80_percent_only_missing_pieces_are_asked_for() {
    let sample = sample(100 * PIECE);
    let world = World::with(&[]);
    world.add(1, &sample, Manner::Honest, sample.some(0..80));
    let fetch = Fetch::new(&world, &sample, &[1]);
    let mut progress = fetch.progress.subscribe();
    tokio::select! {
        _ = fetch.run(&sample) => panic!("one fifth is nowhere"),
        _ = progress.wait_for(|progress| progress.held == 80) => {}
    }
    let second = world.add(2, &sample, Manner::Honest, sample.all());
    fetch.peers.send_replace(vec![peer(2)]);
    fetch.run(&sample).await.unwrap();
    assert!(fetch.shelf.is_whole());
    let asked = second.asked();
    assert_eq!(asked.len(), 20);
    assert!(asked.iter().all(|piece| *piece >= 80));
}

#[tokio::test(start_paused = true)]
async fn without_a_source_a_download_says_so_and_goes_on_when_one_comes() {
    let sample = sample(10 * PIECE);
    let other = crate::blob_world::sample(99);
    let world = World::with(&[(1, &other, Manner::Honest)]);
    let fetch = Fetch::new(&world, &sample, &[1, 50]);
    let patience = timeout(Duration::from_secs(3_600), fetch.run(&sample)).await;
    assert!(patience.is_err(), "a lack of peers is no error");
    assert!(!fetch.progress.borrow().has_source);
    let tries = world.times_connected(50);
    assert!((100..200).contains(&tries), "not given up, and not pestered: {tries}");
    let begun = Instant::now();
    world.add(1, &sample, Manner::Honest, sample.all());
    fetch.run(&sample).await.unwrap();
    assert!(begun.elapsed() <= RETRY_MOST);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_download_ends_its_conversations() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Stalling)]);
    let fetch = Fetch::new(&world, &sample, &[1]);
    let _ = timeout(Duration::from_secs(1), fetch.run(&sample)).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.times_connected(1), 1);
    assert_eq!(Arc::strong_count(&fetch.shelf), 1, "nobody holds the sink any more");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_the_download_with_that_reason_and_another_attempt_goes_on_from_there() {
    let sample = sample(40 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Honest)]);
    let fetch = Fetch::new(&world, &sample, &[1]);
    *fetch.shelf.piece_errors.lock().unwrap() = vec![SinkError::DiskFull { needed_bytes: 9, free_bytes: 3 }];
    let error = fetch.run(&sample).await.unwrap_err();
    assert!(matches!(error, FetchError::Sink(_, SinkError::DiskFull { needed_bytes: 9, free_bytes: 3 })), "{error}");
    assert!(!fetch.shelf.is_whole());
    fetch.run(&sample).await.unwrap();
    assert!(fetch.shelf.is_whole());
}

#[tokio::test(start_paused = true)]
async fn pieces_that_this_disk_damaged_are_fetched_again_but_not_for_ever() {
    let sample = sample(10 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Honest)]);
    let damaged = || SinkError::Damaged { pieces: vec![3, 7] };
    let fetch = Fetch::new(&world, &sample, &[1]);
    *fetch.shelf.finish_errors.lock().unwrap() = vec![damaged()];
    fetch.run(&sample).await.unwrap();
    assert!(fetch.shelf.is_whole());
    assert_eq!(world.holder(1).asked().len(), 12);
    *fetch.shelf.finish_errors.lock().unwrap() = (0..10).map(|_| damaged()).collect();
    assert!(matches!(fetch.run(&sample).await, Err(FetchError::Sink(_, SinkError::Damaged { .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_contradicts_itself_ends_the_download() {
    let sample = sample(10 * PIECE);
    let world = World::with(&[(1, &sample, Manner::Honest)]);
    let fetch = Fetch::new(&world, &sample, &[1]);
    *fetch.shelf.finish_errors.lock().unwrap() = vec![SinkError::Contradiction];
    assert!(matches!(fetch.run(&sample).await, Err(FetchError::Sink(_, SinkError::Contradiction))));
    let mut empty = sample.clone();
    empty.name.size_bytes = 0;
    assert!(matches!(fetch.run(&empty).await, Err(FetchError::Size(..))));
}

#[tokio::test(start_paused = true)]
async fn a_document_comes_from_the_first_honest_peer_and_a_liar_is_charged() {
    let sample = sample(300_000);
    let world = World::with(&[(1, &sample, Manner::Liar), (2, &sample, Manner::Honest)]);
    let fetch = Fetch::new(&world, &sample, &[]);
    let right = |bytes: &[u8]| bytes == sample.bytes;
    let digest = sample.name.sha256;
    let peers = [peer(50), peer(1), peer(2)];
    let bytes = fetch.fetcher.fetch_document(digest, 300_000, &peers, right).await.unwrap();
    assert_eq!(bytes, sample.bytes);
    assert_eq!(fetch.fetcher.charged(), [(peer(1), Charge::BadDocument)]);
    let error = fetch.fetcher.fetch_document(digest, 299_999, &peers, right).await.unwrap_err();
    assert_eq!(error.tried.len(), 2, "the liar is not asked: {error}");
    assert!(error.to_string().contains("longer than was asked for"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_document_does_not_wait_for_a_peer_that_stalls() {
    let sample = sample(3_000);
    let world = World::with(&[(1, &sample, Manner::Stalling), (2, &sample, Manner::Honest)]);
    let fetch = Fetch::new(&world, &sample, &[]);
    let begun = Instant::now();
    let fetched = fetch.fetcher.fetch_document(sample.name.sha256, 3_000, &[peer(1), peer(2)], |_| true).await;
    assert_eq!(fetched.unwrap(), sample.bytes);
    assert!(begun.elapsed() < STALLED_AFTER, "{:?}", begun.elapsed());
}
