//! How systemd sees a unit, as `systemctl show` tells it.

use std::time::Duration;

use super::judge::Verdict;
use crate::config::UnitTarget;
use crate::install::activate::process::{Ended, run};

/// What is asked for.
const PROPERTIES: &str = "--property=LoadState,ActiveState,SubState,Result,NRestarts";

/// Asks once, within `limit`. `restarts` is how often systemd had started the unit again at the last probe.
///
/// A unit that ends again and again looks active to a probe that comes in between: one more restart is a failure.
/// When systemd itself does not answer, nothing is known about the unit.
pub async fn probe(target: &UnitTarget, limit: Duration, restarts: &mut Option<u64>) -> Verdict {
    let UnitTarget { unit, systemctl } = target;
    let argv = [systemctl, "show", PROPERTIES, unit].map(str::to_owned);
    match run(&argv, &[], limit).await {
        Err(error) => Verdict::Unclear(format!("{systemctl} cannot be run: {error}")),
        Ok(finished) => match finished.ended {
            Ended::Status(status) if status.success() => judge(unit, &finished.stdout, restarts),
            _ => Verdict::Unclear(format!("{systemctl} does not tell of {unit}: {}", finished.output)),
        },
    }
}

/// `told` has one property in each line, in any order. What this agent has no word for, of a systemd to come, decides nothing.
fn judge(unit: &str, told: &str, restarts: &mut Option<u64>) -> Verdict {
    let property = |name: &str| {
        let mut lines = told.lines().filter_map(|line| line.trim().split_once('='));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
    };
    let (active, sub) = (property("ActiveState"), property("SubState"));
    match property("LoadState") {
        "loaded" => {}
        load @ ("not-found" | "bad-setting" | "error" | "masked") => return Verdict::Fail(format!("unit {unit} is {load}")),
        "" => return Verdict::Unclear(format!("systemd says nothing of unit {unit}")),
        load => return Verdict::Unclear(format!("unit {unit} is {load}")),
    }
    let now = property("NRestarts").parse().ok();
    let before = std::mem::replace(restarts, now);
    let told = format!("unit {unit} is {active} ({sub}), result {}", property("Result"));
    match active {
        _ if before.zip(now).is_some_and(|(before, now)| now > before) => {
            Verdict::Fail(format!("{told}; systemd has started it again"))
        }
        "active" => Verdict::Pass,
        "activating" if sub == "auto-restart" => Verdict::Fail(told),
        "inactive" | "failed" => Verdict::Fail(told),
        _ => Verdict::Unclear(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(active: &str, sub: &str, restarts: u64, before: Option<u64>) -> Verdict {
        let output = format!("LoadState=loaded\nActiveState={active}\nSubState={sub}\nResult=success\nNRestarts={restarts}\n");
        judge("bcd.service", &output, &mut { before })
    }

    #[test]
    fn a_unit_passes_while_it_is_active_and_was_not_started_again() {
        assert_eq!(judged("active", "running", 3, None), Verdict::Pass);
        assert_eq!(judged("active", "running", 3, Some(3)), Verdict::Pass);
        assert_eq!(judged("active", "running", 0, Some(3)), Verdict::Pass, "an operator's restart counts from nothing again");
        assert!(matches!(judged("active", "running", 4, Some(3)), Verdict::Fail(why) if why.contains("started it again")));
    }

    #[test]
    fn a_unit_on_its_way_decides_nothing_and_one_that_failed_does() {
        for sub in ["start", "start-pre"] {
            assert!(matches!(judged("activating", sub, 0, None), Verdict::Unclear(_)));
        }
        assert!(matches!(judged("activating", "auto-restart", 0, None), Verdict::Fail(_)));
        assert!(matches!(judged("failed", "failed", 0, None), Verdict::Fail(why) if why.contains("failed")));
        assert!(matches!(judged("inactive", "dead", 0, None), Verdict::Fail(_)));
    }

    #[test]
    fn a_unit_that_systemd_does_not_know_fails() {
        let unknown = judge("bdc.service", "LoadState=not-found\nActiveState=inactive\n", &mut None);
        assert_eq!(unknown, Verdict::Fail("unit bdc.service is not-found".to_owned()));
    }

    #[test]
    fn i6_what_systemd_does_not_say_and_words_of_a_newer_one_decide_nothing() {
        for told in ["", "ActiveState=failed\n", "LoadState=stub\nActiveState=failed\n", "LoadState=loaded\n"] {
            assert!(matches!(judge("bcd.service", told, &mut None), Verdict::Unclear(_)), "{told:?}");
        }
        for active in ["reloading", "refreshing", "maintenance", "deactivating", "of-a-year-to-come"] {
            assert!(matches!(judged(active, "x", 0, None), Verdict::Unclear(_)), "{active}");
        }
    }

    #[test]
    fn an_answer_without_restarts_forgets_none() {
        let mut restarts = Some(3);
        assert!(matches!(judge("bcd.service", "", &mut restarts), Verdict::Unclear(_)));
        assert_eq!(restarts, Some(3));
    }
}
