//! Tasks for peers: so many at once, and so many of one peer while there is plenty of room. Once half of the places are taken
//! each peer has one: a few that take all they may leave the other half to everybody else.

use std::collections::BTreeMap;

use groundswell_core::node_id::NodeId;
use tokio::task::JoinSet;

/// The tasks under way. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Crowd {
    most: usize,
    most_of_one: usize,
    tasks: JoinSet<NodeId>,
    of_peer: BTreeMap<NodeId, usize>,
}

impl Crowd {
    pub(crate) fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, tasks: JoinSet::new(), of_peer: BTreeMap::new() }
    }

    /// Starts a task for `peer`; `false` when there is no room, and nothing was started.
    pub(crate) fn admit(&mut self, peer: NodeId, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let of_this = self.of_peer.get(&peer).copied().unwrap_or(0);
        let most_of_one = if self.tasks.len() * 2 < self.most { self.most_of_one } else { 1 };
        if self.tasks.len() >= self.most || of_this >= most_of_one {
            return false;
        }
        self.of_peer.insert(peer, of_this + 1);
        self.tasks.spawn(async move {
            task.await;
            peer
        });
        true
    }

    /// Waits until a task ends, and frees its place; `None` when none is under way. A panic there goes on here.
    /// Cancel-safe.
    pub(crate) async fn one_left(&mut self) -> Option<()> {
        match self.tasks.join_next().await? {
            Ok(peer) => {
                let left = self.of_peer.get(&peer).map_or(0, |count| count.saturating_sub(1));
                if left == 0 {
                    self.of_peer.remove(&peer)
                } else {
                    self.of_peer.insert(peer, left)
                };
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_few_that_take_all_they_may_leave_half_of_the_places_to_the_others() {
        let mut crowd = Crowd::new(32, 4);
        let mut admit = |n: u8| crowd.admit(NodeId([n; 32]), std::future::pending());
        let few = (0..8).flat_map(|n| [n; 4]).filter(|n| admit(*n)).count();
        assert_eq!(few, 4 * 4 + 4, "four with four each, and then one each");
        assert_eq!((100..200).filter(|n| admit(*n)).count(), 12);
    }
}
