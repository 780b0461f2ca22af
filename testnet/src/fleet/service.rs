//! The sample service: a small HTTP service, one real executable file per version.
//!
//! A version is a copy of this program with a few bytes behind it ([`write_version`]): the version, and how it behaves.
//! It serves `/health` on the port in its environment, and tells a [`super::witness`] when it serves.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

/// Environment: the port on 127.0.0.1.
pub const PORT: &str = "SAMPLE_PORT";
/// Environment: the witness's socket.
pub const WITNESS: &str = "SAMPLE_WITNESS";
/// Environment: the node's name.
pub const NODE: &str = "SAMPLE_NODE";

const MAGIC: &[u8; 8] = b"GSSAMPLE";
/// Longest description behind the program, in bytes.
const TRAILER_BYTES: u64 = 4096;

/// How a version behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Behaviour {
    /// It works.
    #[default]
    Good,
    /// It starts, and its health check fails.
    Unhealthy,
    /// It ends by itself soon after its start.
    Crash,
    /// It serves only after some seconds.
    SlowStart,
    /// It works for some seconds, then its health check fails.
    Regress,
}

/// How long [`Behaviour::SlowStart`] takes.
pub const SLOW_START: Duration = Duration::from_secs(3);
/// When [`Behaviour::Crash`] ends.
const CRASH_AFTER: Duration = Duration::from_millis(300);
/// When [`Behaviour::Regress`] turns unhealthy.
pub const REGRESS_AFTER: Duration = Duration::from_secs(3);

/// What stands behind the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version.
    pub version: String,
    /// How it behaves.
    pub behaviour: Behaviour,
}

/// What the service tells its witness, one JSON object per line. The end of the connection is the end of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// The node's name.
    pub node: String,
    /// The version.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Whether it serves and is healthy.
    pub healthy: bool,
}

/// Writes an executable of `description`: `program` (this very program) with `padding_bytes` and the description behind it.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write_version(program: &Path, path: &Path, description: &Description, padding_bytes: usize) -> io::Result<()> {
    let mut bytes = std::fs::read(program)?;
    // Other bytes in each version, or there would be little to fetch between two of them.
    let mut padding = blake3::Hasher::new().update(description.version.as_bytes()).finalize_xof();
    let end = bytes.len();
    bytes.resize(end + padding_bytes, 0);
    padding.fill(bytes.split_at_mut(end).1);
    let text = serde_json::to_vec(description).expect("plain fields always have a JSON form");
    bytes.extend_from_slice(&text);
    bytes.extend_from_slice(&u64::try_from(text.len()).expect("a short text").to_le_bytes());
    bytes.extend_from_slice(MAGIC);
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o755).open(path)?;
    file.write_all(&bytes)?;
    file.sync_all()
}

/// The description behind an executable; `None` when there is none.
///
/// # Errors
/// When the file cannot be read.
pub fn read_description(path: &Path) -> io::Result<Option<Description>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut foot = [0; 16];
    if size < 16 {
        return Ok(None);
    }
    file.seek(SeekFrom::End(-16))?;
    file.read_exact(&mut foot)?;
    let (length, magic) = foot.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("half of 16 bytes"));
    if magic != MAGIC || length > TRAILER_BYTES || length + 16 > size {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(size - 16 - length))?;
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// Runs the service until SIGTERM, or until the harness is gone.
///
/// # Errors
/// When the environment or the program's trailer is not there, or the port cannot be used.
pub async fn run() -> io::Result<()> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let description =
        read_description(&std::env::current_exe()?)?.ok_or_else(|| wrong("this program is no version of the sample service"))?;
    let port: u16 = std::env::var(PORT).ok().and_then(|port| port.parse().ok()).ok_or_else(|| wrong("SAMPLE_PORT is no port"))?;
    let witness = std::env::var_os(WITNESS).map(PathBuf::from);
    let node = std::env::var(NODE).unwrap_or_default();
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = serve(description, port, node, witness) => ended,
        _ = terminated.recv() => Ok(()),
    }
}

async fn serve(description: Description, port: u16, node: String, witness: Option<PathBuf>) -> io::Result<()> {
    let mut witness = match witness {
        Some(path) => Some(UnixStream::connect(path).await?),
        None => None,
    };
    let Description { version, behaviour } = description;
    let word = |healthy| Word { node: node.clone(), version: version.clone(), pid: std::process::id(), healthy };
    tell(&mut witness, &word(false)).await?;
    match behaviour {
        Behaviour::SlowStart => tokio::time::sleep(SLOW_START).await,
        Behaviour::Crash => {
            tokio::time::sleep(CRASH_AFTER).await;
            return Err(io::Error::other(format!("sample service {version} cannot find its database")));
        }
        Behaviour::Good | Behaviour::Unhealthy | Behaviour::Regress => {}
    }
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let (healthy, watched) = tokio::sync::watch::channel(behaviour != Behaviour::Unhealthy);
    tell(&mut witness, &word(*watched.borrow())).await?;
    let regress = async {
        if behaviour == Behaviour::Regress {
            tokio::time::sleep(REGRESS_AFTER).await;
            healthy.send_replace(false);
        }
        std::future::pending::<()>().await;
    };
    let mut serving = tokio::task::JoinSet::new();
    tokio::pin!(regress);
    let (mut gone, mut pipe) = match witness {
        Some(stream) => {
            let (read, write) = stream.into_split();
            (Some(read), Some(write))
        }
        None => (None, None),
    };
    let mut changed = watched.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let (version, watched) = (version.clone(), watched.clone());
                serving.spawn(async move {
                    let answer = service_fn(move |request| std::future::ready(answer(&request, &version, *watched.borrow())));
                    // A client that breaks off is the client's affair.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
            Some(_) = serving.join_next() => {}
            () = &mut regress => {}
            Ok(()) = changed.changed() => {
                let line = line(&word(*watched.borrow()));
                if let Some(pipe) = &mut pipe { pipe.write_all(&line).await?; }
            }
            // The witness holds the connection for as long as it lives.
            () = end_of(&mut gone) => return Ok(()),
        }
    }
}

async fn end_of(stream: &mut Option<tokio::net::unix::OwnedReadHalf>) {
    let Some(stream) = stream else { return std::future::pending().await };
    let mut byte = [0];
    while !matches!(stream.read(&mut byte).await, Ok(0) | Err(_)) {}
}

async fn tell(witness: &mut Option<UnixStream>, word: &Word) -> io::Result<()> {
    match witness {
        Some(stream) => stream.write_all(&line(word)).await,
        None => Ok(()),
    }
}

fn line(word: &Word) -> Vec<u8> {
    let mut line = serde_json::to_vec(word).expect("plain fields always have a JSON form");
    line.push(b'\n');
    line
}

fn answer<B>(request: &Request<B>, version: &str, healthy: bool) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let (status, text) = match request.uri().path() {
        "/health" if healthy => (StatusCode::OK, format!("{version} works\n")),
        "/health" => (StatusCode::SERVICE_UNAVAILABLE, format!("{version} lost its database\n")),
        "/" => (StatusCode::OK, format!("sample service {version}\n")),
        _ => (StatusCode::NOT_FOUND, "nothing here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_back_from_behind_the_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, path) = (folder.path().join("program"), folder.path().join("svc"));
        std::fs::write(&program, b"not really a program").expect("written");
        let description = Description { version: "2.0.0".to_owned(), behaviour: Behaviour::Unhealthy };
        write_version(&program, &path, &description, 1_000).expect("written");
        assert_eq!(read_description(&path).expect("read"), Some(description));
        assert_eq!(read_description(&program).expect("read"), None);
    }
}
