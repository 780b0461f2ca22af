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
            Ended::Status(status) if status.success() => judge(unit, &finished.output, restarts),
            _ => Verdict::Unclear(format!("{systemctl} does not tell of {unit}: {}", finished.output)),
        },
    }
}

/// `output` has one property in each part between ` | `, in any order.
fn judge(unit: &str, output: &str, restarts: &mut Option<u64>) -> Verdict {
    let property = |name: &str| {
        let mut parts = output.split(" | ").filter_map(|part| part.split_once('='));
        parts.find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
    };
    let (active, sub) = (property("ActiveState"), property("SubState"));
    let now = property("NRestarts").parse().ok();
    let before = std::mem::replace(restarts, now);
    let told = format!("unit {unit} is {active} ({sub}), result {}", property("Result"));
    match (property("LoadState"), active) {
        ("loaded", _) => {}
        (load, _) => return Verdict::Fail(format!("unit {unit} is {}", if load.is_empty() { "not known" } else { load })),
    }
    match active {
        _ if before.zip(now).is_some_and(|(before, now)| now > before) => {
            Verdict::Fail(format!("{told}; systemd has started it again"))
        }
        "active" => Verdict::Pass,
        "activating" if sub == "auto-restart" => Verdict::Fail(told),
        "activating" | "reloading" | "deactivating" => Verdict::Unclear(told),
        _ => Verdict::Fail(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(active: &str, sub: &str, restarts: u64, before: Option<u64>) -> Verdict {
        let output = format!("LoadState=loaded | ActiveState={active} | SubState={sub} | Result=success | NRestarts={restarts}");
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
        let unknown = judge("bdc.service", "LoadState=not-found | ActiveState=inactive", &mut None);
        assert_eq!(unknown, Verdict::Fail("unit bdc.service is not-found".to_owned()));
    }
}
