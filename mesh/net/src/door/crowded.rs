//! Who gives way when too many connections wait at the door: those from where most come.
//!
//! Whoever is silent costs nothing but its place, and has as many addresses as its network gives it. So places are shared
//! between networks: who fills them all takes them from itself. A connection that has said hello, or whose peer is known here as
//! a member, has a tenure: it is about to be looked at, and nobody takes its place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::origin::Origin;

/// Whether a connection keeps its place, whoever comes: granted by the connection, heeded by the door.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenure(Arc<AtomicBool>);

impl Tenure {
    pub(super) fn grant(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_granted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One connection at the door.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    pub(super) origin: Origin,
    /// Lower for who came first.
    pub(super) since: T,
    pub(super) has_tenure: bool,
}

/// Which of `waiting`, in any order, gives its place to one more from `newcomer`: the first that may, of the network with most
/// places of those that have one which may; the newcomer's counted with it. `None` when nobody may: nobody takes a place from a
/// network that has fewer.
pub(super) fn gives_way<T: Copy + Ord>(waiting: impl Iterator<Item = Waiting<T>>, newcomer: Origin) -> Option<T> {
    let mut of: BTreeMap<Origin, (usize, Option<T>)> = BTreeMap::from([(newcomer, (1, None))]);
    for Waiting { origin, since, has_tenure } in waiting {
        let (count, first) = of.entry(origin).or_default();
        *count += 1;
        if !has_tenure {
            *first = Some(first.map_or(since, |first| since.min(first)));
        }
    }
    let least = of.get(&newcomer).map_or(0, |(count, _)| *count);
    let may = of.iter().filter_map(|(origin, (count, first))| first.map(|first| (*origin, *count, first)));
    let may: Vec<_> = may.filter(|(_, count, _)| *count >= least).collect();
    let most = may.iter().map(|(_, count, _)| *count).max()?;
    let own = may.iter().find(|(origin, count, _)| *origin == newcomer && *count == most);
    own.or_else(|| may.iter().filter(|(_, count, _)| *count == most).min_by_key(|(_, _, first)| *first))
        .map(|(_, _, first)| *first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Origin = Origin::V4([10, 0, 0]);
    const B: Origin = Origin::V4([10, 0, 1]);
    const C: Origin = Origin::V4([10, 0, 2]);

    /// Those in `stays` have a tenure.
    fn gives<const N: usize>(crowd: [(Origin, u8); N], stays: &[u8], newcomer: Origin) -> Option<u8> {
        let waiting = crowd.map(|(origin, since)| Waiting { origin, since, has_tenure: stays.contains(&since) });
        gives_way(waiting.into_iter(), newcomer)
    }

    #[test]
    fn the_longest_waiting_of_the_fullest_network_gives_way() {
        let crowd = [(A, 5), (B, 1), (A, 3), (B, 2), (A, 9)];
        assert_eq!(gives(crowd, &[], C), Some(3));
        assert_eq!(gives(crowd, &[], A), Some(3), "a crowd takes its places from itself");
        assert_eq!(gives(crowd, &[], B), Some(1), "with the newcomer it has as many");
        assert_eq!(gives([(A, 5), (B, 1)], &[], C), Some(1));
        assert_eq!(gives([], &[], C), None);
    }

    #[test]
    fn who_has_said_hello_or_is_known_keeps_its_place() {
        let crowd = [(A, 5), (B, 1), (A, 3), (B, 2), (A, 9)];
        assert_eq!(gives(crowd, &[3], C), Some(5), "the next of the same network");
        assert_eq!(gives(crowd, &[3, 5, 9], C), Some(1), "or of the next network");
        assert_eq!(gives(crowd, &[1, 2, 3, 5, 9], C), None);
        // The crowd's newcomers take nothing from a network that has fewer places.
        assert_eq!(gives(crowd, &[3, 5, 9], A), None);
        assert_eq!(gives(crowd, &[1, 2], B), Some(3));
    }
}
