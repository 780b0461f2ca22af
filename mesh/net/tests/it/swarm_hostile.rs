//! Swarms against members that keep the protocol and nothing else: they fill the places of others, keep openings waiting, or
//! ask for the same again and again.

use std::sync::Arc;
use std::time::Duration;

use futures::io::AsyncWriteExt as _;
use groundswell_core::blob::PieceSet;
use groundswell_core::blob::exchange::Message;
use groundswell_core::limits::BLOB_NEIGHBOURS;
use groundswell_net::blobs::Charge;
use groundswell_net::pieces::frames::{self, Opening, Refusal};
use groundswell_net::pieces::{Proof, Rate, Rates, Swarms, Terms};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::blob_world::{Manner, PIECE, Sample, World, peer, sample};
use crate::swarm_world::{Lines, Node};

const HOUR: Duration = Duration::from_secs(3_600);

fn opening(sample: &Sample, wants_list: bool) -> Opening {
    Opening { sha256: sample.name.sha256, size_bytes: sample.name.size_bytes, wants_list }
}

fn at_rate(bytes: u64) -> Terms {
    Terms { rates: Rates::new(Rate::bytes_per_second(bytes), Rate::UNBOUNDED), ..Terms::default() }
}

/// How one that takes a place for nothing behaves.
#[derive(Clone, Copy, Debug)]
enum Idler {
    /// It says nothing at all.
    Mute,
    /// It lacks everything, and passes every offer.
    Passes,
    /// It says that it has everything, and gives nothing.
    Announces,
}

/// Takes a place at `to`, and comes back whenever it loses it.
async fn idle(lines: Arc<Lines>, n: u8, to: u8, sample: Sample, idler: Idler) {
    loop {
        let mut stream = lines.open(n, to).await;
        let layout = sample.layout();
        let opened = frames::write_opening(&mut stream, &opening(&sample, false)).await;
        if opened.is_ok() && matches!(frames::read_answer(&mut stream, layout, false).await, Ok(Ok(_))) {
            let holding = match idler {
                Idler::Mute => None,
                Idler::Passes => Some(PieceSet::empty(layout)),
                Idler::Announces => Some(sample.all()),
            };
            if let Some(holding) = holding {
                stream.write_all(&Message::Holding(holding).to_frame()).await.ok();
            }
            while let Ok(Some(message)) = frames::read_message(&mut stream, layout).await {
                if matches!(message, Message::Offer { .. }) && !matches!(idler, Idler::Mute) {
                    stream.write_all(&Message::Pass.to_frame()).await.ok();
                }
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// As many idlers as there are places, and time for them to take these.
async fn fill(lines: &Arc<Lines>, to: u8, sample: &Sample, idler: Idler) -> JoinSet<()> {
    let mut idlers = JoinSet::new();
    for n in 0..u8::try_from(BLOB_NEIGHBOURS).unwrap() {
        idlers.spawn(idle(Arc::clone(lines), 100 + n, to, sample.clone(), idler));
    }
    sleep(Duration::from_secs(1)).await;
    idlers
}

#[tokio::test(start_paused = true)]
async fn forty_that_are_of_no_use_keep_nobody_from_a_seed() {
    for idler in [Idler::Mute, Idler::Passes] {
        let sample = sample(20 * PIECE);
        let lines: Arc<Lines> = Arc::default();
        let seed = Node::new(&lines, 0, &sample, &[], at_rate(1_000_000)).holding(0..20);
        let idlers = fill(&lines, 0, &sample, idler).await;
        let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
        timeout(Duration::from_secs(120), node.fetch()).await.unwrap_or_else(|_| panic!("{idler:?}: it waits for ever")).unwrap();
        assert!(node.shelf.is_whole());
        drop((seed, idlers));
    }
}

#[tokio::test(start_paused = true)]
async fn forty_that_are_of_no_use_keep_nobody_from_fetching() {
    for idler in [Idler::Mute, Idler::Announces] {
        let sample = sample(20 * PIECE);
        let lines: Arc<Lines> = Arc::default();
        // With the hash list it lets others in before it knows of a source.
        let node = Node::new(&lines, 1, &sample, &[], Terms::default()).holding([3]);
        let seed = Node::new(&lines, 0, &sample, &[], at_rate(1_000_000)).holding(0..20);
        let fetch = async { timeout(Duration::from_secs(120), node.fetch()).await };
        let rest = async {
            let idlers = fill(&lines, 1, &sample, idler).await;
            node.peers.send_replace(vec![peer(0)]);
            idlers
        };
        let (fetched, idlers) = tokio::join!(fetch, rest);
        fetched.unwrap_or_else(|_| panic!("{idler:?}: it waits for ever")).unwrap();
        assert!(node.shelf.is_whole());
        drop((seed, idlers));
    }
}

#[tokio::test(start_paused = true)]
async fn members_that_never_answer_an_opening_delay_a_fetch_by_seconds() {
    let sample = sample(20 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let doors: Vec<_> = (10..18).map(|n| lines.door(n)).collect();
    let _seed = Node::new(&lines, 99, &sample, &[], at_rate(1_000_000)).holding(0..20);
    let node = Node::new(&lines, 1, &sample, &[10, 11, 12, 13, 14, 15, 16, 17, 99], Terms::default());
    let began = Instant::now();
    timeout(HOUR, node.fetch()).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(doors);
}

#[tokio::test(start_paused = true)]
async fn a_hash_list_counts_as_sent_and_is_not_given_again_at_once() {
    let sample = sample(20 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let _seed = Node::new(&lines, 0, &sample, &[], at_rate(1_000)).holding(0..20);
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut stream = lines.open(7, 0).await;
        frames::write_opening(&mut stream, &opening(&sample, true)).await.unwrap();
        answers.push(frames::read_answer(&mut stream, sample.layout(), true).await.unwrap());
    }
    assert!(matches!(answers.as_slice(), [Ok(Some(_)), Err(Refusal::Busy)]), "{answers:?}");
    sleep(Duration::from_secs(15)).await;
    let mut stream = lines.open(7, 0).await;
    frames::write_opening(&mut stream, &opening(&sample, true)).await.unwrap();
    assert!(matches!(frames::read_answer(&mut stream, sample.layout(), true).await.unwrap(), Ok(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn who_says_it_has_a_blob_proves_it_with_pieces_that_nobody_could_foretell() {
    let sample = sample(40 * PIECE);
    let manners = [(1, Manner::Honest), (2, Manner::Liar), (3, Manner::Miser), (4, Manner::Stalling)];
    let world = World::with(&manners.map(|(n, manner)| (n, &sample, manner)));
    let here = world.add(50, &sample, Manner::Honest, sample.all());
    let swarms = Swarms::new(world.clone(), here, peer(50), Terms::default());
    let mut proofs = Vec::new();
    for n in 1..=5 {
        proofs.push(swarms.prove(peer(n), sample.name.sha256, 7).await);
    }
    assert_eq!(proofs, [Proof::Given, Proof::Withheld, Proof::Withheld, Proof::Withheld, Proof::NotAsked]);
    assert_eq!(swarms.charged(), [(peer(2), Charge::BadPiece)], "a refusal is no lie");
    let first = world.holder(1).asked();
    swarms.prove(peer(1), sample.name.sha256, 8).await;
    assert_ne!(first[..], world.holder(1).asked()[3..], "others each time");
    assert_eq!(swarms.prove(peer(1), groundswell_core::digest::Digest([9; 32]), 7).await, Proof::NotAsked);
}
