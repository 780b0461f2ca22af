//! How many nodes of a pool the agents themselves say are disrupted at once, from samples of all nodes.
//!
//! Nodes are asked one after the other, so one sample of all is of no single instant. A node that is under the same
//! claim in two samples in a row was so all the time between; those of them that are so at once were disrupted together.

use std::collections::BTreeMap;

use groundswell_core::record::status::Phase;

use super::api::StatusView;

/// The most at once, so far.
#[derive(Clone, Debug, Default)]
pub struct Disruption {
    /// By node: pool and claim.
    before: BTreeMap<String, (String, String)>,
    most: BTreeMap<String, usize>,
}

impl Disruption {
    /// Takes a sample: every node's name with what it says.
    pub fn take<'a>(&mut self, sample: impl IntoIterator<Item = (&'a str, &'a StatusView)>) {
        let mut now = BTreeMap::new();
        for (name, status) in sample {
            let pool = status.node.pool.clone().unwrap_or_default();
            for product in status.node.products.iter().filter(|product| product.phase == Phase::Activating) {
                let claim = product.claim.map_or_else(String::new, |claim| claim.to_string());
                now.insert(name.to_owned(), (pool.clone(), claim));
            }
        }
        let mut together: BTreeMap<&String, usize> = BTreeMap::new();
        for (pool, _) in now.iter().filter(|(name, claim)| self.before.get(*name) == Some(claim)).map(|(_, claim)| claim) {
            *together.entry(pool).or_default() += 1;
        }
        // A single sample proves one at a time.
        for (pool, _) in now.values() {
            together.entry(pool).or_insert(1);
        }
        for (pool, count) in together {
            let most = self.most.entry(pool.clone()).or_default();
            *most = (*most).max(count);
        }
        self.before = now;
    }

    /// The most at once by pool.
    #[must_use]
    pub fn most(&self) -> &BTreeMap<String, usize> {
        &self.most
    }
}
