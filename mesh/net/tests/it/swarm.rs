//! Swarms over streams of pieces, in memory and in virtual time: how near they come to the limit, and what breaks none.

use std::sync::Arc;
use std::time::Duration;

use futures::io::AsyncWriteExt as _;
use groundswell_core::blob::exchange::Message;
use groundswell_core::blob::exchange::message::Part;
use groundswell_net::blobs::Charge;
use groundswell_net::pieces::frames::{self, Opening, Refusal};
use groundswell_net::pieces::{Rate, Rates, Terms};
use tokio::time::{Instant, sleep, timeout};

use crate::blob_world::{PIECE, Sample, peer, sample};
use crate::swarm_world::{Lines, Node};

const HOUR: Duration = Duration::from_secs(3_600);

fn at_rate(bytes: u64) -> Terms {
    Terms { rates: Rates::new(Rate::bytes_per_second(bytes), Rate::UNBOUNDED), ..Terms::default() }
}

async fn fetch_all(nodes: &[Node]) {
    let all = futures::future::join_all(nodes.iter().map(Node::fetch));
    for fetched in timeout(HOUR, all).await.expect("in time") {
        fetched.unwrap();
    }
    assert!(nodes.iter().all(|node| node.shelf.is_whole()));
}

fn opening(sample: &Sample, wants_list: bool) -> Opening {
    Opening { sha256: sample.name.sha256, size_bytes: sample.name.size_bytes, wants_list }
}

#[tokio::test(start_paused = true)]
async fn eight_nodes_have_a_blob_soon_after_its_seed_could_have_sent_it_once() {
    let sample = sample(8 * 1024 * 1024 - 5);
    let (lines, rate) = (Arc::default(), 1_000_000);
    let all: Vec<u8> = (0..=8).collect();
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(rate)).holding(0..sample.layout().count());
    let nodes: Vec<Node> = (1..=8).map(|n| Node::new(&lines, n, &sample, &all, at_rate(rate))).collect();
    let began = Instant::now();
    fetch_all(&nodes).await;
    let limit = sample.bytes.len() as f64 / rate as f64;
    let ratio = began.elapsed().as_secs_f64() / limit;
    let copies = seed.swarms.counters().sent_bytes as f64 / sample.bytes.len() as f64;
    let received: u64 = nodes.iter().map(|node| node.swarms.counters().received_bytes).sum();
    let total = received as f64 / (8 * sample.bytes.len()) as f64;
    assert!(ratio <= 1.15 && copies <= 1.15 && total <= 1.06, "ratio {ratio:.3}, copies {copies:.3}, total {total:.3}");
}

#[tokio::test(start_paused = true)]
async fn b3_a_liar_among_honest_nodes_is_charged_by_whoever_it_lied_to_and_all_complete() {
    let sample = sample(60 * PIECE);
    let lines = Arc::default();
    let honest = Node::new(&lines, 0, &sample, &[], at_rate(500_000)).holding(0..60);
    let liar = Node::liar(&lines, 9, &sample, at_rate(2_000_000));
    let nodes: Vec<Node> = (1..=4).map(|n| Node::new(&lines, n, &sample, &[0, 1, 2, 3, 4, 9], at_rate(500_000))).collect();
    fetch_all(&nodes).await;
    let charged: Vec<_> = nodes.iter().flat_map(|node| node.swarms.charged()).collect();
    assert!(!charged.is_empty() && charged.iter().all(|it| *it == (peer(9), Charge::BadPiece)), "{charged:?}");
    drop((honest, liar));
}

