//! The local API over a real socket, with a driver that the test plays.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use groundswell_agent::api::client::{Client, ClientError, PublishOutcome};
use groundswell_agent::api::{self, SocketError};
use groundswell_agent::blobs::{BlobStore, Settings};
use groundswell_agent::events::{EventLog, Told};
use groundswell_agent::handle::{Handle, PublishError, Request};
use groundswell_core::digest::Digest;
use groundswell_core::documents::rejection::{Reason, Rejection};
use groundswell_core::node::effect::Accepted;
use groundswell_core::node::view::Explanation;
use groundswell_core::time::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::workshop::PATIENCE;

struct Surface {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    client: Client,
    events: Arc<EventLog>,
    blobs: BlobStore,
    stop: watch::Sender<bool>,
    api: JoinHandle<()>,
}

/// An API whose questions `answer` answers.
fn surface(answer: impl Fn(Request) + Send + Sync + 'static) -> Surface {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent.sock");
    let settings = Settings { folder: folder.path().join("blobs"), quota_bytes: 1 << 20, reserve_bytes: 0 };
    let blobs = BlobStore::open(settings).unwrap();
    let events = Arc::new(EventLog::default());
    let (handle, mut requests) = Handle::new(Arc::clone(&events));
    let (stop, stopped) = watch::channel(false);
    let bound = api::bind(&socket).unwrap();
    let served = api::serve(bound, handle, blobs.clone(), stopped);
    let api = tokio::spawn(async move {
        let driver = async {
            while let Some(request) = requests.recv().await {
                answer(request);
            }
        };
        tokio::select! {
            () = served => {}
            () = driver => {}
        }
    });
    let client = Client::new(&socket);
    Surface { _folder: folder, socket, client, events, blobs, stop, api }
}

