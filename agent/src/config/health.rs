//! The `health` table of a product: what says whether a version works.

use std::time::Duration;

use serde::Deserialize;

use super::activator::{systemctl, unit};
use super::period::Period;
use super::product::{Wrong, command};

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
    /// A connection: taken passes, refused by this machine fails, the network's own failures cannot tell.
    Tcp(TcpTarget),
    /// A systemd unit: active passes, failed or restarting by itself fails, on its way cannot tell.
    Unit(UnitTarget),
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

/// Where something listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTarget {
    /// Name or address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A systemd unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitTarget {
    /// Its name.
    pub unit: String,
    /// The program that talks to systemd.
    pub systemctl: String,
}

impl HealthConfig {
    /// A check with the default numbers.
    #[must_use]
    pub fn every(check: HealthCheck) -> Self {
        Self { check, interval: Duration::from_secs(5), timeout: Duration::from_secs(3), healthy_after: 1, unhealthy_after: 3 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HealthFile {
    r#type: HealthType,
    run: Option<Vec<String>>,
    url: Option<String>,
    address: Option<String>,
    unit: Option<String>,
    systemctl: Option<String>,
    interval: Option<Period>,
    timeout: Option<Period>,
    healthy_after: Option<u32>,
    unhealthy_after: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HealthType {
    Process,
    Command,
    Http,
    Tcp,
    Unit,
}

impl HealthFile {
    /// `supervised`: the agent keeps the process running itself; `of_activator`: the unit that the activator names.
    pub(super) fn check(self, supervised: bool, of_activator: Option<String>) -> Result<HealthConfig, Wrong> {
        self.refuse_foreign_keys()?;
        let check = match self.r#type {
            HealthType::Process if supervised => HealthCheck::Process,
            HealthType::Process => {
                return Err(("health.type", "\"process\" needs an activator of type \"supervise\"".to_owned()));
            }
            HealthType::Command => {
                let run = self.run.ok_or(("health.run", "is missing: program and arguments".to_owned()))?;
                HealthCheck::Command(command("health.run", run)?)
            }
            HealthType::Http => {
                let url = self.url.ok_or(("health.url", "is missing".to_owned()))?;
                HealthCheck::Http(HttpTarget::parse(&url).map_err(|message| ("health.url", message))?)
            }
            HealthType::Tcp => {
                let address = self.address.ok_or(("health.address", "is missing".to_owned()))?;
                HealthCheck::Tcp(TcpTarget::parse(&address).map_err(|message| ("health.address", message))?)
            }
            HealthType::Unit => HealthCheck::Unit(UnitTarget {
                unit: unit("health.unit", self.unit.or(of_activator))?,
                systemctl: self.systemctl.unwrap_or_else(systemctl),
            }),
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

    /// A key that the type does not read would be believed to work.
    fn refuse_foreign_keys(&self) -> Result<(), Wrong> {
        let keys = [
            ("health.run", self.run.is_some(), HealthType::Command, "command"),
            ("health.url", self.url.is_some(), HealthType::Http, "http"),
            ("health.address", self.address.is_some(), HealthType::Tcp, "tcp"),
            ("health.unit", self.unit.is_some(), HealthType::Unit, "unit"),
            ("health.systemctl", self.systemctl.is_some(), HealthType::Unit, "unit"),
        ];
        match keys.into_iter().find(|(_, given, reads, _)| *given && self.r#type != *reads) {
            Some((key, _, _, reads)) => Err((key, format!("belongs to type = \"{reads}\""))),
            None => Ok(()),
        }
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

impl TcpTarget {
    /// Reads `HOST:PORT`; an IPv6 address stands in brackets.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(address: &str) -> Result<Self, String> {
        let wrong = || format!("`{address}` is not like \"127.0.0.1:5432\"");
        let authority: hyper::http::uri::Authority = address.parse().map_err(|_| wrong())?;
        let port = authority.port_u16().filter(|port| *port > 0).ok_or_else(wrong)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        Ok(Self { host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(), port })
    }
}
