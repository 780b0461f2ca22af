//! Who gets what at an outer door, and what it withstands: over pipes, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::AsyncWriteExt;
use futures::future::join_all;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::RecordKind;
use groundswell_net::origin::Origin;
use groundswell_net::outer::limits::{
    ANSWER_WITHIN, CHUNK_BYTES, FORMERS, IDLE, LATER_LEAST, REQUEST_BYTES, STRANGER, STRANGERS, TAKEN_WITHIN, TURNS, VISIT,
    VISITS_PER_PEER,
};
use groundswell_net::outer::serve::{OuterDoor, VisitError};
use groundswell_net::outer::visit::{Visit, VisitFailed};
use groundswell_net::outer::wire::{self, Answer, Ask, Refused, Standing};
use groundswell_net::pieces::{Rate, Rates};
use tokio::time::{Instant, sleep};

use crate::outer_world::{FLEET, Shelf, enter, knock, knock_from, node};

const STRANGE: u8 = 9;
const FORMER: u8 = 2;
const MEMBER: u8 = 3;

struct Things {
    door: Arc<OuterDoor>,
    shelf: Arc<Shelf>,
    fleet: Digest,
    own: Digest,
    others: Digest,
    release: Digest,
    token: Digest,
    blob: Digest,
}

fn things() -> Things {
    let mut shelf = Shelf::default();
    let fleet = shelf.add(Kind::Fleet, "fleet 1", 900);
    let own = shelf.add(Kind::Node, "the stranger's certificate", 700);
    let others = shelf.add(Kind::Node, "another's certificate", 700);
    let release = shelf.add(Kind::Release, "release", 200_000);
    let token = shelf.add(Kind::Token, "token", 700);
    shelf.certificates.insert(node(STRANGE), own);
    shelf.standings.insert(node(FORMER), Standing::Former);
    shelf.standings.insert(node(MEMBER), Standing::Member);
    for n in 1..6 {
        shelf.records.insert((0, node(n)), vec![vec![n, 0]]);
    }
    shelf.records.insert((1, node(4)), vec![vec![4, 1], vec![4, 2]]);
    shelf.blob = (0..300_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let blob = Digest::of(&shelf.blob);
    let shelf = Arc::new(shelf);
    let door = OuterDoor::alone(FLEET, Arc::clone(&shelf) as _, &Rates::default());
    Things { door, shelf, fleet, own, others, release, token, blob }
}

async fn visit(things: &Things, peer: NodeId, certificate: &[u8]) -> Result<Visit, VisitFailed> {
    Visit::begin(knock(&things.door, peer).stream, FLEET, certificate.to_vec()).await
}

fn refused(outcome: Result<impl std::fmt::Debug, VisitFailed>) -> Refused {
    match outcome.expect_err("refused") {
        VisitFailed::Refused(refused) => refused,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_pulls_the_fleet_documents_and_its_own_certificate_and_nothing_else() {
    let things = things();
    let mut stranger = visit(&things, node(STRANGE), b"").await.unwrap();
    assert_eq!(stranger.standing(), Standing::Stranger);
    assert_eq!(stranger.fleets(0).await.unwrap()[0].digest, things.fleet);
    assert_eq!(stranger.certificate().await.unwrap()[0].digest, things.own);
    for digest in [things.fleet, things.own] {
        assert_eq!(stranger.document(digest, 1_000).await.unwrap(), things.shelf.documents[&digest].1);
    }
    for digest in [things.others, things.release, things.token, Digest([0; 32])] {
        assert_eq!(refused(stranger.document(digest, 1_000_000).await), Refused::NotHere, "as if there were none");
    }
    assert_eq!(refused(stranger.documents().await), Refused::Standing);
    assert_eq!(refused(stranger.blob_size(things.blob).await), Refused::Standing);
    assert_eq!(refused(stranger.hashes(things.blob, 1_000).await), Refused::Standing);
    assert_eq!(refused(stranger.stamps(RecordKind::Status).await), Refused::Standing);
    assert_eq!(refused(stranger.push(vec![STRANGE, 0]).await), Refused::Standing);
    assert!(things.shelf.pushed.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_was_a_member_once_also_pulls_documents_records_and_blobs_but_pushes_nothing() {
    let things = things();
    // By its certificate, which the keeper does not know.
    let mut former = visit(&things, node(7), b"once valid").await.unwrap();
    assert_eq!(former.standing(), Standing::Former);
    let listed = former.documents().await.unwrap();
    assert_eq!(listed.len(), things.shelf.documents.len());
    assert_eq!(former.document(things.release, 200_000).await.unwrap(), things.shelf.documents[&things.release].1);
    assert_eq!(refused(former.document(things.token, 1_000).await), Refused::NotHere);
    let small: Vec<_> = listed.iter().filter(|listed| listed.kind == Kind::Node).copied().collect();
    let got = former.small_documents(&small, 1_000).await.unwrap();
    assert!(got.iter().zip(&small).all(|(got, listed)| got.as_ref().unwrap() == &things.shelf.documents[&listed.digest].1));
    let stamps = former.stamps(RecordKind::Status).await.unwrap();
    let nodes: Vec<NodeId> = stamps.into_iter().map(|(node, _)| node).collect();
    assert_eq!(nodes, [1, 2, 3, 4, 5].map(node));
    assert_eq!(former.records(RecordKind::Status, &nodes).await.unwrap()[4], vec![vec![5, 0]]);
    let proof = former.records(RecordKind::Grants, &[node(4), node(1)]).await.unwrap();
    assert_eq!(proof, vec![vec![vec![4, 1], vec![4, 2]], vec![]]);
    assert_eq!(former.blob_size(things.blob).await.unwrap(), 300_000);
    assert_eq!(former.blob(things.blob, 1_000, 200_000).await.unwrap(), things.shelf.blob[1_000..201_000]);
    assert_eq!(former.hashes(things.blob, 1_000).await.unwrap().len(), 32 * 5);
    assert_eq!(refused(former.push(vec![7, 0]).await), Refused::Standing);
    drop(former);
    // By what the keeper knows of it.
    assert_eq!(visit(&things, node(FORMER), b"").await.unwrap().standing(), Standing::Former);
    // A forged certificate makes nobody anything.
    assert_eq!(visit(&things, node(8), b"forged").await.unwrap().standing(), Standing::Stranger);
}

#[tokio::test(start_paused = true)]
async fn s7_a_member_pushes_its_own_record_and_no_other() {
    let things = things();
    let mut member = visit(&things, node(MEMBER), b"").await.unwrap();
    assert_eq!(member.standing(), Standing::Member);
    member.push(vec![MEMBER, 1, 1]).await.unwrap();
    assert_eq!(refused(member.push(vec![FORMER, 1, 1]).await), Refused::Record);
    assert_eq!(*things.shelf.pushed.lock().unwrap(), vec![(node(MEMBER), vec![MEMBER, 1, 1])]);
}

#[tokio::test(start_paused = true)]
async fn another_fleet_no_hello_and_a_second_hello_are_shown_out() {
    let things = things();
    let mut foreign = knock(&things.door, node(FORMER));
    let hello = Ask::Hello { fleet: Digest([2; 32]), certificate: Vec::new() };
    assert_eq!(foreign.ask(hello).await, Answer::Refused(Refused::Fleet));
    assert!(matches!(foreign.served.await.unwrap(), Err(VisitError::NotLetIn(Refused::Fleet))));

    let mut rude = knock(&things.door, node(FORMER));
    assert_eq!(rude.ask(Ask::Fleets { after: 0 }).await, Answer::Refused(Refused::Malformed));
    assert!(matches!(rude.served.await.unwrap(), Err(VisitError::NotLetIn(Refused::Malformed))));

    let mut twice = enter(&things.door, node(FORMER)).await;
    assert_eq!(twice.hello(b"").await, Answer::Refused(Refused::Malformed));
    assert!(matches!(twice.served.await.unwrap(), Err(VisitError::Wire(_))));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_and_what_is_too_long_ends_the_visit() {
    let things = things();
    for message in [&[77_u8][..], &[2, 0], &[3, 0], &[5; 20], &[8; 34]] {
        let mut visitor = enter(&things.door, node(FORMER)).await;
        assert_eq!(visitor.raw(message).await, Some(Answer::Refused(Refused::Malformed)), "{message:?}");
        assert!(matches!(visitor.served.await.unwrap(), Err(VisitError::Wire(_))));
    }
    let mut visitor = enter(&things.door, node(FORMER)).await;
    let length = u32::try_from(REQUEST_BYTES + 1).unwrap();
    visitor.stream.write_all(&length.to_be_bytes()).await.unwrap();
    assert_eq!(visitor.answer().await, Some(Answer::Refused(Refused::Malformed)));
    assert!(matches!(visitor.served.await.unwrap(), Err(VisitError::Wire(wire::WireError::TooLong(..)))));
}

#[tokio::test(start_paused = true)]
async fn who_asks_nothing_takes_nothing_or_stays_for_ever_is_shown_out_and_leaves_its_place() {
    let things = things();
    let start = Instant::now();
    let silent = enter(&things.door, node(FORMER)).await;
    assert!(matches!(silent.served.await.unwrap(), Err(VisitError::Slow("asked nothing"))));
    assert_eq!(start.elapsed(), IDLE);

    // Half a frame is nothing.
    let mut half = enter(&things.door, node(FORMER)).await;
    half.stream.write_all(&[0, 0, 0, 9, 2]).await.unwrap();
    assert!(matches!(half.served.await.unwrap(), Err(VisitError::Slow("asked nothing"))));

    // The pipe holds less than the answer.
    let mut slow = enter(&things.door, node(FORMER)).await;
    wire::write_frame(&mut slow.stream, &Ask::Blob { sha256: things.blob, offset: 0 }.encode()).await.unwrap();
    let start = Instant::now();
    assert!(matches!(slow.served.await.unwrap(), Err(VisitError::Slow("took no answer"))));
    assert!(start.elapsed() <= TAKEN_WITHIN + Duration::from_secs(1) + TAKEN_WITHIN);

    let start = Instant::now();
    let mut settled = enter(&things.door, node(FORMER)).await;
    while settled.raw(&Ask::Certificate.encode()).await.is_some() {
        sleep(IDLE / 2).await;
    }
    assert!(matches!(settled.served.await.unwrap(), Err(VisitError::Slow("stayed"))));
    assert!(start.elapsed() >= VISIT && start.elapsed() <= VISIT + IDLE);
    // All of them have gone: there is room for as many as ever.
    for _ in 0..VISITS_PER_PEER {
        std::mem::forget(enter(&things.door, node(FORMER)).await.stream);
    }
}

#[tokio::test(start_paused = true)]
async fn crowds_of_strangers_and_of_former_members_are_bounded_and_keep_no_member_out() {
    let things = things();
    let mut crowd = Vec::new();
    for n in 0..STRANGERS {
        crowd.push(enter(&things.door, node(100 + u8::try_from(n).unwrap())).await);
    }
    let mut late = knock(&things.door, node(200));
    assert_eq!(late.hello(b"").await, Answer::Refused(Refused::Later(1_000)));
    // Those who were members once have places of their own, and one peer has only a few of them.
    let mut mine = Vec::new();
    for _ in 0..VISITS_PER_PEER {
        mine.push(enter(&things.door, node(FORMER)).await);
    }
    let mut third = knock(&things.door, node(FORMER));
    assert_eq!(third.hello(b"").await, Answer::Refused(Refused::Later(1_000)));
    for n in 0..FORMERS - VISITS_PER_PEER {
        let mut former = knock(&things.door, node(30 + u8::try_from(n).unwrap()));
        assert_eq!(former.hello(b"once valid").await, Answer::Welcome(Standing::Former));
        mine.push(former);
    }
    let mut full = knock(&things.door, node(60));
    assert_eq!(full.hello(b"once valid").await, Answer::Refused(Refused::Later(1_000)));
    let _member = enter(&things.door, node(MEMBER)).await;
    drop(mine);
    drop(full);
    // Their places are free once the keeper has noticed.
    tokio::task::yield_now().await;
    sleep(Duration::from_millis(1)).await;
    enter(&things.door, node(FORMER)).await;
}

#[tokio::test(start_paused = true)]
async fn strangers_of_one_network_leave_places_for_those_of_others() {
    let things = things();
    let crowd = Origin::V4([192, 0, 2]);
    let mut inside = Vec::new();
    for n in 0..STRANGERS {
        let mut visitor = knock_from(&things.door, node(100 + u8::try_from(n).unwrap()), crowd);
        match visitor.hello(b"").await {
            Answer::Welcome(Standing::Stranger) => inside.push(visitor),
            answer => assert_eq!(answer, Answer::Refused(Refused::Later(1_000))),
        }
    }
    assert_eq!(inside.len(), STRANGERS / 2);
    enter(&things.door, node(200)).await;
    // Members of that network have places of their own.
    assert_eq!(knock_from(&things.door, node(MEMBER), crowd).hello(b"").await, Answer::Welcome(Standing::Member));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_requests_is_answered_at_the_rate_and_told_to_wait() {
    let things = things();
    let mut flood = enter(&things.door, node(STRANGE)).await;
    let (start, mut given, mut later) = (Instant::now(), 0_u64, 0);
    while start.elapsed() < Duration::from_secs(60) {
        match flood.ask(Ask::Document { digest: things.fleet, offset: 0 }).await {
            Answer::Chunk { bytes, .. } => given += bytes.len() as u64,
            Answer::Refused(Refused::Later(_)) => later += 1,
            other => panic!("{other:?}"),
        }
        assert!(given + later < 1_000_000, "time does not move");
    }
    assert!(later > 0 && given <= STRANGER.burst + 60 * STRANGER.per_second, "{given} bytes, {later} times later");
    // New names gain nothing beyond what all strangers have together.
    let mut others = 0_u64;
    for n in 0..60 {
        let mut visitor = knock(&things.door, node(100 + n));
        if !matches!(visitor.hello(b"").await, Answer::Welcome(_)) {
            continue;
        }
        while let Answer::Chunk { bytes, .. } = visitor.ask(Ask::Document { digest: things.fleet, offset: 0 }).await {
            others += bytes.len() as u64;
        }
        drop(visitor.stream);
        visitor.served.abort();
        let _ = visitor.served.await;
    }
    let all = groundswell_net::outer::limits::ALL_STRANGERS;
    assert!(others <= all.burst + 120 * all.per_second, "{others} bytes");
    // A guest is served as if nobody else were there.
    let mut guest = enter(&things.door, node(FORMER)).await;
    let answer = guest.ask(Ask::Blob { sha256: things.blob, offset: 0 }).await;
    assert!(matches!(answer, Answer::Chunk { bytes, .. } if bytes.len() == CHUNK_BYTES));
}

#[tokio::test(start_paused = true)]
async fn a_visitor_that_is_told_to_wait_waits_and_gets_everything_in_the_end() {
    let things = things();
    let mut stranger = visit(&things, node(STRANGE), b"").await.unwrap();
    let start = Instant::now();
    // More than its burst.
    for _ in 0..700 {
        assert_eq!(stranger.document(things.fleet, 1_000).await.unwrap().len(), 900);
    }
    assert!(start.elapsed() > Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn forged_certificates_cost_their_sender_and_nobody_whom_the_keeper_knows() {
    let things = things();
    let forge = async |seed: u8| {
        let mut forger = knock(&things.door, node(seed));
        let answer = forger.hello(b"forged").await;
        drop(forger.stream);
        let _ = forger.served.await;
        match answer {
            Answer::Welcome(Standing::Stranger) => true,
            Answer::Refused(Refused::Later(_)) => false,
            other => panic!("{other:?}"),
        }
    };
    let mut looked_at = 0;
    for _ in 0..100 {
        looked_at += u32::from(forge(50).await);
    }
    assert_eq!(looked_at, 8, "as many as one peer has at once");
    let all: u32 = join_all((100..200).map(forge)).await.into_iter().map(u32::from).sum();
    let most = 32 + u32::try_from(TURNS).unwrap();
    // Of those that were looked at some found all places of visitors taken.
    assert!(all > 8 && looked_at + all <= most, "{looked_at} and {all}: those at once, and those that wait for their turn");
    // What strangers pull is counted elsewhere, and so are those whom the keeper knows: with a certificate that is new to it.
    let mut stranger = visit(&things, node(STRANGE), b"").await.unwrap();
    assert_eq!(stranger.fleets(0).await.unwrap().len(), 1);
    assert_eq!(visit(&things, node(FORMER), b"renewed").await.unwrap().standing(), Standing::Member);
    assert_eq!(visit(&things, node(MEMBER), b"forged").await.unwrap().standing(), Standing::Member);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_looked_up_that_is_not_paid_for() {
    let things = things();
    let looked_up = || things.shelf.looked_up.load(Ordering::Relaxed);
    let mut former = enter(&things.door, node(FORMER)).await;
    let (start, mut given, mut lists, mut later) = (Instant::now(), 0, 0, 0);
    // Faster than its rate, with requests whose answers are small or large; lists of stamps that hold next to nothing.
    while later < 100 {
        for ask in [
            Ask::Stamps { kind: RecordKind::Status, after: node(250) },
            Ask::Document { digest: things.release, offset: 0 },
            Ask::Document { digest: Digest([0; 32]), offset: 0 },
        ] {
            match former.ask(ask).await {
                Answer::Refused(Refused::Later(_)) => later += 1,
                Answer::Stamps(_) => (given, lists) = (given + 1, lists + 1),
                _ => given += 1,
            }
        }
    }
    assert_eq!(looked_up(), given, "what is put off is not looked at");
    let rate = groundswell_net::outer::limits::FORMER;
    let most = rate.burst + rate.per_second * (start.elapsed().as_secs() + 1);
    assert!(lists > 0 && lists * 1_360 * 48 <= most, "a list costs a whole page: {lists} in {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_piece_is_read_once_however_many_chunks_are_taken_of_it() {
    let mut shelf = Shelf { blob: vec![7; (16 << 20) + 1], ..Shelf::default() };
    shelf.standings.insert(node(MEMBER), Standing::Member);
    let (shelf, blob) = (Arc::new(shelf), Digest::of(&vec![7; (16 << 20) + 1]));
    let door = OuterDoor::alone(FLEET, Arc::clone(&shelf) as _, &Rates::default());
    let mut member = Visit::begin(knock(&door, node(MEMBER)).stream, FLEET, Vec::new()).await.unwrap();
    assert_eq!(member.blob(blob, 0, 4 * 131_072).await.unwrap(), vec![7; 4 * 131_072]);
    assert_eq!(shelf.pieces_read.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn what_has_a_piece_read_again_and_again_costs_a_whole_chunk_each_time() {
    let blob = vec![7; (16 << 20) + 1];
    let mut shelf = Shelf { blob: blob.clone(), ..Shelf::default() };
    shelf.standings.insert(node(FORMER), Standing::Former);
    let (shelf, sha256) = (Arc::new(shelf), Digest::of(&blob));
    let door = OuterDoor::alone(FLEET, Arc::clone(&shelf) as _, &Rates::default());
    let mut former = enter(&door, node(FORMER)).await;
    let (start, mut later) = (Instant::now(), 0);
    // The last byte of a piece, the last of the blob, and a hash list from behind its end: next to nothing goes out.
    while later < 20 {
        for ask in [
            Ask::Blob { sha256, offset: 131_071 },
            Ask::Blob { sha256, offset: 16 << 20 },
            Ask::Hashes { sha256, offset: u64::MAX },
        ] {
            later += u32::from(matches!(former.ask(ask).await, Answer::Refused(Refused::Later(_))));
        }
    }
    let rate = groundswell_net::outer::limits::FORMER;
    let most = (rate.burst + rate.per_second * (start.elapsed().as_secs() + 1)) / u64::try_from(CHUNK_BYTES).unwrap();
    let read = shelf.pieces_read.load(Ordering::Relaxed);
    assert!(read > 0 && u64::from(read) <= most, "{read} pieces read in {:?}, at most {most}", start.elapsed());
    // Whoever only wants to know the size reads nothing, and pays next to nothing.
    let mut member = enter(&door, node(STRANGE)).await;
    assert_eq!(member.ask(Ask::Blob { sha256, offset: 0 }).await, Answer::Refused(Refused::Standing));
}

#[tokio::test(start_paused = true)]
async fn what_goes_out_at_the_door_counts_for_the_nodes_upload_rate() {
    let blob = vec![7; 4 << 20];
    let mut shelf = Shelf { blob: blob.clone(), ..Shelf::default() };
    shelf.standings.insert(node(MEMBER), Standing::Member);
    let rates = Rates::new(Rate::bytes_per_second(128 * 1024), Rate::UNBOUNDED);
    let door = OuterDoor::alone(FLEET, Arc::new(shelf) as _, &rates);
    let mut member = Visit::begin(knock(&door, node(MEMBER)).stream, FLEET, Vec::new()).await.unwrap();
    let start = Instant::now();
    assert_eq!(member.blob(Digest::of(&blob), 0, 1 << 20).await.unwrap().len(), 1 << 20);
    let took = start.elapsed();
    assert!((Duration::from_secs(7)..Duration::from_secs(10)).contains(&took), "one megabyte at 128 KiB a second: {took:?}");
}

/// A keeper that lies plays on the other end.
async fn liar(script: Vec<Answer>) -> Visit {
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        let mut far = tokio_util::compat::TokioAsyncReadCompatExt::compat(far);
        for answer in std::iter::once(Answer::Welcome(Standing::Former)).chain(script) {
            if wire::read_frame(&mut far, 70_000).await.is_err() {
                return;
            }
            if wire::write_frame(&mut far, &answer.encode()).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    });
    let near = tokio_util::compat::TokioAsyncReadCompatExt::compat(near);
    Visit::begin(Box::new(near), FLEET, Vec::new()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_lies_about_sizes_lists_or_documents_ends_the_visit() {
    let listed = |n: u8| wire::Listed { kind: Kind::Node, digest: Digest([n; 32]), published: Digest([n; 32]) };
    let chunk = |total: u64, length: usize| Answer::Chunk { total, bytes: vec![0; length] };
    let breach = |outcome: Result<(), VisitFailed>| assert!(matches!(outcome, Err(VisitFailed::Breach(_))), "{outcome:?}");
    let digest = Digest([1; 32]);
    breach(liar(vec![chunk(u64::MAX, 10)]).await.document(digest, 1_000).await.map(drop));
    breach(liar(vec![chunk(5, 10)]).await.document(digest, 1_000).await.map(drop));
    breach(liar(vec![chunk(20, 10), chunk(20, 0)]).await.document(digest, 1_000).await.map(drop));
    breach(liar(vec![Answer::Taken]).await.document(digest, 1_000).await.map(drop));
    breach(liar(vec![chunk(3, 3)]).await.small_documents(&[listed(1)], 1_000).await.map(drop));
    breach(liar(vec![Answer::List(vec![listed(2), listed(1)])]).await.documents().await.map(drop));
    breach(liar(vec![Answer::List(vec![listed(2)]), Answer::List(vec![listed(2)])]).await.documents().await.map(drop));
    breach(liar(vec![chunk(9, 0)]).await.blob(digest, 0, 9).await.map(drop));
    breach(liar(vec![chunk(9, 9)]).await.blob_size(digest).await.map(drop));
    let stamps = vec![(node(3), groundswell_core::record::Stamp::default()); 2];
    breach(liar(vec![Answer::Stamps(stamps)]).await.stamps(RecordKind::Status).await.map(drop));
    assert!(matches!(liar(vec![]).await.certificate().await, Err(VisitFailed::Late)), "one that says nothing");
}

/// A keeper that answers everything, for ever, each time after a while; and how often it was asked.
async fn dawdler(after: Duration, answer: impl Fn(u64) -> Answer + Send + 'static) -> (Visit, Arc<AtomicU64>) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut far = tokio_util::compat::TokioAsyncReadCompatExt::compat(far);
        wire::read_frame(&mut far, 70_000).await.unwrap();
        wire::write_frame(&mut far, &Answer::Welcome(Standing::Member).encode()).await.unwrap();
        while let Ok(Some(_)) = wire::read_frame(&mut far, 70_000).await {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            sleep(after).await;
            if wire::write_frame(&mut far, &answer(number).encode()).await.is_err() {
                return;
            }
        }
    });
    let near = tokio_util::compat::TokioAsyncReadCompatExt::compat(near);
    (Visit::begin(Box::new(near), FLEET, Vec::new()).await.unwrap(), asked)
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_says_later_for_ever_is_not_asked_in_a_loop_and_left_in_time() {
    for wait_ms in [0, 1, u32::MAX] {
        let start = Instant::now();
        let (mut visit, asked) = dawdler(Duration::ZERO, move |_| Answer::Refused(Refused::Later(wait_ms))).await;
        let ended = visit.certificate().await;
        assert!(matches!(ended, Err(VisitFailed::Refused(Refused::Later(_)))), "{wait_ms}: {ended:?}");
        assert!(start.elapsed() <= ANSWER_WITHIN, "{wait_ms}");
        let most = ANSWER_WITHIN.as_millis() / LATER_LEAST.as_millis() + 1;
        assert!(u128::from(asked.load(Ordering::Relaxed)) <= most, "{wait_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_trickles_is_left_however_patiently_it_does_so() {
    let digest = Digest([1; 32]);
    let start = Instant::now();
    // A byte a second would take a day.
    let byte = |_| Answer::Chunk { total: 100_000, bytes: vec![0] };
    let (mut visit, _) = dawdler(Duration::from_secs(1), byte).await;
    assert!(matches!(visit.document(digest, 100_000).await, Err(VisitFailed::Late)));
    let (mut visit, _) = dawdler(Duration::from_secs(1), byte).await;
    assert!(matches!(visit.blob(digest, 0, 65_536).await, Err(VisitFailed::Late)));
    assert!(start.elapsed() <= 2 * (ANSWER_WITHIN + Duration::from_secs(5)), "{:?}", start.elapsed());
    // At the rate that is asked for it comes.
    let slow = |_| Answer::Chunk { total: 655_360, bytes: vec![0; 65_536] };
    let (mut visit, _) = dawdler(Duration::from_secs(50), slow).await;
    assert_eq!(visit.document(digest, 655_360).await.unwrap().len(), 655_360);

    // One that goes on listing: each page holds one more.
    let start = Instant::now();
    let page = |number: u64| {
        let digest = Digest(std::array::from_fn(|at| if at < 8 { (number + 1).to_be_bytes()[at] } else { 0 }));
        Answer::List(vec![wire::Listed { kind: Kind::Node, digest, published: digest }])
    };
    let (mut visit, _) = dawdler(Duration::from_secs(20), page).await;
    assert!(matches!(visit.documents().await, Err(VisitFailed::Late)));
    assert!(start.elapsed() <= VISIT, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_visitor_that_is_not_let_in_now_does_not_wait_at_a_closed_door() {
    let things = things();
    let _mine = [enter(&things.door, node(FORMER)).await, enter(&things.door, node(FORMER)).await];
    let start = Instant::now();
    let third = visit(&things, node(FORMER), b"").await.map(|_| ());
    assert_eq!(refused(third), Refused::Later(1_000));
    assert_eq!(start.elapsed(), Duration::ZERO);
}
