//! Which peers are on a network of this node's own: their bytes take nothing of its way out.
//!
//! The machine's masks are not asked for: what shares the first 24 bits of an IPv4 address, or the first 64 of an IPv6
//! address, with one of this node's is taken for the same network. A mistake costs a preference and nothing else.

use std::net::IpAddr;

/// Whether the peer at the multiaddress `peer` is on a network of one of the multiaddresses `own`.
pub(super) fn is_near(own: &[String], peer: &str) -> bool {
    match network(peer) {
        Some(Network::Machine) => true,
        Some(found) => own.iter().any(|own| network(own) == Some(found)),
        None => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    /// This very machine.
    Machine,
    V4([u8; 3]),
    V6([u16; 4]),
}

/// `None` for names, and for whom a relay stands between.
fn network(multiaddress: &str) -> Option<Network> {
    if multiaddress.contains("/p2p-circuit") {
        return None;
    }
    let mut parts = multiaddress.strip_prefix('/')?.split('/');
    let (kind, address) = (parts.next()?, parts.next()?);
    let address: IpAddr = address.parse().ok().filter(|_| matches!(kind, "ip4" | "ip6"))?;
    match address.to_canonical() {
        address if address.is_loopback() => Some(Network::Machine),
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Some(Network::V4([a, b, c]))
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Some(Network::V6([a, b, c, d]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_who_shares_a_network_with_one_of_this_nodes_addresses() {
        let own = ["/ip4/10.0.7.2/tcp/7490", "/ip4/192.0.2.9/udp/7490/quic-v1", "/ip6/fd00:1:2:3::9/tcp/7490"].map(str::to_owned);
        for near in [
            "/ip4/10.0.7.200/tcp/40000",
            "/ip4/192.0.2.1/udp/1/quic-v1",
            "/ip6/fd00:1:2:3:4::1/tcp/1",
            "/ip6/::ffff:10.0.7.3/tcp/1",
            "/ip4/127.0.0.1/tcp/1",
            "/ip6/::1/tcp/1",
        ] {
            assert!(is_near(&own, near), "{near}");
        }
        for far in [
            "/ip4/10.0.8.2/tcp/1",
            "/ip6/fd00:1:2:4::9/tcp/1",
            "/dns4/mesh.example.com/tcp/1",
            "/ip4/10.0.7.9/tcp/1/p2p/x/p2p-circuit",
            "",
            "/",
            "/ip4",
            "/ip4/10.0.7/tcp/1",
        ] {
            assert!(!is_near(&own, far), "{far}");
        }
        assert!(!is_near(&[], "/ip4/10.0.7.2/tcp/1"));
    }
}
