//! Whole fleets, each test one story: in the virtual world, and (`system_…`) of real agents with the real binary.

mod faults;
mod rollouts;
mod scripts;
mod swarm;
mod system_bad_input;
mod system_crashes;
mod system_rollouts;
mod system_stage;
