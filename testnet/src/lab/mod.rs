//! A lab of hosts on one machine: network namespaces on one bridge, the uplink of each shaped by a token bucket.
//!
//! [`Lab`] makes and unmakes it; [`swarm`] runs real agents in it, one to a host, [`hostile`] members that spoil what they do,
//! [`beside`] other programs, in the same lab.
//! It needs root, `ip` and `tc` (iproute2).

pub mod beside;
pub mod hostile;
mod leftovers;
pub mod swarm;
pub mod usage;

use std::net::Ipv4Addr;
use std::process::Command;

use crate::fleet::error::FleetError;

/// Most hosts of one lab: their addresses share one octet.
const HOSTS: usize = 200;
/// Labs are numbered by the process that made them, below this: names of links have 15 bytes at most.
const LABS: u32 = 10_000;

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its network namespace.
    pub namespace: String,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Host {
    /// What makes a command run on this host, to be put in front of it.
    #[must_use]
    pub fn enter(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.namespace]
    }
}

/// A lab that is up. Taken down when it is dropped.
#[derive(Debug)]
pub struct Lab {
    bridge: String,
    hosts: Vec<Host>,
}

impl Lab {
    /// Hosts with these uplinks, in bits a second; `None` is not shaped.
    ///
    /// # Errors
    /// When `ip` or `tc` refuse: not root, or not installed.
    pub fn up(uplinks: &[Option<u64>]) -> Result<Self, FleetError> {
        if uplinks.len() > HOSTS {
            return Err(refused(format!("a lab has at most {HOSTS} hosts, not {}", uplinks.len())));
        }
        leftovers::take_down();
        let number = std::process::id() % LABS;
        let mut lab = Self { bridge: format!("gs{number}br"), hosts: Vec::new() };
        run(&["ip", "link", "add", &lab.bridge, "type", "bridge"])?;
        run(&["ip", "link", "set", &lab.bridge, "up"])?;
        for (last, uplink) in (10..).zip(uplinks) {
            let host = Host { namespace: format!("gs{number}n{last}"), address: Ipv4Addr::new(10, 77, 0, last) };
            let (namespace, outer) = (host.namespace.clone(), format!("gs{number}v{last}"));
            run(&["ip", "netns", "add", &namespace])?;
            // From here on it is taken down again.
            lab.hosts.push(host.clone());
            run(&["ip", "link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &namespace])?;
            run(&["ip", "link", "set", &outer, "master", &lab.bridge, "up"])?;
            run(&["ip", "-n", &namespace, "addr", "add", &format!("{}/24", host.address), "dev", "eth0"])?;
            run(&["ip", "-n", &namespace, "link", "set", "eth0", "up"])?;
            run(&["ip", "-n", &namespace, "link", "set", "lo", "up"])?;
            if let Some(rate) = uplink {
                let rate = format!("{rate}bit");
                let shape = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate];
                run(&[&host.enter()[..], &shape, &["burst", "256kb", "latency", "50ms"]].concat())?;
            }
        }
        Ok(lab)
    }

    /// Its hosts, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Bytes that a host has sent so far, with all that frames cost.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn sent_bytes(&self, host: &Host) -> Result<u64, FleetError> {
        let text = run(&[&host.enter()[..], &["cat", "/sys/class/net/eth0/statistics/tx_bytes"]].concat())?;
        text.trim().parse().map_err(|_| refused(format!("`{}` is no number of bytes", text.trim())))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in &self.hosts {
            // What is gone already is what is wanted.
            let _ = run(&["ip", "netns", "del", &host.namespace]);
        }
        let _ = run(&["ip", "link", "del", &self.bridge]);
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(crate) fn number(number: u64) -> f64 {
    number as f64
}

fn refused(why: String) -> FleetError {
    FleetError::Io { what: "the lab cannot be built".to_owned(), source: std::io::Error::other(why) }
}

/// Runs a command to its end; what it printed.
fn run(command: &[&str]) -> Result<String, FleetError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(String::new()) };
    let ran = Command::new(program).args(arguments).output().map_err(FleetError::io(format!("cannot run {program}")))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    Err(refused(format!("`{}` ended with {}: {}", command.join(" "), ran.status, String::from_utf8_lossy(&ran.stderr).trim())))
}
