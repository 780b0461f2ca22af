//! Elapsed time of a soak or an upgrade, across sleep and restarts, without trusting a jump of the wall clock.
//!
//! While the node runs, CLOCK_BOOTTIME counts, and what it counted is put down every minute ([`Stopwatch::put_down`]).
//! The time it was off is taken from the wall clock, once, at the restart, from the last time put down: a clock that
//! starts in 1970 and is set while the node runs adds nothing, and none is ever negative.

use serde::{Deserialize, Serialize};

use crate::time::{Now, Time, Timestamp};

/// Started at a transition; kept on disk with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stopwatch {
    started_at: Timestamp,
    /// Elapsed when it was last put down, …
    carried_ms: u64,
    /// … by the wall clock of then.
    put_down_at: Timestamp,
    #[serde(skip)]
    running_since_ms: u64,
}

impl Stopwatch {
    /// Started now.
    pub(crate) fn start(now: Now) -> Self {
        Self { started_at: now.wall, carried_ms: 0, put_down_at: now.wall, running_since_ms: now.boot.0 }
    }

    /// Goes on after a restart: the time off counts, as the wall clock tells it. How much that is, since the last time put down.
    pub(crate) fn resume(&mut self, now: Now) -> u64 {
        let off_ms = now.wall.since_seconds(self.put_down_at).saturating_mul(1_000);
        self.carried_ms = self.carried_ms.saturating_add(off_ms);
        self.put_down_at = now.wall;
        self.running_since_ms = now.boot.0;
        off_ms
    }

    /// Takes down what has elapsed, to be kept on disk: a later restart trusts the wall clock only from here on.
    pub(crate) fn put_down(&mut self, now: Now) {
        self.carried_ms = self.elapsed_ms(now);
        self.put_down_at = now.wall;
        self.running_since_ms = now.boot.0;
    }

    /// Milliseconds since the start.
    pub(crate) fn elapsed_ms(&self, now: Now) -> u64 {
        self.carried_ms.saturating_add(now.boot.since_ms(Time(self.running_since_ms)))
    }

    /// The instant at which `total_ms` will have elapsed.
    pub(crate) fn due(&self, total_ms: u64) -> Time {
        Time(self.running_since_ms).after_ms(total_ms.saturating_sub(self.carried_ms))
    }

    /// When it was started, by this node's wall clock of then.
    pub(crate) fn started_at(&self) -> Timestamp {
        self.started_at
    }
}

/// How much of a stopwatch's time the machine was off or asleep. Of that a version had nothing; of the time in which its machine ran it had
/// all, whether or not it was up: otherwise one that ends again and again would never have had its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Absence {
    off_ms: u64,
    /// CLOCK_BOOTTIME when the stopwatch was last put down.
    put_down_ms: u64,
    /// The same of the clock that stands while the machine sleeps. Kept apart: older builds know nothing of it.
    #[serde(skip)]
    put_down_awake_ms: Option<u64>,
}

impl Absence {
    /// None yet.
    pub(crate) fn start(now: Now) -> Self {
        Self { off_ms: 0, put_down_ms: now.boot.0, put_down_awake_ms: Some(now.awake_ms) }
    }

    /// Along with the stopwatch.
    pub(crate) fn put_down(&mut self, now: Now) {
        self.put_down_ms = now.boot.0;
        self.put_down_awake_ms = Some(now.awake_ms);
    }

    /// After a restart, before which the stopwatch was put down `gap_ms` ago. What the clock that goes on while the machine is
    /// awake says of that was no absence; it begins anew with the machine. A step of the wall clock is one, and so is a sleep that
    /// nobody lived to notice.
    pub(crate) fn resume(&mut self, gap_ms: u64, now: Now) {
        let ran_ms = match self.put_down_awake_ms {
            Some(put_down_ms) => now.awake_ms.saturating_sub(put_down_ms),
            None => now.boot.0.saturating_sub(self.put_down_ms),
        };
        self.off_ms = self.off_ms.saturating_add(gap_ms.saturating_sub(ran_ms));
        self.put_down(now);
    }

