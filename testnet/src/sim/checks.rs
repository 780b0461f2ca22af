//! What must hold: one named function per guarantee of the design (section 2), judged by what the virtual devices do and
//! by what was really signed, never by what one node believes.
//!
//! S is checked after each step and panics with the guarantee's name; L is asked after the world was healed.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::documents::rollout::Rollout;
use groundswell_core::node::Node;
use groundswell_core::node::effect::{Event, Install};
use groundswell_core::node::view::RolloutView;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Sequence;
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::{Claim, Outcome, Phase, Purpose};
use groundswell_core::text::RolloutId;

use super::machine::Machine;
use super::operator::product;
use super::world::World;

/// What really happened so far: more than any node knows.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Releases that a threshold of keys signed, with their sequence. Empty: not watched.
    pub releases: BTreeMap<Digest, Sequence>,
    /// Who ever signed that it soaked.
    soaked: BTreeSet<(RolloutId, NodeId)>,
    /// Who was ever out of a rollout's counts: skipped, forgiven, gone.
    pub out_of_counts: BTreeSet<(RolloutId, NodeId)>,
    /// Nodes whose certificate was retired.
    pub retired: BTreeSet<NodeId>,
    floors: BTreeMap<u32, Sequence>,
    grants: BTreeMap<(NodeId, String, u16), (NodeId, ClaimName)>,
}

impl Truth {
    /// A machine's slots were set back with everything that they knew: what runs there is no older than what they know now.
    pub(super) fn set_back(&mut self, index: u32, floor: Sequence) {
        self.floors.insert(index, floor);
    }
}

/// S1: no pool has more nodes disrupted than its budget. Machines that were made to lie count for themselves only.
///
/// # Errors
/// Who is disrupted.
pub fn s1_budget(world: &World) -> Result<(), String> {
    for (pool, budget) in &world.budgets {
        let lost_after_ms =
            world.operator.policies.get(pool).map_or(86_400, |policy| policy.presume_lost_after_seconds).saturating_mul(1_000);
        let counts = |machine: &&Machine| {
            let Some(since) = machine.disruption.since_ms else { return false };
            // A warden may have heard its holder last when it claimed, up to a start time before.
            let lost = lost_after_ms > 0 && world.now_ms.saturating_sub(since) + 60_000 >= lost_after_ms;
            machine.pool == *pool && !machine.liar && !machine.disruption.repair && !machine.disruption.written_off && !lost
        };
        let disrupted: Vec<u32> = world.machines.iter().filter(counts).map(|machine| machine.index).collect();
        if disrupted.len() > usize::from(*budget) {
            return Err(format!("{disrupted:?} of pool {pool} are disrupted, its budget is {budget}"));
        }
    }
    Ok(())
}

/// S2: whoever starts has the evidence that its rollout asks for from every earlier wave: that many members have
/// really signed that they soaked.
///
/// # Errors
/// Which wave lacks it.
pub fn s2_evidence(truth: &Truth, node: &Node, id: NodeId, view: &RolloutView, rollout: &Rollout) -> Result<(), String> {
    let mine = view.nodes.iter().find(|row| row.node == id).map_or(u32::MAX, |row| row.wave);
    for wave in view.waves.iter().filter(|wave| wave.index < mine && wave.members > 0) {
        let gone = |member: &NodeId| {
            truth.out_of_counts.contains(&(rollout.id.clone(), *member))
                || truth.retired.contains(member)
                || node.ledger().is_convicted(member)
        };
        let members: Vec<NodeId> = view.nodes.iter().filter(|row| row.wave == wave.index).map(|row| row.node).collect();
        let soaked = members.iter().filter(|member| truth.soaked.contains(&(rollout.id.clone(), **member))).count();
        let applicable = members.iter().filter(|member| !gone(member)).count();
        if soaked < rollout.min_soaked_ppm.ceil_of(applicable) {
            return Err(format!("wave {} has {soaked} soaked of {applicable}, and a node of wave {mine} starts", wave.index));
        }
    }
    Ok(())
}

