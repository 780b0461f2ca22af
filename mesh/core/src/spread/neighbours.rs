//! Whom to connect to, and when: three links chosen at random, and the addresses that were given (design, section 5).
//!
//! Pure: the driver dials. Inbound links need nothing from here.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::node_id::NodeId;
use crate::time::Time;

/// Connect to a member at one of these addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Who is expected there; `None` for a bootstrap or meeting address, where any member will do.
    pub peer: Option<NodeId>,
    /// Where, most likely first.
    pub addresses: Vec<String>,
}

/// A member that may be dialled.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Who.
    pub node: NodeId,
    /// The addresses in its own signed record.
    pub addresses: &'a [String],
}

/// Whom this node wants as neighbours, what it remembers of them, and when it tries again.
#[derive(Debug)]
pub struct Neighbours {}

impl Neighbours {
    /// `bootstrap` are the configured addresses.
    #[must_use]
    pub fn new(me: NodeId, seed: [u8; 32], bootstrap: Vec<String>) -> Self {
        let _ = (me, seed, bootstrap);
        todo!()
    }

    /// Replaces the roster's meeting addresses.
    pub fn set_meet(&mut self, meet: &[String]) {
        let _ = meet;
        todo!()
    }

    /// A link is up; `address` is where this node reached the peer, if this node dialled.
    pub fn peer_up(&mut self, now: Time, peer: NodeId, address: Option<String>) {
        let _ = (now, peer, address);
        todo!()
    }

    /// The last link to a peer is gone.
    pub fn peer_down(&mut self, now: Time, peer: &NodeId) {
        let _ = (now, peer);
        todo!()
    }

    /// Takes back what was remembered before a restart.
    pub fn remember(&mut self, peer: NodeId, address: String) {
        let _ = (peer, address);
        todo!()
    }

    /// Addresses worth remembering across a restart: where a peer was last reached, at most [`crate::limits::REMEMBERED_PEERS`].
    pub fn remembered(&self) -> impl Iterator<Item = (&NodeId, &String)> {
        core::iter::empty()
    }

    /// Whom to dial now. `members` are all known members in any fixed order, `seek` those that this node needs beside its
    /// own three, e.g. wardens of its slot.
    pub fn dials<'a>(&mut self, now: Time, members: impl IntoIterator<Item = Member<'a>>, seek: &BTreeSet<NodeId>) -> Vec<Dial> {
        let _ = (now, members.into_iter().count(), seek);
        todo!()
    }

    /// When [`Neighbours::dials`] may have more to say, if nothing else changes.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        todo!()
    }
}
