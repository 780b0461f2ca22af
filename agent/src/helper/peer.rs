//! One connection of the helper's socket, on a thread of its own: what comes, what is answered, and when it ends.
//!
//! Everything that a peer can make last is done here: reading, for the kernel closes open files that come where none is
//! expected; looking at an open file; and closing it, and the connection with what lies in it unread. What is asked for is
//! carried out elsewhere.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use groundswell_core::limits::DOCUMENT_BYTES;
use groundswell_core::text::Reason;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::runtime::{self, Handle};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::account::Account;
use super::channel::{self, Frame, ReadError};
use super::server::{Shared, stopping};
use super::wire::{FrameError, Kind, Order, Reply, Why, decode_order, encode_reply};

/// Stack of a connection's thread.
const STACK_BYTES: usize = 512 * 1024;

/// Gives a connection a thread, which holds `permit` until it has ended, and waits for that; a panic there goes on here.
pub(super) async fn admit(shared: Arc<Shared>, account: Account, stream: UnixStream, permit: OwnedSemaphorePermit) {
    let (told, ended) = oneshot::channel();
    let main = Handle::current();
    // From here on nothing but the thread holds it: what it has not read is closed with it.
    let stream = match stream.into_std() {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(%error, "a connection is lost"),
    };
    let named = thread::Builder::new().name("swell-peer".to_owned()).stack_size(STACK_BYTES);
    let started = named.spawn(move || {
        let served = catch_unwind(AssertUnwindSafe(|| Peer { shared, account, main }.live(stream)));
        drop(permit);
        // Nobody waits for it any more once the helper stops.
        drop(told.send(served));
    });
    if let Err(error) = started {
        return tracing::warn!(%error, "no thread for a connection: it is lost");
    }
    match ended.await {
        Ok(Ok(Ok(()))) | Err(_) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "a connection is lost"),
        Ok(Err(panic)) => resume_unwind(panic),
    }
}

/// The thread of one connection.
struct Peer {
    shared: Arc<Shared>,
    /// Who is answered.
    account: Account,
    /// Where orders are carried out.
    main: Handle,
}

/// A frame, and the right to hold one as large as a roster: the space for it. Were it taken anew each time, each thread would
/// keep as much.
struct Taken {
    frame: Frame,
    turn: Option<OwnedMutexGuard<Vec<u8>>>,
}

