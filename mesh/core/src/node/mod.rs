//! One node of the mesh: everything it decides, behind one door.
//!
//! ```text
//!            Input ──► handle(now, input) ──► take_effects() ──► Effect, run in order by the driver
//!                          │                                     (a Persist is durable before the next effect runs)
//!                          └──► next_wakeup(): when to come back with Input::Wake
//! ```
//!
//! [`input`] and [`effect`] are the door's two closed enums, [`hold`] every "not yet" with its facts,
//! [`view`] what `status`, `rollouts`, `leases` and `explain` show.
//! Inside: `intake` takes documents and records in, `following` keeps each rollout's progress, `mission` says what the
//! mesh orders here, `life` moves, `turn` and `duty` speak for the lease protocol, `publish` signs, `settle` ties them.

pub mod admission;
mod duty;
pub mod effect;
mod explain;
mod following;
pub mod hold;
pub mod input;
mod intake;
mod keys;
mod life;
mod mission;
mod open;
mod publish;
mod settle;
mod show;
pub mod showing;
mod sight;
mod stale;
mod turn;
pub mod view;
pub mod visiting;
pub mod warrant;
mod writers;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use rand_chacha::ChaCha8Rng;

use self::duty::Duty;
use self::effect::Effect;
use self::following::Following;
use self::input::Input;
pub use self::keys::promises_kept;
use self::life::Life;
pub use self::open::OpenError;
use self::publish::Own;
use self::stale::Stale;
use self::turn::Pacing;
use self::visiting::Visiting;
use self::writers::Writers;
use crate::crypto::Crypto;
use crate::digest::Digest;
use crate::lease::budget::PoolMap;
use crate::lease::claims::Claims;
use crate::lease::presence::Presence;
use crate::lease::synced::Synced;
use crate::node_id::NodeId;
use crate::record::ledger::Ledger;
use crate::record::{ClaimName, RecordKey};
use crate::spread::neighbours::Neighbours;
use crate::spread::{Received, Spread};
use crate::text::{Platform, Product, RolloutId};
use crate::time::{Now, Time};
use crate::trust::local::LocalTrust;
use crate::trust::shelf::Shelf;

/// What a node is told out of band.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The fleet's id, never learnt on first contact.
    pub fleet: Digest,
    /// This machine's platform.
    pub platform: Platform,
    /// The products that are configured here.
    pub products: BTreeSet<Product>,
    /// Metered: serves nobody, and syncs every 15 minutes.
    pub lean: bool,
    /// What this node asks for beyond the fleet document.
    pub local_trust: LocalTrust,
    /// Addresses to dial first.
    pub bootstrap: Vec<String>,
    /// Never signs a record: for tools that look and publish.
    pub silent: bool,
    /// The product that is this agent itself, where it is one.
    pub agent: Option<AgentProduct>,
}

/// A product that is the agent itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProduct {
    /// Its name.
    pub product: Product,
    /// Whether a supervisor runs the agent: without one it is never replaced.
    pub supervised: bool,
}

/// One node of the mesh.
pub struct Node {
    me: NodeId,
    config: NodeConfig,
    crypto: Box<dyn Crypto>,
    rng: ChaCha8Rng,
    shelf: Shelf,
    ledger: Ledger,
    spread: Spread,
    neighbours: Neighbours,
    connected: BTreeSet<NodeId>,
    presence: Presence,
    synced: Synced,
    own: Own,
    lives: BTreeMap<Product, Life>,
    duty: Duty,
    pacing: Pacing,
    visiting: Visiting,
    /// Rosters that are here with every certificate that they name, as leases read them.
    maps: BTreeMap<Digest, Arc<PoolMap>>,
    following: BTreeMap<RolloutId, Following>,
    /// Standing claims on slots, by holder.
    claims: Claims,
    /// The highest claim of each node that is forgiven or written off, over all documents.
    written_off: BTreeMap<NodeId, ClaimName>,
    /// What documents say of writers of records, until they change.
    writers: Writers,
    /// Listed nodes that are gone for good, and since when this node knows it, in its up time. Durable.
    departed: BTreeMap<NodeId, u64>,
    /// Rosters asked for and not here yet.
    asked_rosters: BTreeSet<Digest>,
    /// Members' records that changed and are not on disk yet: what a crash loses, the next sync brings back.
    unsaved: BTreeSet<RecordKey>,
    saved_records_at: Time,
    documents_changed: bool,
    stale: Stale,
    /// Whom to dial may have changed.
    reach_stale: bool,
    addresses: Vec<String>,
    serves: BTreeSet<Digest>,
    effects: Vec<Effect>,
    wakeup: Option<Time>,
}

impl Node {
    /// Takes in everything that can happen. Total: hostile input becomes a counted, typed rejection.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.presence.tick(now.awake_ms);
        // What only records change is noted record by record.
        self.stale.lives |= !matches!(input, Input::Wake | Input::Frame { .. });
        match input {
            Input::Wake => {}
            Input::Document { bytes, source } | Input::Roster { bytes, source } => self.take_document(now, &bytes, source),
            Input::PeerUp { peer, address, .. } => self.peer_up(now, peer, address),
            Input::Reached { peer, address } => self.peer_reached(peer, address),
            Input::PeerDown { peer } => self.peer_down(now, peer),
            Input::DialFailed { peer, addresses } => self.neighbours.dial_failed(now.boot, peer, &addresses),
            Input::Frame { peer, bytes } => self.take_frame(now, peer, &bytes),
            Input::Shown { keeper, records } => self.take_shown(now, keeper, &records),
            Input::Visited { keeper, end } => self.visit_ended(now, keeper, &end),
            Input::Pushed { peer, bytes } => self.take_pushed(now, peer, &bytes),
            Input::Addresses(addresses) => self.addresses = addresses.into_iter().take(crate::limits::ADDRESSES).collect(),
            Input::Device { product, report } => self.take_report(now, &product, report),
            Input::Serves(serves) => self.serves = serves,
            Input::Stopping => {
                self.stop_lives(now);
                self.say_last_words(now);
            }
        }
        self.settle(now);
    }

    /// The effects since the last call, to be run in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// When to come back with [`Input::Wake`], if nothing else happens before.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.wakeup
    }

    /// This node's id.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// Whether a sync with some peer has completed since the start: what the mesh knew then is known here.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.any()
    }

    /// The documents in force.
    #[must_use]
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// How many records have come, and how many of them were here already.
    #[must_use]
    pub fn received(&self) -> Received {
        self.spread.received()
    }

    /// Everybody's records.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl core::fmt::Debug for Node {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Node").field("me", &self.me).finish_non_exhaustive()
    }
}
