//! Verdicts never go back: the rule, for the node that writes them and for those that read them.
//!
//! The writer joins a new verdict into its list with [`merge`], so its later records contain its earlier ones.
//! A reader does not rely on that: when a newer record drops or lowers a verdict, [`Withdrawn`] remembers it
//! (design, section 5: monotone per node, rollout and claim; only `forgiven` clears a failure).
//! This memory is not exchanged: a reader that never saw the verdict cannot know it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::status::{Status, Verdict};
use crate::limits::{VERDICTS, WITHDRAWN};
use crate::node_id::NodeId;
use crate::text::{Product, RolloutId};

/// Joins `verdict` into `list` (oldest first): the higher outcome of one (rollout, claim) stays, whole.
pub fn merge(list: &mut Vec<Verdict>, verdict: Verdict) {
    match list.iter_mut().find(|known| same(known, &verdict)) {
        Some(known) if known.outcome < verdict.outcome => *known = verdict,
        Some(_) => {}
        None => list.push(verdict),
    }
}

fn same(one: &Verdict, other: &Verdict) -> bool {
    one.rollout == other.rollout && one.claim == other.claim
}

/// Verdicts that a node had signed and then dropped or lowered. Empty while every node keeps to the rule.
///
/// At most [`VERDICTS`] per node and product, where the lowest outcome goes first, then the oldest;
/// at most [`WITHDRAWN`] nodes and products, beyond which nothing more is remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct Withdrawn(BTreeMap<(NodeId, Product), Vec<Verdict>>);

impl Withdrawn {
    /// `new` replaces `old`.
    pub(super) fn note(&mut self, node: NodeId, old: &Status, new: &Status) {
        for (product, section) in &old.products {
            let now = new.products.get(product).map(|section| section.verdicts.as_slice()).unwrap_or_default();
            let kept = |verdict: &Verdict| now.iter().any(|other| same(other, verdict) && other.outcome >= verdict.outcome);
            for verdict in section.verdicts.iter().filter(|verdict| !kept(verdict)) {
                self.remember(node, product, verdict);
            }
        }
    }

    fn remember(&mut self, node: NodeId, product: &Product, verdict: &Verdict) {
        let place = (node, product.clone());
        if self.0.len() >= WITHDRAWN && !self.0.contains_key(&place) {
            return;
        }
        let list = self.0.entry(place).or_default();
        merge(list, verdict.clone());
        if list.len() > VERDICTS
            && let Some(lowest) = list.iter().map(|verdict| verdict.outcome).min()
            && let Some(at) = list.iter().position(|verdict| verdict.outcome == lowest)
        {
            list.remove(at);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn of(&self, node: &NodeId, product: &Product) -> &[Verdict] {
        self.0.get(&(*node, product.clone())).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn retain(&mut self, known: impl Fn(&RolloutId) -> bool) {
        self.0.retain(|_, list| {
            list.retain(|verdict| known(&verdict.rollout));
            !list.is_empty()
        });
    }

    pub(super) fn forget(&mut self, node: &NodeId) {
        self.0.retain(|(of, _), _| of != node);
    }
}
