//! Which piece is asked of which peer next. Pure: no clock, no bytes; the driver reports what happened.
//!
//! Rules: the rarest missing piece first, ties by chance, so that several nodes that begin at once ask one seed for
//! different pieces; a bounded window per peer; end game (a piece is asked of a second peer only when every missing
//! piece has been asked for and that peer has nothing else to do); a peer that sent a bad piece, stalled, or kept
//! refusing what it said it has loses its standing and everything asked of it is free again (case B3).
//! Not here: rates, choking, whom to serve. Rarity is counted when it is needed, so no count can go stale.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::layout::Layout;
use super::piece_set::PieceSet;
use crate::limits::{BLOB_PEERS, BLOB_PIECE_COPIES, BLOB_REFUSALS, BLOB_WINDOW_BYTES, BLOB_WINDOW_PIECES};
use crate::node_id::NodeId;

/// The plan of one download. At most [`BLOB_PEERS`] peers with [`BLOB_WINDOW_PIECES`] pieces in flight each.
#[derive(Clone, Debug)]
pub struct Planner {
    held: PieceSet,
    peers: BTreeMap<NodeId, Supplier>,
    window: usize,
    random: ChaCha8Rng,
}

#[derive(Clone, Debug)]
struct Supplier {
    has: PieceSet,
    asked: BTreeSet<u32>,
    refusals: u32,
}

/// The peer was not taken in: [`BLOB_PEERS`] peers take part already. State is not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{BLOB_PEERS} peers are asked for this blob already")]
pub struct TooManyPeers;

/// What a piece that passed verification was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first copy. These peers were asked for it as well; their copy is not needed any more.
    New {
        /// The others.
        also_asked: Vec<NodeId>,
    },
    /// Held already: the end game's price.
    Duplicate,
    /// That peer was not asked for it.
    Unasked,
}

/// What a peer did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It sent bytes that are not the piece. The transport is authenticated, so nobody else can have changed them.
    Bad {
        /// Which piece.
        piece: u32,
    },
    /// It answered that it does not have a piece that it said it has.
    Refused {
        /// Which piece.
        piece: u32,
    },
    /// It sent nothing for too long, or broke the protocol, or left.
    Silent,
}

/// What a fault means for the peer in this download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may be asked on.
    Kept,
    /// It is out; what was asked of it is free again.
    Lost,
}

