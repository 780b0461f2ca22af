//! A peer that makes whoever touches what it sends wait, and documents as large as there are, many at once: others are
//! answered meanwhile, and the memory stays bounded.

use std::io::{ErrorKind, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use groundswell_agent::helper::server::CONNECTIONS;
use groundswell_agent::helper::wire::{HEADER_BYTES, Header, Kind, Order, Outcome, Reply, Why, encode_order};
use groundswell_core::limits::PUBLISHED_ROSTER_BYTES;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use super::bench::{Bench, Client, PATIENCE, outcome, refused};
use super::world::{product, program};

/// A connection whose close waits for an hour: what is written to it is never read.
struct Lingering {
    socket: OwnedFd,
    deaf: TcpStream,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (deaf, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        loop {
            match near.write(&[1; 64 * 1024]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        near.set_nonblocking(false).unwrap();
        set_socket_linger(&near, Some(Duration::from_secs(3_600))).unwrap();
        Self { socket: near.into(), deaf }
    }

    /// Sends these bytes with the connection beside them, whose last owner is whoever receives it: the helper stands still until
    /// it is let go here, for a helper that closed it first would leave the waiting to this test.
    async fn sent_with(self, bench: &Bench, client: &Client, bytes: &[u8]) -> TcpStream {
        client.stream().writable().await.unwrap();
        let _stopped = Stopped::new(bench.process());
        let files = [self.socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        if sendmsg(client.stream(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).is_err() {
            // It was hung up on: whoever closes it now is this test.
            set_socket_linger(&self.socket, None).unwrap();
        }
        drop(self.socket);
        self.deaf
    }
}

/// A process that stands still until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: u32) -> Self {
        let pid = Pid::from_raw(process.try_into().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = Self(pid);
        let stands = |task: &Path| {
            // The state stands behind the name, which is in parentheses.
            let stat = std::fs::read_to_string(task.join("stat"));
            stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
        };
        let threads = || std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|task| task.unwrap().path());
        while !threads().all(|task| stands(&task)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

fn frame(order: &Order) -> Vec<u8> {
    let body = encode_order(order);
    [Header { kind: Kind::Order, length: body.len() }.encode().to_vec(), body].concat()
}

#[tokio::test]
async fn a_socket_that_lingers_in_the_place_of_the_artifact_holds_nobody_up() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.client().await;
    for document in bench.world.published(&papers) {
        client.document(&document).await;
    }
    let order = frame(&Order::Stage { product: product(), release: papers.id() });
    let _deaf = Lingering::new().sent_with(&bench, &client, &order).await;
    refused(&client.reply().await.unwrap(), Why::File, "not a regular file");
    assert_eq!(client.state().await.floor.get(), 0, "the same connection goes on");
    assert_eq!(bench.client().await.state().await.floor.get(), 0);
}

#[tokio::test]
async fn connections_that_hang_in_what_they_were_sent_hold_up_nobody_but_themselves() {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let frame = frame(&Order::State { product: product() });
    let (header, body) = frame.split_at(HEADER_BYTES);
    let (mut hanging, mut deaf) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS - 5 {
        let mut client = bench.client().await;
        client.raw(header).await;
        // Where no open file is expected the kernel closes it, within the call that reads.
        deaf.push(Lingering::new().sent_with(&bench, &client, body).await);
        hanging.push(client);
    }
    // One more is closed with what it never read.
    let mut refuses = bench.client().await;
    refuses.raw(&[9; HEADER_BYTES]).await;
    deaf.push(Lingering::new().sent_with(&bench, &refuses, body).await);
    let mut client = bench.installed(&papers, &program(1)).await;
    assert_eq!(client.state().await.floor.get(), 1, "an install is begun and confirmed meanwhile");
    let two = bench.world.papers(2);
    let mut client = bench.staged(&two, &program(2)).await;
    assert_eq!(outcome(&client.activate(two.id()).await), &Outcome::Activated);
    assert!(matches!(outcome(&client.revert(two.id()).await), Outcome::Reverted { .. }));
}

#[tokio::test]
async fn those_who_hang_up_while_others_are_before_them_take_nobodys_place() {
    let mut bench = Bench::prepare("", "");
    let wait = "touch HOME/there; until test -e HOME/go; do sleep 0.01; done".replace("HOME", &bench.home());
    bench.append(&format!("[product.bcd.hooks]\nafter-activate = [\"/bin/sh\", \"-c\", \"{wait}\"]\n"));
    bench.start();
    let papers = bench.world.papers(1);
    let mut client = bench.staged(&papers, &program(1)).await;
    let under_way = tokio::spawn(async move { client.activate(papers.id()).await });
    super::bench::appears(&bench.path("there")).await;
    let state = frame(&Order::State { product: product() });
    // More than there are places, a few at a time: each asks, and hangs up unanswered.
    for _ in 0..3 {
        let mut asked = Vec::new();
        for _ in 0..CONNECTIONS - 2 {
            let mut client = bench.client().await;
            client.raw(&state).await;
            asked.push(client);
        }
    }
    // One that only says that it will say no more is answered in its turn.
    let mut patient = bench.client().await;
    patient.raw(&state).await;
    patient.end().await;
    let fleet = bench.world.sign_fleet(&bench.world.fleet());
    let answered = async {
        // Turned away while the helper still finds out who has gone.
        while let Reply::Refused { why: Why::Busy, .. } = bench.client().await.document(&fleet).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("there is a place");
    std::fs::write(bench.path("go"), "").unwrap();
    assert_eq!(outcome(&under_way.await.unwrap()), &Outcome::Activated);
    assert!(matches!(patient.reply().await, Some(Reply::State(_))));
}

/// The most memory that a process has had, in bytes.
fn most_memory(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn as_many_rosters_at_once_as_there_are_connections_take_the_memory_of_one() {
    let bench = Bench::running();
    // A body as long as there can be one; it is read, decoded and refused.
    let head = r#"{"groundswell.roster":""#;
    let tail = r#"","signatures":[]}"#;
    let body = (PUBLISHED_ROSTER_BYTES - head.len() - tail.len()) / 4 * 4;
    let document = format!("{head}{}{tail}", "e30x".repeat(body / 4)).into_bytes();
    bench.client().await.state().await;
    let before = most_memory(bench.process());
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (mut client, document) = (bench.client().await, document.clone());
        tasks.spawn(async move { client.document(&document).await });
    }
    while let Some(reply) = tasks.join_next().await {
        refused(&reply.unwrap(), Why::Document, "");
    }
    let more = most_memory(bench.process()).saturating_sub(before);
    // One that is read and decoded takes four to five times its length; all at once would take more than forty.
    assert!(more < 8 * PUBLISHED_ROSTER_BYTES, "{CONNECTIONS} rosters took {more} bytes");
}
