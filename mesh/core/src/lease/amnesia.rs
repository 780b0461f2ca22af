//! After a store was set back (rule 7): for a day of its up time a node neither claims, starts nor grants.
//!
//! Afterwards it honours every unreleased claim that it sees on its slots as granted by it, for it may have been.
//! How a set-back store is noticed, and the higher incarnation that follows, belong to the node.

use serde::{Deserialize, Serialize};

/// Waiting time where the pool presumes nobody lost, in milliseconds: 24 hours.
pub const DEFAULT_WAIT_MS: u64 = 86_400_000;

/// A node that does not trust its own memory yet. Durable with the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amnesia {
    ends_at_up_ms: u64,
}

impl Amnesia {
    /// Begins at `up_ms` of this node's own up time and lasts `presumeLostAfter`, or 24 hours where that is never.
    #[must_use]
    pub fn begin(up_ms: u64, presume_lost_after_ms: Option<u64>) -> Self {
        Self { ends_at_up_ms: up_ms.saturating_add(presume_lost_after_ms.unwrap_or(DEFAULT_WAIT_MS)) }
    }

    /// Up time left in milliseconds; `None` when it is over.
    #[must_use]
    pub fn left_ms(&self, up_ms: u64) -> Option<u64> {
        self.ends_at_up_ms.checked_sub(up_ms).filter(|left| *left > 0)
    }

    /// The later of two: a store that is set back again waits again.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        if other.ends_at_up_ms > self.ends_at_up_ms { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d34_it_ends_by_up_time_alone_and_a_day_where_nobody_is_presumed_lost() {
        let amnesia = Amnesia::begin(500, Some(1_000));
        assert_eq!(amnesia.left_ms(500), Some(1_000));
        assert_eq!(amnesia.left_ms(1_499), Some(1));
        assert_eq!(amnesia.left_ms(1_500), None);
        assert_eq!(Amnesia::begin(0, None).left_ms(0), Some(DEFAULT_WAIT_MS));
        assert_eq!(amnesia.later(Amnesia::begin(600, Some(1_000))).left_ms(1_500), Some(100));
    }
}
