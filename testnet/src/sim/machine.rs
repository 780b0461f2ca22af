//! One virtual machine: its disk, its device, its clocks, and the agent's core while it is up.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::node::{Node, NodeConfig};
use groundswell_core::node_id::NodeId;
use groundswell_core::record::ClaimName;
use groundswell_core::text::Pool;
use groundswell_core::time::{Now, Time, Timestamp};
use groundswell_core::trust::local::LocalTrust;

use super::device::Device;
use super::memo::{MemoCrypto, Memory};
use super::operator::{BEGINNING, node_secret, platform, product};

/// One virtual machine.
#[derive(Debug)]
pub struct Machine {
    /// Its number: also its address, `sim/<number>`.
    pub index: u32,
    /// The number of its secret: another machine's for a clone.
    pub key: u32,
    /// Its node id.
    pub id: NodeId,
    /// Its pool.
    pub pool: Pool,
    /// The store, as it is on disk.
    pub disk: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What runs on it.
    pub device: Device,
    /// Artifacts that it holds whole.
    pub blobs: BTreeSet<Digest>,
    /// The core, while the agent runs.
    pub node: Option<Node>,
    /// Counts starts: what was scheduled for an earlier one is void.
    pub life: u32,
    /// When the machine was switched on, in world time.
    pub booted_ms: u64,
    /// How far its wall clock stands from the world's, in seconds; may be negative.
    pub wall_skew: i64,
    /// Gossip messages that it has seen, by content.
    pub gossip_seen: BTreeSet<Digest>,
    /// Connected peers, each with the number of the connection.
    pub links: BTreeMap<u32, u64>,
    /// How long it has slept since it was switched on, in milliseconds: its awake clock stood still.
    pub slept_ms: u64,
    /// Asleep until then, in world time; 0 when awake.
    pub asleep_until_ms: u64,
    /// It syncs rarely and serves nobody.
    pub lean: bool,
    /// It was made to lie about itself: cloned, set back, or signing two records under one stamp.
    pub liar: bool,
    /// Its health check, as its agent was last told, finds it down.
    pub found_down: bool,
    /// In which second of world time its core last woke by its own wish, and how often then.
    pub wakes: (u64, u32),
    /// How this machine counts for S1.
    pub disruption: Disruption,
}

/// What a machine's upgrade means to its pool's budget: judged by its device and by what it signed, not by claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disruption {
    /// When it last began, in world time, while it counts: until its device is done *and* it has signed so.
    pub since_ms: Option<u64>,
    /// It was down by its own health check before it began, so it does not count.
    pub repair: bool,
    /// Its claim was written off, or its node is gone.
    pub written_off: bool,
    /// Its claim.
    pub claim: Option<ClaimName>,
}

impl Machine {
    /// Its clocks at world time `at_ms`.
    #[must_use]
    pub fn now(&self, at_ms: u64) -> Now {
        let since = at_ms.saturating_sub(self.booted_ms);
        let wall = (BEGINNING + at_ms / 1_000).saturating_add_signed(self.wall_skew);
        Now { awake_ms: since.saturating_sub(self.slept_ms), boot: Time(since), wall: Timestamp::from_seconds(wall) }
    }

    /// Starts the agent on what the disk holds.
    ///
    /// # Panics
    /// When the core refuses a store that it wrote itself.
    pub fn start(&mut self, fleet: Digest, bootstrap: Vec<String>, seed: u64, at_ms: u64, memory: Memory) {
        self.life += 1;
        self.booted_ms = at_ms;
        self.slept_ms = 0;
        self.asleep_until_ms = 0;
        let config = NodeConfig {
            fleet,
            platform: platform(),
            products: BTreeSet::from([product()]),
            lean: self.lean,
            local_trust: LocalTrust::default(),
            bootstrap,
            silent: false,
            agent: None,
        };
        let mut seeds = [0; 32];
        seeds[..8].copy_from_slice(&seed.to_le_bytes());
        seeds[8..12].copy_from_slice(&self.index.to_le_bytes());
        seeds[12..16].copy_from_slice(&self.life.to_le_bytes());
        let stored = self.disk.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let crypto = Box::new(MemoCrypto::new(&node_secret(self.key), memory));
        let node = Node::open(config, crypto, seeds, stored, self.now(at_ms)).expect("a node opens on its own store");
        self.node = Some(node);
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> String {
        format!("sim/{}", self.index)
    }
}
