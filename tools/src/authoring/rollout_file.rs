//! `rollout.toml`: a rollout as people write it, under review in git. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use groundswell_core::documents::rollout::{Approval, Halt, Hosts, Mode, Scope, Wave};
use groundswell_core::number::Ppm;
use groundswell_core::text::{LabelKey, LabelValue, Pool, Product, Reason, RolloutId, Version};
use groundswell_core::time::Timestamp;
use serde::Deserialize;

use super::measure::{Period, Share};
use super::toml_file;
use crate::failure::Failure;

/// A rollout as it is written, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RolloutFile {
    /// Its id; when it is left out it follows from everything else.
    pub(crate) id: Option<RolloutId>,
    /// What it moves to.
    pub(crate) target: Target,
    /// Apply or rehearse.
    pub(crate) mode: Mode,
    /// Why, for people.
    pub(crate) reason: Reason,
    /// Urgent.
    pub(crate) urgent: bool,
    /// Only nodes that run this version.
    pub(crate) from: Option<Version>,
    /// Whom.
    pub(crate) scope: Scope,
    /// Attributes that keep nodes together.
    pub(crate) hash_attributes: Vec<String>,
    /// Labels of the nodes that let others go first.
    pub(crate) wary: BTreeMap<LabelKey, LabelValue>,
    /// Its waves.
    pub(crate) waves: Vec<Wave>,
    /// Manual waves below this are open.
    pub(crate) open_waves: u32,
    /// Least share soaked.
    pub(crate) min_soaked_ppm: Ppm,
    /// When it halts.
    pub(crate) halt: Halt,
    /// Seconds of health before a node confirms.
    pub(crate) confirm_after_seconds: u64,
    /// Watchdog.
    pub(crate) upgrade_timeout_seconds: u64,
    /// Revert.
    pub(crate) revert_timeout_seconds: u64,
    /// Until a silent due node is excused.
    pub(crate) offline_after_seconds: u64,
    /// Grace.
    pub(crate) grace_seconds: u64,
    /// Later waves fetch ahead.
    pub(crate) prefetch: bool,
    /// How long it is valid.
    pub(crate) expires_after_seconds: u64,
}

