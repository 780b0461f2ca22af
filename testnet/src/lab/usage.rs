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
    /// From now on the most that a process has had resident is what it has now. Whether the kernel does that.
    #[must_use]
    pub fn forget_peak(pid: u32) -> bool {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_had_at_most_before_is_forgotten_where_the_kernel_does_that() {
        let pid = std::process::id();
        let peak = || Usage::of_process(pid).unwrap().peak_rss_bytes;
        let much = vec![1_u8; 256 * 1024 * 1024];
        let before = peak();
        assert!(before > 256 * 1024 * 1024 && much.iter().all(|byte| *byte == 1));
        drop(much);
        if Usage::forget_peak(pid) {
            assert!(peak() < before, "{before}");
        }
    }
}