/// S3: only what a threshold of keys signed is activated.
///
/// # Errors
/// What was not signed.
pub fn s3_trust(truth: &Truth, install: &Install) -> Result<(), String> {
    match truth.releases.get(&install.release) {
        _ if truth.releases.is_empty() => Ok(()),
        Some(sequence) if *sequence == install.sequence => Ok(()),
        _ => Err(format!("activates {install:?}, which nobody signed")),
    }
}

/// S4: nobody who can see that too many failed starts or grants: counted here from the records and documents alone,
/// and fewer than a node counts, which knows silence too.
///
/// # Errors
/// Which wave is over its ratio.
pub fn s4_halt(node: &Node, view: &RolloutView, rollout: &Rollout) -> Result<(), String> {
    for wave in &view.waves {
        let failed = |member: &NodeId| {
            if node.ledger().is_convicted(member) || node.shelf().is_retired(member) {
                return false;
            }
            let verdicts = node.ledger().verdicts(member, &rollout.release.product);
            let forgiven = rollout.forgiven.iter().filter(|entry| entry.node == *member).map(|entry| entry.claim).max();
            let counts = |claim: Option<ClaimName>| forgiven.is_none_or(|upto| claim > upto);
            let mine = verdicts.iter().filter(|verdict| verdict.rollout == rollout.id && verdict.outcome != Outcome::Soaked);
            mine.into_iter().any(|verdict| counts(verdict.claim))
        };
        let rows: Vec<NodeId> = view.nodes.iter().filter(|row| row.wave == wave.index).map(|row| row.node).collect();
        let failures = rows.iter().filter(|member| failed(member)).count() as u64;
        let over = failures * 1_000_000 > u64::from(rollout.halt.max_failure_ppm.parts()) * rows.len() as u64;
        if over && failures >= u64::from(rollout.halt.min_failures) {
            return Err(format!("{failures} of {} failed in wave {}, in sight of this node", rows.len(), wave.index));
        }
    }
    Ok(())
}

/// S5: what runs is never below what was once confirmed.
///
/// # Errors
/// What runs below the floor.
pub fn s5_floor(truth: &Truth, machine: &Machine) -> Result<(), String> {
    let floor = truth.floors.get(&machine.index).copied().unwrap_or_default();
    match machine.device.running() {
        Some(running) if running.sequence < floor => Err(format!("runs {running:?} below its floor {floor}")),
        _ => Ok(()),
    }
}

/// S6: something runs at every instant, and a node that is not in the middle of an upgrade knows what, once its device
/// has told it: at the instant of its start it knows what its store says, which may have been set back.
///
/// # Errors
/// What it believes instead.
pub fn s6_runnable(machine: &Machine, at_ms: u64) -> Result<(), String> {
    let Some(running) = machine.device.running() else { return Err("nothing runs".to_string()) };
    let Some(node) = machine.node.as_ref().filter(|_| machine.booted_ms < at_ms) else { return Ok(()) };
    for product in node.view(machine.now(at_ms)).products {
        let believes = product.version.filter(|_| product.phase != Phase::Activating);
        if believes.as_ref().is_some_and(|version| *version != running.version.to_string()) {
            return Err(format!("believes {believes:?} in phase {:?}, and {} runs", product.phase, running.version));
        }
    }
    Ok(())
}

/// S7: only members have records here, and only who lied is convicted.
///
/// # Errors
/// Whose record it is.
pub fn s7_members(world: &World, node: &Node) -> Result<(), String> {
    for (key, _) in node.ledger().entries() {
        let mut machines = world.machines.iter().filter(|machine| machine.id == key.node).peekable();
        if machines.peek().is_none() {
            return Err(format!("keeps a record of {}, which is no member", key.node));
        }
        if node.ledger().is_convicted(&key.node) && !machines.any(|machine| machine.liar) {
            return Err(format!("convicts {}, which has never lied", key.node));
        }
    }
    Ok(())
}

