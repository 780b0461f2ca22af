//! Connections for probes: whether something listens, and whether a failure can be the network's alone.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::judge::Verdict;
use crate::config::TcpTarget;

/// Connects once, within `limit`.
///
/// Refused by this machine is the version's fault; on another machine it can be the network's (case I6).
pub async fn probe(target: &TcpTarget, limit: Duration) -> Verdict {
    let name = format!("{}:{}", target.host, target.port);
    let mut local = false;
    let why = match timeout(limit, reach(&target.host, target.port, &mut local)).await {
        Ok(Ok(_)) => return Verdict::Pass,
        Ok(Err(why)) => why,
        Err(_) => format!("no connection within {} ms", limit.as_millis()),
    };
    if local {
        Verdict::Fail(format!("{name}: {why}"))
    } else {
        Verdict::Unclear(format!("{name}, which is not on this machine: {why}"))
    }
}

/// Connects. `local` is set once it is known that the target is on this machine.
pub(super) async fn reach(host: &str, port: u16, local: &mut bool) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> =
        lookup_host((host, port)).await.map_err(|error| format!("cannot resolve the name: {error}"))?.collect();
    *local = addresses.iter().all(is_local) && !addresses.is_empty();
    connect(&addresses).await.map_err(|error| format!("cannot connect: {error}"))
}

async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// An address is this machine's own when a socket can be bound to it.
fn is_local(address: &SocketAddr) -> bool {
    address.ip().is_loopback() || UdpSocket::bind((address.ip(), 0)).is_ok()
}
