//! What runs on a virtual machine: two slots, a service, and a release's behaviour once it is started.

use std::collections::BTreeMap;

use groundswell_core::digest::Digest;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Health, Recovered, Report};
use groundswell_core::number::Sequence;
use groundswell_core::record::status::Running;
use groundswell_core::text::Reason;
use serde::{Deserialize, Serialize};

use super::span;

/// A version on trial that was started so often goes back.
const BOOTS: u32 = 3;

/// How a release behaves once it is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Behaviour {
    /// Healthy.
    #[default]
    Good,
    /// Starts and fails its health check.
    Unhealthy,
    /// Healthy at first; fails this long after its start, in milliseconds.
    DegradesAfter(#[serde(with = "span")] u64),
    /// Its health cannot be judged for this long after its start, in milliseconds; healthy from then on.
    UnclearFor(#[serde(with = "span")] u64),
    /// Never says anything about its health.
    Mute,
    /// Cannot be switched to.
    WontStart,
    /// The switch never comes to an end.
    Hangs,
    /// Takes the whole machine down, this long after each start, in milliseconds.
    Crashes(#[serde(with = "span")] u64),
}

/// One product's slots on one machine. This state is on disk.
#[derive(Clone, Debug, Default)]
pub struct Device {
    running: Option<Running>,
    previous: Option<Running>,
    trial: Option<Digest>,
    staged: Option<Install>,
    floor: Sequence,
    /// Groundswell may be touching the running version now.
    disrupted: bool,
    /// Starts of the version on trial.
    boots: u32,
    /// What runs is down for a reason of its own, until something else is started.
    pub broken: bool,
    /// How some releases behave on this machine alone.
    pub odd: BTreeMap<Digest, Behaviour>,
}

/// A report that comes after a while, in milliseconds.
pub type Later = (u64, Report);

impl Device {
    /// What a machine that was set up with `running` has.
    #[must_use]
    pub fn with(running: Option<Running>) -> Self {
        let floor = running.as_ref().map_or(Sequence::default(), |running| running.sequence);
        Self { running, floor, ..Self::default() }
    }

    /// Whether the running version is being touched: what S1 counts.
    #[must_use]
    pub fn disrupted(&self) -> bool {
        self.disrupted
    }

    /// A trial that is neither confirmed nor reverted.
    #[must_use]
    pub fn trial(&self) -> Option<Digest> {
        self.trial
    }

    /// What runs.
    #[must_use]
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// The floor kept with the slots.
    #[must_use]
    pub fn floor(&self) -> Sequence {
        self.floor
    }

    /// The first reports after a start: recovery has finished or undone what the journal says, and gives up a trial that
    /// was started too often.
    #[must_use]
    pub fn start(&mut self, behaviours: &BTreeMap<Digest, Behaviour>) -> Vec<Later> {
        self.boots += u32::from(self.trial.is_some());
        let given_up = self.trial.filter(|_| self.boots > BOOTS);
        if given_up.is_some() {
            self.running = self.previous.take();
            self.trial = None;
        }
        self.disrupted &= self.trial.is_some();
        let recovered = Recovered {
            trial: self.trial,
            reverted: given_up.map(|release| (release, Reason::lossy("did not come up"))),
            staged: self.staged.as_ref().map(|install| install.release),
            ..Recovered::at_rest(self.running.clone(), self.floor)
        };
        let mut reports = vec![(0, Report::Recovered(recovered))];
        reports.extend(self.health(1_000, behaviours));
        reports
    }

    /// Runs a step; what it reports, and when.
    ///
    /// # Panics
    /// When asked to run what was not staged, to go below the floor, or to send back what was confirmed: never by the core.
    pub fn run(&mut self, step: &Step, behaviours: &BTreeMap<Digest, Behaviour>) -> Vec<Later> {
        match step {
            Step::Fetch { .. } | Step::CancelFetch { .. } => Vec::new(),
            Step::Stage { install } => {
                self.staged = Some(install.clone());
                vec![(500, Report::Staged { release: install.release })]
            }
            Step::Activate { install, .. } => {
                assert_eq!(
                    self.staged.as_ref().map(|staged| staged.release),
                    Some(install.release),
                    "S3: activated what was not staged"
                );
                assert!(install.sequence >= self.floor, "S5: went below the floor");
                self.disrupted = true;
                let behaviour = self.behaviour(&install.release, behaviours);
                if behaviour == Behaviour::WontStart {
                    let reason = Reason::lossy("cannot be started");
                    return vec![(1_000, Report::ActivateFailed { release: install.release, reason, at_fault: true })];
                }
                self.broken = false;
                self.previous = self.running.take();
                self.running =
                    Some(Running { version: install.version.clone(), sequence: install.sequence, release: install.release });
                self.trial = Some(install.release);
                self.boots = 1;
                self.staged = None;
                if behaviour == Behaviour::Hangs {
                    return Vec::new();
                }
                let mut reports = vec![(1_000, Report::Activated { release: install.release })];
                reports.extend(self.health(2_000, behaviours));
                reports
            }
            Step::Confirm { release } => {
                self.disrupted = false;
                self.trial = None;
                if let Some(running) = &self.running {
                    self.floor = self.floor.max(running.sequence);
                }
                vec![(100, Report::Confirmed { release: *release })]
            }
            Step::Revert { release, .. } => {
                let runs = self.running.as_ref().map(|running| running.release);
                assert!(self.trial.is_some() || runs != Some(*release), "S5: sends back what was confirmed");
                if self.trial == Some(*release) {
                    self.running = self.previous.take();
                    self.trial = None;
                }
                self.disrupted = false;
                let mut reports =
                    vec![(1_000, Report::Reverted { release: *release, running: self.running.clone(), output: Reason::none() })];
                reports.extend(self.health(2_000, behaviours));
                reports
            }
        }
    }

    /// How long after a start what is on trial takes the machine down, if it does, in milliseconds.
    #[must_use]
    pub fn crashes_after(&self, behaviours: &BTreeMap<Digest, Behaviour>) -> Option<u64> {
        match self.behaviour(self.trial.as_ref()?, behaviours) {
            Behaviour::Crashes(after_ms) => Some(after_ms),
            _ => None,
        }
    }

    fn behaviour(&self, release: &Digest, behaviours: &BTreeMap<Digest, Behaviour>) -> Behaviour {
        self.odd.get(release).or_else(|| behaviours.get(release)).copied().unwrap_or_default()
    }

    /// What the health check finds, `after_ms` from now and later.
    #[must_use]
    pub fn health(&self, after_ms: u64, behaviours: &BTreeMap<Digest, Behaviour>) -> Vec<Later> {
        let Some(running) = &self.running else { return Vec::new() };
        let failing = || Report::Health(Health::Failing(Reason::lossy("the health check fails")));
        if self.broken {
            return vec![(after_ms, failing())];
        }
        match self.behaviour(&running.release, behaviours) {
            Behaviour::Good | Behaviour::Crashes(_) => vec![(after_ms, Report::Health(Health::Healthy))],
            Behaviour::Unhealthy => vec![(after_ms, failing())],
            Behaviour::DegradesAfter(degrades_ms) => {
                vec![(after_ms, Report::Health(Health::Healthy)), (after_ms + degrades_ms, failing())]
            }
            Behaviour::UnclearFor(unclear_ms) => {
                let throttled = Health::Unknown(Reason::lossy("status 429"));
                vec![(after_ms, Report::Health(throttled)), (after_ms + unclear_ms, Report::Health(Health::Healthy))]
            }
            Behaviour::Mute | Behaviour::WontStart | Behaviour::Hangs => Vec::new(),
        }
    }
}
