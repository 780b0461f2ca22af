//! What may happen to a virtual fleet, as data: each variant is one thing that a [`super::script::Script`] says happens at
//! one moment. [`super::director`] does it, [`super::draw`] draws it.
//!
//! An act carries everything that it needs, and means something whatever happened before it: one that has nothing to do
//! (a machine that is off already, a pause of what is paused) does nothing. So any act of a script can be taken away.

use std::fmt;

use groundswell_core::documents::rollout::{Rollout, Wave};
use groundswell_core::number::Ppm;
use groundswell_core::text::Pool;
use serde::{Deserialize, Serialize};

use super::device::Behaviour;
use super::liar::Lie;
use super::span;

/// One thing that happens. Machines are named by their number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// The power fails; what is not on disk is lost.
    PowerOff {
        /// Whose.
        machine: u32,
        /// It comes back after that; not by itself when absent.
        #[serde(rename = "for", default, skip_serializing_if = "Option::is_none", with = "maybe_span")]
        for_ms: Option<u64>,
    },
    /// The power is back.
    PowerOn {
        /// Whose.
        machine: u32,
    },
    /// A whole pool loses power at once.
    SitePowerOff {
        /// The pool.
        pool: Pool,
        /// Its first machine comes back after that.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
        /// Each other so much after the one before.
        #[serde(rename = "apart", default, with = "span")]
        apart_ms: u64,
    },
    /// A machine sleeps.
    Suspend {
        /// Which.
        machine: u32,
        /// For how long.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
    },
    /// A virtual machine is paused by its host: of its clocks only the wall clock goes on.
    Freeze {
        /// Which.
        machine: u32,
        /// For how long.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
    },
    /// Machines of different groups cannot reach each other; whoever is in none forms one more.
    Partition {
        /// The groups.
        groups: Vec<Vec<u32>>,
    },
    /// The pools cannot reach each other.
    PartPools,
    /// Everybody can reach everybody.
    Mend,
    /// Nothing arrives on this way, and nobody is told.
    Deafen {
        /// From this machine.
        from: u32,
        /// At this one.
        to: u32,
    },
    /// Nothing arrives from any of these at any of those, and nobody is told: a one-way partition.
    OneWay {
        /// From these.
        from: Vec<u32>,
        /// At those.
        to: Vec<u32>,
    },
    /// Everything arrives again.
    Undeafen,
    /// Whatever a machine sends or is sent takes longer.
    Slow {
        /// Which.
        machine: u32,
        /// By so much.
        #[serde(rename = "by", with = "span")]
        by_ms: u64,
        /// For how long.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
    },
    /// A way is clogged: what is sent on it arrives when it is free again, all at once.
    Clog {
        /// From this machine.
        from: u32,
        /// To this one.
        to: u32,
        /// For how long.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
    },
    /// A wall clock is set off the world's, in seconds.
    Clock {
        /// Whose.
        machine: u32,
        /// How far.
        skew_seconds: i64,
    },
    /// From its next start on a machine's clocks run fast, or slow.
    Drift {
        /// Whose.
        machine: u32,
        /// So many parts per million beyond true time.
        ppm: i64,
    },
    /// What runs breaks down for a reason of its own.
    Break {
        /// Where.
        machine: u32,
    },
    /// It works again.
    Repair {
        /// Where.
        machine: u32,
    },
    /// An operator signs a new release and a rollout of it; what ran before is superseded.
    Publish {
        /// At this machine, or the next one that is up.
        at_machine: u32,
        /// How the release behaves once started.
        #[serde(default)]
        behaviour: Behaviour,
        /// How the rollout goes.
        #[serde(default)]
        terms: Terms,
        /// Machines where it behaves otherwise.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        odd: Vec<Odd>,
    },
    /// An operator pauses what runs.
    Pause {
        /// Where.
        at_machine: u32,
    },
    /// An operator resumes what is paused.
    Resume {
        /// Where.
        at_machine: u32,
    },
    /// An operator forgives what a machine sees as failed, and lets it try again.
    Forgive {
        /// That machine, or the next one that is up.
        at_machine: u32,
    },
    /// An operator aborts.
    Abort {
        /// Where.
        at_machine: u32,
        /// Takes back what is not confirmed.
        #[serde(default)]
        rollback: bool,
    },
    /// Two operators sign the next generation at once; one of them pauses.
    Disagree {
        /// That one here.
        at_machine: u32,
        /// The other here.
        and_machine: u32,
        /// The other lets it go on; else it pauses too.
        #[serde(default, skip_serializing_if = "is_not")]
        goes_on: bool,
    },
    /// An operator cuts the next roster from every certificate; the rollouts that are published from now on name it.
    CutRoster,
    /// A pool's budget changes; the next roster is cut with it.
    Rebudget {
        /// Of which pool.
        pool: Pool,
        /// To this share.
        budget_ppm: Ppm,
    },
    /// Two operators cut the next roster at once, each for a release of its own; a later roster settles it.
    Rivals {
        /// One publishes here.
        at_machine: u32,
        /// The other here, with this budget …
        and_machine: u32,
        /// … for this pool.
        pool: Pool,
        /// A share of its nodes.
        budget_ppm: Ppm,
    },
    /// A machine's disk is copied: one identity in two live places.
    Clone {
        /// Whose.
        machine: u32,
    },
    /// A copy of a machine's disk is laid aside.
    Snapshot {
        /// Whose.
        machine: u32,
    },
    /// A machine is set back to the copy that was laid aside.
    SetBack {
        /// Whose.
        machine: u32,
        /// Its slots too, and not its store alone.
        #[serde(default = "yes")]
        device: bool,
        /// It comes back after that.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
    },
    /// A member lies for a while.
    Lie {
        /// Which.
        machine: u32,
        /// How.
        how: Lie,
        /// For how long.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
    },
    /// A machine's disk is gone, and its key with it: it never comes back, and nobody is told.
    Lose {
        /// Whose.
        machine: u32,
    },
    /// The disk of a machine is gone that claims a slot or holds one.
    LoseHolder {
        /// This one, or the next that does and can be done without.
        from: u32,
    },
    /// The power of a machine fails that claims a slot or holds one.
    PowerOffHolder {
        /// This one, or the next that does.
        from: u32,
        /// It comes back after that.
        #[serde(rename = "for", with = "span")]
        for_ms: u64,
    },
    /// A machine more, that no roster lists.
    Join {
        /// In this pool.
        pool: Pool,
        /// Its certificate is handed to this one.
        at_machine: u32,
        /// It comes with a release newer than any that operators have.
        #[serde(default, skip_serializing_if = "is_not")]
        newer: bool,
    },
    /// A machine is switched off for good and its certificate retired.
    Retire {
        /// Whose.
        machine: u32,
        /// The retirement is handed to this one.
        at_machine: u32,
    },
}

