//! What this node shows of itself and of the mesh as it sees it. Built on demand, for `status` and its siblings.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Node;
use super::following::wave_of;
use super::hold::Hold;
use super::life::Life;
use super::view::{HoldView, LeaseView, NodeRow, NodeView, PeerView, ProductView, RolloutView, RosterView, Standing, WaveView};
use crate::digest::Digest;
use crate::documents::Kind;
use crate::documents::rollout::State;
use crate::lease::claim::SeenClaim;
use crate::lease::handover::{Handover, Waiting};
use crate::lease::view::slots_of;
use crate::node_id::NodeId;
use crate::record::status::{Phase, Purpose, Running, Section};
use crate::record::{RecordKey, RecordKind};
use crate::rollout::progress::Progress;
use crate::text::Product;
use crate::time::Now;
use crate::trust::shelf::RolloutInForce;

impl Hold {
    /// In words.
    #[must_use]
    pub fn view(&self) -> HoldView {
        HoldView { code: self.code(), text: self.to_string(), until: self.notice().and_then(|notice| notice.until) }
    }
}

impl Node {
    /// This node: `swell status`.
    #[must_use]
    pub fn view(&self, _now: Now) -> NodeView {
        let certificate = self.shelf.certificate(&self.me);
        let fleet = self.shelf.fleet();
        NodeView {
            node: self.me,
            name: certificate.map(|certificate| certificate.name.to_string()),
            pool: certificate.and_then(|certificate| certificate.pool.as_ref()).map(ToString::to_string),
            platform: Some(self.config.platform.to_string()),
            fleet: self.config.fleet,
            fleet_version: fleet.map(|fleet| fleet.version),
            fleet_expires_at: fleet.map(|fleet| fleet.expires_at),
            roster_version: self.shelf.rosters().map(|(_, roster)| roster.version).max(),
            floor_time: self.shelf.floor_time(),
            peers: count(self.connected.len()),
            members: count(self.ledger.statuses().count()),
            outer_door: self.outer_door().map(ToString::to_string),
            products: self.lives.iter().map(|(product, life)| self.product_view(product, life)).collect(),
        }
    }

    /// What this node believes that its device runs as `product`, and the phase in which it is with that: a part of
    /// [`Node::view`], for who asks often.
    #[must_use]
    pub fn believes(&self, product: &Product) -> Option<(Option<&Running>, Phase)> {
        let kept = &self.lives.get(product)?.kept;
        Some((kept.running.as_ref(), kept.phase))
    }

    fn product_view(&self, product: &Product, life: &Life) -> ProductView {
        let kept = &life.kept;
        let following = kept.rollout.as_ref().and_then(|seen| self.following.get(&seen.id));
        let progress = following.and_then(|following| following.progress.as_ref());
        let in_force = kept.rollout.as_ref().and_then(|seen| self.shelf.rollout(&seen.id));
        ProductView {
            product: product.to_string(),
            version: kept.running.as_ref().map(|running| running.version.to_string()),
            sequence: kept.running.as_ref().map(|running| running.sequence.get()),
            floor: kept.floor.get(),
            rollout: kept.rollout.as_ref().map(|seen| seen.id.to_string()),
            generation: kept.rollout.as_ref().map(|seen| seen.generation),
            target: in_force.map(|in_force| in_force.rollout.release.version.to_string()),
            wave: progress.and_then(|progress| wave_of(progress, &self.me)),
            phase: kept.phase,
            hold: life.now.hold.as_ref().map(Hold::view),
            claim: kept.claim.as_ref().map(|claim| claim.name),
            slot: kept.claim.as_ref().and_then(|claim| claim.slot),
        }
    }

    /// Every rollout in force: `swell rollouts`.
    #[must_use]
    pub fn rollouts(&self, _now: Now) -> Vec<RolloutView> {
        self.shelf.rollouts().map(|in_force| self.rollout_view(in_force)).collect()
    }

    fn rollout_view(&self, in_force: &RolloutInForce) -> RolloutView {
        let rollout = &in_force.rollout;
        let progress = self.following.get(&rollout.id).and_then(|following| following.progress.as_ref());
        let halted = progress.and_then(Progress::halted).map(|halted| {
            Hold::Halted { wave: halted.wave, failures: halted.failures, applicable: halted.applicable }.to_string()
        });
        RolloutView {
            id: rollout.id.to_string(),
            generation: rollout.generation.get(),
            state: match in_force.state() {
                State::Running => "running",
                State::Paused => "paused",
                State::Aborted => "aborted",
            }
            .to_string(),
            reason: rollout.reason.to_string(),
            product: rollout.release.product.to_string(),
            version: rollout.release.version.to_string(),
            sequence: rollout.release.sequence.get(),
            release: rollout.release.digest,
            roster_version: rollout.roster.version,
            superseded: self.is_over(rollout),
            complete: progress.is_some_and(Progress::complete),
            halted,
            waves: progress.map(wave_views).unwrap_or_default(),
            nodes: progress.map(|progress| self.rows(progress)).unwrap_or_default(),
        }
    }

