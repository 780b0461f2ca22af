//! The life of an agent that is its own product: whether a peer answers, and what a restart of it takes away.

use super::*;
use crate::limits::{RETRY_LONGEST_MS, TRIAL_ENDS, TRIAL_STOPS};
use crate::node::keys::{decode, encode, encode_with};
use crate::node::life::ends::Ends;
use crate::node::life::stopwatch::{Absence, Stopwatch};

/// The agent itself: on trial and healthy since second 1, and no peer has answered.
fn alone_on_trial(ordered: &Mission) -> Life {
    let mut life = activating(ordered);
    life.now.company = Some(false);
    life.report(now(SECOND), Report::Activated { release: ordered.release });
    life.report(now(SECOND), Report::Health(Health::Healthy));
    life
}

/// The same, back on the old build after the upgrade's time.
fn alone_and_back(ordered: &Mission) -> Life {
    let mut life = alone_on_trial(ordered);
    let timeout = ordered.upgrade_timeout_ms + 10;
    let asked = steps(&advance(&mut life, timeout, ordered));
    assert!(matches!(&asked[..], [Step::Revert { reason, .. }] if reason.as_str().contains("no peer answered")), "{asked:?}");
    assert_eq!(back_on_one(&mut life, timeout + SECOND, 2), [], "nothing is known yet");
    assert_eq!((life.kept.phase, life.kept.running.clone()), (Phase::Activating, Some(running(1, 1))));
    life
}

#[test]
fn the_agent_itself_confirms_only_once_a_peer_has_answered() {
    let ordered = mission("r", 2);
    let mut life = alone_on_trial(&ordered);
    assert_eq!(advance(&mut life, 60 * SECOND, &ordered), []);
    life.now.company = Some(true);
    assert_eq!(steps(&advance(&mut life, 61 * SECOND, &ordered)), [Step::Confirm { release: ordered.release }]);
}

#[test]
fn a_build_of_the_agent_that_reaches_no_peer_failed_if_the_old_one_does() {
    let ordered = mission("r", 2);
    let mut life = alone_and_back(&ordered);
    let at = ordered.upgrade_timeout_ms + 20 * SECOND;
    assert_eq!(advance(&mut life, at, &ordered), [], "the old build gets the same time");
    life.now.company = Some(true);
    let acts = advance(&mut life, at + SECOND, &ordered);
    let [Act::Device(told), Act::Verdict(_, Outcome::RolledBack, reason)] = &acts[..] else { panic!("{acts:?}") };
    assert!(reason.as_str().contains("no peer answered"), "{reason}");
    assert_eq!(life.kept.phase, Phase::RolledBack);
    assert_eq!(life.kept.denied, [ordered.release, build_of(&ordered)]);
    // The device went back without blame, and has to know it too: its list outlives this store.
    assert_eq!(*told, Step::Revert { release: ordered.release, reason: reason.clone(), at_fault: true });
    assert_eq!(back_on_one(&mut life, at + 2 * SECOND, 2), []);
    assert_eq!(life.kept.phase, Phase::RolledBack);
}

#[test]
fn a_build_of_the_agent_is_not_judged_where_the_old_one_reaches_no_peer_either() {
    let ordered = mission("r", 2);
    let mut life = alone_and_back(&ordered);
    let began = ordered.upgrade_timeout_ms + 10 + SECOND;
    let over = began + ordered.upgrade_timeout_ms;
    assert_eq!(life.deadline(now(began + 1)), Some(Time(over)));
    assert_eq!(advance(&mut life, over, &ordered), []);
    assert_eq!((life.kept.phase, &life.kept.claim), (Phase::Waiting, &None), "the claim ends");
    assert_eq!((life.kept.verdicts.len(), life.kept.denied.len()), (0, 0), "without a verdict");
    // It is tried again, later.
    advance(&mut life, over + SECOND, &ordered);
    assert!(matches!(life.now.hold, Some(Hold::Retry { .. })), "{:?}", life.now.hold);
    let later = over + RETRY_LONGEST_MS + SECOND;
    let asked = steps(&advance(&mut life, later, &ordered));
    assert!(matches!(&asked[..], [Step::Fetch { .. }]), "{asked:?}");
}