/// How a rollout goes. What is not said is as [`Terms::default`] has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Terms {
    /// Later waves fetch ahead.
    pub prefetch: bool,
    /// Share of a wave that must have soaked.
    pub min_soaked_ppm: Ppm,
    /// Share of a wave that may fail.
    pub max_failure_ppm: Ppm,
    /// Pools in scope; empty for all.
    pub pools: Vec<Pool>,
    /// Cumulative shares of the waves.
    pub waves_ppm: Vec<Ppm>,
    /// How long each wave soaks.
    #[serde(rename = "soak", with = "span")]
    pub soak_ms: u64,
    /// How long health must hold before an upgrade is confirmed.
    #[serde(rename = "confirm-after", with = "span")]
    pub confirm_after_ms: u64,
    /// How long after it was signed the rollout starts nothing any more.
    #[serde(rename = "expires-after", with = "span")]
    pub expires_after_ms: u64,
    /// How long an upgrade may take.
    #[serde(rename = "upgrade-timeout", with = "span")]
    pub upgrade_timeout_ms: u64,
    /// Whoever was not heard for so long is excused.
    #[serde(rename = "offline-after", with = "span")]
    pub offline_after_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_not(so: &bool) -> bool {
    !*so
}

fn yes() -> bool {
    true
}

impl Default for Terms {
    fn default() -> Self {
        let share = |parts| Ppm::new(parts).expect("below a million");
        Self {
            prefetch: true,
            min_soaked_ppm: share(500_000),
            max_failure_ppm: share(50_000),
            pools: Vec::new(),
            waves_ppm: vec![share(100_000), share(500_000), share(1_000_000)],
            soak_ms: 30_000,
            confirm_after_ms: 5_000,
            expires_after_ms: 30 * 86_400_000,
            upgrade_timeout_ms: 60_000,
            offline_after_ms: 300_000,
        }
    }
}

impl Terms {
    /// Writes them into a rollout.
    pub(super) fn apply(&self, rollout: &mut Rollout) {
        rollout.prefetch = self.prefetch;
        rollout.min_soaked_ppm = self.min_soaked_ppm;
        rollout.halt.max_failure_ppm = self.max_failure_ppm;
        rollout.scope.pools.clone_from(&self.pools);
        let soak_seconds = self.soak_ms / 1_000;
        let wave = |share: &Ppm| Wave { percent_ppm: Some(*share), soak_seconds, ..Wave::default() };
        rollout.waves = self.waves_ppm.iter().map(wave).collect();
        rollout.open_waves = u32::try_from(rollout.waves.len()).expect("few waves");
        rollout.confirm_after_seconds = self.confirm_after_ms / 1_000;
        rollout.expires_at = rollout.issued_at.plus_seconds(self.expires_after_ms / 1_000);
        rollout.upgrade_timeout_seconds = self.upgrade_timeout_ms / 1_000;
        rollout.offline_after_seconds = self.offline_after_ms / 1_000;
    }
}

/// A machine where a release behaves otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Odd {
    /// Which.
    pub machine: u32,
    /// How.
    pub behaviour: Behaviour,
}

impl fmt::Display for Act {
    /// `power-off machine=3 for=20m`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = plain(toml::Table::try_from(self).expect("an act is a table of plain values"));
        let name = table.get("do").and_then(toml::Value::as_str).unwrap_or_default();
        write!(formatter, "{name}")?;
        for (key, value) in table.iter().filter(|(key, _)| *key != "do") {
            match value {
                toml::Value::String(text) => write!(formatter, " {key}={text}")?,
                value => write!(formatter, " {key}={value}")?,
            }
        }
        Ok(())
    }
}

/// An act's table without what goes without saying: terms that are the default.
pub(super) fn plain(mut act: toml::Table) -> toml::Table {
    let default = toml::Table::try_from(Terms::default()).expect("terms are a table of plain values");
    if let Some(toml::Value::Table(terms)) = act.get_mut("terms") {
        terms.retain(|key, value| default.get(key) != Some(value));
        if terms.is_empty() {
            act.remove("terms");
        }
    }
    act
}

pub(super) mod maybe_span {
    //! A span that may be absent.

    use serde::{Deserializer, Serializer};

    use super::span;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(in super::super) fn serialize<S: Serializer>(span_ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match span_ms {
            Some(span_ms) => span::serialize(span_ms, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        span::deserialize(deserializer).map(Some)
    }
}