#[tokio::test(start_paused = true)]
async fn a_metered_node_takes_and_gives_nothing() {
    let sample = sample(20 * PIECE);
    let lines = Arc::default();
    let metered = Node::new(&lines, 1, &sample, &[0, 2], Terms { serves: false, ..Terms::default() });
    let other = Node::new(&lines, 2, &sample, &[0, 1], at_rate(1_000_000));
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(200_000)).holding(0..20);
    fetch_all(&[metered, other]).await;
    assert!(seed.swarms.counters().sent_bytes > 0);
    let metered = Node::new(&lines, 3, &sample, &[], Terms { serves: false, ..Terms::default() }).holding(0..20);
    let mut stream = lines.open(4, 3).await;
    frames::write_opening(&mut stream, &opening(&sample, true)).await.unwrap();
    let answer = frames::read_answer(&mut stream, sample.layout(), true).await.unwrap();
    assert_eq!(answer, Err(Refusal::NotHere));
    assert_eq!(metered.swarms.counters().sent_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_did_not_have_it_is_asked_again_soon_after_it_has() {
    let sample = sample(20 * PIECE);
    let lines = Arc::default();
    let publisher = Node::new(&lines, 0, &sample, &[], Terms::default());
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
    let has_it = async {
        sleep(Duration::from_secs(100)).await;
        let publisher = publisher.holding(0..20);
        sleep(Duration::from_secs(8)).await;
        drop(publisher);
    };
    tokio::select! {
        fetched = node.fetch() => fetched.unwrap(),
        () = has_it => panic!("it was not asked again"),
    }
    assert!(node.shelf.is_whole());
}

#[tokio::test(start_paused = true)]
async fn a_metered_node_that_fetches_gives_not_even_its_hash_list() {
    let sample = sample(20 * PIECE);
    let lines = Arc::default();
    let metered = Node::new(&lines, 3, &sample, &[0], Terms { serves: false, ..Terms::default() }).holding(0..5);
    let asks = async {
        let mut progress = metered.progress.subscribe();
        progress.wait_for(|progress| progress.held == 5).await.unwrap();
        for (wants_list, expected) in [(true, Err(Refusal::NotHere)), (false, Ok(None))] {
            let mut stream = lines.open(4, 3).await;
            frames::write_opening(&mut stream, &opening(&sample, wants_list)).await.unwrap();
            assert_eq!(frames::read_answer(&mut stream, sample.layout(), wants_list).await.unwrap(), expected);
        }
    };
    tokio::select! {
        biased;
        fetched = metered.fetch() => panic!("nobody has it: {fetched:?}"),
        () = asks => {}
    }
}

#[tokio::test(start_paused = true)]
async fn many_sources_wait_for_a_node_that_takes_little_in_a_second() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let all: Vec<u8> = (10..22).collect();
    let seeds: Vec<Node> = all.iter().map(|n| Node::new(&lines, *n, &sample, &[], Terms::default()).holding(0..40)).collect();
    let terms = Terms { rates: Rates::new(Rate::UNBOUNDED, Rate::bytes_per_second(32_768)), ..Terms::default() };
    let slow = Node::new(&lines, 1, &sample, &all, terms);
    fetch_all(&[slow]).await;
    let opened: Vec<usize> = all.iter().map(|n| lines.opened(1, *n)).collect();
    assert_eq!(opened, [1; 12], "nobody gave it up");
    drop(seeds);
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_keeps_the_rate_of_this_node() {
    let sample = sample(40 * PIECE);
    let lines = Arc::default();
    let _seed = Node::new(&lines, 0, &sample, &[], Terms::default()).holding(0..40);
    let terms = Terms { rates: Rates::new(Rate::UNBOUNDED, Rate::bytes_per_second(262_144)), ..Terms::default() };
    let slow = Node::new(&lines, 1, &sample, &[0], terms);
    let began = Instant::now();
    fetch_all(&[slow]).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(9_500) && took <= Duration::from_secs(12), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn b4_a_fetch_that_was_given_up_goes_on_with_what_it_has() {
    let sample = sample(50 * PIECE);
    let lines = Arc::default();
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(100_000)).holding(0..50);
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
    timeout(Duration::from_secs(20), node.fetch()).await.expect_err("it takes half a minute");
    let here = node.shelf.pieces.lock().unwrap().len();
    assert!(here > 10 && here < 50, "{here}");
    assert!(*node.shelf.kept_up.lock().unwrap() > 0, "and was told to make it durable");
    fetch_all(std::slice::from_ref(&node)).await;
    let sent = seed.swarms.counters().sent_bytes;
    assert!(sent <= 55 * 65_536, "{} pieces were sent", sent / 65_536);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_that_open_to_each_other_keep_one_stream() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let left = Node::new(&lines, 1, &sample, &[2], at_rate(100_000)).holding(0..20);
    let right = Node::new(&lines, 2, &sample, &[1], at_rate(100_000)).holding(20..40);
    fetch_all(&[left, right]).await;
    assert!(lines.opened(1, 2) + lines.opened(2, 1) <= 4, "{} and {}", lines.opened(1, 2), lines.opened(2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_gets_more_meanwhile_gives_that_too_and_serves_whom_it_refused() {
    let sample = sample(40 * PIECE);
    let lines = Arc::default();
    let source = Node::new(&lines, 0, &sample, &[], Terms::default()).holding(0..10);
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
    let fetched = node.fetch();
    let grows = async {
        sleep(Duration::from_secs(5)).await;
        assert_eq!(node.shelf.pieces.lock().unwrap().len(), 10);
        let source = source.holding(10..40);
        sleep(HOUR).await;
        drop(source);
    };
    tokio::select! {
        fetched = fetched => fetched.unwrap(),
        () = grows => panic!("it never came"),
    }
    assert!(node.shelf.is_whole());
}

#[tokio::test(start_paused = true)]
async fn nodes_that_have_everything_make_room_for_those_that_do_not() {
    let sample = sample(10 * PIECE);
    let lines = Arc::default();
    let few = Terms { neighbours: 2, ..at_rate(200_000) };
    let seed = Node::new(&lines, 0, &sample, &[], few).holding(0..10);
    // One at a time and all at once: none of them knows another.
    let nodes: Vec<Node> = (1..=6).map(|n| Node::new(&lines, n, &sample, &[0], Terms::default())).collect();
    let watch = async {
        let mut most = 0;
        loop {
            sleep(Duration::from_millis(100)).await;
            let glimpses = seed.swarms.glimpses();
            let neighbours = glimpses.values().map(|glimpse| glimpse.neighbours.len()).max().unwrap_or(0);
            assert!(neighbours <= 2, "at most two exchange it with the seed at once");
            most = most.max(neighbours);
            if nodes.iter().all(|node| node.shelf.is_whole()) {
                return assert!(most > 0, "somebody was seen");
            }
        }
    };
    tokio::join!(fetch_all(&nodes), watch);
    drop(seed);
}

#[tokio::test(start_paused = true)]
async fn a_blob_that_is_not_here_and_one_of_another_size_are_refused() {
    let sample = sample(20 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let _seed = Node::new(&lines, 0, &sample, &[], Terms::default()).holding(0..20);
    let _empty = Node::new(&lines, 1, &sample, &[], Terms::default());
    for (to, opening, refusal) in [
        (1, opening(&sample, true), Refusal::NotHere),
        (0, Opening { size_bytes: sample.name.size_bytes + 1, ..opening(&sample, true) }, Refusal::Size),
        (0, Opening { sha256: groundswell_core::digest::Digest([9; 32]), ..opening(&sample, true) }, Refusal::NotHere),
    ] {
        let mut stream = lines.open(7, to).await;
        frames::write_opening(&mut stream, &opening).await.unwrap();
        assert_eq!(frames::read_answer(&mut stream, sample.layout(), true).await.unwrap(), Err(refusal));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_breaks_the_protocol_of_pieces_is_charged_and_costs_nothing_else() {
    let sample = sample(20 * PIECE);
    let all = || Message::Holding(sample.all()).to_frame();
    let part = |piece, offset, length| Message::Part(Part { piece, offset, bytes: vec![1; length] }).to_frame();
    let header = |tag: u8, length: u32| [&[tag][..], &length.to_be_bytes()].concat();
    let breaches: Vec<(&str, Vec<u8>)> = vec![
        ("speaks before it says what it holds", Message::Have(vec![1]).to_frame()),
        ("sends what nobody took", [all(), part(3, 0, 100)].concat()),
        ("takes what was not offered", [all(), Message::Take(3).to_frame()].concat()),
        ("acknowledges what was not sent", [all(), Message::Got(1).to_frame()].concat()),
        ("names a piece beyond the blob", [all(), header(3, 4), 20_u32.to_be_bytes().to_vec()].concat()),
        ("announces a bitmap of another length", header(0, 4)),
        ("acknowledges nothing", [all(), Message::Got(0).to_frame()].concat()),
        ("announces a bitmap with pieces beyond the blob", [header(0, 3), vec![0, 0, 0x10]].concat()),
        ("announces no pieces", [all(), header(1, 0)].concat()),
        ("announces more pieces than a message may", [all(), header(1, 4 * 257)].concat()),
        ("offers no pieces", [all(), header(2, 4)].concat()),
        ("offers more pieces than it may", [all(), header(2, 4 + 4 * 9)].concat()),
        ("offers a piece beyond the blob", [all(), header(2, 8), vec![0; 4], 20_u32.to_be_bytes().to_vec()].concat()),
        (
            "sends bytes beyond a piece",
            [all(), header(8, 8 + 9), 3_u32.to_be_bytes().to_vec(), 65_528_u32.to_be_bytes().to_vec(), vec![1; 9]].concat(),
        ),
        ("announces a huge part", [all(), header(8, u32::MAX)].concat()),
        ("announces an empty part", [all(), header(8, 8)].concat()),
        ("speaks of an unknown kind", [all(), header(9, 0)].concat()),
    ];
    for (n, (what, bytes)) in (10..).zip(breaches) {
        let lines: Arc<Lines> = Arc::default();
        let node = Node::new(&lines, 1, &sample, &[0], at_rate(1_000_000)).holding([0]);
        let seed = Node::new(&lines, 0, &sample, &[], at_rate(100_000)).holding(0..20);
        let attack = async {
            sleep(Duration::from_secs(1)).await;
            let mut stream = lines.open(n, 1).await;
            frames::write_opening(&mut stream, &opening(&sample, false)).await.unwrap();
            assert_eq!(frames::read_answer(&mut stream, sample.layout(), false).await.unwrap(), Ok(None), "{what}");
            stream.write_all(&bytes).await.unwrap();
            sleep(HOUR).await;
        };
        tokio::select! {
            fetched = node.fetch() => fetched.unwrap(),
            () = attack => panic!("{what}: the fetch never ended"),
        }
        assert!(node.shelf.is_whole(), "{what}");
        assert_eq!(node.swarms.charged(), [(peer(n), Charge::Breach)], "{what}");
        drop(seed);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_what_it_is_offered_and_reads_nothing_holds_up_nobody() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(1_000_000)).holding(0..40);
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
    let mut stream = lines.open(9, 0).await;
    frames::write_opening(&mut stream, &opening(&sample, false)).await.unwrap();
    frames::read_answer(&mut stream, sample.layout(), false).await.unwrap().unwrap();
    stream.write_all(&Message::Holding(groundswell_core::blob::PieceSet::empty(sample.layout())).to_frame()).await.unwrap();
    let began = Instant::now();
    fetch_all(std::slice::from_ref(&node)).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // It is given up once it has been silent for long.
    sleep(Duration::from_secs(60)).await;
    let mut rest = Vec::new();
    timeout(HOUR, futures::io::AsyncReadExt::read_to_end(&mut stream, &mut rest)).await.expect("it was closed").ok();
    drop(seed);
}

#[tokio::test(start_paused = true)]
async fn words_beyond_what_a_neighbour_may_say_are_heard_later_and_hold_up_nobody() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let node = Node::new(&lines, 1, &sample, &[0], Terms::default());
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(100_000)).holding(0..40);
    let said = std::sync::atomic::AtomicUsize::new(0);
    let flood = async {
        // Once it has the hash list it takes others in.
        sleep(Duration::from_secs(5)).await;
        let mut stream = lines.open(9, 1).await;
        frames::write_opening(&mut stream, &opening(&sample, false)).await.unwrap();
        assert_eq!(frames::read_answer(&mut stream, sample.layout(), false).await.unwrap(), Ok(None));
        // It says it has everything, so that it owes no answer to offers.
        stream.write_all(&Message::Holding(sample.all()).to_frame()).await.unwrap();
        let word = Message::Have(vec![0]).to_frame();
        while stream.write_all(&word).await.is_ok() {
            said.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        // Two that have everything let each other go.
        std::future::pending::<()>().await;
    };
    let began = Instant::now();
    tokio::select! {
        fetched = node.fetch() => fetched.unwrap(),
        () = flood => unreachable!(),
    }
    // 2.6 MB at 100 kB/s.
    let took = began.elapsed();
    assert!((Duration::from_secs(25)..Duration::from_secs(30)).contains(&took), "{took:?}");
    let (said, room) = (said.into_inner(), 256 * 1024 / 9);
    assert!(said > 1_000 && said <= room + 2_000 * 30, "{said} words, of which {room} fit the pipe");
    assert_eq!(node.swarms.charged(), [], "whoever talks much is not wrong");
    drop(seed);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_lost_its_standing_while_its_answer_was_on_its_way_takes_no_part() {
    let sample = sample(40 * PIECE);
    let lines: Arc<Lines> = Arc::default();
    let mut door = lines.door(9);
    let node = Node::new(&lines, 1, &sample, &[0, 9], Terms::default());
    let seed = Node::new(&lines, 0, &sample, &[], at_rate(200_000)).holding(0..40);
    let plays = async {
        let (_, mut asked) = door.recv().await.expect("the node opens a stream to everybody");
        frames::read_opening(&mut asked).await.unwrap();
        sleep(Duration::from_secs(2)).await;
        let mut stream = lines.open(9, 1).await;
        frames::write_opening(&mut stream, &opening(&sample, false)).await.unwrap();
        frames::read_answer(&mut stream, sample.layout(), false).await.unwrap().unwrap();
        stream.write_all(&Message::Have(vec![1]).to_frame()).await.unwrap();
        while node.swarms.charged().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        asked.write_all(&frames::accepted(Some(&sample.list))).await.unwrap();
        asked.write_all(&Message::Holding(sample.all()).to_frame()).await.unwrap();
        // Nothing is said to it: its stream is closed.
        let mut rest = Vec::new();
        futures::io::AsyncReadExt::read_to_end(&mut asked, &mut rest).await.ok();
        assert!(rest.is_empty(), "it was let in");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        fetched = node.fetch() => fetched.unwrap(),
        () = plays => unreachable!(),
    }
    assert_eq!(node.swarms.charged(), [(peer(9), Charge::Breach)]);
    assert!(node.progress.borrow().peers <= 1);
    drop(seed);
}
