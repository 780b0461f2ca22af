//! `swell supervise`: the parent of the agent, which never changes itself (design, section 10).
//!
//! Decisions are the core's ([`groundswell_core::install::supervision`]); [`keeper`] carries them out, [`program`] is what
//! it starts and [`child`] the running agent; `ground` is what it stands on, as far as it can be had. [`marks`] are the files
//! and [`notify`] the datagrams that both sides share; [`lines`] is where its log goes. [`own`] is the agent's side of it: how
//! an agent that is its own product asks to be replaced.

pub mod check;
pub mod child;
mod ground;
pub mod keeper;
pub mod lines;
pub mod marks;
pub mod notify;
pub mod own;
pub mod program;
pub mod settings;

/// Exit code of an agent that asks its supervisor to start what the files name now.
pub const RESTART: u8 = 85;
/// The supervisor's process id, in the environment of the agent.
pub const SUPERVISOR: &str = "GROUNDSWELL_SUPERVISOR";
/// The folder of its supervisor, in the environment of the agent.
pub const FOLDER: &str = "GROUNDSWELL_SUPERVISOR_FOLDER";
/// The slot that the agent was started from, `a` or `b`, or `own` for the supervisor's own build.
pub const SLOT: &str = "GROUNDSWELL_SUPERVISOR_SLOT";
/// What is between a supervisor and its agent alone: no process of the agent's may have it.
pub(crate) const PRIVATE: [&str; 7] =
    [notify::SOCKET, notify::SIGNS, notify::WATCHDOG, notify::WATCHDOG_FOR, SUPERVISOR, FOLDER, SLOT];
