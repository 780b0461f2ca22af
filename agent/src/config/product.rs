//! One `[product.NAME]` table: as it is typed, and as the device uses it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use groundswell_core::text::Version;
use serde::Deserialize;

use super::period::Period;

/// How one product is installed, judged and held back on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProductConfig {
    /// What starts a version.
    pub activator: Activator,
    /// What says whether a version works.
    pub health: HealthConfig,
    /// While one of these files exists nothing starts (`inhibited`), urgent rollouts included.
    pub inhibit: Vec<PathBuf>,
    /// Only this version may be installed.
    pub version_lock: Option<Version>,
    /// Something else delivers this product: observe only.
    pub observe_only: bool,
    /// How often a trial may be started before recovery reverts it, 1 to 16.
    pub trial_starts: u32,
}

/// What starts a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activator {
    /// Runs a command, and the version is started when it ends with 0.
    Command(CommandActivator),
    /// Keeps the slot's binary running as a child of the agent.
    Supervise(Supervise),
}

/// `type = "command"`. Arguments may contain `{slot}`, `{binary}`, `{version}`, `{product}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandActivator {
    /// Program and arguments; no shell.
    pub run: Vec<String>,
    /// Run when the first install is taken back and nothing is left to start.
    pub stop: Option<Vec<String>>,
    /// How long either may take.
    pub timeout: Duration,
}

/// `type = "supervise"`. Arguments and environment may contain `{slot}`, `{binary}`, `{version}`, `{product}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervise {
    /// Program and arguments; no shell. `["{binary}"]` by default.
    pub run: Vec<String>,
    /// Set in its environment, beside the `GROUNDSWELL_…` variables.
    pub env: BTreeMap<String, String>,
    /// When it ends.
    pub restart: RestartPolicy,
    /// From SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
    /// Most bytes of its log file; one older file is kept beside it.
    pub log_bytes: u64,
}

/// How a supervised process that ended is started again: after `backoff`, doubled each time up to `backoff_max`,
/// from the beginning once it has run for `stable_after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// The first pause.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// How long it must run to count as started well.
    pub stable_after: Duration,
}

/// Probes, and how many in a row decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// The probe.
    pub check: HealthCheck,
    /// From one probe to the next.
    pub interval: Duration,
    /// How long one probe may take.
    pub timeout: Duration,
    /// So many passes in a row make it healthy.
    pub healthy_after: u32,
    /// So many failures in a row make it failing.
    pub unhealthy_after: u32,
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// The supervised process runs. The default with `activator.type = "supervise"`; of no use with a command.
    Process,
    /// A command: 0 passes, 75 (EX_TEMPFAIL) cannot tell, anything else fails.
    Command(Vec<String>),
    /// A GET: 200 to 399 pass, 429 and the network's own failures cannot tell, anything else fails.
    Http(HttpTarget),
}

/// A plain HTTP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// Name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query, beginning with `/`.
    pub path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ProductFile {
    activator: ActivatorFile,
    health: Option<HealthFile>,
    #[serde(default)]
    inhibit: Vec<PathBuf>,
    version_lock: Option<Version>,
    #[serde(default)]
    observe_only: bool,
    #[serde(default = "trial_starts")]
    trial_starts: u32,
}

