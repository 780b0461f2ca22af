//! Bytes that are no frame, connections that are too many, and people who are not the agent.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use groundswell_agent::helper::server::CONNECTIONS;
use groundswell_agent::helper::wire::{Header, Kind, ORDER_BYTES, Order, Reply, Why, encode_order};
use groundswell_core::limits::PUBLISHED_ROSTER_BYTES;

use super::bench::{Bench, claim, lend, not_tested, own_account, refused, spawn};
use super::world::{product, program};

/// In the environment of a process that is not the agent: the socket that it tries.
const STRANGER: &str = "GROUNDSWELL_HELPER_STRANGER";

/// Sends these bytes; the helper must say why they are no frame, hang up, and live on.
async fn is_no_frame(bytes: &[u8], says: &str) {
    let bench = Bench::running();
    let mut client = bench.client().await;
    client.raw(bytes).await;
    refused(&client.reply().await.expect("a word before it hangs up"), Why::Frame, says);
    assert!(client.reply().await.is_none(), "it hangs up");
    assert_eq!(bench.client().await.state().await.floor.get(), 0, "it lives on");
}

/// Sends these bytes and ends; the helper must live on.
async fn is_left_alone(bytes: &[u8]) {
    let bench = Bench::running();
    let mut client = bench.client().await;
    client.raw(bytes).await;
    client.end().await;
    assert!(client.reply().await.is_none());
    assert_eq!(bench.client().await.state().await.floor.get(), 0);
}

fn header(kind: u8, length: u32) -> Vec<u8> {
    [&[1, kind][..], &length.to_be_bytes()].concat()
}

fn state() -> Vec<u8> {
    encode_order(&Order::State { product: product() })
}

fn framed(body: &[u8]) -> Vec<u8> {
    [Header { kind: Kind::Order, length: body.len() }.encode().to_vec(), body.to_vec()].concat()
}

#[tokio::test]
async fn an_order_longer_than_orders_are() {
    is_no_frame(&header(2, u32::try_from(ORDER_BYTES + 1).unwrap()), "at most").await;
}

#[tokio::test]
async fn a_document_longer_than_documents_are() {
    is_no_frame(&header(1, u32::try_from(PUBLISHED_ROSTER_BYTES + 1).unwrap()), "at most").await;
}

#[tokio::test]
async fn the_largest_length_that_can_be_written() {
    is_no_frame(&header(1, u32::MAX), "at most").await;
}

#[tokio::test]
async fn another_version() {
    is_no_frame(&[2, 2, 0, 0, 0, 0], "version 2").await;
}

#[tokio::test]
async fn a_kind_that_does_not_exist() {
    is_no_frame(&header(9, 0), "kind 9").await;
}

#[tokio::test]
async fn a_reply_from_the_wrong_side() {
    is_no_frame(&header(3, 0), "kind 3").await;
}

#[tokio::test]
async fn an_order_without_content() {
    is_no_frame(&header(2, 0), "cannot be read").await;
}

#[tokio::test]
async fn an_order_that_does_not_exist() {
    is_no_frame(&framed(&[99, 3, b'b', b'c', b'd']), "cannot be read").await;
}

#[tokio::test]
async fn an_order_with_bytes_left_over() {
    is_no_frame(&framed(&[state(), vec![0]].concat()), "left over").await;
}

#[tokio::test]
async fn a_product_that_is_a_path() {
    for path in ["../", "/et", "..", "a/b", ".x"] {
        let mut order = vec![0, u8::try_from(path.len()).unwrap()];
        order.extend(path.as_bytes());
        is_no_frame(&framed(&order), "cannot be read").await;
    }
}

#[tokio::test]
async fn a_product_whose_length_is_a_lie() {
    is_no_frame(&framed(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, b'b']), "cannot be read").await;
}

#[tokio::test]
async fn http() {
    is_no_frame(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "version 71").await;
}

#[tokio::test]
async fn a_header_that_is_cut_off() {
    is_left_alone(&[1, 2, 0]).await;
}

#[tokio::test]
async fn a_body_that_is_cut_off() {
    is_left_alone(&[header(1, 100_000), vec![b'{'; 10]].concat()).await;
}