#[test]
fn a_restart_while_the_old_build_looks_for_a_peer_changes_nothing() {
    let ordered = mission("r", 2);
    let kept = alone_and_back(&ordered).kept;
    let mut life = Life::open(kept, now(0));
    life.now.company = Some(false);
    assert_eq!(life.report(now(1), Report::Recovered(at_rest_on_one())), []);
    assert_eq!(life.kept.phase, Phase::Activating);
    life.now.company = Some(true);
    let acts = advance(&mut life, 2, &ordered);
    assert!(matches!(&acts[..], [Act::Device(Step::Revert { .. }), Act::Verdict(_, Outcome::RolledBack, _)]), "{acts:?}");
    assert_eq!(life.kept.denied, [ordered.release, build_of(&ordered)], "whatever the restart forgot");
}

#[test]
fn a_build_of_the_agent_that_is_unhealthy_is_at_fault_whoever_answers() {
    let ordered = mission("r", 2);
    let mut life = alone_on_trial(&ordered);
    life.report(now(2 * SECOND), Report::Health(Health::Failing(Reason::lossy("broken"))));
    let asked = steps(&advance(&mut life, 3 * SECOND, &ordered));
    assert!(matches!(&asked[..], [Step::Revert { .. }]));
    assert!(matches!(&back_on_one(&mut life, 4 * SECOND, 2)[..], [Act::Verdict(_, Outcome::RolledBack, _)]));
}

#[test]
fn an_agent_without_a_supervisor_is_never_replaced_and_says_so() {
    let ordered = Mission { unsupported: Some(Hold::NoSupervisor), ..mission("r", 2) };
    let mut life = on_version_one();
    assert_eq!(advance(&mut life, SECOND, &ordered), []);
    assert_eq!(life.now.hold, Some(Hold::NoSupervisor));
}

/// A trial of the agent itself over several of its runs, by a clock that goes on while nothing runs.
struct Runs {
    life: Life,
    ordered: Mission,
    wall: u64,
    /// CLOCK_BOOTTIME, in seconds.
    boot: u64,
    /// How much of that the machine slept.
    slept: u64,
}

impl Runs {
    /// Handed over to the new build, in a machine that has been up for an hour.
    fn new() -> Self {
        let ordered = Mission { upgrade_timeout_ms: 600 * SECOND, ..mission("r", 2) };
        let at = Now { awake_ms: 0, boot: Time(3_600 * SECOND), wall: now(0).wall };
        let mut before = activating(&ordered);
        before.kept.attempt.as_mut().unwrap().upgrade = Stopwatch::start(at);
        before.kept.absence = Absence::start(at);
        let mut runs = Self { life: before, ordered, wall: at.wall.seconds(), boot: 3_600, slept: 3_600 };
        runs.restarts(2, false);
        runs
    }

    fn at(&self) -> Now {
        let awake_ms = (self.boot - self.slept) * SECOND;
        Now { awake_ms, boot: Time(self.boot * SECOND), wall: Timestamp::from_seconds(self.wall) }
    }

    /// The machine sleeps.
    fn sleeps(&mut self, seconds: u64) {
        self.wall += seconds;
        self.boot += seconds;
        self.slept += seconds;
    }

    /// The agent is started anew after so many seconds, through its store; and the machine with it, or not.
    fn restarts(&mut self, after: u64, machine: bool) {
        self.wall += after;
        self.boot = if machine { 20 } else { self.boot + after };
        self.slept = if machine { 0 } else { self.slept };
        let kept = Kept::decode(&self.life.kept.encode()).unwrap();
        self.life = Life::open(kept, self.at());
        self.life.now.company = Some(true);
        let recovered = Recovered { running: Some(running(2, 2)), trial: Some(self.ordered.release), ..at_rest_on_one() };
        assert_eq!(self.life.report(self.at(), Report::Recovered(recovered)), []);
    }

