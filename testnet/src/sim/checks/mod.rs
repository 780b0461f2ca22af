//! What must hold: one named function per guarantee of the design (section 2), judged by what the virtual devices do and
//! by what was really signed, never by what one node believes.
//!
//! S is checked after each step and panics with the guarantee's name; L is asked after the world was healed. Here stands
//! when each is asked; [`safety`], [`leases`] and [`upgrade`] say what is S, [`liveness`] what is L, [`truth`] what happened.

pub mod leases;
pub mod liveness;
pub mod safety;
pub mod truth;
pub mod upgrade;

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::Rollout;
use groundswell_core::node::Node;
use groundswell_core::node::effect::{Event, Install};
use groundswell_core::node::view::RolloutView;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::status::{Claim, Outcome, Phase, Purpose, Status};
use groundswell_core::record::{ClaimName, RecordKey, RecordKind};
use groundswell_core::text::{Pool, RolloutId};

use self::leases::{s1_amnesia, s1_claim_age, s1_one_holder, s1_quorum, s1_synced, s7_incarnation};
use self::safety::{s1_budget, s2_evidence, s3_trust, s4_halt, s5_floor, s6_runnable, s7_members};
use self::upgrade::{l1_unblamed, s2_vouched, s3_expiry, s3_forged, s4_brakes, s6_confirmed};
use super::machine::{Confirmed, Machine, Published};
use super::operator::product;
use super::world::World;

impl World {
    /// After each step of a machine. `kept`: it wrote something to its disk, as whatever it takes in does.
    pub(super) fn check(&mut self, index: u32, kept: bool) {
        self.note_claim(index);
        self.note_incarnation(index);
        self.note_failures(index);
        let machine = self.machine(index);
        let floor = machine.device.floor();
        let known = self.truth.floors.entry(index).or_default();
        *known = floor.max(*known);
        let machine = self.machine(index);
        self.demand(index, "S5", s5_floor(&self.truth, machine));
        self.demand(index, "S6", s6_runnable(machine, self.now_ms));
        if let Some(node) = machine.node.as_ref().filter(|_| kept) {
            self.demand(index, "S3", s3_forged(&self.truth, node));
            self.demand(index, "S7", s7_members(self, node));
        }
    }

    /// What a crash cut off was perhaps not told: forget what this machine had granted.
    pub(super) fn forget_grants(&mut self, index: u32) {
        let id = self.machine(index).id;
        self.truth.grants.retain(|(warden, _, _), _| *warden != id);
    }

    /// After each step of a device.
    pub(super) fn check_all_devices(&mut self) {
        if let Err(why) = s1_budget(self) {
            let told = format!("S1 at {} ms: {why}", self.now_ms);
            assert!(self.beyond_margin, "{told}");
            self.broken.get_or_insert(told);
        }
        let pools: Vec<_> = self.budgets.keys().cloned().collect();
        for pool in pools {
            let now = self.machines.iter().filter(|machine| machine.pool == pool && machine.device.disrupted()).count();
            let most = self.most_disrupted.entry(pool).or_default();
            *most = now.max(*most);
        }
    }

    /// A machine is about to touch its running version.
    pub(super) fn check_start(&mut self, index: u32, install: &Install) {
        // Where a node is the only warden, it claims, grants and starts in one step.
        self.note_claim(index);
        let machine = self.machine(index);
        self.demand(index, "S3", s3_trust(&self.truth, install));
        let Some(node) = &machine.node else { return };
        let claim = machine.claim();
        let Some((view, rollout)) = claim.as_ref().and_then(|claim| counting(node, machine, self.now_ms, claim)) else {
            return self.demand(index, "S2", Err("starts without a claim for a rollout".to_string()));
        };
        self.demand(index, "S3", s3_expiry(node, machine, self.now_ms, rollout));
        self.demand(index, "S2", s2_evidence(self, node, machine.id, &view, rollout));
        self.demand(index, "S4", s4_halt(machine, node, &view, rollout));
        self.demand(index, "S4", s4_brakes(node, &rollout.id));
        let Some(claim) = claim.filter(|claim| claim.slot.is_some()) else {
            let down = if machine.health.down { Ok(()) } else { Err("starts without a slot though it is not down".to_string()) };
            return self.demand(index, "S1", down);
        };
        if !machine.liar {
            self.demand(index, "S1", s1_quorum(self, machine.id, &claim));
            self.demand(index, "S1", s1_claim_age(self, machine, &claim));
            self.demand(index, "S1", s1_synced(self, machine, &claim));
        }
        self.demand(index, "S1", s1_amnesia(self, machine));
    }

