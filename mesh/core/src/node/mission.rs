//! What the mesh orders for one product on this node: which rollout counts, and what keeps it from claiming.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Node;
use super::following::{Following, wave_of};
use super::hold::Hold;
use super::life::{Life, Mission};
use super::warrant::{documents_allow, install, lets_retry, unsupported};
use crate::documents::certificate::Certificate;
use crate::documents::release::Release;
use crate::documents::rollout::{Rollout, State};
use crate::record::status::RolloutSeen;
use crate::rollout::applies::{Applies, Facts, Skip, applies};
use crate::rollout::counts::{Candidate, Counting, supersedes, which};
use crate::rollout::gate::Gate;
use crate::text::Product;
use crate::time::Now;
use crate::trust::shelf::RolloutInForce;

/// What counts for a product.
#[derive(Debug)]
pub(super) enum Orders {
    /// A rollout.
    Mission(Box<Mission>),
    /// Nothing; with the reason, where there is one worth telling.
    Rest(Option<Hold>),
}

impl Node {
    /// What the mesh orders for `product`, whose life is `life`.
    pub(super) fn orders(&self, now: Now, product: &Product, life: &Life) -> Orders {
        if self.shelf.fleet().is_none() {
            return Orders::Rest(Some(Hold::NoFleet));
        }
        let Ok(certificate) = self.shelf.member(&self.me, now.wall) else { return Orders::Rest(Some(Hold::NoCertificate)) };
        if certificate.pool.is_none() {
            return Orders::Rest(None);
        }
        let candidates = self.candidates(product, certificate);
        let (rollout, conflict) = match which(product, certificate, &candidates) {
            Counting::None | Counting::Over { .. } => return Orders::Rest(None),
            Counting::Listed(rollout) | Counting::Late(rollout) => (rollout, false),
            Counting::Conflict(one, _) => match self.shelf.rollout(one) {
                Some(in_force) => (&in_force.rollout, true),
                None => return Orders::Rest(None),
            },
        };
        let (Some(in_force), Some(following)) = (self.shelf.rollout(&rollout.id), self.following.get(&rollout.id)) else {
            return Orders::Rest(None);
        };
        Orders::Mission(Box::new(self.mission(now, in_force, following, life, conflict)))
    }

    fn candidates<'a>(&'a self, product: &Product, certificate: &'a Certificate) -> Vec<Candidate<'a>> {
        let mine = self.shelf.rollouts().filter(|in_force| in_force.rollout.release.product == *product);
        mine.filter_map(|in_force| {
            let following = self.following.get(&in_force.rollout.id)?;
            let complete = following.progress.as_ref().is_some_and(|progress| progress.complete());
            // Until the roster is here, the newest certificate stands in for the one that it names.
            let listed = if following.progress.is_some() { following.listed.as_ref() } else { Some(certificate) };
            Some(Candidate { rollout: &in_force.rollout, listed, complete })
        })
        .collect()
    }

    fn mission(&self, now: Now, in_force: &RolloutInForce, following: &Following, life: &Life, conflict: bool) -> Mission {
        let rollout = &in_force.rollout;
        let release = self.shelf.release(&rollout.release.digest);
        let wave = following.progress.as_ref().map(|progress| wave_of(progress, &self.me).unwrap_or(progress.waves().count()));
        let described =
            wave.and_then(|wave| rollout.waves.get(usize::try_from(wave).unwrap_or(usize::MAX))).or(rollout.waves.last());
        let retry = lets_retry(rollout, &self.me);
        let state = in_force.state();
        Mission {
            seen: RolloutSeen { id: rollout.id.clone(), generation: rollout.generation.get(), digest: in_force.digest },
            install: release.and_then(|release| install(rollout, release, &self.config.platform)),
            release: rollout.release.digest,
            skip: release.and_then(|release| self.skip(rollout, release, life)),
            aborted: (state == State::Aborted).then_some(rollout.rollback),
            retry,
            prefetch: rollout.prefetch && state == State::Running && !self.must_wait_outside(&rollout.release.product),
            gate: self.gate(now, in_force, following, life, wave, conflict),
            unsupported: self.unsupported(rollout),
            soak_ms: described.map_or(0, |wave| wave.soak_seconds.saturating_mul(1_000)),
            confirm_after_ms: rollout.confirm_after_seconds.saturating_mul(1_000),
            upgrade_timeout_ms: rollout.upgrade_timeout_seconds.saturating_mul(1_000),
        }
    }

