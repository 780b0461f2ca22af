//! The crash matrix: what an install leaves behind when the power fails or the agent is killed, at every place (S6).
//!
//! [`power`] drives the real plans and the real file operations over a disk in memory that loses what was not synced.
//! [`kill`] ends real processes on a real disk. [`supervisor`] and [`helper`] are the small files of those two. `examples/crash_matrix.rs` is the same as a program.

mod device;
mod fate;
pub(crate) mod helper;
pub(crate) mod kill;
pub(crate) mod memory;
pub(crate) mod power;
pub(crate) mod supervisor;

/// What came of a matrix.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// How many cells there were.
    pub(crate) cells: u64,
    /// Which failed, and why.
    pub(crate) failures: Vec<String>,
    /// For people: one line per order.
    pub(crate) lines: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use groundswell_agent::install::forks;

    use super::device::Order;
    use super::kill::step;
    use super::memory::Syncs;
    use super::power::{Depth, matrix, matrix_of};
    use super::{helper, supervisor};

    #[test]
    fn s6_a_power_loss_or_kill_at_every_call_of_every_step_ends_on_a_version_that_runs() {
        let report = matrix(Depth::Once);
        assert!(report.cells > 2_000, "{report:#?}");
        assert!(report.failures.is_empty(), "{} of {} cells: {:#?}", report.failures.len(), report.cells, report.failures);
    }

    /// Found once: the agent was killed after a version was handed over and before the journal said that the machine
    /// restarts; the power failed while that was taken back; and the way back knew nothing of the restart in between.
    #[test]
    fn s6_a_second_crash_inside_what_puts_the_first_right_ends_as_well_where_versions_restart_the_machine() {
        let report = matrix_of(&[(false, true)], Depth::Twice, Syncs::Honest);
        assert!(report.cells > 5_000, "{report:#?}");
        assert!(report.failures.is_empty(), "{} of {} cells: {:#?}", report.failures.len(), report.cells, report.failures);
    }

    #[test]
    fn s6_a_power_loss_at_every_call_of_a_supervisor_and_its_agent_ends_on_the_right_build() {
        let report = supervisor::matrix(Syncs::Honest);
        assert!(report.cells > 300, "{report:#?}");
        assert!(report.failures.is_empty(), "{} of {} cells: {:#?}", report.failures.len(), report.cells, report.failures);
    }

    #[test]
    fn s5_a_power_loss_at_every_call_of_a_helpers_memory_forgets_nothing_that_it_has_said() {
        let report = helper::matrix(Syncs::Honest);
        assert!(report.cells > 300, "{report:#?}");
        assert!(report.failures.is_empty(), "{} of {} cells: {:#?}", report.failures.len(), report.cells, report.failures);
    }

    #[test]
    fn a_supervisor_or_helper_that_forgot_to_sync_its_files_or_its_folders_is_found_out() {
        for syncs in [Syncs::NoFiles, Syncs::NoFolders] {
            for report in [supervisor::matrix(syncs), helper::matrix(syncs)] {
                assert!(!report.failures.is_empty(), "{syncs:?}: {:?}", report.lines);
            }
        }
    }

    #[test]
    fn every_step_of_the_core_that_touches_an_install_is_an_order_of_the_matrix() {
        let workshop = crate::workshop::Workshop::noting_starts();
        let install = workshop.release(1, "echo one");
        let of_the_core = |order: &Order| step(*order, &install).as_ref().and_then(Order::of);
        let orders: Vec<Order> = Order::ALL.iter().filter_map(of_the_core).collect();
        // A build that was forgiven is confirmed like any other.
        let (stage, activate, confirm) = (Order::Stage, Order::Activate, Order::Confirm);
        assert_eq!(orders, [stage, activate, confirm, confirm, Order::Revert, Order::Abort]);
    }

    /// What people and scripts go by: the program ends with 1 when a cell fails. It is built with the tests of the workspace.
    #[test]
    fn the_program_says_by_its_exit_code_that_a_sync_was_left_out() {
        let tests = std::env::current_exe().unwrap();
        let program = tests.parent().and_then(Path::parent).unwrap().join("examples/crash_matrix");
        for (syncs, code) in [("honest", 0), ("no-files", 1), ("no-folders", 1)] {
            let mut command = Command::new(&program);
            command.args(["--upgrade", syncs]).stdin(Stdio::null()).stdout(Stdio::piped());
            let child = forks::starting(|| command.spawn()).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{syncs}: {said}");
            assert_eq!(said.contains("FAILED"), code == 1, "{syncs}: {said}");
        }
    }

    /// A matrix that finds nothing must be one that would.
    #[test]
    fn an_install_that_forgot_to_sync_its_files_or_its_folders_is_found_out() {
        for syncs in [Syncs::NoFiles, Syncs::NoFolders] {
            let report = matrix_of(&[(false, false)], Depth::Once, syncs);
            assert!(report.failures.len() > 10, "{syncs:?}: {} of {} cells", report.failures.len(), report.cells);
        }
    }
}
