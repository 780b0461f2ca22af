//! From probes to health: so many in a row decide. Pure.

use groundswell_core::node::input::Health;
use groundswell_core::text::Reason;

/// What one probe says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Pass,
    /// It does not; why.
    Fail(String),
    /// It cannot be told: throttled, or the network alone is at fault.
    Unclear(String),
}

/// Counts verdicts. An unclear one neither adds to passes and failures in a row nor ends them.
#[derive(Clone, Debug)]
pub struct Judge {
    healthy_after: u32,
    unhealthy_after: u32,
    passes: u32,
    failures: u32,
    unclear: u32,
    said: Option<Said>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Healthy,
    Failing,
    Unknown,
}

impl Judge {
    /// A judge that has seen nothing. Both numbers are at least 1.
    #[must_use]
    pub fn new(healthy_after: u32, unhealthy_after: u32) -> Self {
        Self { healthy_after, unhealthy_after, passes: 0, failures: 0, unclear: 0, said: None }
    }

    /// Takes a verdict; returns health when it changed, or can be told for the first time.
    pub fn take(&mut self, verdict: Verdict) -> Option<Health> {
        let (said, health) = match verdict {
            Verdict::Pass => {
                (self.failures, self.unclear) = (0, 0);
                self.passes = self.passes.saturating_add(1);
                (self.passes >= self.healthy_after).then_some((Said::Healthy, Health::Healthy))
            }
            Verdict::Fail(why) => {
                (self.passes, self.unclear) = (0, 0);
                self.failures = self.failures.saturating_add(1);
                (self.failures >= self.unhealthy_after).then(|| (Said::Failing, Health::Failing(Reason::lossy(&why))))
            }
            Verdict::Unclear(why) => {
                self.unclear = self.unclear.saturating_add(1);
                (self.unclear >= self.unhealthy_after).then(|| (Said::Unknown, Health::Unknown(Reason::lossy(&why))))
            }
        }?;
        self.say(said, health)
    }

    /// No probe has ended for too long: what was known is old, whatever it was. Returns health when that is a change.
    pub fn lose_sight(&mut self, why: &str) -> Option<Health> {
        (self.passes, self.failures) = (0, 0);
        self.say(Said::Unknown, Health::Unknown(Reason::lossy(why)))
    }

    fn say(&mut self, said: Said, health: Health) -> Option<Health> {
        if self.said == Some(said) {
            return None;
        }
        self.said = Some(said);
        Some(health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail() -> Verdict {
        Verdict::Fail("no".to_owned())
    }

    fn unclear() -> Verdict {
        Verdict::Unclear("throttled".to_owned())
    }

    #[test]
    fn the_first_result_and_every_change_are_told_once() {
        let mut judge = Judge::new(1, 2);
        assert_eq!(judge.take(Verdict::Pass), Some(Health::Healthy));
        assert_eq!(judge.take(Verdict::Pass), None);
        assert_eq!(judge.take(fail()), None);
        assert!(matches!(judge.take(fail()), Some(Health::Failing(_))));
        assert_eq!(judge.take(fail()), None);
        assert_eq!(judge.take(Verdict::Pass), Some(Health::Healthy));
    }

    #[test]
    fn passes_and_failures_count_only_in_a_row() {
        let mut judge = Judge::new(2, 2);
        for _ in 0..5 {
            assert_eq!(judge.take(Verdict::Pass), None);
            assert_eq!(judge.take(fail()), None);
        }
    }

    #[test]
    fn i6_unclear_probes_never_make_it_failing() {
        let mut judge = Judge::new(1, 3);
        judge.take(Verdict::Pass);
        let told: Vec<_> = (0..100).filter_map(|_| judge.take(unclear())).collect();
        assert!(matches!(told.as_slice(), [Health::Unknown(_)]));
        assert_eq!(judge.take(Verdict::Pass), Some(Health::Healthy));
    }

    #[test]
    fn an_unclear_probe_between_failures_does_not_hide_them() {
        let mut judge = Judge::new(1, 2);
        assert_eq!(judge.take(fail()), None);
        assert_eq!(judge.take(unclear()), None);
        assert!(matches!(judge.take(fail()), Some(Health::Failing(_))));
    }
}