#[tokio::test]
async fn an_order_or_a_document_that_is_cut_off_at_any_byte_comes_to_nothing() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let activate = framed(&encode_order(&Order::Activate { product: product(), release: papers.id(), claim: claim() }));
    let newer = bench.world.sign_fleet(&bench.world.next_fleet(&papers.fleet));
    let length = u32::try_from(newer.len()).unwrap();
    let document = [header(1, length), newer.clone()].concat();
    // Each place in what is short, and some in what is long.
    let cuts = (1..activate.len()).map(|cut| &activate[..cut]).chain((1..document.len()).step_by(97).map(|cut| &document[..cut]));
    for cut in cuts {
        let mut cut_off = bench.client().await;
        cut_off.raw(cut).await;
        cut_off.end().await;
        assert!(cut_off.reply().await.is_none(), "{} bytes", cut.len());
    }
    let state = client.state().await;
    assert_eq!((state.trial, state.staged), (None, Some(papers.id())));
    assert!(bench.started().is_empty());
    let reply = client.document(&newer).await;
    assert!(matches!(reply, Reply::Taken { fresh: true, .. }), "none of its parts was taken for it: {reply:?}");
}

#[tokio::test]
async fn a_document_that_is_none() {
    let bench = Bench::running();
    let mut client = bench.client().await;
    for body in [&b""[..], b"{}", b"\xff\xfe", b"[[[[[[[[", &[b'['; 100_000]] {
        refused(&client.document(body).await, Why::Document, "malformed");
    }
    assert_eq!(client.state().await.floor.get(), 0, "a document that is refused does not end the connection");
}

#[tokio::test]
async fn more_connections_than_there_are_places() {
    let bench = Bench::running();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = bench.client().await;
        client.state().await;
        held.push(client);
    }
    let mut surplus = bench.client().await;
    refused(&surplus.reply().await.unwrap(), Why::Busy, "too many connections");
    held.pop();
    // A place is free once the helper has noticed.
    loop {
        let mut client = bench.client().await;
        client.raw(&framed(&state())).await;
        match client.reply().await {
            Some(Reply::State(_)) => break,
            Some(reply) => refused(&reply, Why::Busy, "too many connections"),
            None => {}
        }
    }
}

/// What another user's process does: it asks, and prints what it gets. Run by the tests below in a process of its own.
#[test]
fn as_somebody_else() {
    let Some(socket) = std::env::var_os(STRANGER) else { return };
    use std::io::Read as _;
    let mut answer = Vec::new();
    let told = match std::os::unix::net::UnixStream::connect(socket) {
        Err(error) => format!("no connection: {error}"),
        Ok(mut stream) => {
            let _ = stream.write_all(&framed(&state()));
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut answer);
            format!("answered with {} bytes", answer.len())
        }
    };
    println!("STRANGER {told}");
}

/// What a process of this user and group hears; `None`, said aloud, where tests may not become others.
fn heard_by(bench: &Bench, uid: u32, gid: u32) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    if own_account().0 != 0 && own_account() != (uid, gid) {
        not_tested("only root can run a process as another user");
        return None;
    }
    // Whoever it is may reach socket and program: only the helper stands in the way.
    std::fs::set_permissions(bench.path("helper.sock"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let program = bench.path("stranger");
    lend(&std::env::current_exe().unwrap(), &program);
    let mut command = Command::new(program);
    command
        .args(["--exact", "helper::frames::as_somebody_else", "--nocapture"])
        .env(STRANGER, bench.path("helper.sock"))
        .current_dir("/")
        .uid(uid)
        .gid(gid)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let output = spawn(&mut command).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let told = text.lines().find_map(|line| line.split_once("STRANGER ").map(|(_, told)| told.to_owned()));
    Some(told.unwrap_or_else(|| panic!("it said nothing: {text}")))
}

#[tokio::test]
async fn a_process_of_another_user() {
    let bench = Bench::running();
    if let Some(told) = heard_by(&bench, 65_534, own_account().1) {
        assert_eq!(told, "answered with 0 bytes");
    }
}

#[tokio::test]
async fn a_process_of_the_right_user_in_another_group() {
    let bench = Bench::running();
    if let Some(told) = heard_by(&bench, own_account().0, 65_534) {
        assert_eq!(told, "answered with 0 bytes");
    }
}

#[tokio::test]
async fn a_process_that_is_the_agent_is_answered() {
    let bench = Bench::running();
    let (uid, gid) = own_account();
    if let Some(told) = heard_by(&bench, uid, gid) {
        assert!(told.starts_with("answered with") && !told.ends_with(" 0 bytes"), "{told}");
    }
}

#[tokio::test]
async fn the_helper_has_no_socket_but_its_own() {
    let bench = Bench::running();
    let _client = bench.client().await.state().await;
    let process = bench.process();
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    assert!(!inodes.is_empty(), "it listens");
    for table in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6", "netlink", "packet"] {
        let text = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        for inode in &inodes {
            let listed = text.split_whitespace().any(|word| word == inode);
            assert!(!listed, "a socket of {table}");
        }
    }
}