    /// A machine is about to make what is on trial final.
    pub(super) fn check_confirm(&mut self, index: u32, release: Digest) {
        let machine = self.machine(index);
        if machine.device.trial() != Some(release) {
            return;
        }
        let rollout = machine.node.as_ref().and_then(|node| of_release(node, release));
        if let Some(rollout) = rollout {
            self.demand(index, "S6", s6_confirmed(self, machine, rollout));
        }
        let (at_ms, life) = (self.now_ms, machine.life);
        self.machine_mut(index).confirmed = Some(Confirmed { release, at_ms, life });
    }

    /// A machine is about to send back what is on trial.
    pub(super) fn check_revert(&mut self, index: u32, release: Digest) {
        let machine = self.machine(index);
        if machine.device.trial() != Some(release) {
            return;
        }
        let rollout = machine.node.as_ref().and_then(|node| of_release(node, release));
        self.demand(index, "L1", l1_unblamed(machine, rollout));
        self.machine_mut(index).health.ordered_back = true;
    }

    /// Takes in what a node tells, and holds it against the truth.
    pub(super) fn learn(&mut self, index: u32, event: &Event) {
        match event {
            Event::VerdictSigned { rollout, outcome: Outcome::Soaked, .. } => {
                let machine = self.machine(index);
                if let Some(known) = machine.node.as_ref().and_then(|node| node.shelf().rollout(rollout)) {
                    self.demand(index, "S2", s2_vouched(self, machine, &known.rollout));
                }
                let id = machine.id;
                self.truth.soaked.insert((rollout.clone(), id));
            }
            // What failed and is forgiven vouches for what runs already: the soak of that attempt is over.
            Event::VerdictSigned { .. } => self.machine_mut(index).confirmed = None,
            Event::PhaseChanged { rollout: Some(rollout), to: Phase::Skipped, .. } => {
                let id = self.machine(index).id;
                self.truth.out_of_counts.insert((rollout.clone(), id));
            }
            Event::Convicted { node, .. } => {
                let lied = self.machines.iter().any(|machine| machine.id == *node && machine.liar);
                let why = format!("convicts {node}, which has never lied");
                self.demand(index, "S7", if lied { Ok(()) } else { Err(why) });
            }
            Event::SetBack { incarnation } => {
                let machine = self.machine(index);
                let why = "believes to be set back, and was not".to_string();
                self.demand(index, "S7", if machine.liar { Ok(()) } else { Err(why) });
                self.demand(index, "S7", s7_incarnation(self, machine, *incarnation));
                let up_ms = machine.up_ms(self.now_ms);
                self.truth.set_back.insert(index, up_ms);
                self.truth.incarnations.insert(index, *incarnation);
            }
            Event::Granted { pool, slot, holder, claim } => {
                self.check_grant(index, pool, *slot, (*holder, *claim));
            }
            Event::GrantEnded { pool, slot, .. } => {
                let id = self.machine(index).id;
                self.truth.grants.remove(&(id, pool.clone(), *slot));
            }
            _ => {}
        }
    }

    /// A warden has promised a slot.
    fn check_grant(&mut self, index: u32, pool: &Pool, slot: u16, to: (NodeId, ClaimName)) {
        let machine = self.machine(index);
        self.demand(index, "S1", s1_one_holder(self, machine, (pool, slot)));
        let id = machine.id;
        self.truth.grants.insert((id, pool.clone(), slot), to);
        let machine = self.machine(index);
        let Some(node) = machine.node.as_ref() else { return };
        self.demand(index, "S1", s1_amnesia(self, machine));
        // What it adopts after amnesia it only honours; the claim may be over meanwhile.
        let claim = node.ledger().status(&to.0).and_then(claim_in).filter(|claim| claim.name == to.1);
        let Some(claim) = claim.filter(|_| !machine.liar) else { return };
        self.demand(index, "S1", s1_synced(self, machine, &claim));
        if let Some((view, rollout)) = counting(node, machine, self.now_ms, &claim) {
            self.demand(index, "S4", s4_halt(machine, node, &view, rollout));
            self.demand(index, "S4", s4_brakes(node, &rollout.id));
        }
    }

