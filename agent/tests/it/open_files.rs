//! Open files whose close hangs, sent where nobody asked for one: whoever gets them waits for nothing.

use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use groundswell_agent::api;
use groundswell_agent::api::client::Client;
use groundswell_agent::blobs::{BlobStore, Settings};
use groundswell_agent::events::EventLog;
use groundswell_agent::handle::Handle;
use groundswell_agent::supervise::notify::{ALIVE, Heard, Listener};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::getpid;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use crate::workshop::PATIENCE;

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

    /// Sends these bytes with so many of its descriptors beside them. What lies there unread is its last owner from then on.
    fn sent_with(self, socket: impl AsFd, bytes: &[u8], times: usize) -> TcpStream {
        let files = vec![self.socket.as_fd(); times];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        self.deaf
    }
}

/// Runs it on a thread, for it stands still for an hour where it waits for a close.
fn does_not_hang(what: impl FnOnce(&Runtime) + Send + 'static) {
    let (done, told) = channel();
    let running = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _in_it = runtime.enter();
        what(&runtime);
        done.send(()).unwrap();
    });
    if told.recv_timeout(PATIENCE).is_err() {
        // It has panicked, or hangs.
        assert!(running.is_finished(), "it waits for a close");
    }
    running.join().unwrap();
}

#[test]
fn the_local_api_answers_others_whatever_one_caller_sends_and_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    does_not_hang(move |runtime| {
        runtime.block_on(async {
            let settings = Settings { folder: folder.path().join("blobs"), quota_bytes: 1 << 20, reserve_bytes: 0 };
            let blobs = BlobStore::open(settings).unwrap();
            let (handle, _requests) = Handle::new(Arc::new(EventLog::default()));
            let (stop, stopped) = watch::channel(false);
            let bound = api::bind(&path).unwrap();
            // They are there before anybody reads: nobody else has what they sent.
            let mut callers = Vec::new();
            for (bytes, times) in [(&b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"[..], 1), (b"G", 253)] {
                let caller = UnixStream::connect(&path).unwrap();
                let deaf = Lingering::new().sent_with(&caller, bytes, times);
                callers.push((caller, deaf));
            }
            // This one is closed with what it never read: it is refused before that.
            let mut refused = UnixStream::connect(&path).unwrap();
            refused.write_all(b"what is no request\r\n\r\n").unwrap();
            let deaf = Lingering::new().sent_with(&refused, b"unread", 1);
            let serving = tokio::spawn(api::serve(bound, handle, blobs, stopped));
            let client = Client::new(&path);
            assert!(client.get::<Vec<serde_json::Value>>("/v1/events").await.unwrap().is_empty());
            for (mut caller, _deaf) in callers {
                let ended = tokio::task::spawn_blocking(move || caller.read(&mut [0; 1024]));
                assert!(matches!(ended.await.unwrap(), Ok(0) | Err(_)), "its connection is ended, and nothing is answered");
            }
            let ended = tokio::task::spawn_blocking(move || (refused.read_to_end(&mut Vec::new()), deaf));
            // That it was told why, or that it was hung up on.
            let _ = ended.await.unwrap();
            assert!(client.get::<Vec<serde_json::Value>>("/v1/events").await.unwrap().is_empty());
            stop.send_replace(true);
            serving.await.unwrap();
        });
    });
}

#[test]
fn a_supervisor_hears_no_agent_that_sends_open_files_and_lets_it_go_at_once() {
    does_not_hang(|runtime| {
        let (listener, end) = Listener::pair().unwrap();
        let end = UnixDatagram::from(end);
        end.send(ALIVE.as_bytes()).unwrap();
        assert_eq!(runtime.block_on(listener.hear(getpid())), [Heard::Alive]);
        let _first = Lingering::new().sent_with(&end, ALIVE.as_bytes(), 1);
        assert_eq!(runtime.block_on(listener.hear(getpid())), []);
        end.send(ALIVE.as_bytes()).unwrap();
        assert_eq!(listener.heard(getpid()), [], "it is silent from then on");
        let _unread = Lingering::new().sent_with(&end, ALIVE.as_bytes(), 253);
        drop(listener);
    });
}
