//! One virtual machine: its disk, its device, its clocks, and the agent's core while it is up.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::node::input::{Health, Input, Report};
use groundswell_core::node::{Node, NodeConfig};
use groundswell_core::node_id::NodeId;
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::{Phase, Running};
use groundswell_core::text::{Pool, RolloutId};
use groundswell_core::time::{Now, Time, Timestamp};
use groundswell_core::trust::local::LocalTrust;
use groundswell_core::trust::shelf::Shelf;

use super::device::Device;
use super::memo::{MemoCrypto, Memory};
use super::operator::{BEGINNING, node_secret, platform, product};
use super::world::node_id;

/// The second byte of a frame that holds a turn of a sync.
const SYNC: u8 = 5;

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
    /// What its agent was told of its health.
    pub health: Told,
    /// Failures that members who lie have owned up to in its sight, in this run of the agent: they may take that back.
    pub owned_up: BTreeSet<(RolloutId, NodeId, Option<ClaimName>)>,
    /// What its device has made final last, until a verdict other than `soaked`.
    pub confirmed: Option<Confirmed>,
    /// The claim that it published last.
    pub claimed: Option<Published>,
    /// How many records it has signed, by its own newest ones.
    pub signed: u64,
    /// From whom a turn of a sync has come since its agent was started.
    pub sync_turns: BTreeSet<NodeId>,
    /// How long its agent was up and awake in its former runs, in milliseconds.
    pub up_before_ms: u64,
    /// How long it stood still since it was switched on without any of its clocks but the wall clock noticing.
    pub paused_ms: u64,
    /// When its wall clock was set last, in world time.
    pub clock_set_ms: u64,
    /// How fast its boot clock and awake clock run: parts per million beyond true time, from the next start on.
    pub drift_ppm: i64,
    /// The same since it was switched on.
    pub drifts_ppm: i64,
    /// In which second of world time its core last woke by its own wish, and how often then.
    pub wakes: (u64, u32),
    /// How this machine counts for S1.
    pub disruption: Disruption,
}

/// What an agent was told of the health of what runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The last it was told: down.
    pub down: bool,
    /// Since when it is told that what runs is healthy, in world time.
    pub healthy_since_ms: Option<u64>,
    /// What is on trial was started, in this run of the agent or before.
    pub started: bool,
    /// The last it was told of what is on trial: that it cannot be judged.
    pub unclear: bool,
    /// It has ordered back what is on trial.
    pub ordered_back: bool,
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
    /// The roster that the claim names.
    pub roster: Option<Digest>,
}

/// A release that a device has made final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// Which.
    pub release: Digest,
    /// When, in world time.
    pub at_ms: u64,
    /// In which run of the agent.
    pub life: u32,
}

/// A claim that a machine has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its name.
    pub name: ClaimName,
    /// When, in world time.
    pub at_ms: u64,
    /// In which run of the agent.
    pub life: u32,
}

impl Machine {
    /// A machine that was set up with `running` and never switched on.
    #[must_use]
    pub fn new(index: u32, key: u32, pool: Pool, running: Option<Running>) -> Self {
        Self {
            index,
            key,
            id: node_id(key),
            pool,
            disk: BTreeMap::new(),
            device: Device::with(running),
            blobs: BTreeSet::new(),
            node: None,
            life: 0,
            booted_ms: 0,
            wall_skew: 0,
            gossip_seen: BTreeSet::new(),
            links: BTreeMap::new(),
            slept_ms: 0,
            asleep_until_ms: 0,
            lean: false,
            liar: false,
            health: Told::default(),
            owned_up: BTreeSet::new(),
            confirmed: None,
            claimed: None,
            signed: 0,
            sync_turns: BTreeSet::new(),
            up_before_ms: 0,
            paused_ms: 0,
            clock_set_ms: 0,
            drift_ppm: 0,
            drifts_ppm: 0,
            wakes: (0, 0),
            disruption: Disruption::default(),
        }
    }

    /// Its clocks at world time `at_ms`.
    #[must_use]
    pub fn now(&self, at_ms: u64) -> Now {
        let boot = self.by_its_clock(at_ms.saturating_sub(self.booted_ms).saturating_sub(self.paused_ms));
        let wall = (BEGINNING + at_ms / 1_000).saturating_add_signed(self.wall_skew);
        let awake_ms = boot.saturating_sub(self.by_its_clock(self.slept_ms));
        Now { awake_ms, boot: Time(boot), wall: Timestamp::from_seconds(wall) }
    }

    /// Gives its core an input. False: there is none, the machine is off.
    pub(super) fn take(&mut self, at: u64, input: Input) -> bool {
        self.note_input(at, &input);
        let now = self.now(at);
        let Some(node) = &mut self.node else { return false };
        node.handle(now, input);
        true
    }

