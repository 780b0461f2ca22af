//! Whole fleets, each test one story: in the virtual world, and (`system_…`) of real agents with the real binary.

mod bytes;
mod cases;
mod faults;
mod links;
mod margin;
mod measures;
mod model;
mod mutants;
mod newcomers;
mod prompt;
mod proofs;
mod rollouts;
mod scenarios;
mod scripts;
mod swarm;
mod system_bad_input;
mod system_crashes;
mod system_rollouts;
mod system_self_upgrade;
mod system_stage;
