//! Who gives way when too many connections wait at the door: those from where most come.
//!
//! Whoever is silent costs nothing but its place, and has as many addresses as its network gives it. So places are shared
//! between networks: who fills them all takes them from itself.

use std::collections::BTreeMap;

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;

use crate::config::HANDSHAKES;

/// Where a connection comes from: what one party has of addresses at least, a /24 of IPv4, a /64 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The first 24 bits.
    V4([u8; 3]),
    /// The first 64 bits.
    V6([u8; 8]),
    /// No address of either kind.
    Elsewhere,
}

impl Origin {
    pub(super) fn of(address: &Multiaddr) -> Self {
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

/// Which of `waiting`, in any order, gives its place to one more from `newcomer`: of the origin with most places, the
/// newcomer's counted with it, the lowest `T`, which came first. `None` when nobody waits.
pub(super) fn gives_way<T: Copy + Ord>(waiting: impl Iterator<Item = (Origin, T)>, newcomer: Origin) -> Option<T> {
    let mut of: BTreeMap<Origin, (usize, T)> = BTreeMap::new();
    for (origin, since) in waiting {
        let (count, first) = of.entry(origin).or_insert((usize::from(origin == newcomer), since));
        *count += 1;
        *first = since.min(*first);
    }
    let most = of.values().map(|(count, _)| *count).max()?;
    let own = of.get(&newcomer).filter(|(count, _)| *count == most);
    own.or_else(|| of.values().filter(|(count, _)| *count == most).min_by_key(|(_, first)| *first)).map(|(_, first)| *first)
}

/// Whether one more handshake from `newcomer` may begin beside those under way: as many from one origin as places are free.
pub(super) fn may_begin(under_way: impl Iterator<Item = Origin>, newcomer: Origin) -> bool {
    let (mut all, mut own) = (0, 0);
    for origin in under_way {
        all += 1;
        own += usize::from(origin == newcomer);
    }
    own < HANDSHAKES.saturating_sub(all)
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
    fn the_longest_waiting_of_the_fullest_network_gives_way() {
        let (a, b, c) = (of("/ip4/10.0.0.1/tcp/1"), of("/ip4/10.0.1.1/tcp/1"), of("/ip4/10.0.2.1/tcp/1"));
        let crowd = [(a, 5), (b, 1), (a, 3), (b, 2), (a, 9)];
        assert_eq!(gives_way(crowd.into_iter(), c), Some(3));
        assert_eq!(gives_way(crowd.into_iter(), a), Some(3), "a crowd takes its places from itself");
        assert_eq!(gives_way(crowd.into_iter(), b), Some(1), "with the newcomer it has as many");
        assert_eq!(gives_way([(a, 5), (b, 1)].into_iter(), c), Some(1));
        assert_eq!(gives_way(std::iter::empty::<(Origin, u8)>(), c), None);
    }

    #[test]
    fn no_number_of_handshakes_from_one_network_leaves_no_room_for_another() {
        let (crowd, other) = (of("/ip4/10.0.0.1/tcp/1"), of("/ip4/10.0.1.1/tcp/1"));
        let mut under_way = Vec::new();
        while may_begin(under_way.iter().copied(), crowd) {
            under_way.push(crowd);
        }
        assert_eq!(under_way.len(), HANDSHAKES / 2);
        while may_begin(under_way.iter().copied(), other) {
            under_way.push(other);
        }
        assert!(under_way.len() < HANDSHAKES && may_begin(under_way.iter().copied(), Origin::Elsewhere));
    }
}
