//! One warden, or one holder, set up for a case.

use groundswell_core::lease::budget::PoolMap;
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::governing::Rosters;
use groundswell_core::lease::start::{MadeAt, Start, StartFacts, may_start};
use groundswell_core::lease::synced::{Synced, Syncing};
use groundswell_core::lease::warden::{Candidate, Considered, Facts, Warden};
use groundswell_core::lease::wardens::Wardens;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::status::Phase;
use groundswell_core::time::{Now, Time, Timestamp};

use super::mesh::{Mesh, claim, node, policy, pool_map, seen, slot};

pub(crate) const START_WITHIN_MS: u64 = 60_000;
pub(crate) const DAY_MS: u64 = 86_400_000;

/// One warden of a pool of `nodes` nodes, synced with everybody.
pub(crate) struct Watch {
    pub(crate) map: PoolMap,
    pub(crate) mesh: Mesh,
    pub(crate) synced: Synced,
    pub(crate) warden: Warden,
    pub(crate) me: NodeId,
    pub(crate) up_ms: u64,
}

impl Watch {
    pub(crate) fn over(nodes: u8, slots: u16) -> Self {
        let map = pool_map(nodes, policy(slots, nodes));
        let me = map.wardens(&slot(0)).unwrap().nodes[0];
        let mut synced = Synced::default();
        (0..nodes).for_each(|number| synced.note(node(number)));
        Self { map, mesh: Mesh::default(), synced, warden: Warden::default(), me, up_ms: 0 }
    }

    pub(crate) fn considers(&mut self) -> Considered {
        let candidates = self.mesh.candidates();
        self.considers_these(&candidates)
    }

    pub(crate) fn considers_these(&mut self, claims: &[Candidate]) -> Considered {
        let rosters = Rosters::new([&self.map]);
        let facts = Facts { me: self.me, rosters: &rosters, claims, sight: &self.mesh, synced: &self.synced, up_ms: self.up_ms };
        self.warden.consider(&facts)
    }

    /// The holders of its promises.
    pub(crate) fn holders(&mut self) -> Vec<NodeId> {
        self.considers();
        self.warden.promises().map(|promise| promise.holder).collect()
    }

    pub(crate) fn restarts(&mut self) {
        self.warden = Warden::from_bytes(&self.warden.to_bytes()).unwrap();
        self.synced = Synced::default();
    }
}

/// A holder with a claim on slot 0 of a pool of `nodes`, made at second 100 of both clocks.
pub(crate) struct Holder {
    pub(crate) map: PoolMap,
    pub(crate) mesh: Mesh,
    pub(crate) claim: SeenClaim,
    pub(crate) made: Option<MadeAt>,
    pub(crate) now: Now,
    pub(crate) stopped: bool,
    pub(crate) older_generation: bool,
    pub(crate) roster_moved: bool,
    pub(crate) synced: Result<(), Syncing>,
}

pub(crate) fn at(boot_s: u64, wall_s: u64) -> Now {
    Now { awake_ms: 0, boot: Time(boot_s * 1_000), wall: Timestamp::from_seconds(wall_s) }
}

impl Holder {
    pub(crate) fn in_a_pool_of(nodes: u8) -> Self {
        let mut mesh = Mesh::default();
        let claim = claim(5, 0);
        mesh.says(node(0), 5, Phase::Claiming, Some(claim.clone()));
        let now = at(100, 100);
        Self {
            map: pool_map(nodes, policy(1, nodes)),
            mesh,
            claim: seen(node(0), &claim),
            made: Some(MadeAt::now(&now)),
            now,
            stopped: false,
            older_generation: false,
            roster_moved: false,
            synced: Ok(()),
        }
    }

    pub(crate) fn wardens(&self) -> &Wardens {
        self.map.wardens(&slot(0)).unwrap()
    }

    /// The first `count` wardens grant `claim`.
    pub(crate) fn granted_by(&mut self, count: usize) {
        for warden in self.wardens().nodes.clone().into_iter().take(count) {
            self.mesh.grants_to(warden, &[&self.claim.clone()]);
        }
    }

    pub(crate) fn may_start(&self) -> Start {
        let facts = StartFacts {
            made: self.made,
            now: self.now,
            start_within_ms: START_WITHIN_MS,
            stopped: self.stopped,
            older_generation: self.older_generation,
            roster_moved: self.roster_moved,
            wardens: Some(self.wardens()),
            synced: self.synced,
        };
        may_start(&self.claim, &facts, &self.mesh)
    }
}
