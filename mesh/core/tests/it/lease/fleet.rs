//! Several rosters and the wardens of all of them, for the cases of rule 8. Everybody sees everything that is said.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use groundswell_core::digest::Digest;
use groundswell_core::lease::budget::{PoolMap, Seat};
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::governing::Rosters;
use groundswell_core::lease::handover::{Handover, Reader, Waiting};
use groundswell_core::lease::synced::Synced;
use groundswell_core::lease::warden::{Considered, Decision, Facts, Refusal, Warden};
use groundswell_core::node_id::NodeId;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::status::{Claim, Phase};

use super::mesh::{Mesh, claim, edge, node, policy, slot};

/// Body digest of roster number `number`.
pub(crate) fn digest(number: u8) -> Digest {
    Digest([number; 32])
}

/// Roster `number` of `version`: `nodes` in the pool, with a budget of `slots`.
pub(crate) fn roster(number: u8, version: u64, previous: &[u8], settled: u64, nodes: Range<u8>, slots: u16) -> PoolMap {
    let count = u8::try_from(nodes.len()).unwrap();
    let seats = nodes.map(|number| Seat { node: node(number), pool: edge(), dormant: false });
    let previous: Vec<Digest> = previous.iter().map(|number| digest(*number)).collect();
    PoolMap::new(digest(number), version, &previous, settled, &[(edge(), policy(slots, count))].into(), seats)
}

/// Wardens with their own memories over one shared mesh.
pub(crate) struct Fleet {
    pub(crate) mesh: Mesh,
    pub(crate) up_ms: u64,
    maps: Vec<PoolMap>,
    wardens: BTreeMap<NodeId, Warden>,
    synced: Synced,
}

impl Fleet {
    pub(crate) fn with(maps: Vec<PoolMap>) -> Self {
        let mut synced = Synced::default();
        (0..60).for_each(|number| synced.note(node(number)));
        Self { mesh: Mesh::default(), up_ms: 0, maps, wardens: BTreeMap::new(), synced }
    }

    pub(crate) fn map(&self, number: u8) -> &PoolMap {
        self.maps.iter().find(|map| map.roster() == digest(number)).unwrap()
    }

    /// The wardens of a slot under roster `number`.
    pub(crate) fn wardens(&self, number: u8, of_slot: u16) -> Vec<NodeId> {
        self.map(number).wardens(&slot(of_slot)).unwrap().nodes.clone()
    }

    /// `warden`, to whom only `known` rosters have come, looks at everything, and says what it then promises.
    pub(crate) fn looks(&mut self, warden: NodeId, known: &[u8]) -> Considered {
        let known: BTreeSet<Digest> = known.iter().map(|number| digest(*number)).collect();
        let rosters = Rosters::new(self.maps.iter().filter(|map| known.contains(&map.roster())));
        let claims = self.mesh.candidates();
        let facts =
            Facts { me: warden, rosters: &rosters, claims: &claims, sight: &self.mesh, synced: &self.synced, up_ms: self.up_ms };
        let state = self.wardens.entry(warden).or_default();
        let considered = state.consider(&facts);
        self.mesh.grants.insert(warden, state.record());
        considered
    }

    /// All of `wardens` look, one after the other.
    pub(crate) fn all_look(&mut self, wardens: &[NodeId], known: &[u8]) {
        for warden in wardens {
            self.looks(*warden, known);
        }
    }

    /// What the state of `warden` is made to be: for liars and set-back stores.
    pub(crate) fn warden(&mut self, warden: NodeId) -> &mut Warden {
        self.wardens.entry(warden).or_default()
    }

    /// `holder` claims slot `number` under a roster, in its record `counter`.
    pub(crate) fn claims(&mut self, holder: u8, counter: u64, number: u16, under: u8) -> SeenClaim {
        let claim = Claim { roster: digest(under), ..claim(counter, number) };
        self.mesh.says(node(holder), counter, Phase::Claiming, Some(claim.clone()));
        SeenClaim::of(node(holder), &claim, false).unwrap()
    }

    /// It goes on to be disrupted, with the record after its claim's.
    pub(crate) fn starts(&mut self, holder: u8, claimed: &SeenClaim) {
        let claim = Claim { roster: claimed.roster, ..claim(claimed.name.0.counter, claimed.slot.number) };
        self.mesh.says(node(holder), claimed.name.0.counter + 1, Phase::Activating, Some(claim));
    }

    /// It is back.
    pub(crate) fn confirms(&mut self, holder: u8, claimed: &SeenClaim) {
        self.mesh.says(node(holder), claimed.name.0.counter + 2, Phase::Confirmed, None);
    }

    /// How many wardens of a slot under roster `number` list a promise for this claim, and how many it takes.
    pub(crate) fn support(&self, number: u8, claimed: &SeenClaim) -> (usize, usize) {
        let wardens = self.map(number).wardens(&claimed.slot).unwrap();
        let lists =
            |warden: &&NodeId| self.mesh.grants.get(*warden).is_some_and(|grants| grants.promises.contains(&claimed.promise()));
        (wardens.nodes.iter().filter(lists).count(), wardens.quorum)
    }

    pub(crate) fn has_quorum(&self, number: u8, claimed: &SeenClaim) -> bool {
        let (have, need) = self.support(number, claimed);
        have >= need
    }

    /// Whether `me` may grant a slot under roster `number`, and what it waits for.
    pub(crate) fn opens(&self, me: NodeId, number: u8, of_slot: u16) -> Result<(), Waiting> {
        self.read(me, number, |handover| handover.opens(&slot(of_slot)))
    }

    /// What the next roster after `number` may call settled, as `me` sees it.
    pub(crate) fn settled(&self, me: NodeId, number: u8) -> (u64, Option<Waiting>) {
        self.read(me, number, |handover| handover.settled())
    }

    fn read<T>(&self, me: NodeId, number: u8, ask: impl FnOnce(Handover<'_, Mesh>) -> T) -> T {
        let rosters = Rosters::new(&self.maps);
        let own = self.wardens.get(&me).map_or_else(Grants::default, Warden::record);
        let reader = Reader { me, own: &own, rosters: &rosters, sight: &self.mesh, synced: &self.synced };
        ask(Handover::to(self.map(number), reader))
    }
}

/// The roster changes that a look refused for, and what each waits for.
pub(crate) fn waits(considered: &Considered) -> Vec<Waiting> {
    let refusals = considered.refusals.iter();
    refusals.filter_map(|(_, refusal)| if let Refusal::RosterChange(waiting) = refusal { Some(*waiting) } else { None }).collect()
}

pub(crate) fn granted(considered: &Considered, claimed: &SeenClaim) -> bool {
    considered.decisions.contains(&Decision::Grant(claimed.promise()))
}
