//! Connections for probes: whether something listens, and whether a failure can be the network's alone.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::judge::Verdict;
use super::names::Names;
use crate::config::TcpTarget;
use crate::scarcity::is_scarcity;

/// Connects once, within `limit`.
///
/// Refused by this machine is the version's fault; on another machine it can be the network's (case I6).
pub async fn probe(target: &TcpTarget, limit: Duration, names: &Names) -> Verdict {
    let name = format!("{}:{}", target.host, target.port);
    let mut site = Site::Unknown;
    let why = match timeout(limit, reach(&target.host, target.port, names, &mut site)).await {
        Ok(Ok(_)) => return Verdict::Pass,
        Ok(Err(why)) => why,
        Err(_) => format!("no connection within {} ms", limit.as_millis()),
    };
    site.judge(&name, &why)
}

/// Where a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Site {
    /// It cannot be told, or this agent has not what it takes to ask.
    #[default]
    Unknown,
    /// On this machine.
    Here,
    /// On another one.
    Elsewhere,
}

impl Site {
    /// What it means that a target did not answer.
    pub(super) fn judge(self, name: &str, why: &str) -> Verdict {
        match self {
            Self::Here => Verdict::Fail(format!("{name}: {why}")),
            Self::Elsewhere => Verdict::Unclear(format!("{name}, which is not on this machine: {why}")),
            Self::Unknown => Verdict::Unclear(format!("{name}: {why}")),
        }
    }
}

/// Connects. `site` is set once it is known where the target is.
pub(super) async fn reach(host: &str, port: u16, names: &Names, site: &mut Site) -> Result<TcpStream, String> {
    let addresses = names.resolve(host, port).await?;
    *site = whereabouts(&addresses);
    connect(&addresses).await.map_err(|error| {
        if is_scarcity(&error) {
            *site = Site::Unknown;
        }
        format!("cannot connect: {error}")
    })
}

/// Here is only what is here by all its addresses.
fn whereabouts(addresses: &[SocketAddr]) -> Site {
    let mut site = Site::Unknown;
    for address in addresses {
        match is_local(address) {
            Ok(true) => site = Site::Here,
            Ok(false) => return Site::Elsewhere,
            Err(_) => return Site::Unknown,
        }
    }
    site
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

/// An address is this machine's own when the way to it begins there: the kernel says which of its addresses a socket to it has.
/// Nothing is sent for that. Whether one can be bound to it says less: `ip_nonlocal_bind` lets it be bound to any.
fn is_local(address: &SocketAddr) -> io::Result<bool> {
    if address.ip().is_loopback() || address.ip().is_unspecified() {
        return Ok(true);
    }
    let from: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let way = UdpSocket::bind((from, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    match way {
        Ok(own) => Ok(own.ip() == address.ip()),
        // No way to it, or no address of its kind to begin at, so it is not here.
        Err(error) if !is_scarcity(&error) || error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_only_an_address_of_this_machine_is_here() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for here in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "0.0.0.0:1"] {
            assert_eq!(whereabouts(&[at(here)]), Site::Here, "{here}");
        }
        // Addresses for documentation, which no machine has.
        for elsewhere in ["192.0.2.1:1", "[2001:db8::1]:1"] {
            assert_eq!(whereabouts(&[at(elsewhere)]), Site::Elsewhere, "{elsewhere}");
            assert_eq!(whereabouts(&[at("127.0.0.1:1"), at(elsewhere)]), Site::Elsewhere, "{elsewhere}");
        }
        assert_eq!(whereabouts(&[]), Site::Unknown);
        // Where this machine has an address to others, it is here too.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:1").is_ok() {
            let own = socket.local_addr().unwrap();
            assert_eq!(whereabouts(&[own]), Site::Here, "{own}");
        }
    }

    #[test]
    fn i6_only_what_is_here_fails_for_what_does_not_answer() {
        assert!(matches!(Site::Unknown.judge("here:1", "too many open files"), Verdict::Unclear(_)));
        assert!(matches!(Site::Here.judge("here:1", "refused"), Verdict::Fail(_)));
    }
}