/// How the file names the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A manifest file.
    Manifest(PathBuf),
    /// A release in the fleet folder.
    Release(Product, Version),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Typed {
    id: Option<RolloutId>,
    manifest: Option<PathBuf>,
    product: Option<Product>,
    version: Option<Version>,
    mode: Option<Mode>,
    reason: Option<Reason>,
    #[serde(default)]
    urgent: bool,
    from: Option<Version>,
    #[serde(default)]
    scope: TypedScope,
    #[serde(default)]
    hash_attributes: Vec<String>,
    #[serde(default)]
    wary: BTreeMap<LabelKey, LabelValue>,
    wave: Option<Vec<TypedWave>>,
    #[serde(default)]
    open_waves: u32,
    min_soaked: Option<Share>,
    #[serde(default)]
    halt: TypedHalt,
    confirm_after: Option<Period>,
    upgrade_timeout: Option<Period>,
    revert_timeout: Option<Period>,
    offline_after: Option<Period>,
    grace: Option<Period>,
    prefetch: Option<bool>,
    expires_after: Option<Period>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TypedScope {
    #[serde(default)]
    pools: Vec<Pool>,
    #[serde(default, rename = "match")]
    labels: BTreeMap<LabelKey, LabelValue>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TypedHalt {
    max_failures: Option<Share>,
    min_failures: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TypedWave {
    percent: Option<Share>,
    soak: Option<Period>,
    wait: Option<Period>,
    not_before: Option<Timestamp>,
    approval: Option<Approval>,
    #[serde(rename = "match")]
    labels: Option<BTreeMap<LabelKey, LabelValue>>,
    hosts: Option<TypedHosts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TypedHosts {
    attribute: String,
    values: Vec<String>,
}

const SOAK_SECONDS: u64 = 600;

impl RolloutFile {
    /// Reads the file at `path`. A manifest named in it is relative to the file's folder.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let typed: Typed = toml_file::read(path)?;
        typed.check(path)
    }
}

impl Typed {
    fn check(self, path: &Path) -> Result<RolloutFile, Failure> {
        let target = match (self.manifest, self.product, self.version) {
            (Some(manifest), None, None) => Target::Manifest(path.parent().unwrap_or(Path::new("")).join(manifest)),
            (None, Some(product), Some(version)) => Target::Release(product, version),
            _ => {
                let what = format!(
                    "{}: give either `manifest`, the path of a signed manifest, or `product` and `version` of a release in the fleet folder",
                    path.display()
                );
                return Err(Failure::invalid(what));
            }
        };
        let seconds = |period: Option<Period>, default| period.map_or(default, |Period(seconds)| seconds);
        let mut pools = self.scope.pools;
        pools.sort();
        let all = |percent| TypedWave::percent(percent);
        let waves = self.wave.unwrap_or_else(|| [10_000, 100_000, 500_000, 1_000_000].map(all).into());
        Ok(RolloutFile {
            id: self.id,
            target,
            mode: self.mode.unwrap_or(Mode::Apply),
            reason: self.reason.unwrap_or_else(Reason::none),
            urgent: self.urgent,
            from: self.from,
            scope: Scope { pools, labels: self.scope.labels },
            hash_attributes: self.hash_attributes,
            wary: self.wary,
            waves: waves.into_iter().map(TypedWave::into_wave).collect(),
            open_waves: self.open_waves,
            min_soaked_ppm: self.min_soaked.map_or(share(500_000), |Share(share)| share),
            halt: Halt {
                max_failure_ppm: self.halt.max_failures.map_or(share(50_000), |Share(share)| share),
                min_failures: self.halt.min_failures.unwrap_or(1),
            },
            confirm_after_seconds: seconds(self.confirm_after, 60),
            upgrade_timeout_seconds: seconds(self.upgrade_timeout, 900),
            revert_timeout_seconds: seconds(self.revert_timeout, 300),
            offline_after_seconds: seconds(self.offline_after, 1_800),
            grace_seconds: seconds(self.grace, 1_800),
            prefetch: self.prefetch.unwrap_or(true),
            expires_after_seconds: seconds(self.expires_after, 30 * 86_400),
        })
    }
}

impl TypedWave {
    fn percent(parts: u32) -> Self {
        let percent = Some(Share(share(parts)));
        Self { percent, soak: None, wait: None, not_before: None, approval: None, labels: None, hosts: None }
    }

    fn into_wave(self) -> Wave {
        Wave {
            hosts: self.hosts.map(|hosts| Hosts { attribute: hosts.attribute, values: hosts.values }),
            labels: self.labels,
            percent_ppm: self.percent.map(|Share(share)| share),
            soak_seconds: self.soak.map_or(SOAK_SECONDS, |Period(seconds)| seconds),
            wait_seconds: self.wait.map(|Period(seconds)| seconds),
            not_before: self.not_before,
            approval: self.approval,
        }
    }
}

fn share(parts: u32) -> Ppm {
    Ppm::new(parts).expect("the defaults lie within a million")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RolloutFile, Failure> {
        let path = Path::new("rollouts/next.toml");
        toml_file::parse::<Typed>(path, text)?.check(path)
    }

    #[test]
    fn the_defaults_are_those_of_the_design() {
        let file = parse("manifest = \"../out/manifest.json\"").unwrap();
        assert_eq!(file.target, Target::Manifest("rollouts/../out/manifest.json".into()));
        let percents: Vec<u32> = file.waves.iter().filter_map(|wave| wave.percent_ppm).map(Ppm::parts).collect();
        assert_eq!(percents, [10_000, 100_000, 500_000, 1_000_000]);
        assert!(file.waves.iter().all(|wave| wave.soak_seconds == 600));
        assert_eq!((file.upgrade_timeout_seconds, file.halt.max_failure_ppm.parts()), (900, 50_000));
    }

    const DOCUMENTED: &str = include_str!("../../../docs/rollout.toml");

    #[test]
    fn the_documented_file_says_the_defaults() {
        let waves = DOCUMENTED.find("[[wave]]").unwrap();
        let short = parse("product = \"bcd\"\nversion = \"1.4.0\"").unwrap();
        assert_eq!(parse(&DOCUMENTED[..waves]).unwrap(), short);
        let long = parse(DOCUMENTED).unwrap();
        assert_eq!(long.waves[0].soak_seconds, SOAK_SECONDS);
        assert_eq!(RolloutFile { waves: short.waves.clone(), ..long }, short);
    }

    #[test]
    fn the_documented_file_names_every_key_and_its_examples_can_be_read() {
        let key = |line: &str| {
            line.strip_prefix("# ").is_some_and(|rest| {
                rest.split_once(" = ").is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'))
            })
        };
        let shown = DOCUMENTED.lines().map(|line| if key(line) { &line[2..] } else { line });
        // Each alternative by itself: a manifest stands in place of product and version.
        let shown: Vec<&str> = shown.filter(|line| !line.starts_with("manifest")).collect();
        let file = parse(&shown.join("\n")).unwrap();
        assert_eq!(file.wary.len(), 1);
        assert!(file.from.is_some() && file.id.is_some() && file.waves[1].approval == Some(Approval::Manual));
    }

    #[test]
    fn everything_can_be_said() {
        let file = parse(
            r#"
            id = "rollout_next"
            product = "bcd"
            version = "1.4.0"
            reason = "fixes the clock"
            open-waves = 1
            [scope]
            pools = ["edge", "core"]
            match = { channel = "stable" }
            [halt]
            max-failures = "0%"
            [[wave]]
            hosts = { attribute = "name", values = ["a1"] }
            soak = "2h"
            [[wave]]
            percent = "100%"
            wait = "1h"
            approval = "manual"
            not-before = "2026-12-01T08:00:00Z"
            "#,
        )
        .unwrap();
        assert_eq!(file.halt.max_failure_ppm, Ppm::ZERO);
        assert_eq!(file.scope.pools.first().map(ToString::to_string).as_deref(), Some("core"), "pools are sorted");
        assert_eq!(file.waves[1].approval, Some(Approval::Manual));
    }

    #[test]
    fn m5_unknown_keys_name_file_line_and_nearest_key() {
        let error = parse("product = \"bcd\"\nverison = \"1\"\n").unwrap_err().to_string();
        assert_eq!(error, "rollouts/next.toml:2: unknown key `verison`; did you mean `version`?");
        let error =
            parse("product = \"bcd\"\nversion = \"1\"\n[[wave]]\npercent = \"5%\"\nsoack = \"1m\"\n").unwrap_err().to_string();
        assert_eq!(error, "rollouts/next.toml:5: unknown key `soack`; did you mean `soak`?");
    }

    #[test]
    fn w9_a_ratio_that_cannot_be_read_is_no_default() {
        for bad in ["max-failures = \"many\"", "max-failures = 5", "max-failures = \"\""] {
            assert!(parse(&format!("product = \"b\"\nversion = \"1\"\n[halt]\n{bad}\n")).is_err(), "{bad}");
        }
        assert!(parse("product = \"b\"").is_err());
    }
}