    /// Listed nodes in the rollout's order, then those that joined late: what failed there must be seen to be forgiven.
    fn rows(&self, progress: &Progress) -> Vec<NodeRow> {
        let listed = progress.waves().order();
        let late = progress.tally().nodes().filter(|node| progress.waves().wave_of(node).is_none());
        let late = late.filter(|node| !listed.contains(node));
        listed.iter().chain(late).filter_map(|node| self.row(progress, node)).collect()
    }

    fn row(&self, progress: &Progress, node: &NodeId) -> Option<NodeRow> {
        let rollout = progress.rollout();
        let certificate = self.shelf.certificate(node);
        let section = self.ledger.status(node).and_then(|status| status.products.get(&rollout.release.product));
        let about = section.filter(|section| section.rollout.as_ref().is_some_and(|seen| seen.id == rollout.id));
        let verdicts = self.ledger.verdicts(node, &rollout.release.product);
        let verdict = verdicts
            .iter()
            .filter(|verdict| verdict.rollout == rollout.id)
            .max_by_key(|verdict| (verdict.claim, verdict.outcome));
        Some(NodeRow {
            node: *node,
            name: certificate.map_or_else(|| node.short(), |certificate| certificate.name.to_string()),
            pool: certificate.and_then(|certificate| certificate.pool.as_ref()).map_or_else(String::new, ToString::to_string),
            wave: wave_of(progress, node)?,
            standing: progress.tally().standing(node).unwrap_or(Standing::Unseen),
            phase: about.map(|section| section.phase),
            hold: about.and_then(|section| section.hold).map(|hold| hold.code),
            from_version: about.and_then(|section| section.from.as_ref()).map(|running| running.version.to_string()),
            version: section.and_then(|section| section.running.as_ref()).map(|running| running.version.to_string()),
            started_at: about.and_then(|section| section.started_at),
            confirmed_at: verdict.and_then(|verdict| verdict.confirmed_at),
            soaked_at: verdict.and_then(|verdict| verdict.soaked_at),
            claim: verdict
                .and_then(|verdict| verdict.claim)
                .max(about.and_then(|section| section.claim.as_ref()).map(|claim| claim.name)),
            outcome: verdict.map(|verdict| verdict.outcome),
            error: verdict
                .filter(|verdict| verdict.outcome > crate::record::status::Outcome::Soaked)
                .map(|verdict| verdict.reason.to_string()),
        })
    }

    /// Every slot of every pool: `swell leases`.
    #[must_use]
    pub fn leases(&self, _now: Now) -> Vec<LeaseView> {
        let claims: Vec<SeenClaim> = self.claims.all().cloned().collect();
        let declared = self.duty.warden.declared().and_then(|declared| self.maps.get(&declared));
        let Some(map) = declared.or_else(|| self.maps.values().max_by_key(|map| map.version())) else { return Vec::new() };
        let (rosters, sight, own) = (self.rosters(), self.sight(), self.duty.warden.record());
        let handover = Handover::to(map, self.reader(&own, &rosters, &sight));
        let pools: Vec<_> = map.pools().map(|(pool, _)| pool.clone()).collect();
        let views = pools.iter().flat_map(|pool| {
            let of_pool: Vec<SeenClaim> = claims.iter().filter(|claim| claim.slot.pool == *pool).cloned().collect();
            slots_of(map, pool, &of_pool, &self.sight())
        });
        views
            .map(|view| {
                let occupant = view.occupant;
                let claim =
                    occupant.and_then(|held| claims.iter().find(|claim| claim.holder == held.holder && claim.name == held.claim));
                LeaseView {
                    pool: view.slot.pool.to_string(),
                    slot: view.slot.number,
                    holder: occupant.map(|held| held.holder),
                    name: occupant.and_then(|held| self.name_of(&held.holder)).map(|name| name.to_string()),
                    claim: occupant.map(|held| held.claim),
                    phase: occupant.and_then(|held| self.phase_of_claim(&held.holder, held.claim)),
                    purpose: claim.map(|claim| self.purpose(&claim.purpose)),
                    grants: occupant.map_or(0, |held| count(held.grants)),
                    quorum: count(view.quorum),
                    wardens: count(view.wardens),
                    roster_version: map.version(),
                    waits_for: handover.opens(&view.slot).err().map(|waiting| waiting.to_string()),
                    heard_seconds: occupant.and_then(|held| held.unheard_ms).map(|ms| ms / 1_000),
                    presumed_lost_in_seconds: occupant.and_then(|held| held.presumed_lost_in_ms).map(|ms| ms / 1_000),
                }
            })
            .collect()
    }