fn refused(error: ClientError) -> (u16, String, String) {
    match error {
        ClientError::Refused { status, body } => (status.as_u16(), body.reason, body.field),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_document_is_accepted_known_or_refused_with_its_reason() {
    let surface = surface(|request| {
        let Request::Publish { bytes, reply } = request else { panic!("{request:?}") };
        let digest = Digest::of(&bytes);
        reply
            .send(match bytes.as_slice() {
                b"new" => Ok(Accepted::New(digest)),
                b"known" => Ok(Accepted::Known(digest)),
                b"full" => Err(PublishError::Fault("the disk is full".to_owned())),
                _ => Err(Rejection::new(Reason::Threshold, "signatures", "1 of 2").into()),
            })
            .unwrap();
    });
    let published = surface.client.publish(b"new".to_vec()).await.unwrap();
    assert_eq!((published.outcome, published.digest), (PublishOutcome::Accepted, Digest::of(b"new")));
    assert_eq!(surface.client.publish(b"known".to_vec()).await.unwrap().outcome, PublishOutcome::Known);
    let error = surface.client.publish(b"short".to_vec()).await.unwrap_err();
    assert_eq!(refused(error), (422, "threshold".to_owned(), "signatures".to_owned()));
    let error = surface.client.publish(b"full".to_vec()).await.unwrap_err();
    assert_eq!(refused(error), (503, "fault".to_owned(), "store".to_owned()));
    let huge = vec![b'x'; 13 * 1024 * 1024];
    let error = surface.client.publish(huge).await.unwrap_err();
    assert!(
        matches!(error, ClientError::Refused { status, .. } if status == 413) || matches!(error, ClientError::Unreachable { .. })
    );
}

#[tokio::test]
async fn reads_answer_with_the_views_and_what_is_not_there_is_said_in_json() {
    let surface = surface(|request| match request {
        Request::Explain { product: None, reply } => {
            let explanation = Explanation {
                product: "bcd".to_owned(),
                summary: "idle".to_owned(),
                hold: None,
                facts: vec![],
                ways_out: vec![],
            };
            reply.send(vec![explanation]).unwrap();
        }
        Request::Explain { reply, .. } => reply.send(Vec::new()).unwrap(),
        Request::Document { digest, reply } => reply.send((digest == Digest::of(b"x")).then(|| b"{}".to_vec())).unwrap(),
        other => panic!("{other:?}"),
    });
    let client = &surface.client;
    assert_eq!(client.get::<Vec<Explanation>>("/v1/explain").await.unwrap()[0].product, "bcd");
    let error = client.get_bytes("/v1/explain?product=other").await.unwrap_err();
    assert_eq!(refused(error), (404, "not-found".to_owned(), "product".to_owned()));
    let error = client.get_bytes("/v1/explain?prodcut=bcd").await.unwrap_err();
    assert_eq!(refused(error).0, 400);
    let hex = Digest::of(b"x").hex();
    assert_eq!(client.get_bytes(&format!("/v1/documents/{hex}")).await.unwrap(), b"{}");
    assert_eq!(client.get_bytes(&format!("/v1/documents/sha256/{hex}")).await.unwrap(), b"{}");
    for (path, status) in [("/v1/documents/../status", 404), ("/v1/documents/zz", 400), ("/v2/status", 404)] {
        assert_eq!(refused(client.get_bytes(path).await.unwrap_err()).0, status, "{path}");
    }
}

#[tokio::test]
async fn a_blob_is_taken_under_its_own_digest_only() {
    let surface = surface(|request| panic!("{request:?}"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("binary");
    std::fs::write(&file, vec![5; 700_000]).unwrap();
    let sha256 = Digest::of(&vec![5; 700_000]);
    let wrong = Digest::of(b"something else");
    let error = surface.client.put_blob(wrong, &file).await.unwrap_err();
    assert_eq!(refused(error), (422, "digest".to_owned(), "blob".to_owned()));
    assert_eq!(surface.client.put_blob(sha256, &file).await.unwrap(), Some(700_000));
    assert_eq!(surface.client.put_blob(sha256, &file).await.unwrap(), None, "not a byte is sent again");
    assert!(surface.blobs.holds(&sha256) && !surface.blobs.holds(&wrong));
    std::fs::write(&file, vec![5; 2 << 20]).unwrap();
    let error = surface.client.put_blob(Digest::of(&vec![5; 2 << 20]), &file).await.unwrap_err();
    assert_eq!(refused(error), (507, "disk-full".to_owned(), "blob".to_owned()));
}

/// What is answered to these very bytes.
async fn raw(socket: &std::path::Path, request: &[u8]) -> String {
    let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_put_that_breaks_off_is_gone_on_with_and_a_range_that_is_no_rest_is_refused() {
    let surface = surface(|request| panic!("{request:?}"));
    let content: Vec<u8> = (0..700_000_u32).map(|at| u8::try_from(at / 3 % 251).unwrap()).collect();
    let (sha256, file) = (Digest::of(&content), surface._folder.path().join("binary"));
    std::fs::write(&file, &content).unwrap();
    let head = format!("PUT /v1/blobs/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", sha256.hex());
    let mut broken = tokio::net::UnixStream::connect(&surface.socket).await.unwrap();
    broken.write_all(format!("{head}Content-Length: 700000\r\n\r\n").as_bytes()).await.unwrap();
    broken.write_all(&content[..300_000]).await.unwrap();
    broken.shutdown().await.unwrap();
    drop(broken);
    // It ends when the agent notices.
    let waited = tokio::time::timeout(PATIENCE, async {
        while surface.blobs.put_bytes_here(&sha256) < 300_000 || surface.blobs.put_from(sha256, 700_000, 300_000).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("what came stays");
    for wrong in [
        "bytes 0-9/10",
        "bytes 5-9/11",
        "bytes 5-8/10",
        "bytes -9/10",
        "bytes 5-/10",
        "bytes 5-9/*",
        "pieces 5-9/10",
        "bytes +5-9/10",
    ] {
        let request = format!("{head}Content-Length: 5\r\nContent-Range: {wrong}\r\n\r\n12345");
        let answer = raw(&surface.socket, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("content-range"), "{wrong}: {answer}");
    }
    let request = format!("{head}Content-Length: 5\r\nContent-Range: bytes 5-9/10\r\n\r\n12345");
    let answer = raw(&surface.socket, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 416") && answer.contains("300000"), "{answer}");
    assert_eq!(surface.client.put_blob(sha256, &file).await.unwrap(), Some(400_000), "only the rest is sent");
    assert!(surface.blobs.open_verified(&sha256).is_ok());
}

#[tokio::test]
async fn numbers_are_there_for_prometheus_and_blobs_that_move_have_their_own() {
    use groundswell_agent::handle::{AgentView, BlobPeerView, BlobView, StatusView};
    use groundswell_core::node_id::NodeId;
    let moving = BlobView {
        sha256: Digest([7; 32]),
        size_bytes: 1000,
        held: 3,
        pieces: 8,
        holders: 1,
        copies_ppm: 1_375_000,
        takers: Some(4),
        peers: vec![BlobPeerView {
            node: NodeId([1; 32]),
            name: None,
            held: 5,
            sent_bytes_per_second: 70,
            received_bytes_per_second: 900,
        }],
    };
    let resting = BlobView { sha256: Digest([8; 32]), held: 8, peers: Vec::new(), ..moving.clone() };
    let status: StatusView = serde_json::from_value(serde_json::json!({
        "node": NodeId([2; 32]), "fleet": Digest([1; 32]), "floorTime": Timestamp::default(),
        "peers": 5, "members": 6, "products": [],
        "agent": AgentView { counters: [("pieces_sent_bytes".to_owned(), 17)].into(), ..AgentView::default() },
    }))
    .unwrap();
    let surface = surface(move |request| match request {
        Request::Status(reply) => reply.send(status.clone()).unwrap(),
        Request::Blobs(reply) => reply.send(vec![moving.clone(), resting.clone()]).unwrap(),
        other => panic!("{other:?}"),
    });
    let text = String::from_utf8(surface.client.get_bytes("/v1/metrics").await.unwrap()).unwrap();
    let hex = "07".repeat(32);
    for line in [
        "groundswell_peers 5".to_owned(),
        "groundswell_pieces_sent_bytes_total 17".to_owned(),
        format!("groundswell_blob_pieces_held{{sha256=\"{hex}\"}} 3"),
        format!("groundswell_blob_copies{{sha256=\"{hex}\"}} 1.375000"),
        format!("groundswell_blob_received_bytes_per_second{{sha256=\"{hex}\"}} 900"),
        format!("groundswell_blob_sent_bytes_per_second{{sha256=\"{hex}\"}} 70"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains(&"08".repeat(32)), "what rests has no series of its own");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split([' ', '{']).next().unwrap();
        assert!(text.contains(&format!("# TYPE {name} ")) && line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn events_are_listed_and_followed_and_the_stream_ends_with_the_agent() {
    let surface = surface(|request| panic!("{request:?}"));
    let opened = |wave| Told::WaveOpened { rollout: "r1".to_owned(), wave };
    surface.events.tell(Timestamp::default(), opened(0));
    surface.events.tell(Timestamp::default(), opened(1));
    let listed: Vec<groundswell_agent::events::Entry> = surface.client.get("/v1/events?after=1").await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.number).collect::<Vec<_>>(), [2]);

    let client = surface.client.clone();
    let (seen, mut seen_by_test) = tokio::sync::mpsc::unbounded_channel();
    let follower = tokio::spawn(async move {
        client
            .follow(0, |entry| {
                seen.send(entry.number).unwrap();
                true
            })
            .await
    });
    assert_eq!((seen_by_test.recv().await, seen_by_test.recv().await), (Some(1), Some(2)));
    surface.events.tell(Timestamp::default(), opened(2));
    assert_eq!(seen_by_test.recv().await, Some(3));
    surface.stop.send_replace(true);
    follower.await.unwrap().unwrap();
    surface.api.await.unwrap();
    assert!(!surface.socket.exists(), "the socket is removed at the end");
}

#[tokio::test]
async fn the_socket_is_for_its_group_a_stale_one_is_replaced_and_a_live_one_is_not() {
    let surface = surface(|request| panic!("{request:?}"));
    let mode = std::fs::metadata(&surface.socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let error = api::bind(&surface.socket).unwrap_err();
    assert!(matches!(error, SocketError::Running(_)), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let stale = folder.path().join("agent.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    drop(api::bind(&stale).unwrap());
    std::fs::write(&stale, "precious").unwrap();
    assert!(matches!(api::bind(&stale).unwrap_err(), SocketError::InTheWay(_)));
    assert_eq!(std::fs::read_to_string(&stale).unwrap(), "precious");
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_unreachable() {
    let error = Client::new("/nowhere/agent.sock".as_ref()).get_bytes("/v1/status").await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("/nowhere/agent.sock"));
}