/// Flat on purpose: a tagged enum would lose the lines of its keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ActivatorFile {
    r#type: ActivatorType,
    run: Option<Vec<String>>,
    stop: Option<Vec<String>>,
    timeout: Option<Period>,
    env: Option<BTreeMap<String, String>>,
    restart: Option<RestartFile>,
    stop_timeout: Option<Period>,
    log_size: Option<super::period::Size>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ActivatorType {
    Command,
    Supervise,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct RestartFile {
    backoff: Period,
    backoff_max: Period,
    stable_after: Period,
}

impl Default for RestartFile {
    fn default() -> Self {
        Self {
            backoff: Period(Duration::from_secs(1)),
            backoff_max: Period(Duration::from_secs(60)),
            stable_after: Period(Duration::from_secs(10)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HealthFile {
    r#type: HealthType,
    run: Option<Vec<String>>,
    url: Option<String>,
    interval: Option<Period>,
    timeout: Option<Period>,
    healthy_after: Option<u32>,
    unhealthy_after: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HealthType {
    Process,
    Command,
    Http,
}

fn trial_starts() -> u32 {
    3
}

type Wrong = (&'static str, String);

impl ProductFile {
    /// The table, checked; otherwise the key below the product and what is wrong.
    pub(super) fn check(self, folder: &Path) -> Result<ProductConfig, Wrong> {
        let supervised = matches!(self.activator.r#type, ActivatorType::Supervise);
        let activator = self.activator.check()?;
        let health = match self.health {
            Some(health) => health.check(supervised)?,
            None if supervised => HealthConfig::every(HealthCheck::Process),
            None => return Err(("health", "is missing: the agent must know whether a version works".to_owned())),
        };
        if !(1..=16).contains(&self.trial_starts) {
            return Err(("trial-starts", "must lie between 1 and 16".to_owned()));
        }
        Ok(ProductConfig {
            activator,
            health,
            inhibit: self.inhibit.into_iter().map(|file| folder.join(file)).collect(),
            version_lock: self.version_lock,
            observe_only: self.observe_only,
            trial_starts: self.trial_starts,
        })
    }
}

impl ActivatorFile {
    fn check(self) -> Result<Activator, Wrong> {
        let belongs = |what: &'static str| format!("belongs to type = \"{what}\"");
        match self.r#type {
            ActivatorType::Command => {
                if self.env.is_some() {
                    return Err(("activator.env", belongs("supervise")));
                }
                if self.restart.is_some() {
                    return Err(("activator.restart", belongs("supervise")));
                }
                if self.stop_timeout.is_some() {
                    return Err(("activator.stop-timeout", belongs("supervise")));
                }
                if self.log_size.is_some() {
                    return Err(("activator.log-size", belongs("supervise")));
                }
                let run = self.run.ok_or(("activator.run", "is missing: program and arguments".to_owned()))?;
                Ok(Activator::Command(CommandActivator {
                    run: command("activator.run", run)?,
                    stop: self.stop.map(|stop| command("activator.stop", stop)).transpose()?,
                    timeout: self.timeout.map_or(Duration::from_secs(120), |timeout| timeout.0),
                }))
            }
            ActivatorType::Supervise => {
                if self.stop.is_some() {
                    return Err(("activator.stop", belongs("command")));
                }
                if self.timeout.is_some() {
                    return Err(("activator.timeout", belongs("command")));
                }
                let restart = self.restart.unwrap_or_default();
                if restart.backoff.0 > restart.backoff_max.0 {
                    return Err(("activator.restart.backoff", "must not be longer than backoff-max".to_owned()));
                }
                Ok(Activator::Supervise(Supervise {
                    run: command("activator.run", self.run.unwrap_or_else(|| vec!["{binary}".to_owned()]))?,
                    env: self.env.unwrap_or_default(),
                    restart: RestartPolicy {
                        backoff: restart.backoff.0,
                        backoff_max: restart.backoff_max.0,
                        stable_after: restart.stable_after.0,
                    },
                    stop_timeout: self.stop_timeout.map_or(Duration::from_secs(10), |timeout| timeout.0),
                    log_bytes: self.log_size.map_or(1 << 20, |size| size.0),
                }))
            }
        }
    }
}

impl HealthConfig {
    /// `check` every 5 s, 3 s each; one pass makes it healthy, three failures failing.
    #[must_use]
    pub fn every(check: HealthCheck) -> Self {
        Self { check, interval: Duration::from_secs(5), timeout: Duration::from_secs(3), healthy_after: 1, unhealthy_after: 3 }
    }
}

impl HealthFile {
    fn check(self, supervised: bool) -> Result<HealthConfig, Wrong> {
        let surplus = |key: &'static str, what: &str| Err((key, format!("belongs to type = \"{what}\"")));
        let check = match (self.r#type, self.run, self.url) {
            (HealthType::Command | HealthType::Process, _, Some(_)) => return surplus("health.url", "http"),
            (HealthType::Http | HealthType::Process, Some(_), _) => return surplus("health.run", "command"),
            (HealthType::Process, None, None) if supervised => HealthCheck::Process,
            (HealthType::Process, ..) => {
                return Err(("health.type", "process needs activator.type = \"supervise\"".to_owned()));
            }
            (HealthType::Command, Some(run), None) => HealthCheck::Command(command("health.run", run)?),
            (HealthType::Command, None, None) => return Err(("health.run", "is missing: program and arguments".to_owned())),
            (HealthType::Http, None, Some(url)) => HealthCheck::Http(HttpTarget::parse(&url).map_err(|why| ("health.url", why))?),
            (HealthType::Http, None, None) => {
                return Err(("health.url", "is missing, e.g. \"http://127.0.0.1:8080/health\"".to_owned()));
            }
        };
        let default = HealthConfig::every(check);
        let health = HealthConfig {
            interval: self.interval.map_or(default.interval, |period| period.0),
            timeout: self.timeout.map_or(default.timeout, |period| period.0),
            healthy_after: self.healthy_after.unwrap_or(default.healthy_after),
            unhealthy_after: self.unhealthy_after.unwrap_or(default.unhealthy_after),
            check: default.check,
        };
        if health.healthy_after == 0 {
            return Err(("health.healthy-after", "must be at least 1".to_owned()));
        }
        if health.unhealthy_after == 0 {
            return Err(("health.unhealthy-after", "must be at least 1".to_owned()));
        }
        Ok(health)
    }
}

impl HttpTarget {
    /// Reads `http://HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = || format!("`{url}` is not like \"http://127.0.0.1:8080/health\" (plain http only)");
        let uri: hyper::Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        if uri.scheme_str() != Some("http") || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self { host, port: authority.port_u16().unwrap_or(80), path: path.to_owned() })
    }
}

fn command(key: &'static str, argv: Vec<String>) -> Result<Vec<String>, Wrong> {
    if argv.first().is_none_or(String::is_empty) {
        return Err((key, "must name a program".to_owned()));
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err((key, "must not contain NUL".to_owned()));
    }
    Ok(argv)
}
