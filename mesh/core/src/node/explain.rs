//! `swell explain`: why this node is not moving, what it waits for, and what would move it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Node;
use super::following::wave_of;
use super::hold::Hold;
use super::life::Life;
use super::view::Explanation;
use crate::record::status::{HoldCode, Phase};
use crate::text::Product;
use crate::time::Now;

impl Node {
    /// Why `product` does not move here; `None` when it is not configured on this node.
    #[must_use]
    pub fn explain(&self, now: Now, product: &Product) -> Option<Explanation> {
        let life = self.lives.get(product)?;
        let hold = life.now.hold.as_ref();
        Some(Explanation {
            product: product.to_string(),
            summary: self.summary(product, life),
            hold: hold.map(Hold::view),
            facts: self.facts(now, life),
            ways_out: ways_out(life),
        })
    }

    fn summary(&self, product: &Product, life: &Life) -> String {
        let runs = match &life.kept.running {
            Some(running) => format!("{product} {}", running.version),
            None => format!("no {product} yet"),
        };
        let target = life.kept.rollout.as_ref().and_then(|seen| self.shelf.rollout(&seen.id));
        let to = target.map(|in_force| in_force.rollout.release.version.to_string()).unwrap_or_default();
        let doing = match life.kept.phase {
            Phase::Idle => "no rollout counts for this node".to_string(),
            Phase::Waiting => format!("waits before {to}"),
            Phase::Fetching => format!("fetches {to}"),
            Phase::Staged => format!("has {to} staged and verified"),
            Phase::Claiming => format!("has claimed a slot for {to}"),
            Phase::Activating => format!("is switching to {to}"),
            Phase::Confirmed => format!("confirmed {to}, soaking"),
            Phase::Soaked => format!("vouched for {to}"),
            Phase::RolledBack => format!("went back from {to}"),
            Phase::Failed => format!("failed on {to}"),
            Phase::Skipped => format!("{to} does not apply here"),
        };
        match &life.now.hold {
            Some(hold) => format!("runs {runs}; {doing}: {hold}"),
            None => format!("runs {runs}; {doing}"),
        }
    }

    fn facts(&self, now: Now, life: &Life) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some(why) = self.outer_door() {
            facts.push(format!("{why}"));
        }
        if let Some(skip) = &life.now.skip {
            facts.push(format!("{skip}"));
        }
        let seen = life.kept.rollout.as_ref();
        if let Some(verdict) = seen.and_then(|seen| life.verdict(&seen.id)).filter(|verdict| !verdict.reason.is_empty()) {
            facts.push(format!("verdict: {}", verdict.reason));
        }
        if let Some(progress) = seen.and_then(|seen| self.following.get(&seen.id)?.progress.as_ref()) {
            let rollout = progress.rollout();
            facts.push(format!("rollout {} generation {}", rollout.id, rollout.generation));
            if let Some(wave) = wave_of(progress, &self.me) {
                facts.push(format!("this node is in wave {} of {}", wave + 1, progress.waves().count()));
            }
            if let Some(halted) = progress.halted() {
                let hold = Hold::Halted { wave: halted.wave, failures: halted.failures, applicable: halted.applicable };
                facts.push(hold.to_string());
                let failed = self.failures(progress);
                facts.extend(failed);
            }
        }
        if let Some(attempt) = life.kept.attempt.as_ref().filter(|_| life.kept.phase == Phase::Confirmed) {
            let elapsed_ms = attempt.soak.as_ref().map_or(0, |soak| soak.elapsed_ms(now));
            let left = attempt.soak_ms.saturating_sub(elapsed_ms).div_ceil(1_000);
            facts.push(format!("{left} s of soak left"));
        }
        if let Some((health, _)) = &life.now.health {
            facts.push(match health {
                super::input::Health::Healthy => "its health check passes".to_string(),
                super::input::Health::Failing(reason) => format!("its health check fails: {reason}"),
                super::input::Health::Unknown(reason) => format!("its health cannot be judged: {reason}"),
            });
        }
        if let Some(hold) = &self.duty.roster_hold {
            facts.push(format!("as a warden: {hold}"));
        }
        facts.push(format!("{} peers connected, {} members known", self.connected.len(), self.ledger.statuses().count()));
        facts
    }

    fn failures(&self, progress: &crate::rollout::progress::Progress) -> Vec<String> {
        let product = &progress.rollout().release.product;
        let failed =
            progress.waves().order().iter().filter(|node| progress.tally().standing(node) == Some(super::view::Standing::Failed));
        failed
            .take(5)
            .map(|node| {
                let name = self.name_of(node).map_or_else(|| node.short(), |name| name.to_string());
                let verdicts = self.ledger.verdicts(node, product);
                let mine = verdicts.iter().filter(|verdict| verdict.rollout == progress.rollout().id);
                match mine.max_by_key(|verdict| (verdict.claim, verdict.outcome)) {
                    Some(verdict) => format!("{name}: {}", verdict.reason),
                    None => format!("{name}: silent"),
                }
            })
            .collect()
    }
}