    /// When a claim was first published, by true time.
    fn note_claim(&mut self, index: u32) {
        let at_ms = self.now_ms;
        let machine = self.machine_mut(index);
        let name = machine.claim_name();
        let Some(name) = name.filter(|name| machine.claimed.is_none_or(|known| known.name < *name)) else { return };
        machine.claimed = Some(Published { name, at_ms, life: machine.life });
        // What it claimed in its former life it only takes back.
        let own = self.truth.incarnations.get(&index).is_none_or(|incarnation| name.0.incarnation >= *incarnation);
        let machine = self.machine(index);
        if own && self.is_one_place(machine) {
            self.demand(index, "S1", s1_amnesia(self, machine));
        }
    }

    /// Under which incarnation its newest records are signed. One that it went on under and said nothing in, it may go on under again.
    fn note_incarnation(&mut self, index: u32) {
        let machine = self.machine(index);
        let Some(node) = &machine.node else { return };
        let keys = [RecordKind::Status, RecordKind::Grants].map(|kind| RecordKey { node: machine.id, kind });
        let stamps = keys.iter().filter_map(|key| node.ledger().stamp(key));
        if let Some(newest) = stamps.map(|stamp| stamp.incarnation).max() {
            let known = self.truth.signed_under.entry(index).or_default();
            *known = newest.max(*known);
        }
    }

    /// Which failures a member that lies shows to this machine now. All others take nothing back.
    fn note_failures(&mut self, index: u32) {
        let Some(node) = &self.machine(index).node else { return };
        let liars = self.machines.iter().filter(|machine| machine.liar && machine.index != index);
        let failures = liars.flat_map(|liar| {
            let sections = node.ledger().status(&liar.id).and_then(|status| status.products.get(&product()));
            let verdicts = sections.into_iter().flat_map(|section| &section.verdicts);
            let failed = verdicts.filter(|verdict| verdict.outcome != Outcome::Soaked);
            failed.map(|verdict| (verdict.rollout.clone(), liar.id, verdict.claim)).collect::<Vec<_>>()
        });
        let failures: Vec<_> = failures.collect();
        self.machine_mut(index).owned_up.extend(failures);
    }

    /// Whether nobody else has this machine's key.
    pub(super) fn is_one_place(&self, machine: &Machine) -> bool {
        self.machines.iter().filter(|other| other.key == machine.key).count() == 1
    }

    fn demand(&self, index: u32, guarantee: &str, result: Result<(), String>) {
        if let Err(why) = result {
            panic!("{guarantee} at {} ms, machine {index}: {why}", self.now_ms);
        }
    }
}

/// The rollout that a claim is for, at the generation that counts at `node`.
fn counting<'a>(node: &'a Node, machine: &Machine, at_ms: u64, claim: &Claim) -> Option<(RolloutView, &'a Rollout)> {
    let Purpose::Rollout(digest) = &claim.purpose else { return None };
    let id = node.shelf().rollout_by_digest(digest)?.id.clone();
    let view = node.rollouts(machine.now(at_ms)).into_iter().find(|view| view.id == id.to_string())?;
    Some((view, &node.shelf().rollout(&id)?.rollout))
}

fn of_release(node: &Node, release: Digest) -> Option<&Rollout> {
    node.shelf().rollouts().map(|known| &known.rollout).find(|rollout| rollout.release.digest == release)
}

fn claim_in(status: &Status) -> Option<Claim> {
    status.products.get(&product())?.claim.clone()
}

impl Machine {
    /// Its claim, by its own newest record.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        self.node.as_ref()?.ledger().status(&self.id).and_then(claim_in)
    }

    /// That claim's name.
    #[must_use]
    pub fn claim_name(&self) -> Option<ClaimName> {
        let status = self.node.as_ref()?.ledger().status(&self.id)?;
        status.products.values().find_map(|section| Some(section.claim.as_ref()?.name))
    }

    /// The name of the claim under which it was last disrupted, if it is.
    #[must_use]
    pub fn kept_claim(&self) -> Option<ClaimName> {
        self.disruption.claim
    }

    /// Its phase, by its own newest record.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        Some(self.node.as_ref()?.ledger().status(&self.id)?.products.get(&product())?.phase)
    }

    /// Whether it soaks for this rollout what its device has confirmed last.
    pub(super) fn soaks(&self, rollout: &RolloutId, confirmed: &Confirmed) -> bool {
        let known = self.node.as_ref().and_then(|node| node.shelf().rollout(rollout));
        !self.liar && known.is_some_and(|known| known.rollout.release.digest == confirmed.release)
    }
}