/// L1: everybody who is honest and not retired runs the release and has vouched for it.
///
/// # Errors
/// Who does not.
pub fn l1_everybody(world: &World, release: Digest) -> Result<(), String> {
    let late: Vec<String> =
        world.machines.iter().filter(|machine| !machine.done_with(world, release)).map(|machine| machine.tell(world)).collect();
    if late.is_empty() { Ok(()) } else { Err(late.join("; ")) }
}

/// L2: so does everybody who was away when it was published.
///
/// # Errors
/// Who does not.
pub fn l2_returned(world: &World, release: Digest, away: &BTreeSet<u32>) -> Result<(), String> {
    let late = away.iter().map(|index| world.machine(*index)).filter(|machine| !machine.done_with(world, release));
    let late: Vec<String> = late.map(|machine| machine.tell(world)).collect();
    if late.is_empty() { Ok(()) } else { Err(late.join("; ")) }
}

/// L3: everybody who is up knows this generation.
///
/// # Errors
/// Who does not.
pub fn l3_heard(world: &World, id: &RolloutId, generation: u64) -> Result<(), String> {
    let knows = |node: &Node| node.shelf().rollout(id).is_some_and(|known| known.rollout.generation.get() >= generation);
    let members = world.machines.iter().filter(|machine| !machine.liar && !world.truth.retired.contains(&machine.id));
    let deaf = members.filter(|machine| machine.node.as_ref().is_some_and(|node| !knows(node)));
    let deaf: Vec<u32> = deaf.map(|machine| machine.index).collect();
    if deaf.is_empty() { Ok(()) } else { Err(format!("{deaf:?} have not heard of generation {generation} of {id}")) }
}

/// L4: no slot is taken, at any honest warden, once everybody is done; but by convicts, until they are written off.
///
/// # Errors
/// Which slot is.
pub fn l4_slots(world: &World) -> Result<(), String> {
    for machine in world.machines.iter().filter(|machine| !machine.liar && !world.truth.retired.contains(&machine.id)) {
        let Some(node) = &machine.node else { continue };
        for lease in node.leases(machine.now(world.now_ms)) {
            let held = lease.holder.filter(|holder| !world.machines.iter().any(|other| other.id == *holder && other.liar));
            if let Some(holder) = held {
                return Err(format!("{}: slot {} of {} is still {holder}'s", machine.index, lease.slot, lease.pool));
            }
        }
    }
    Ok(())
}

impl World {
    pub(super) fn check(&mut self, index: u32) {
        let machine = self.machine(index);
        let floor = machine.device.floor();
        let known = self.truth.floors.entry(index).or_default();
        *known = floor.max(*known);
        let machine = self.machine(index);
        self.demand(index, "S5", s5_floor(&self.truth, machine));
        if self.steps.is_multiple_of(8) {
            self.demand(index, "S6", s6_runnable(machine, self.now_ms));
        }
        if self.steps.is_multiple_of(256) {
            let result = machine.node.as_ref().map_or(Ok(()), |node| s7_members(self, node));
            self.demand(index, "S7", result);
        }
    }

    /// What a crash may have cut off was perhaps not told: forget what this machine had granted.
    pub(super) fn forget_grants(&mut self, index: u32) {
        let id = self.machine(index).id;
        self.truth.grants.retain(|(warden, _, _), _| *warden != id);
    }

