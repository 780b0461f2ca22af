//! Which slot to claim, and when (rules 1 and 6): the order spares collisions, delays keep the dead from blocking it.
//!
//! Nothing here is needed for safety: two nodes that claim one slot cost a round, never a budget.

use core::fmt;

use crate::node::input::Health;
use crate::time::Time;

/// How long one place of the queue is given to claim before the next takes its chance, in milliseconds: longer than
/// a record needs to cross the mesh (batches of 50–200 ms, a few hops).
pub const TURN_MS: u64 = 2_000;
/// The pause after a lost vote is random below this, doubled with each further loss.
pub const PAUSE_MS: u64 = 4_000;
/// The pause stops growing after this many losses: at about two minutes.
const MOST_DOUBLINGS: u32 = 5;

/// A node's place in the queue for its pool's slots. In memory only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    free_since: Option<Time>,
    paused_until: Option<Time>,
    losses: u32,
}

/// What a ready node does about a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Claim this slot now.
    Claim(u16),
    /// Not yet.
    Wait(Turnless),
}

/// Why it is not a ready node's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turnless {
    /// No slot looks free (also when the budget was lowered below the leases held).
    NoneFree,
    /// Others stand ahead of it; it comes at this time unless they do.
    Queued {
        /// Ready nodes ahead of it.
        ahead: usize,
        /// When it takes its chance, while a slot stays free.
        at: Time,
    },
    /// It lost a vote and pauses until then.
    Paused {
        /// Until when.
        until: Time,
    },
}

impl fmt::Display for Turnless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneFree => f.write_str("no slot is free"),
            Self::Queued { ahead, .. } => write!(f, "{ahead} ready nodes stand ahead"),
            Self::Paused { .. } => f.write_str("pauses after a lost vote"),
        }
    }
}

impl Queue {
    /// Asked whenever the node is ready: `ahead` ready nodes of its pool stand before it in the wave's order, and the
    /// slots in `free` look free to it, in ascending order.
    ///
    /// The k-th goes to the k-th free slot at once; of the others each comes one delay after the one before it.
    pub fn turn(&mut self, now: Time, ahead: usize, free: &[u16]) -> Turn {
        if free.is_empty() {
            self.free_since = None;
            return Turn::Wait(Turnless::NoneFree);
        }
        let since = *self.free_since.get_or_insert(now);
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            return Turn::Wait(Turnless::Paused { until });
        }
        let behind = u64::try_from((ahead + 1).saturating_sub(free.len())).unwrap_or(u64::MAX);
        let at = since.after_ms(behind.saturating_mul(TURN_MS));
        if at > now {
            return Turn::Wait(Turnless::Queued { ahead, at });
        }
        // After a loss another slot, where there is one.
        let losses = usize::try_from(self.losses).unwrap_or(usize::MAX);
        let choice = ahead.wrapping_add(losses) % free.len();
        free.get(choice).map_or(Turn::Wait(Turnless::NoneFree), |slot| Turn::Claim(*slot))
    }

    /// The node stopped being ready, or claimed: the next wait begins anew.
    pub fn leave(&mut self) {
        self.free_since = None;
    }

    /// A vote was lost: pause for a random time that grows with each loss. `random` is uniform over all numbers.
    pub fn lost(&mut self, now: Time, random: u64) {
        let most = PAUSE_MS << self.losses.min(MOST_DOUBLINGS);
        self.losses = self.losses.saturating_add(1);
        self.paused_until = Some(now.after_ms(random % most));
        self.free_since = None;
    }

    /// A quorum was won: the next vote starts without a pause.
    pub fn won(&mut self) {
        *self = Self::default();
    }
}

/// Whether disrupting this node costs a slot: not when its own health check says that it is down already (case L7).
///
/// A node that rolled back and is healthy, or whose health is unknown, needs one like any other (case D6).
#[must_use]
pub fn needs_slot(health: Option<&Health>) -> bool {
    !matches!(health, Some(Health::Failing(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Reason;

    const T0: Time = Time(1_000);

    #[test]
    fn the_kth_ready_node_turns_to_the_kth_free_slot_at_once() {
        assert_eq!(Queue::default().turn(T0, 0, &[3, 5]), Turn::Claim(3));
        assert_eq!(Queue::default().turn(T0, 1, &[3, 5]), Turn::Claim(5));
    }

    #[test]
    fn d14_dead_nodes_at_the_head_cost_a_short_delay_each() {
        let mut fifth = Queue::default();
        let at = T0.after_ms(4 * TURN_MS);
        assert_eq!(fifth.turn(T0, 4, &[0]), Turn::Wait(Turnless::Queued { ahead: 4, at }));
        assert_eq!(fifth.turn(Time(at.0 - 1), 4, &[0]), Turn::Wait(Turnless::Queued { ahead: 4, at }));
        assert_eq!(fifth.turn(at, 4, &[0]), Turn::Claim(0));
    }

    #[test]
    fn the_delay_begins_anew_when_the_slot_was_taken_in_between() {
        let mut second = Queue::default();
        assert!(matches!(second.turn(T0, 1, &[0]), Turn::Wait(Turnless::Queued { .. })));
        assert_eq!(second.turn(T0.after_ms(1_000), 0, &[]), Turn::Wait(Turnless::NoneFree));
        let later = T0.after_ms(60_000);
        assert_eq!(second.turn(later, 1, &[0]), Turn::Wait(Turnless::Queued { ahead: 1, at: later.after_ms(TURN_MS) }));
    }

    #[test]
    fn a_lost_vote_pauses_for_a_growing_time_and_turns_to_another_slot() {
        let mut queue = Queue::default();
        queue.lost(T0, u64::MAX);
        assert!(queue.paused_until.unwrap() < T0.after_ms(PAUSE_MS));
        assert!(matches!(queue.turn(T0, 0, &[0, 1]), Turn::Wait(Turnless::Paused { .. })));
        assert_eq!(queue.turn(T0.after_ms(PAUSE_MS), 0, &[0, 1]), Turn::Claim(1));
        for _ in 0..100 {
            queue.lost(T0, u64::MAX);
        }
        assert!(queue.paused_until.unwrap() <= T0.after_ms(PAUSE_MS << MOST_DOUBLINGS));
        queue.won();
        assert_eq!(queue.turn(T0, 0, &[0, 1]), Turn::Claim(0));
    }

    #[test]
    fn l7_d6_only_a_node_that_is_down_now_repairs_without_a_slot() {
        assert!(!needs_slot(Some(&Health::Failing(Reason::none()))));
        assert!(needs_slot(Some(&Health::Healthy)));
        assert!(needs_slot(Some(&Health::Unknown(Reason::none()))));
        assert!(needs_slot(None));
    }
}
