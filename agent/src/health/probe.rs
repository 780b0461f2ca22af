//! One probe of a running version.

use tokio::sync::watch;

use super::judge::Verdict;
use super::names::Names;
use super::{http, tcp, unit};
use crate::config::{HealthCheck, HealthConfig};
use crate::install::activate::leftover::health_mark;
use crate::install::activate::process::{Ended, run, said};
use crate::install::activate::{Launch, ProcessState};

/// EX_TEMPFAIL of sysexits.h: a probing command says "I cannot tell".
const CANNOT_TELL: i32 = 75;

/// What the supervised process alone says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessVerdict {
    /// It runs, as far as that can be judged: go on with the configured check.
    Runs,
    /// It does not run, or has just been started again after it ended.
    Down(String),
}

/// Judges the process. `ends_seen` is how often it had ended at the last probe.
///
/// One that was started again counts as down until it has run for `stable_after`, or a process that ends
/// again and again would look well to a probe that comes in between.
#[must_use]
pub fn process(state: &ProcessState, ends_seen: u32, stable_after: std::time::Duration) -> ProcessVerdict {
    let stable = state.since.is_some_and(|since| since.elapsed() >= stable_after);
    let never_ended = state.ends == 0 && state.since.is_some();
    if never_ended || (stable && state.ends == ends_seen) {
        return ProcessVerdict::Runs;
    }
    let why = if state.last_end.is_empty() { "the process does not run" } else { &state.last_end };
    ProcessVerdict::Down(why.to_owned())
}

/// What a version's earlier probes have seen of it, and how names are looked up for all of them.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How often the supervised process had ended.
    pub(super) ends: u32,
    /// How often systemd had started the unit again.
    restarts: Option<u64>,
    names: Names,
}

impl Seen {
    /// Nothing yet.
    #[must_use]
    pub fn nothing(names: Names) -> Self {
        Self { names, ..Self::default() }
    }
}

/// Runs the configured check once, within its time limit.
pub async fn check(config: &HealthConfig, launch: &Launch, seen: &mut Seen) -> Verdict {
    match &config.check {
        HealthCheck::Process => Verdict::Pass,
        HealthCheck::Http(target) => http::get(target, config.timeout, &seen.names).await,
        HealthCheck::Tcp(target) => tcp::probe(target, config.timeout, &seen.names).await,
        HealthCheck::Unit(target) => unit::probe(target, config.timeout, &mut seen.restarts).await,
        HealthCheck::Command(argv) => {
            let argv = launch.fill_all(argv);
            let name = argv.first().cloned().unwrap_or_default();
            let mut environment = launch.environment();
            environment.extend(launch.folder().map(health_mark));
            match run(&argv, &environment, config.timeout).await {
                Err(error) if launch.is_to_blame(&name, &error) => {
                    Verdict::Fail(format!("the health command {name} cannot be run: {error}"))
                }
                // What this device lacks says nothing of the version.
                Err(error) => Verdict::Unclear(format!("the health command {name} cannot be run now: {error}")),
                Ok(finished) => {
                    let tell =
                        |what: String| if finished.output.is_empty() { what } else { format!("{what}: {}", finished.output) };
                    match finished.ended {
                        Ended::Status(status) if status.success() => Verdict::Pass,
                        Ended::Status(status) if status.code() == Some(CANNOT_TELL) => {
                            Verdict::Unclear(tell(format!("the health command {name} cannot tell")))
                        }
                        Ended::Status(status) => {
                            Verdict::Fail(tell(format!("the health command {name} ended with {}", said(status))))
                        }
                        Ended::TimedOut => Verdict::Fail(tell(format!("the health command {name} timed out"))),
                    }
                }
            }
        }
    }
}

/// How the process fares now; `None` where the agent does not keep it running.
pub(super) fn now(watched: Option<&watch::Receiver<ProcessState>>) -> Option<ProcessState> {
    watched.map(|state| state.borrow().clone())
}
