//! What a walk is judged by, and what a failure shows.

use groundswell_core::digest::Digest;
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::warden::Facts;

use super::super::mesh::edge;
use super::World;

impl World {
    /// What breaks the budget now, if anything does.
    pub(super) fn violation(&self) -> Option<String> {
        let mut held: Vec<(u64, SeenClaim)> = Vec::new();
        for machine in self.machines.iter().filter(|machine| !machine.retired) {
            let active = SeenClaim::standing(machine.id, &machine.own.1).filter(|claim| claim.active);
            held.extend(active.map(|claim| (machine.started_at, claim)));
        }
        for (index, (since, claim)) in held.iter().enumerate() {
            for (other_since, other) in &held[index + 1..] {
                let (later, earlier) = if since >= other_since { (claim, other) } else { (other, claim) };
                if later.slot == earlier.slot {
                    return Some(format!("{} has two holders, under {} and {}", later.slot, earlier.roster, later.roster));
                }
                let (old, new) = (&self.charter.get(&earlier.roster)?.map, &self.charter.get(&later.roster)?.map);
                let budget = new.pool(&edge()).map_or(0, |seats| seats.slots(true));
                if since != other_since && old.version() <= new.version() && earlier.slot.number >= budget {
                    return Some(format!("{} is held, and somebody started under {} with {budget}", earlier.slot, later.roster));
                }
            }
        }
        None
    }

    /// Where everybody stands, for whoever reads a failure.
    pub(super) fn standing(&self) -> String {
        let mut text = format!("{} rosters, newest {}\n", self.charter.cuts.len(), self.charter.version());
        for (at, machine) in self.machines.iter().enumerate().filter(|(_, machine)| !machine.retired) {
            let version = |roster: &Digest| self.charter.get(roster).map_or(0, |cut| cut.map.version());
            let claim = SeenClaim::standing(machine.id, &machine.own.1).next();
            let mut warden = machine.warden.clone();
            let considered = self.with_rosters(at, |machine, rosters| {
                let claims = machine.mesh.candidates();
                let (up_ms, sight) = (machine.presence.up_ms(), &machine.mesh);
                let facts = Facts { me: machine.id, rosters, claims: &claims, sight, synced: &machine.synced, up_ms };
                warden.consider(&facts)
            });
            text += &format!(
                "{at}: liar {} done {} declared {:?} claim {:?} amnesia {:?} hold {:?} promises {}\n",
                machine.liar,
                machine.done,
                machine.warden.declared().as_ref().map(version),
                claim.map(|claim| (claim.slot.number, version(&claim.roster), claim.active)),
                machine.warden.amnesia_left_ms(machine.presence.up_ms()),
                considered.roster_hold.map(|hold| hold.to_string()),
                machine.warden.promises().count(),
            );
            for (claim, refusal) in considered.refusals {
                text += &format!("   refuses slot {} under {}: {refusal}\n", claim.slot.number, version(&claim.roster));
            }
        }
        text
    }
}