    /// When its core wishes to be woken, later than `at`.
    pub(super) fn wakes_at_ms(&self, at: u64) -> Option<u64> {
        let wakeup = self.node.as_ref()?.next_wakeup()?;
        Some(self.reaches_at_ms(wakeup.0).max(at + 1))
    }

    /// What it says of itself, while it counts as disrupted.
    pub(super) fn says_while_disrupted(&self) -> Option<Phase> {
        self.disruption.since_ms.and_then(|_| self.phase())
    }

    /// When its boot clock will stand at `boot_ms`, in world time, if it is not paused until then.
    #[must_use]
    pub fn reaches_at_ms(&self, boot_ms: u64) -> u64 {
        let rate = 1_000_000_i64.saturating_add(self.drifts_ppm).unsigned_abs().max(1);
        let since = u128::from(boot_ms) * 1_000_000 / u128::from(rate);
        let mut since = u64::try_from(since).unwrap_or(u64::MAX);
        while self.by_its_clock(since) < boot_ms && since < u64::MAX {
            since += 1;
        }
        self.booted_ms.saturating_add(self.paused_ms).saturating_add(since)
    }

    fn by_its_clock(&self, true_ms: u64) -> u64 {
        if self.drifts_ppm == 0 {
            return true_ms;
        }
        let off = i128::from(true_ms) * i128::from(self.drifts_ppm) / 1_000_000;
        true_ms.saturating_add_signed(i64::try_from(off).unwrap_or(0))
    }

    /// How long its agent was up and awake in all its runs, by true time, in milliseconds.
    #[must_use]
    pub fn up_ms(&self, at_ms: u64) -> u64 {
        // Both count a sleep or a pause from its beginning on, and power may fail in the middle of one.
        let left_ms = self.asleep_until_ms.saturating_sub(at_ms);
        let away_ms = (self.paused_ms + self.slept_ms).saturating_sub(left_ms);
        let now_ms = at_ms.saturating_sub(self.booted_ms).saturating_sub(away_ms);
        self.up_before_ms + if self.node.is_some() { now_ms } else { 0 }
    }

    /// Starts the agent on what the disk holds, and on documents that another machine of its fleet has verified.
    ///
    /// # Panics
    /// When the core refuses a store that it wrote itself.
    pub fn start(
        &mut self,
        fleet: Digest,
        bootstrap: Vec<String>,
        seed: u64,
        at_ms: u64,
        memory: Memory,
        documents: Option<Shelf>,
    ) {
        self.life += 1;
        self.booted_ms = at_ms;
        self.slept_ms = 0;
        self.paused_ms = 0;
        self.drifts_ppm = self.drift_ppm;
        self.asleep_until_ms = 0;
        let Told { down, ordered_back, .. } = self.health;
        self.health = Told { down, ordered_back, ..Told::default() };
        self.owned_up.clear();
        self.sync_turns.clear();
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
        let shelf = documents.unwrap_or_else(|| Shelf::new(fleet, LocalTrust::default()));
        let node = Node::open_on(config, crypto, seeds, stored, shelf, self.now(at_ms)).expect("a node opens on its own store");
        self.node = Some(node);
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> String {
        format!("sim/{}", self.index)
    }

    /// What an input says of the device and of peers.
    fn note_input(&mut self, at: u64, input: &Input) {
        match input {
            Input::Device { report: Report::Health(health), .. } => {
                self.health.down = matches!(health, Health::Failing(_));
                self.health.unclear = self.health.started && matches!(health, Health::Unknown(_));
                let since = self.health.healthy_since_ms.unwrap_or(at);
                self.health.healthy_since_ms = (*health == Health::Healthy).then_some(since);
            }
            Input::Device { report: Report::Recovered(recovered), .. } => self.health.started = recovered.trial.is_some(),
            // Health of what ran before says nothing about what runs now.
            Input::Device { report: Report::Activated { .. }, .. } => {
                self.health = Told { down: self.health.down, started: true, ..Told::default() };
            }
            Input::Device { report: Report::Reverted { .. }, .. } => {
                self.health = Told { down: self.health.down, ..Told::default() };
            }
            Input::Frame { peer, bytes } if bytes.get(1) == Some(&SYNC) => {
                self.sync_turns.insert(*peer);
            }
            _ => {}
        }
    }

    /// A core that asks to be woken again and again and does nothing would burn a device's processor.
    pub(super) fn watch_for_spinning(&mut self, at: u64) {
        let second = at / 1_000;
        self.wakes = if self.wakes.0 == second { (second, self.wakes.1 + 1) } else { (second, 1) };
        assert!(self.wakes.1 <= 900, "machine {} was woken 900 times within a second by its own wish", self.index);
    }
}
