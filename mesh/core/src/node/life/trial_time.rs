//! How much time a version on trial has had, and whether anything is known of it when that is over.

use super::{Attempt, Life};
use crate::limits::{HEALTH_AFTER_START_MS, LOOK_AFTER_WAKING_MS};
use crate::text::Reason;
use crate::time::{Now, Time};

impl Life {
    /// What does not count as time of the agent itself on trial: that in which its machine was off or asleep. Any other product is waited for
    /// as long as it takes; an agent has to be done before its supervisor ends it, which gives it its whole time in each run of the
    /// machine. So what it had in all its runs decides, and one that takes its machine down again and again is judged like any
    /// other, or has used up its starts first.
    fn absence_ms(&self) -> u64 {
        self.now.company.map_or(0, |_| self.kept.absence.ms())
    }

    /// When the time of a trial is over, on its stopwatch.
    pub(super) fn trial_ms(&self, attempt: &Attempt) -> u64 {
        attempt.upgrade_timeout_ms.saturating_add(self.absence_ms())
    }

    /// Since when the agent itself on trial runs, or is awake, where that is less than it takes to be confirmed: nothing is known of
    /// it then, unless it fails. One that ends again and again uses up the starts that its supervisor gives it.
    pub(super) fn has_just_begun(&self, now: Now, attempt: &Attempt) -> Option<Time> {
        let resumed = self.now.resumed.filter(|_| self.now.company.is_some() && self.healthy() != Some(false))?;
        // Of one that is awake for moments nothing is known in any of them, however many they are.
        let begun = self.now.woke.map_or(resumed, |woke| woke.max(resumed));
        (now.boot < begun.after_ms(attempt.confirm_after_ms.max(LOOK_AFTER_WAKING_MS))).then_some(resumed)
    }

    /// Why the health of the version on trial is not decided although its time is over, where that is no fault of its own: a
    /// check that has no judgement, or had none until now, or has not looked yet since this node restarted. `None`: it fails,
    /// has never said anything, or has had all its time to be healthy in.
    pub(super) fn undecided(&self, now: Now) -> Option<Reason> {
        self.now.activated?;
        let resumed = self.now.resumed.filter(|_| self.now.company.is_none());
        match &self.now.health {
            Some((super::Health::Unknown(reason), _)) => Some(reason.clone()),
            Some((super::Health::Healthy, _)) => {
                (self.now.unclear || resumed.is_some()).then(|| Reason::lossy("it is healthy, and has to stay so for a while"))
            }
            Some((super::Health::Failing(_), _)) => None,
            None => {
                let looking = resumed.is_some_and(|resumed| now.boot < resumed.after_ms(HEALTH_AFTER_START_MS));
                looking.then(|| Reason::lossy("nobody has looked yet since this node started or woke"))
            }
        }
    }
}