/// What would move it, by hold.
fn ways_out(life: &Life) -> Vec<String> {
    let Some(hold) = &life.now.hold else {
        return match life.kept.phase {
            Phase::Failed | Phase::RolledBack => alloc::vec![
                "publish a release with a higher sequence".to_string(),
                "or `swell rollout resume --forgive-failed` to let it try again".to_string(),
            ],
            _ => Vec::new(),
        };
    };
    match hold {
        Hold::TooFewSoaked { .. } => return alloc::vec!["roll forward, or sign a generation that asks for less".to_string()],
        Hold::OuterDoor => return alloc::vec!["upgrade the agent: roll a newer release of it out to this node".to_string()],
        Hold::NoWave => return alloc::vec!["publish a rollout with a wave that takes this node in".to_string()],
        Hold::Undecided(_) => {
            return alloc::vec![
                "nothing to do where the network is to blame: what its check finds next decides".to_string(),
                "`swell rollout abort --rollback` takes it back".to_string(),
            ];
        }
        _ => {}
    }
    let way = match hold.code() {
        HoldCode::Halted => "find out why they failed; then roll forward, abort, or `swell rollout resume --forgive-failed`",
        HoldCode::Paused => "`swell rollout resume`",
        HoldCode::Conflict => "sign a higher version, sequence or generation",
        HoldCode::Expired => "sign it anew with a later end",
        HoldCode::NoFleet | HoldCode::RosterMissing | HoldCode::ReleaseMissing => {
            "connect to a peer that has it, or publish it again"
        }
        HoldCode::NoCertificate => "`swell node admit`, then publish the certificate",
        HoldCode::WaveShut | HoldCode::NoEvidence => "nothing to do: it goes on when the earlier wave has passed",
        HoldCode::Approval => "sign the advance",
        HoldCode::NotBefore | HoldCode::Window | HoldCode::Retry | HoldCode::Amnesia => "nothing to do: it ends by itself",
        HoldCode::Inhibited => "remove the inhibit file",
        HoldCode::DiskFull => "free some space",
        HoldCode::Fetching | HoldCode::Queued | HoldCode::Granting | HoldCode::SlotsTaken | HoldCode::Syncing => {
            "nothing to do: it goes on by itself while its peers are in touch"
        }
        HoldCode::NoSource => "connect a peer that has the file, or publish it again",
        HoldCode::RosterChange => "nothing to do while the wardens named are in touch; retire those that are off for good",
        HoldCode::Blocked => "roll out the newer release",
        HoldCode::DeadEnd => "install the next version by hand, as its makers say",
        HoldCode::Limits => "sign a rollout within the fleet document's limits",
        HoldCode::Convicted => "give the node a new identity",
        HoldCode::LocalTrust => "collect the signatures that it asks for, or change its configuration",
        HoldCode::Unsupported => "upgrade the agent",
        HoldCode::NoSupervisor => "start the agent by `swell supervise`",
        HoldCode::Aborted => "publish another rollout",
        HoldCode::StatusTooLarge => "configure fewer products on this node",
        HoldCode::DeviceFault | HoldCode::Unhealthy => "look at the machine: its log says what failed",
    };
    alloc::vec![way.to_string()]
}

#[cfg(test)]
mod tests {
    use super::super::life::Kept;
    use super::*;
    use crate::time::{Time, Timestamp};

    fn way(hold: Hold) -> String {
        let now = Now { awake_ms: 0, boot: Time(0), wall: Timestamp::from_seconds(0) };
        let mut life = Life::open(Kept::default(), now);
        life.now.hold = Some(hold);
        ways_out(&life).concat()
    }

    #[test]
    fn a_shut_gate_that_waiting_does_not_open_is_not_told_to_wait() {
        let who = Vec::new();
        assert!(way(Hold::WaveShut { mine: 1, waits_for: 0, who, open: 1, members: 2 }).starts_with("nothing to do"));
        assert!(way(Hold::TooFewSoaked { wave: 0, soaked: 0, needed: 1 }).contains("roll forward"));
        assert!(way(Hold::NoWave).contains("publish a rollout"));
        assert!(way(Hold::Undecided(crate::text::Reason::none())).contains("abort --rollback"));
    }
}