    /// The machine slept for so long: of that a version had nothing either. Both are put down then, or a restart would find the
    /// same sleep once more.
    pub(crate) fn sleep(&mut self, ms: u64) {
        self.off_ms = self.off_ms.saturating_add(ms);
    }

    /// What is kept apart of it.
    pub(crate) fn put_down_awake_ms(&self) -> Option<u64> {
        self.put_down_awake_ms
    }

    /// The same, put together again.
    pub(crate) fn put_down_at(self, put_down_awake_ms: Option<u64>) -> Self {
        Self { put_down_awake_ms, ..self }
    }

    /// In milliseconds.
    pub(crate) fn ms(&self) -> u64 {
        self.off_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(boot_ms: u64, wall: u64) -> Now {
        Now { awake_ms: boot_ms, boot: Time(boot_ms), wall: Timestamp::from_seconds(wall) }
    }

    #[test]
    fn a_jump_of_the_wall_clock_counts_for_nothing_while_the_node_runs() {
        let watch = Stopwatch::start(now(5_000, 0));
        assert_eq!(watch.elapsed_ms(now(6_000, 1_700_000_000)), 1_000);
    }

    #[test]
    fn the_time_off_counts_once_and_is_never_negative() {
        let mut watch = Stopwatch::start(now(5_000, 1_000));
        watch.resume(now(100, 1_060));
        assert_eq!(watch.elapsed_ms(now(1_100, 1_061)), 61_000);
        assert_eq!(watch.due(61_000), Time(1_100));
        watch.resume(now(100, 10));
        assert_eq!(watch.elapsed_ms(now(200, 10)), 60_100, "a clock set back takes nothing away");
    }

    #[test]
    fn a_clock_that_started_in_1970_and_was_set_later_ends_no_soak_at_the_next_restart() {
        let mut watch = Stopwatch::start(now(0, 30));
        watch.put_down(now(60_000, 1_800_000_000));
        watch.resume(now(100, 1_800_000_020));
        assert_eq!(watch.elapsed_ms(now(1_100, 1_800_000_021)), 81_000);
    }

    #[test]
    fn a_sleep_on_whose_end_the_agent_ended_is_found_at_its_next_start() {
        let slept = |boot_ms, slept_ms| Now { awake_ms: boot_ms - slept_ms, ..now(boot_ms, 0) };
        let mut absence = Absence::start(now(500_000, 0));
        absence.resume(3_630_000, slept(4_130_000, 3_600_000));
        assert_eq!(absence.ms(), 3_600_000);
        // What an older build put down has no such reading: then the machine is taken to have been awake.
        let mut absence = Absence { put_down_awake_ms: None, ..Absence::start(now(500_000, 0)) };
        absence.resume(3_630_000, slept(4_130_000, 3_600_000));
        assert_eq!(absence.ms(), 0);
        absence.resume(60_000, slept(4_190_000, 3_630_000));
        assert_eq!(absence.ms(), 30_000, "from here on it is known");
    }

    #[test]
    fn a_machine_was_off_where_its_clock_began_anew_and_not_where_only_the_agent_ended() {
        let mut absence = Absence::start(now(500_000, 0));
        absence.resume(30_000, now(530_000, 0));
        assert_eq!(absence.ms(), 0, "the same run of the machine");
        absence.resume(3_630_000, now(560_000, 0));
        assert_eq!(absence.ms(), 3_600_000, "the wall clock was stepped");
        absence.put_down(now(600_000, 0));
        absence.resume(90_000, now(20_000, 0));
        assert_eq!(absence.ms(), 3_690_000, "another run");
        absence.resume(0, now(10_000, 0));
        assert_eq!(absence.ms(), 3_690_000, "a clock set back takes nothing away");
    }
}