    pub(super) fn check_all_devices(&mut self) {
        if let Err(why) = s1_budget(self) {
            panic!("S1 at {} ms: {why}", self.now_ms);
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
        let machine = self.machine(index);
        self.demand(index, "S3", s3_trust(&self.truth, install));
        let Some(node) = &machine.node else { return };
        let Some((view, rollout)) = machine.claim().and_then(|claim| counting(node, machine, self.now_ms, &claim)) else {
            return self.demand(index, "S2", Err("starts without a claim for a rollout".to_string()));
        };
        self.demand(index, "S2", s2_evidence(&self.truth, node, machine.id, &view, rollout));
        self.demand(index, "S4", s4_halt(node, &view, rollout));
        let down = machine.found_down;
        if machine.claim().is_some_and(|claim| claim.slot.is_none()) && !down {
            self.demand(index, "S1", Err("starts without a slot though it is not down".to_string()));
        }
    }

    /// Takes in what a node tells, and holds it against the truth.
    pub(super) fn learn(&mut self, index: u32, event: &Event) {
        match event {
            Event::VerdictSigned { rollout, outcome: Outcome::Soaked, .. } => {
                let machine = self.machine(index);
                let known = machine.node.as_ref().and_then(|node| node.shelf().rollout(rollout));
                let release = known.map(|known| known.rollout.release.digest);
                let runs = machine.device.running().map(|running| running.release);
                if release.is_some() && (runs != release || machine.device.trial().is_some()) {
                    let why = format!("vouches for {release:?}, and {runs:?} runs, trial {:?}", machine.device.trial());
                    self.demand(index, "S2", Err(why));
                }
                let id = self.machine(index).id;
                self.truth.soaked.insert((rollout.clone(), id));
            }
            Event::PhaseChanged { rollout: Some(rollout), to: Phase::Skipped, .. } => {
                let id = self.machine(index).id;
                self.truth.out_of_counts.insert((rollout.clone(), id));
            }
            Event::Convicted { node, .. } => {
                let lied = self.machines.iter().any(|machine| machine.id == *node && machine.liar);
                let why = format!("convicts {node}, which has never lied");
                self.demand(index, "S7", if lied { Ok(()) } else { Err(why) });
            }
            Event::SetBack { .. } => {
                let lied = self.machine(index).liar;
                self.demand(index, "S7", if lied { Ok(()) } else { Err("believes to be set back, and was not".to_string()) });
            }
            Event::Granted { pool, slot, holder, claim } => {
                let (id, liar) = (self.machine(index).id, self.machine(index).liar);
                let granted = self.truth.grants.insert((id, pool.to_string(), *slot), (*holder, *claim));
                if let (Some(before), false) = (granted, liar) {
                    let why = format!("grants slot {slot} of {pool} to {holder}, and had granted it to {before:?}");
                    self.demand(index, "S1", Err(why));
                }
                let machine = self.machine(index);
                let Some(node) = machine.node.as_ref() else { return };
                let claim = node.ledger().status(holder).and_then(claim_in);
                if let Some((view, rollout)) = claim.and_then(|claim| counting(node, machine, self.now_ms, &claim)) {
                    self.demand(index, "S4", s4_halt(node, &view, rollout));
                }
            }
            Event::GrantEnded { pool, slot, .. } => {
                let id = self.machine(index).id;
                self.truth.grants.remove(&(id, pool.to_string(), *slot));
            }
            _ => {}
        }
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

fn claim_in(status: &groundswell_core::record::status::Status) -> Option<Claim> {
    status.products.get(&product())?.claim.clone()
}

impl Machine {
    /// Its claim, by its own newest record.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        self.node.as_ref()?.ledger().status(&self.id).and_then(claim_in)
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

    fn done_with(&self, world: &World, release: Digest) -> bool {
        let excepted = self.liar || world.truth.retired.contains(&self.id);
        let runs = self.device.running().is_some_and(|running| running.release == release);
        excepted || (runs && self.phase() == Some(Phase::Soaked))
    }

    fn tell(&self, world: &World) -> String {
        let told = self.node.as_ref().and_then(|node| node.explain(self.now(world.now_ms), &product()));
        let told = told.map_or_else(|| "off".to_string(), |told| format!("{} {:?}", told.summary, told.facts));
        format!("machine {} runs {:?}: {told}", self.index, self.device.running().map(|running| running.version.to_string()))
    }
}
