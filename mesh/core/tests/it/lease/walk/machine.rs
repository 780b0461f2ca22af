//! One machine of the walk: what survives a crash, and what does not.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::presence::{Part, Presence};
use groundswell_core::lease::queue::Queue;
use groundswell_core::lease::start::MadeAt;
use groundswell_core::lease::synced::Synced;
use groundswell_core::lease::warden::Warden;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::Stamp;
use groundswell_core::record::status::{Phase, Status};

use super::super::mesh::{Mesh, status};

pub(super) struct Machine {
    pub(super) id: NodeId,
    pub(super) liar: bool,
    pub(super) done: bool,
    /// Off for good.
    pub(super) retired: bool,
    // Durable.
    pub(super) own: (Stamp, Status),
    pub(super) promises: Vec<u8>,
    pub(super) presence_saved: BTreeMap<Part, Vec<u8>>,
    pub(super) rosters: BTreeSet<Digest>,
    /// Who is gone, and since when in its up time it knows.
    pub(super) departed: BTreeMap<NodeId, u64>,
    /// An older state of its promises, with the stamp of the grants record that went with it: what a set-back brings back.
    pub(super) backup: Option<(Stamp, Vec<u8>)>,
    // In memory.
    pub(super) down_since: Option<u64>,
    pub(super) started_at: u64,
    pub(super) awake_ms: u64,
    pub(super) warden: Warden,
    pub(super) grants_stamp: Stamp,
    pub(super) mesh: Mesh,
    pub(super) heard_grants: BTreeMap<NodeId, Stamp>,
    pub(super) presence: Presence,
    pub(super) synced: Synced,
    pub(super) queue: Queue,
    pub(super) made: Option<MadeAt>,
}

impl Machine {
    pub(super) fn new(id: NodeId) -> Self {
        let own = (Stamp { incarnation: 1, counter: 1 }, status(Phase::Staged, None));
        let mut mesh = Mesh::default();
        mesh.statuses.insert(id, own.clone());
        Self {
            id,
            liar: false,
            done: false,
            retired: false,
            own,
            promises: Vec::new(),
            presence_saved: BTreeMap::new(),
            rosters: BTreeSet::new(),
            departed: BTreeMap::new(),
            backup: None,
            down_since: None,
            started_at: 0,
            awake_ms: 0,
            warden: Warden::default(),
            grants_stamp: Stamp { incarnation: 1, counter: 0 },
            mesh,
            heard_grants: BTreeMap::new(),
            presence: Presence::new(0),
            synced: Synced::default(),
            queue: Queue::default(),
            made: None,
        }
    }

    /// The power comes back: what was durable is there, the rest is not.
    pub(super) fn restart(&mut self) {
        let mut fresh = Self::new(self.id);
        (fresh.liar, fresh.done, fresh.retired) = (self.liar, self.done, self.retired);
        (fresh.started_at, fresh.grants_stamp) = (self.started_at, self.grants_stamp);
        fresh.own = self.own.clone();
        fresh.presence_saved = std::mem::take(&mut self.presence_saved);
        fresh.presence = Presence::restore(0, fresh.presence_saved.clone());
        fresh.promises = self.promises.clone();
        fresh.rosters = std::mem::take(&mut self.rosters);
        let up_ms = fresh.presence.up_ms();
        fresh.departed = std::mem::take(&mut self.departed).into_iter().map(|(node, since)| (node, since.min(up_ms))).collect();
        fresh.backup = self.backup.take();
        fresh.warden = if fresh.promises.is_empty() { Warden::default() } else { Warden::from_bytes(&fresh.promises).unwrap() };
        for promise in fresh.warden.promises().cloned().collect::<Vec<_>>() {
            fresh.presence.known(promise.holder, Stamp::default());
        }
        fresh.mesh.statuses.insert(fresh.id, fresh.own.clone());
        fresh.mesh.grants.insert(fresh.id, fresh.warden.record());
        fresh.mesh.gone = self.mesh.gone.clone();
        *self = fresh;
    }

    pub(super) fn activating(&self) -> bool {
        SeenClaim::standing(self.id, &self.own.1).any(|claim| claim.active)
    }

    pub(super) fn save_silence_of(&mut self, node: &NodeId) {
        let saves = self.presence.save_now(node).into_iter();
        self.presence_saved.extend(saves.map(|save| (save.part, save.value.unwrap_or_default())));
    }

    /// Brings what the mesh shows of silence and of the departed up to its up time.
    pub(super) fn refresh_silence(&mut self) {
        let up_ms = self.presence.up_ms();
        let nodes: Vec<NodeId> = self.mesh.statuses.keys().copied().collect();
        for node in nodes.into_iter().chain(self.warden.promises().map(|promise| promise.holder)) {
            if let Some(unheard) = self.presence.unheard_ms(&node) {
                self.mesh.unheard_ms.insert(node, unheard);
            }
        }
        self.mesh.gone_for_ms = self.departed.iter().map(|(node, since)| (*node, up_ms.saturating_sub(*since))).collect();
    }
}

pub(super) fn next(stamp: Stamp) -> Stamp {
    Stamp { counter: stamp.counter + 1, ..stamp }
}
