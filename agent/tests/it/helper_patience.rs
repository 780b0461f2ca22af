//! Connections that take their time with the helper: they are ended, and hold nobody else up.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use groundswell_agent::config::HelperConfig;
use groundswell_agent::helper::wire::{Header, Kind, Order, Reply, decode_reply, encode_order};
use groundswell_agent::helper::{self, HelperError, Patience, channel};
use groundswell_core::text::Product;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::workshop::PATIENCE;

const SHORT: Patience = Patience { frame: Duration::from_millis(200), idle: Duration::from_millis(400) };

struct Running {
    folder: tempfile::TempDir,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), HelperError>>,
}

fn order() -> Vec<u8> {
    encode_order(&Order::State { product: Product::new("bcd").unwrap() })
}

fn framed(body: &[u8]) -> Vec<u8> {
    [Header { kind: Kind::Order, length: body.len() }.encode().to_vec(), body.to_vec()].concat()
}

impl Running {
    async fn start(patience: Patience) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let text = HelperConfig::documented_default()
            .replace("\"/var/lib/groundswell-helper\"", "\"data\"")
            .replace("\"/run/groundswell-helper/helper.sock\"", "\"helper.sock\"")
            .replace("user = \"groundswell\"", &format!("user = \"{uid}\""))
            .replace("group = \"groundswell\"", &format!("group = \"{gid}\""));
        let config = HelperConfig::parse(&folder.path().join("helper.toml"), &text).unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(helper::run(config, patience, None, async {
            let _ = stopped.await;
        }));
        let running = Self { folder, stop, task };
        while !running.socket().exists() {
            assert!(!running.task.is_finished(), "the helper ended before it ran");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("helper.sock")
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).await.unwrap()
    }

    async fn answers(&self) {
        assert!(matches!(ask(&mut self.connect().await).await, Reply::State(_)));
    }

    async fn end(self) {
        let _ = self.stop.send(());
        timeout(PATIENCE, self.task).await.expect("it ends").unwrap().unwrap();
        assert!(!Path::new(&self.folder.path().join("helper.sock")).exists());
    }
}

async fn ask(stream: &mut UnixStream) -> Reply {
    channel::write(stream, Kind::Order, &order(), None).await.unwrap();
    let frame = timeout(PATIENCE, channel::read(stream, &[Kind::Reply])).await.expect("an answer").unwrap().unwrap();
    decode_reply(&frame.body).unwrap()
}

/// Reads until the other side ends the connection.
async fn ended(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    // It may have hung up on bytes that it had not read.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the connection ends");
}

#[tokio::test]
async fn a_header_that_never_comes_whole_ends_the_connection() {
    let helper = Running::start(SHORT).await;
    let mut slow = helper.connect().await;
    slow.write_all(&framed(&order())[..3]).await.unwrap();
    helper.answers().await;
    ended(&mut slow).await;
    helper.answers().await;
    helper.end().await;
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_ends_the_connection() {
    let helper = Running::start(SHORT).await;
    let (mut slow, mut drip) = helper.connect().await.into_split();
    drip.write_all(&Header { kind: Kind::Document, length: 200_000 }.encode()).await.unwrap();
    // Each byte alone comes in good time; all of them together never would.
    let dripping = async {
        while drip.write_all(b"{").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, dripping).await.expect("the helper hangs up");
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    helper.answers().await;
    helper.end().await;
}

#[tokio::test]
async fn a_connection_without_a_frame_ends() {
    let helper = Running::start(SHORT).await;
    let mut idle = helper.connect().await;
    assert!(matches!(ask(&mut idle).await, Reply::State(_)));
    ended(&mut idle).await;
    helper.end().await;
}

#[tokio::test]
async fn a_connection_may_stand_for_longer_than_a_frame_may_take() {
    let helper = Running::start(Patience { idle: PATIENCE, ..SHORT }).await;
    let mut stands = helper.connect().await;
    for _ in 0..2 {
        assert!(matches!(ask(&mut stands).await, Reply::State(_)));
        let mut byte = [0];
        let ends = timeout(5 * SHORT.frame, stands.read(&mut byte)).await;
        assert!(ends.is_err(), "the helper has ended it: {ends:?}");
    }
    helper.end().await;
}

#[tokio::test]
async fn who_asks_and_never_reads_the_answers_is_hung_up_on() {
    let helper = Running::start(SHORT).await;
    let mut deaf = helper.connect().await;
    let asking = async { while deaf.write_all(&framed(&order())).await.is_ok() {} };
    timeout(PATIENCE, asking).await.expect("the helper hangs up");
    helper.answers().await;
    helper.end().await;
}

#[tokio::test]
async fn a_helper_that_is_told_to_stop_ends_open_connections() {
    let helper = Running::start(Patience::default()).await;
    let mut open = helper.connect().await;
    assert!(matches!(ask(&mut open).await, Reply::State(_)));
    helper.end().await;
    ended(&mut open).await;
}