    fn skip(&self, rollout: &Rollout, release: &Release, life: &Life) -> Option<Skip> {
        let facts = Facts {
            configured: self.config.products.contains(&rollout.release.product),
            observe_only: life.now.policy.observe_only,
            version_lock: life.now.policy.version_lock.as_deref(),
            platform: &self.config.platform,
            running: life.kept.running.as_ref(),
            floor: life.kept.floor,
        };
        match applies(rollout, release, &facts) {
            Applies::Skip(skip) => Some(skip),
            Applies::Upgrade | Applies::AlreadyThere => None,
        }
    }

    /// Everything in documents and records that keeps this node from claiming, most telling first.
    fn gate(
        &self,
        now: Now,
        in_force: &RolloutInForce,
        following: &Following,
        life: &Life,
        wave: Option<u32>,
        conflict: bool,
    ) -> Result<(), Hold> {
        if self.ledger.is_convicted(&self.me) || self.own.is_cloned() {
            return Err(Hold::Convicted);
        }
        documents_allow(&self.shelf, in_force, life.kept.running.as_ref(), conflict, now.wall)?;
        if self.must_wait_outside(&in_force.rollout.release.product) {
            return Err(Hold::OuterDoor);
        }
        let (Some(progress), Some(wave)) = (&following.progress, wave) else { return Err(Hold::RosterMissing) };
        if let Some(hold) = self.beyond_limits(progress) {
            return Err(hold);
        }
        match progress.gate(wave) {
            Gate::Open => Ok(()),
            Gate::Shut(hold) => Err(self.with_names(hold, following)),
        }
    }

    /// The gate counts; this adds whom it waits for.
    fn with_names(&self, hold: Hold, following: &Following) -> Hold {
        let Hold::WaveShut { mine, waits_for, who, open, members } = hold else { return hold };
        let Some(progress) = following.progress.as_ref().filter(|_| who.is_empty()) else {
            return Hold::WaveShut { mine, waits_for, who, open, members };
        };
        use super::view::Standing;
        let waits = |node: &&crate::node_id::NodeId| {
            matches!(progress.tally().standing(node), Some(Standing::Unseen | Standing::Waiting | Standing::InProgress))
        };
        let nodes = progress.waves().members(waits_for).iter().filter(waits).take(5);
        let who = nodes.filter_map(|node| self.name_of(node)).collect();
        Hold::WaveShut { mine, waits_for, who, open, members }
    }

    /// What this node cannot do, whatever the mesh says.
    fn unsupported(&self, rollout: &Rollout) -> Option<Hold> {
        let alone = self.config.agent.as_ref().is_some_and(|agent| agent.product == rollout.release.product && !agent.supervised);
        let what = unsupported(rollout).or_else(|| self.pool_windows(rollout));
        what.map(Hold::Unsupported).or(alone.then_some(Hold::NoSupervisor))
    }

    /// Windows in the policy of this node's pool are held, as those of a rollout are.
    fn pool_windows(&self, rollout: &Rollout) -> Option<&'static str> {
        let roster = self.shelf.roster(&rollout.roster.digest)?;
        let policy = roster.pools.get(&self.pool()?)?;
        (!policy.windows.is_empty()).then_some("maintenance windows of a pool")
    }

    /// Whether a newer rollout took over all nodes of `rollout`.
    pub(super) fn is_over(&self, rollout: &Rollout) -> bool {
        self.shelf.rollouts().any(|other| supersedes(&other.rollout, rollout))
    }
}