impl Peer {
    fn live(&self, stream: StdStream) -> io::Result<()> {
        runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let stream = UnixStream::from_std(stream)?;
            if self.knows(&stream) {
                match self.shared.places.try_acquire() {
                    Ok(_place) => self.serve(stream).await,
                    Err(_) => self.turn_away(stream).await,
                }
            }
            Ok(())
        })
    }

    fn knows(&self, stream: &UnixStream) -> bool {
        let Account { uid, gid } = self.account;
        match stream.peer_cred() {
            Ok(peer) if (peer.uid(), peer.gid()) == (uid, gid) => return true,
            Ok(peer) => tracing::warn!(uid = peer.uid(), gid = peer.gid(), pid = peer.pid(), "not the agent: not answered"),
            Err(error) => tracing::warn!(%error, "nobody knows who this is: not answered"),
        }
        false
    }

    /// Answers until the connection ends, errs, or idles.
    async fn serve(&self, mut stream: UnixStream) {
        let mut stopping = self.shared.stopping.clone();
        loop {
            let taken = tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                taken = self.next(&mut stream) => taken,
            };
            // The file is closed once the answer is written: closing may take as long as the peer likes.
            let (reply, _file) = match taken {
                Ok(Some(Taken { frame, turn })) => match self.answer(frame, turn, &stream).await {
                    Some(answer) => answer,
                    None => return tracing::debug!("a connection ended before its order was begun"),
                },
                Ok(None) => return,
                Err(ReadError::Io(error)) => return tracing::debug!(%error, "a connection ended"),
                Err(ReadError::Frame(error)) => (not_a_frame(&error), None),
            };
            let ends = matches!(reply, Reply::Refused { why: Why::Frame, .. });
            if let Reply::Refused { why, text } = &reply {
                tracing::info!(?why, "refused: {}", text.as_str());
            }
            if !self.write(&mut stream, &reply).await || ends {
                return;
            }
        }
    }

    /// The next frame: its first byte may take long, the rest may not. How long a large one waits for its turn is not the
    /// peer's fault, and bounded by what those before it take.
    async fn next(&self, stream: &mut UnixStream) -> Result<Option<Taken>, ReadError> {
        let late = |_| ReadError::Io(io::ErrorKind::TimedOut.into());
        let patience = self.shared.patience;
        timeout(patience.idle, something_comes(stream)).await.map_err(late)??;
        let expected = [Kind::Document, Kind::Order];
        let opening = timeout(patience.frame, channel::read_header(stream, &expected)).await.map_err(late)??;
        let Some(opening) = opening else { return Ok(None) };
        if opening.length() <= DOCUMENT_BYTES {
            let frame = timeout(patience.frame, channel::read_body(stream, opening)).await.map_err(late)??;
            return Ok(Some(Taken { frame, turn: None }));
        }
        let mut space = tokio::select! {
            space = Arc::clone(&self.shared.large).lock_owned() => space,
            () = hung_up(stream) => return Ok(None),
        };
        let read = channel::read_body_into(stream, opening, &mut space);
        let (kind, file) = timeout(patience.frame, read).await.map_err(late)??;
        let frame = Frame { kind, body: std::mem::take(&mut *space), file };
        Ok(Some(Taken { frame, turn: Some(space) }))
    }

    /// The answer, and the open file that came, to be closed here. The space of a large frame goes back before the next one
    /// has its `turn`. `None` when the peer hung up while others were before it: nothing was begun.
    async fn answer(
        &self,
        frame: Frame,
        turn: Option<OwnedMutexGuard<Vec<u8>>>,
        stream: &UnixStream,
    ) -> Option<(Reply, Option<File>)> {
        let Frame { kind, body, file } = frame;
        if kind == Kind::Document {
            let shared = Arc::clone(&self.shared);
            let taken = self.elsewhere(async move { shared.take(body).await }).await;
            let (reply, space) = taken.unwrap_or_else(|| (stopping(), Vec::new()));
            if let Some(mut turn) = turn {
                *turn = space;
            }
            return Some((reply, file));
        }
        let order = match decode_order(&body) {
            Ok(order) => order,
            Err(error) => return Some((not_a_frame(&error), file)),
        };
        if file.is_some() && !matches!(order, Order::Stage { .. }) {
            return Some((not_a_frame(&FrameError::File), file));
        }
        let turn = tokio::select! {
            turn = self.shared.turn(order.product()) => turn,
            () = hung_up(stream) => return None,
        };
        let Some(turn) = turn else {
            let text = format!("{} is not in this helper's configuration", order.product());
            return Some((Reply::Refused { why: Why::Product, text: Reason::lossy(&text) }, file));
        };
        let shared = Arc::clone(&self.shared);
        let carried_out = self.elsewhere(async move { shared.carry_out(turn, order, file).await }).await;
        Some(carried_out.unwrap_or_else(|| (stopping(), None)))
    }

    /// In a task of its own: what was begun is finished, whether or not the agent lives to hear of it. `None` when the helper
    /// ends.
    async fn elsewhere<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        match self.main.spawn(work).await {
            Ok(done) => Some(done),
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }

    async fn turn_away(&self, mut stream: UnixStream) {
        // One that does not listen needs no answer.
        self.write(&mut stream, &Reply::Refused { why: Why::Busy, text: Reason::lossy("too many connections") }).await;
    }

    /// Whether the peer took it in time.
    async fn write(&self, stream: &mut UnixStream, reply: &Reply) -> bool {
        let reply = encode_reply(reply);
        let written = timeout(self.shared.patience.frame, channel::write(stream, Kind::Reply, &reply, None)).await;
        matches!(written, Ok(Ok(())))
    }
}

/// Until there is something to be read, or nothing will come. What was once ready counts as that until it was looked at, so this
/// looks.
async fn something_comes(stream: &UnixStream) -> io::Result<()> {
    let peek = || Ok(recv(stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT).map(drop)?);
    stream.async_io(Interest::READABLE, peek).await
}

/// Until the peer has hung up altogether. One that says more before it is answered, or only that it will say no more, is not
/// watched any longer.
async fn hung_up(stream: &UnixStream) {
    let peek = || Ok(recv(stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.1);
    match stream.async_io(Interest::READABLE, peek).await {
        // Nothing is sent by this; it fails where nobody could read it.
        Ok(0) if send(stream, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_err() => {}
        Ok(_) => std::future::pending().await,
        Err(_) => {}
    }
}

fn not_a_frame(error: &FrameError) -> Reply {
    Reply::Refused { why: Why::Frame, text: Reason::lossy(&error.to_string()) }
}
