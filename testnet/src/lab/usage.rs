//! What agents used of a machine since they started.

use crate::fleet::Fleet;
use crate::fleet::error::FleetError;

/// Of all agents of a fleet that run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor seconds of all together.
    pub cpu_s: f64,
    /// Most memory that one had resident, in bytes.
    pub peak_rss_bytes: u64,
}

impl Usage {
    /// As it stands.
    ///
    /// # Errors
    /// When `/proc` does not tell.
    pub fn of(fleet: &Fleet) -> Result<Self, FleetError> {
        let mut usage = Self::default();
        for pid in fleet.agents().iter().filter_map(crate::fleet::agent::Agent::pid) {
            let one = Self::of_process(pid)?;
            usage.cpu_s += one.cpu_s;
            usage.peak_rss_bytes = usage.peak_rss_bytes.max(one.peak_rss_bytes);
        }
        Ok(usage)
    }

    /// Of one process.
    ///
    /// # Errors
    /// When `/proc` does not tell.
    pub fn of_process(pid: u32) -> Result<Self, FleetError> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).map_err(FleetError::io(format!("cannot read {path}")))
        };
        // After the name in brackets: utime and stime are fields 14 and 15 of all.
        let stat = read("stat")?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let used: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = read("status")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
        let ticks = rustix::param::clock_ticks_per_second();
        Ok(Self { cpu_s: super::number(used) / super::number(ticks), peak_rss_bytes: peak.unwrap_or(0) * 1024 })
    }
}