    /// The newest roster and how far leases have moved to it; `None` before any is here.
    #[must_use]
    pub fn roster(&self) -> Option<RosterView> {
        let newest: Vec<Digest> = self.shelf.newest_rosters().map(|(digest, _)| digest).collect();
        let version = self.shelf.newest_rosters().map(|(_, roster)| roster.version).next()?;
        let (rosters, sight, own) = (self.rosters(), self.sight(), self.duty.warden.record());
        // Of rivals the lower answer: the next roster follows both.
        let answers = newest.iter().map(|digest| match self.maps.get(digest) {
            Some(map) => Handover::to(map, self.reader(&own, &rosters, &sight)).settled(),
            None => (0, Some(Waiting::Roster { version })),
        });
        let (settled, waiting) = answers.min_by_key(|(settled, _)| *settled)?;
        let signed = self.shelf.newest_rosters().map(|(_, roster)| roster.settled).min().unwrap_or(0);
        Some(RosterView {
            fleet: self.config.fleet,
            version,
            digests: newest,
            declared: self.duty.warden.declared().and_then(|declared| rosters.version(&declared)),
            hold: self.duty.roster_hold.map(|hold| hold.to_string()),
            settled: settled.max(signed),
            waits_for: waiting.map(|waiting| waiting.to_string()),
        })
    }

    fn phase_of_claim(&self, holder: &NodeId, claim: crate::record::ClaimName) -> Option<Phase> {
        let carries = |section: &&Section| section.claim.as_ref().is_some_and(|carried| carried.name == claim);
        self.ledger.status(holder)?.products.values().find(carries).map(|section| section.phase)
    }

    fn purpose(&self, purpose: &Purpose) -> String {
        match purpose {
            Purpose::Rollout(digest) => {
                self.shelf.rollout_by_digest(digest).map_or_else(|| digest.to_string(), |rollout| rollout.id.to_string())
            }
            Purpose::Other(reason) => reason.to_string(),
        }
    }

    /// Every member known here: `swell peers`.
    #[must_use]
    pub fn peers(&self, _now: Now) -> Vec<PeerView> {
        let certificates = self.shelf.certificates().filter(|(_, certificate)| certificate.node != self.me);
        certificates
            .map(|(_, certificate)| {
                let node = certificate.node;
                let status = self.ledger.status(&node);
                let heard = self.ledger.stamp(&RecordKey { node, kind: RecordKind::Status });
                let running = status.into_iter().flat_map(|status| &status.products);
                PeerView {
                    node,
                    name: Some(certificate.name.to_string()),
                    pool: certificate.pool.as_ref().map(ToString::to_string),
                    connected: self.connected.contains(&node),
                    addresses: status.map(|status| status.addresses.clone()).unwrap_or_default(),
                    heard_seconds: heard.and_then(|_| self.presence.unheard_ms(&node)).map(|ms| ms / 1_000),
                    convicted: self.ledger.is_convicted(&node),
                    running: running
                        .filter_map(|(product, section)| Some(alloc::format!("{product} {}", section.running.as_ref()?.version)))
                        .collect(),
                    serves: status.map(|status| status.serves.clone()).unwrap_or_default(),
                    lean: status.is_some_and(|status| status.lean),
                }
            })
            .collect()
    }

    /// Every document in force, rosters included, in an order in which a stranger can accept them.
    pub fn documents(&self) -> impl Iterator<Item = (Digest, Kind, &[u8])> + '_ {
        let others = self.shelf.inventory().filter_map(|(digest, kind)| Some((digest, kind, self.shelf.envelope(&digest)?)));
        let rosters = self.shelf.rosters().filter_map(|(digest, _)| Some((digest, Kind::Roster, self.shelf.envelope(&digest)?)));
        let mut all: Vec<_> = others.chain(rosters).collect();
        all.sort_by_key(|(digest, ..)| (self.shelf.order(digest), *digest));
        all.into_iter()
    }
}

fn wave_views(progress: &Progress) -> Vec<WaveView> {
    (0_u32..)
        .zip(progress.tally().counts())
        .map(|(index, counts)| {
            let open = progress.is_open(index);
            let passed = progress.passed(index);
            let note = progress.note(index);
            WaveView {
                index,
                implicit: index >= progress.waves().count(),
                open,
                passed,
                note,
                members: counts.members,
                not_applicable: counts.not_applicable,
                unseen: counts.unseen,
                waiting: counts.waiting,
                in_progress: counts.in_progress,
                soaked: counts.soaked,
                failed: counts.failed,
                forgiven: counts.forgiven,
                excused: counts.excused,
            }
        })
        .collect()
}

/// A count as views and holds carry it.
pub(super) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