impl Planner {
    /// A plan for what is missing in `held`. `seed` decides ties; give each download another.
    #[must_use]
    pub fn new(layout: Layout, held: PieceSet, seed: u64) -> Self {
        assert_eq!(held.count(), layout.count(), "the pieces held are those of this blob");
        let by_bytes = usize::try_from(BLOB_WINDOW_BYTES / layout.piece_bytes()).unwrap_or(usize::MAX);
        let window = by_bytes.clamp(1, BLOB_WINDOW_PIECES);
        Self { held, peers: BTreeMap::new(), window, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Takes a peer in, or replaces what it is known to have; what was asked of it stays asked.
    ///
    /// # Errors
    /// When [`BLOB_PEERS`] others take part.
    pub fn offer(&mut self, peer: NodeId, has: PieceSet) -> Result<(), TooManyPeers> {
        assert_eq!(has.count(), self.held.count(), "the pieces offered are those of this blob");
        if let Some(supplier) = self.peers.get_mut(&peer) {
            supplier.has = has;
        } else if self.peers.len() < BLOB_PEERS {
            self.peers.insert(peer, Supplier { has, asked: BTreeSet::new(), refusals: 0 });
        } else {
            return Err(TooManyPeers);
        }
        Ok(())
    }

    /// The next piece to ask of `peer`, from now on in flight there; `None` when its window is full, it has nothing
    /// that is needed, or it is not (or no longer) taken in.
    pub fn next(&mut self, peer: NodeId) -> Option<u32> {
        let supplier = self.peers.get(&peer)?;
        if supplier.asked.len() >= self.window {
            return None;
        }
        let everything_asked = self.held.missing().all(|piece| askers(&self.peers, piece) > 0);
        let piece = if !everything_asked {
            self.rarest(&peer)?
        } else if supplier.asked.is_empty() {
            self.second_copy(&peer)?
        } else {
            return None;
        };
        self.peers.get_mut(&peer)?.asked.insert(piece);
        Some(piece)
    }

    /// A piece from `peer` passed verification and is stored.
    pub fn arrived(&mut self, peer: NodeId, piece: u32) -> Arrival {
        let asked = self.peers.get_mut(&peer).is_some_and(|supplier| supplier.asked.remove(&piece));
        if !asked {
            return Arrival::Unasked;
        }
        if !self.held.insert(piece) {
            return Arrival::Duplicate;
        }
        Arrival::New { also_asked: self.peers.iter().filter(|(_, s)| s.asked.contains(&piece)).map(|(peer, _)| *peer).collect() }
    }

    /// Charges a fault to a peer.
    pub fn fault(&mut self, peer: NodeId, fault: Fault) -> Standing {
        let Some(supplier) = self.peers.get_mut(&peer) else { return Standing::Lost };
        if let Fault::Refused { piece } = fault {
            supplier.asked.remove(&piece);
            supplier.has.remove(piece);
            supplier.refusals += 1;
            if supplier.refusals < BLOB_REFUSALS {
                return Standing::Kept;
            }
        }
        self.peers.remove(&peer);
        Standing::Lost
    }

    /// A peer left without fault.
    pub fn leave(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
    }

    /// A piece that was held turned out to be damaged on this node's own disk: it is missing again.
    pub fn forget(&mut self, piece: u32) {
        self.held.remove(piece);
    }

    /// Whether `peer` has any piece that is missing here, asked for or not.
    #[must_use]
    pub fn is_useful(&self, peer: NodeId) -> bool {
        self.peers.get(&peer).is_some_and(|supplier| self.held.missing().any(|piece| supplier.has.contains(piece)))
    }

    /// Whether some peer has some missing piece; if not, the download waits for a source.
    #[must_use]
    pub fn has_source(&self) -> bool {
        self.peers.keys().any(|peer| self.is_useful(*peer))
    }

    /// What is held.
    #[must_use]
    pub fn held(&self) -> &PieceSet {
        &self.held
    }

    /// Whether nothing is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.held.is_full()
    }

    /// Pieces asked of `peer` and not yet here.
    #[must_use]
    pub fn in_flight(&self, peer: NodeId) -> usize {
        self.peers.get(&peer).map_or(0, |supplier| supplier.asked.len())
    }

    fn rarest(&mut self, peer: &NodeId) -> Option<u32> {
        let Self { held, peers, random, .. } = self;
        let supplier = peers.get(peer)?;
        let free = held.missing().filter(|piece| supplier.has.contains(*piece) && askers(peers, *piece) == 0);
        let owners = |piece: u32| peers.values().filter(|other| other.has.contains(piece)).count();
        least(free.map(|piece| (owners(piece), piece)), random)
    }

    fn second_copy(&mut self, peer: &NodeId) -> Option<u32> {
        let Self { held, peers, random, .. } = self;
        let supplier = peers.get(peer)?;
        let wanted = held.missing().filter(|piece| supplier.has.contains(*piece));
        let few = wanted.map(|piece| (askers(peers, piece), piece)).filter(|(askers, _)| *askers < BLOB_PIECE_COPIES);
        least(few, random)
    }
}

fn askers(peers: &BTreeMap<NodeId, Supplier>, piece: u32) -> usize {
    peers.values().filter(|supplier| supplier.asked.contains(&piece)).count()
}

/// The piece with the least weight; among equals each has the same chance.
fn least(weighed: impl Iterator<Item = (usize, u32)>, random: &mut ChaCha8Rng) -> Option<u32> {
    let mut best: Option<(usize, u32)> = None;
    let mut equals = 0;
    for (weight, piece) in weighed {
        match best {
            Some((least, _)) if weight > least => continue,
            Some((least, _)) if weight == least => equals += 1,
            _ => equals = 1,
        }
        if equals == 1 || random.next_u32().is_multiple_of(equals) {
            best = Some((weight, piece));
        }
    }
    best.map(|(_, piece)| piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    fn layout(pieces: u64) -> Layout {
        Layout::of(pieces * 65_536).unwrap()
    }

    fn set(layout: Layout, pieces: &[u32]) -> PieceSet {
        let mut set = PieceSet::empty(layout);
        pieces.iter().for_each(|piece| assert!(set.insert(*piece)));
        set
    }

    fn planner(layout: Layout, peers: &[(u8, PieceSet)]) -> Planner {
        let mut planner = Planner::new(layout, PieceSet::empty(layout), 7);
        peers.iter().for_each(|(n, has)| planner.offer(peer(*n), has.clone()).unwrap());
        planner
    }

    #[test]
    fn the_rarest_piece_is_asked_for_first() {
        let l = layout(4);
        let mut planner = planner(l, &[(1, PieceSet::full(l)), (2, set(l, &[0, 1, 3])), (3, set(l, &[0, 1, 3]))]);
        assert_eq!(planner.next(peer(1)), Some(2));
    }

    #[test]
    fn nodes_with_other_seeds_ask_one_seed_for_other_pieces_first() {
        let l = layout(200);
        let first = |seed| {
            let mut planner = Planner::new(l, PieceSet::empty(l), seed);
            planner.offer(peer(1), PieceSet::full(l)).unwrap();
            planner.next(peer(1)).unwrap()
        };
        let firsts: BTreeSet<u32> = (0..20).map(first).collect();
        assert!(firsts.len() > 12, "{firsts:?}");
    }

    #[test]
    fn a_window_bounds_what_is_asked_of_one_peer() {
        let l = layout(100);
        let mut planner = planner(l, &[(1, PieceSet::full(l))]);
        assert_eq!(core::iter::from_fn(|| planner.next(peer(1))).count(), BLOB_WINDOW_PIECES);
        assert_eq!(planner.next(peer(9)), None, "a peer that was not taken in is asked for nothing");
    }

    #[test]
    fn a_piece_in_flight_is_asked_of_an_idle_peer_only_when_nothing_else_is_left() {
        let l = layout(3);
        let mut planner = planner(l, &[(1, set(l, &[0, 1])), (2, PieceSet::full(l)), (3, PieceSet::full(l))]);
        assert!(planner.next(peer(1)).is_some() && planner.next(peer(1)).is_some());
        assert_eq!(planner.next(peer(1)), None);
        assert_eq!(planner.next(peer(2)), Some(2));
        assert_eq!(planner.next(peer(2)), None, "it is busy with a piece of its own");
        let copy = planner.next(peer(3)).unwrap();
        assert_eq!(planner.next(peer(3)), None, "one copy at a time");
        planner.arrived(peer(3), copy);
        let also = planner.next(peer(3)).unwrap();
        assert_ne!(also, copy);
    }

    #[test]
    fn the_second_copy_of_a_piece_is_a_duplicate_and_a_piece_never_asked_for_is_unasked() {
        let l = layout(1);
        let mut planner = planner(l, &[(1, PieceSet::full(l)), (2, PieceSet::full(l)), (3, PieceSet::full(l))]);
        assert_eq!((planner.next(peer(1)), planner.next(peer(2)), planner.next(peer(3))), (Some(0), Some(0), None));
        assert_eq!(planner.arrived(peer(3), 0), Arrival::Unasked);
        assert_eq!(planner.arrived(peer(2), 0), Arrival::New { also_asked: alloc::vec![peer(1)] });
        assert_eq!(planner.arrived(peer(1), 0), Arrival::Duplicate);
        assert!(planner.is_complete());
    }

    #[test]
    fn b3_a_peer_that_sent_a_bad_piece_is_out_and_its_pieces_are_free_again() {
        let l = layout(2);
        let mut planner = planner(l, &[(1, PieceSet::full(l)), (2, PieceSet::full(l))]);
        let piece = planner.next(peer(1)).unwrap();
        planner.next(peer(1)).unwrap();
        assert_eq!(planner.fault(peer(1), Fault::Bad { piece }), Standing::Lost);
        assert_eq!(planner.next(peer(1)), None);
        assert!(planner.next(peer(2)).is_some() && planner.next(peer(2)).is_some());
    }

    #[test]
    fn a_peer_that_refuses_one_piece_is_asked_for_others_until_it_refuses_too_many() {
        let l = layout(20);
        let mut planner = planner(l, &[(1, PieceSet::full(l))]);
        for n in 1..=BLOB_REFUSALS {
            let piece = planner.next(peer(1)).unwrap();
            let expected = if n < BLOB_REFUSALS { Standing::Kept } else { Standing::Lost };
            assert_eq!(planner.fault(peer(1), Fault::Refused { piece }), expected);
        }
        assert!(!planner.has_source());
    }

    #[test]
    fn one_peer_too_many_is_refused() {
        let l = layout(2);
        let mut planner = planner(l, &[]);
        for n in 0..u8::try_from(BLOB_PEERS).unwrap() {
            assert_eq!(planner.offer(peer(n), PieceSet::full(l)), Ok(()));
        }
        assert_eq!(planner.offer(peer(200), PieceSet::full(l)), Err(TooManyPeers));
        planner.leave(peer(0));
        assert_eq!(planner.offer(peer(200), PieceSet::full(l)), Ok(()));
    }

    /// What a peer in the property test does with a request.
    #[derive(Clone, Copy, Debug)]
    enum Manner {
        Honest,
        Liar,
        Silent,
        Refuser,
    }

    fn manner() -> impl Strategy<Value = Manner> {
        prop_oneof![3 => Just(Manner::Honest), 1 => Just(Manner::Liar), 1 => Just(Manner::Silent), 1 => Just(Manner::Refuser)]
    }

    fn peers() -> impl Strategy<Value = Vec<(Manner, u64)>> {
        prop::collection::vec((manner(), any::<u64>()), 0..BLOB_PEERS - 1)
    }

    proptest! {
        /// Whatever the others do: with one honest peer that has everything the download ends, nothing is asked for
        /// that is held or not offered, windows and copies stay bounded, and honest peers send little twice.
        #[test]
        fn a_download_with_one_honest_seed_completes_within_bounds(
            pieces in 1..64_u64, others in peers(), held in any::<u64>(), seed in any::<u64>(), order in any::<u64>(),
        ) {
            let l = layout(pieces);
            let of_bits = |bits: u64| {
                let mut set = PieceSet::empty(l);
                (0..l.count()).filter(|piece| bits >> piece & 1 == 1).for_each(|piece| { set.insert(piece); });
                set
            };
            let mut planner = Planner::new(l, of_bits(held), seed);
            let mut world: Vec<(NodeId, Manner, PieceSet)> = alloc::vec![(peer(0), Manner::Honest, PieceSet::full(l))];
            for (n, (manner, bits)) in others.iter().enumerate() {
                world.push((peer(u8::try_from(n + 1).unwrap()), *manner, of_bits(*bits)));
            }
            for (peer, _, has) in &world {
                planner.offer(*peer, has.clone()).unwrap();
            }
            let mut random = ChaCha8Rng::seed_from_u64(order);
            let mut flight: Vec<(NodeId, Manner, u32)> = Vec::new();
            let (mut moves, mut duplicates) = (0, 0);
            while !planner.is_complete() {
                moves += 1;
                prop_assert!(moves < 10_000, "the download does not end");
                for (peer, manner, has) in &world {
                    while let Some(piece) = planner.next(*peer) {
                        prop_assert!(has.contains(piece) && !planner.held().contains(piece));
                        prop_assert!(askers(&planner.peers, piece) <= BLOB_PIECE_COPIES);
                        flight.push((*peer, *manner, piece));
                    }
                    prop_assert!(planner.in_flight(*peer) <= BLOB_WINDOW_PIECES);
                }
                if flight.is_empty() {
                    continue;
                }
                let at = usize::try_from(random.next_u64() % u64::try_from(flight.len()).unwrap()).unwrap();
                let (peer, manner, piece) = flight.swap_remove(at);
                let lost = match manner {
                    Manner::Honest => {
                        match planner.arrived(peer, piece) {
                            Arrival::New { .. } => {}
                            Arrival::Duplicate => duplicates += 1,
                            Arrival::Unasked => prop_assert!(false, "it was asked"),
                        }
                        false
                    }
                    Manner::Liar => planner.fault(peer, Fault::Bad { piece }) == Standing::Lost,
                    Manner::Silent => planner.fault(peer, Fault::Silent) == Standing::Lost,
                    Manner::Refuser => planner.fault(peer, Fault::Refused { piece }) == Standing::Lost,
                };
                if lost {
                    flight.retain(|(other, _, _)| *other != peer);
                }
            }
            prop_assert!(duplicates <= pieces, "at most one copy of each piece is wasted");
        }
    }
}