    /// It runs for so many seconds; what is asked of the device meanwhile.
    fn runs(&mut self, seconds: u64) -> Vec<Step> {
        let mut asked = Vec::new();
        for second in 1..=seconds {
            (self.wall, self.boot) = (self.wall + 1, self.boot + 1);
            let ordered = self.ordered.clone();
            asked.extend(steps(&self.life.advance(self.at(), Some(&ordered), &mut |_, _| panic!("it holds its slot"))));
            if second % 60 == 0 {
                assert!(self.life.put_down(self.at()));
            }
        }
        asked
    }

    /// Its time is over, and it goes back; whether it is to blame.
    fn ends_in(&mut self, seconds: u64) -> bool {
        match self.runs(seconds)[..] {
            [Step::Revert { at_fault, .. }, ..] => at_fault,
            ref asked => panic!("{asked:?}"),
        }
    }

    /// It came to no verdict, and is handed over once more.
    fn is_tried_again(&mut self) {
        let (at, ordered) = (self.at(), self.ordered.clone());
        let back = Report::Reverted { release: ordered.release, running: Some(running(1, 1)), output: Reason::none() };
        assert_eq!(self.life.report(at, back), []);
        self.life.report(at, Report::Staged { release: ordered.release });
        let go = |life: &mut Life| {
            life.advance(at, Some(&ordered), &mut |_, asking| match asking {
                Asking::Claim => Turn::Claim(Some(0)),
                Asking::Start => Turn::Start,
            })
        };
        assert_eq!(go(&mut self.life), [Act::Claim(Some(0))]);
        self.life.kept.claim = activating(&ordered).kept.claim;
        self.life.kept.phase = Phase::Claiming;
        assert!(matches!(steps(&go(&mut self.life))[..], [Step::Activate { .. }]));
        self.restarts(2, false);
    }

    fn ends_in_blame_after(mut self, seconds: u64) {
        assert_eq!(self.runs(seconds - 1), [], "not before");
        let asked = self.runs(1);
        assert!(matches!(asked[..], [Step::Revert { at_fault: true, .. }]), "{asked:?}");
    }
}

#[test]
fn time_in_which_its_machine_was_off_is_no_time_of_the_agent_on_trial() {
    for machine_goes_down_at in [60, 300, 540] {
        let mut runs = Runs::new();
        assert_eq!(runs.runs(machine_goes_down_at), []);
        runs.restarts(7 * 86_400, true);
        assert_eq!(runs.runs(1), []);
        assert!(matches!(runs.life.now.hold, Some(Hold::Undecided(_))), "{:?}", runs.life.now.hold);
        // It has the rest to be confirmed in.
        runs.life.report(runs.at(), Report::Health(Health::Healthy));
        let asked = runs.runs(runs.ordered.confirm_after_ms / SECOND);
        assert_eq!(asked, [Step::Confirm { release: runs.ordered.release }]);
    }
}

#[test]
fn time_in_which_its_machine_slept_is_no_time_of_the_agent_on_trial() {
    for answered in [true, false] {
        let mut runs = Runs::new();
        runs.life.now.company = Some(false);
        runs.life.report(runs.at(), Report::Health(Health::Healthy));
        assert_eq!(runs.runs(100), []);
        runs.sleeps(86_400);
        assert_eq!(runs.runs(60), [], "it has had no chance to reach a peer");
        if answered {
            runs.life.now.company = Some(true);
            assert_eq!(runs.runs(1), [Step::Confirm { release: runs.ordered.release }]);
        } else {
            assert_eq!(runs.runs(437), []);
            assert!(matches!(runs.runs(1)[..], [Step::Revert { at_fault: false, .. }]), "it has had its time");
        }
    }
}

