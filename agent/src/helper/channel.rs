//! Frames over a unix socket, and open files beside them (SCM_RIGHTS). Both ends use this.
//!
//! An open file comes with the first byte of a header, one at most; those that come anywhere else are closed by the
//! kernel unread, within the call that reads. Nothing here has a time limit: who calls puts one around it. Closing an open
//! file may take as long as who sent it likes, though a socket that comes is told not to linger.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;

use super::wire::{FrameError, HEADER_BYTES, Header, Kind};

/// A frame that has arrived whole.
#[derive(Debug)]
pub struct Frame {
    /// What it carries.
    pub kind: Kind,
    /// Its body.
    pub body: Vec<u8>,
    /// The open file that came with it.
    pub file: Option<File>,
}

/// Why no frame was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The other side sent what is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection broke, or ended inside a frame.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
}

/// A header, and what came with it.
#[derive(Debug)]
pub struct Opening {
    header: Header,
    file: Option<File>,
}

impl Opening {
    /// Bytes of the body that follows, within the bound of its kind.
    #[must_use]
    pub fn length(&self) -> usize {
        self.header.length
    }
}

/// Reads a header; `None` when the other side has ended the connection before it. Not cancel safe.
///
/// # Errors
/// [`ReadError`].
pub async fn read_header(stream: &mut UnixStream, expected: &[Kind]) -> Result<Option<Opening>, ReadError> {
    let mut bytes = [0; HEADER_BYTES];
    let mut have = 0;
    let mut files: Vec<OwnedFd> = Vec::new();
    while have < HEADER_BYTES {
        let rest = bytes.get_mut(have..).unwrap_or_default();
        let (read, more) = receive(stream, rest).await?;
        if read == 0 {
            return if have == 0 { Ok(None) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) };
        }
        have += read;
        files.extend(more);
        // At most one is kept open, whatever comes.
        if files.len() > 1 {
            return Err(FrameError::File.into());
        }
    }
    let header = Header::decode(bytes, expected)?;
    let file = files.pop().map(File::from);
    if file.is_some() && header.kind != Kind::Order {
        return Err(FrameError::File.into());
    }
    Ok(Some(Opening { header, file }))
}

/// Reads the body that a header announces. Not cancel safe.
///
/// # Errors
/// What the socket says; `UnexpectedEof` when it ends before.
pub async fn read_body(stream: &mut UnixStream, opening: Opening) -> Result<Frame, ReadError> {
    let mut body = Vec::new();
    let (kind, file) = read_body_into(stream, opening, &mut body).await?;
    Ok(Frame { kind, body, file })
}

/// The same into `body`, whose space is used again and whose content goes. What it carries, and the file that came with it.
///
/// # Errors
/// As [`read_body`].
pub async fn read_body_into(
    stream: &mut UnixStream,
    opening: Opening,
    body: &mut Vec<u8>,
) -> Result<(Kind, Option<File>), ReadError> {
    let Opening { header: Header { kind, length }, file } = opening;
    body.clear();
    body.resize(length, 0);
    stream.read_exact(body).await?;
    Ok((kind, file))
}

/// Reads the next frame, as [`read_header`] and [`read_body`] do.
///
/// # Errors
/// [`ReadError`].
pub async fn read(stream: &mut UnixStream, expected: &[Kind]) -> Result<Option<Frame>, ReadError> {
    match read_header(stream, expected).await? {
        Some(opening) => read_body(stream, opening).await.map(Some),
        None => Ok(None),
    }
}

/// Writes a frame, with an open file beside it where one is given. Not cancel safe.
///
/// # Errors
/// `InvalidInput` when the body is longer than its kind may be; otherwise what the socket says.
pub async fn write(stream: &mut UnixStream, kind: Kind, body: &[u8], file: Option<&File>) -> io::Result<()> {
    if body.len() > kind.most_bytes() {
        let told = format!("{} bytes; at most {} are taken of this kind", body.len(), kind.most_bytes());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, told));
    }
    let header = Header { kind, length: body.len() }.encode();
    let sent = match file {
        Some(file) => {
            let socket: &UnixStream = stream;
            socket.async_io(Interest::WRITABLE, || send(socket, &header, file)).await?
        }
        None => 0,
    };
    stream.write_all(header.get(sent..).unwrap_or_default()).await?;
    stream.write_all(body).await?;
    stream.flush().await
}

fn send(stream: &UnixStream, bytes: &[u8], file: &File) -> io::Result<usize> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("there is no room for one open file"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

async fn receive(stream: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    stream
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut *into)];
            let received = recvmsg(stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let files = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            });
            let files: Vec<OwnedFd> = files.flatten().collect();
            for file in &files {
                // Where it is no socket there is nothing to be told.
                let _ = set_socket_linger(file, None);
            }
            Ok((received.bytes, files))
        })
        .await
}
