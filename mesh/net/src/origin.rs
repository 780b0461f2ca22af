//! Networks: what one party has of addresses at least. Whatever strangers share is divided between these, not between
//! identities, of which anybody has as many as it likes.

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;

/// Where a connection comes from: what one party has of addresses at least, a /24 of IPv4, a /64 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The first 24 bits.
    V4([u8; 3]),
    /// The first 64 bits.
    V6([u8; 8]),
    /// No address of either kind.
    Elsewhere,
}

impl Origin {
    pub(crate) fn of(address: &Multiaddr) -> Self {
        let v4 = |octets: [u8; 4]| {
            let [a, b, c, _] = octets;
            Self::V4([a, b, c])
        };
        match address.iter().next() {
            Some(Protocol::Ip4(ip)) => v4(ip.octets()),
            Some(Protocol::Ip6(ip)) => match ip.to_ipv4_mapped() {
                Some(ip) => v4(ip.octets()),
                None => {
                    let [a, b, c, d, e, f, g, h, ..] = ip.octets();
                    Self::V6([a, b, c, d, e, f, g, h])
                }
            },
            _ => Self::Elsewhere,
        }
    }
}

/// Whether one more from `newcomer` may join those that share `most` places: as many from one network as are free, so there is
/// always room for another.
pub(crate) fn has_room(taken: impl Iterator<Item = Origin>, newcomer: Origin, most: usize) -> bool {
    let (mut all, mut own) = (0, 0);
    for origin in taken {
        all += 1;
        own += usize::from(origin == newcomer);
    }
    own < most.saturating_sub(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Origin {
        Origin::of(&address.parse().expect("a multiaddress"))
    }

    #[test]
    fn a_network_is_what_one_party_has_at_least() {
        assert_eq!(of("/ip4/10.0.0.1/tcp/1"), of("/ip4/10.0.0.200/tcp/9"));
        assert_ne!(of("/ip4/10.0.0.1/tcp/1"), of("/ip4/10.0.1.1/tcp/1"));
        assert_eq!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8::ffff/udp/9/quic-v1"));
        assert_ne!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8:0:1::1/tcp/1"));
        assert_eq!(of("/ip6/::ffff:10.0.0.1/tcp/1"), of("/ip4/10.0.0.7/tcp/1"));
        assert_eq!(of("/dns4/example.org/tcp/1"), Origin::Elsewhere);
    }

    #[test]
    fn no_number_from_one_network_leaves_no_room_for_another() {
        let (crowd, other, most) = (of("/ip4/10.0.0.1/tcp/1"), of("/ip4/10.0.1.1/tcp/1"), 64);
        let mut taken = Vec::new();
        while has_room(taken.iter().copied(), crowd, most) {
            taken.push(crowd);
        }
        assert_eq!(taken.len(), most / 2);
        while has_room(taken.iter().copied(), other, most) {
            taken.push(other);
        }
        assert!(taken.len() < most && has_room(taken.iter().copied(), Origin::Elsewhere, most));
    }
}