#[test]
fn an_agent_whose_machine_wakes_late_in_its_time_is_looked_at_first_and_not_blamed() {
    // A peer answers as soon as the machine is awake.
    let mut runs = Runs::new();
    runs.life.now.company = Some(false);
    runs.life.report(runs.at(), Report::Health(Health::Healthy));
    assert_eq!(runs.runs(595), []);
    runs.sleeps(3_600);
    runs.life.now.company = Some(true);
    assert_eq!(runs.runs(5), [], "noticed after one second");
    assert_eq!(runs.runs(1), [Step::Confirm { release: runs.ordered.release }]);
    // Its service was stopped for longer than its time.
    let mut runs = Runs::new();
    assert_eq!(runs.runs(60), []);
    runs.restarts(3_600, false);
    assert_eq!(runs.runs(10), []);
    assert!(matches!(runs.life.now.hold, Some(Hold::Undecided(_))));
    runs.life.report(runs.at(), Report::Health(Health::Healthy));
    assert_eq!(runs.runs(4), []);
    assert_eq!(runs.runs(1), [Step::Confirm { release: runs.ordered.release }]);
}

#[test]
fn an_agent_that_says_nothing_of_itself_is_to_blame_once_it_had_its_time_in_all_its_runs() {
    // Two seconds of it went by in the hand-over.
    Runs::new().ends_in_blame_after(598);
    // A machine that goes down late in its time, as one does that the version takes down.
    let mut runs = Runs::new();
    assert_eq!(runs.runs(540), []);
    runs.restarts(90, true);
    runs.ends_in_blame_after(58);
    // An agent that ends late in its time: all of that was its own.
    let mut runs = Runs::new();
    assert_eq!(runs.runs(500), []);
    runs.restarts(40, false);
    runs.ends_in_blame_after(58);
    // Again and again.
    let mut runs = Runs::new();
    for _ in 0..4 {
        assert_eq!(runs.runs(120), []);
        runs.restarts(3_600, true);
    }
    runs.ends_in_blame_after(118);
}

#[test]
fn an_agent_that_fails_is_to_blame_however_long_its_machine_was_off() {
    let mut runs = Runs::new();
    runs.restarts(7_200, true);
    runs.life.report(runs.at(), Report::Health(Health::Failing(Reason::lossy("500"))));
    assert!(matches!(runs.runs(1)[..], [Step::Revert { at_fault: true, .. }]));
}

#[test]
fn the_rest_of_its_time_is_waited_for_and_no_check_that_cannot_judge_blames_it() {
    let mut runs = Runs::new();
    assert_eq!(runs.runs(120), []);
    runs.restarts(7_200, true);
    assert_eq!(runs.life.deadline(runs.at()), Some(Time((20 + LOOK_AFTER_WAKING_MS / SECOND) * SECOND)));
    runs.life.report(runs.at(), Report::Health(Health::Unknown(Reason::lossy("status 429"))));
    assert_eq!(runs.runs(HEALTH_AFTER_START_MS / SECOND), []);
    assert_eq!(runs.life.deadline(runs.at()), Some(Time((20 + 478) * SECOND)));
    assert_eq!(runs.runs(357), []);
    assert!(matches!(runs.runs(1)[..], [Step::Revert { at_fault: false, .. }]));
}

#[test]
fn what_an_older_build_kept_is_read_and_reads_what_is_kept_now() {
    let mut runs = Runs::new();
    runs.restarts(7_200, true);
    // As it is read: what a stopwatch does not keep is not in it.
    let kept = Kept::decode(&runs.life.kept.encode()).unwrap();
    assert_ne!((kept.absence, kept.ends), (Absence::default(), Ends::default()));
    let of_now = kept.encode();
    assert_eq!(Kept::decode(&of_now), Some(kept.clone()));
    let of_old = encode(&kept);
    assert!(of_now.starts_with(&of_old) && of_now.len() > of_old.len());
    let of_before = encode_with(&kept, &kept.absence);
    assert!(of_now.starts_with(&of_before) && of_now.len() > of_before.len());
    let absence = kept.absence.put_down_at(None);
    assert_eq!(Kept::decode(&of_before), Some(Kept { absence, ends: Ends::default(), ..kept.clone() }));
    let without = Kept { absence: Absence::default(), ends: Ends::default(), ..kept };
    assert_eq!(Kept::decode(&of_old), Some(without.clone()));
    assert_eq!(decode::<Kept>(&of_now), Some(without), "as older builds do");
    assert_eq!(Kept::decode(&of_now[..of_now.len() - 1]), None, "what is torn is not read");
}

