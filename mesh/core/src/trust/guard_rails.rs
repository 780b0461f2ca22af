//! Guard rails: what no rollout key can exceed (capability A12), and what a roster's policy demands of a rollout.
//!
//! Pure functions over documents, shared by the shelf and the tools. The largest first wave is judged where waves are known:
//! [`crate::rollout::wave::Waves::first_wave_exceeds`].

use alloc::format;

use crate::documents::fleet::Limits;
use crate::documents::rejection::{Reason, Rejection};
use crate::documents::rollout::Rollout;
use crate::documents::roster::{PoolPolicy, Roster};
use crate::text::Pool;

/// A rollout's own fields against root's limits: every wave soaks at least `minSoakSeconds`.
///
/// # Errors
/// `limits`, naming the wave.
pub fn check_rollout(limits: &Limits, rollout: &Rollout) -> Result<(), Rejection> {
    match rollout.waves.iter().position(|wave| wave.soak_seconds < limits.min_soak_seconds) {
        Some(index) => {
            let detail = format!("below the {} s that the fleet document demands", limits.min_soak_seconds);
            Err(Rejection::new(Reason::Limits, format!("waves[{index}].soakSeconds"), detail))
        }
        None => Ok(()),
    }
}

/// A roster's pool budgets against `maxBudgetPpm`.
///
/// # Errors
/// `limits`, naming the pool.
pub fn check_roster(limits: &Limits, roster: &Roster) -> Result<(), Rejection> {
    for (pool, policy) in &roster.pools {
        for (field, share) in [("budgetPpm", policy.budget_ppm), ("urgentBudgetPpm", policy.urgent_budget_ppm)] {
            if share > limits.max_budget_ppm {
                let detail = format!("{share} is above the {} that the fleet document allows", limits.max_budget_ppm);
                return Err(Rejection::new(Reason::Limits, format!("pools.{pool}.{field}"), detail));
            }
        }
    }
    Ok(())
}

/// An upgrade fits well within `presumeLostAfter` of every pool in scope: start, upgrade and revert take at most half of it
/// (design, section 7, rule 5).
///
/// # Errors
/// `malformed`, naming the field of the rollout and the pool.
pub fn check_presumed_lost(rollout: &Rollout, roster: &Roster) -> Result<(), Rejection> {
    let in_scope = |pool: &Pool| rollout.scope.pools.is_empty() || rollout.scope.pools.binary_search(pool).is_ok();
    roster
        .pools
        .iter()
        .filter(|(pool, _)| in_scope(pool))
        .try_for_each(|(pool, policy)| check_presumed_lost_in(rollout, pool, policy))
}

/// The same for one pool under its policy: of a pool whose policy a roster does not say, only whoever knows its members can ask.
///
/// # Errors
/// `malformed`, naming the field of the rollout and the pool.
pub fn check_presumed_lost_in(rollout: &Rollout, pool: &Pool, policy: &PoolPolicy) -> Result<(), Rejection> {
    let takes = policy
        .start_within_seconds
        .saturating_add(rollout.upgrade_timeout_seconds)
        .saturating_add(rollout.revert_timeout_seconds);
    let after = policy.presume_lost_after_seconds;
    if after > 0 && takes.saturating_mul(2) > after {
        let detail = format!(
            "start, upgrade and revert take {takes} s, more than half of the {after} s after which pool {pool} presumes a holder lost"
        );
        return Err(Rejection::malformed("upgradeTimeoutSeconds", detail));
    }
    Ok(())
}