#[test]
fn a_sleep_at_whose_end_the_agent_itself_ended_is_none_of_its_time_and_one_that_it_noticed_is_none_once() {
    for noticed in [0, 1] {
        let mut runs = Runs::new();
        assert_eq!(runs.runs(90), [], "last put down after 60");
        runs.sleeps(86_400);
        assert_eq!(runs.runs(noticed), []);
        runs.restarts(10, false);
        runs.ends_in_blame_after(498 - noticed);
    }
}

#[test]
fn a_build_of_the_agent_that_takes_its_machine_down_whenever_nothing_can_judge_it_is_to_blame_in_the_end() {
    let says = |runs: &mut Runs| drop(runs.life.report(runs.at(), Report::Health(Health::Unknown(Reason::lossy("status 429")))));
    for told in [false, true] {
        let mut runs = Runs::new();
        let goes_down = |runs: &mut Runs, told: bool| {
            says(runs);
            assert_eq!(runs.runs(120), []);
            assert_eq!(told && runs.life.stop(runs.at()), told);
            runs.restarts(30, true);
        };
        for _ in 1..TRIAL_ENDS {
            goes_down(&mut runs, false);
            goes_down(&mut runs, false);
            says(&mut runs);
            assert!(!runs.ends_in(400), "its starts are not used up");
            // Its way back is an orderly end too, of which nothing is made.
            assert!(!runs.life.stop(runs.at()));
            runs.is_tried_again();
        }
        // One that was told to end has not ended by itself.
        goes_down(&mut runs, told);
        says(&mut runs);
        assert_eq!(runs.ends_in(600), !told);
    }
    // Nor does it matter then whether a peer answers.
    let ordered = mission("r", 2);
    let mut life = alone_on_trial(&ordered);
    for _ in 0..TRIAL_ENDS {
        life.kept.ends.begin(ordered.release);
        (0..2).for_each(|_| life.kept.ends.start());
    }
    let asked = steps(&advance(&mut life, ordered.upgrade_timeout_ms + 10, &ordered));
    assert!(matches!(asked[..], [Step::Revert { at_fault: true, .. }]), "{asked:?}");
}

#[test]
fn an_agent_on_trial_that_has_its_machine_restarted_for_ever_has_used_up_its_orderly_ends() {
    let mut ends = Ends::default();
    for _ in 1..TRIAL_ENDS {
        ends.begin(digest(2));
        ends.start();
        ends.start();
    }
    ends.begin(digest(2));
    for restart in 0..=TRIAL_STOPS {
        assert_eq!(ends.spent(), None, "restart {restart}");
        ends.start();
        ends.stop();
    }
    ends.start();
    assert_eq!(ends.spent(), Some(TRIAL_ENDS));
    ends.begin(digest(2));
    ends.start();
    assert_eq!(ends.spent(), Some(TRIAL_ENDS), "whatever trial of it");
    ends.begin(digest(3));
    ends.start();
    assert_eq!(ends.spent(), None);
}

#[test]
fn power_cuts_at_a_site_where_no_trial_comes_to_a_verdict_blame_nobody() {
    let mut ends = Ends::default();
    for trial in 1..100 {
        ends.begin(digest(2));
        ends.start();
        // Every night, and then some.
        if trial % 10 < TRIAL_ENDS - 1 {
            ends.start();
        }
        assert_eq!(ends.spent(), None, "trial {trial}");
    }
}

#[test]
fn what_comes_to_no_verdict_again_and_again_is_tried_less_and_less_often() {
    let mut ends = Ends::default();
    let pauses: Vec<_> = (0..10).map(|_| (ends.begin(digest(2)), ends.pause_ms() / RETRY_LONGEST_MS).1).collect();
    assert_eq!(pauses, [1, 1, 1, 2, 4, 8, 16, 32, 32, 32]);
    ends.begin(digest(3));
    assert_eq!(ends.pause_ms(), RETRY_LONGEST_MS, "of another release nothing is known");
}
