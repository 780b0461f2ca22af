//! Tests of the core from outside: whole documents, whole rules. One file per subject; [`fixture`] builds a small fleet.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails may panic")]

mod blob_exchange;
mod blob_hostile;
mod blob_soon;
mod documents_golden;
mod documents_hostile;
mod documents_rules;
mod fixture;
mod install_drawing;
mod install_recovery;
mod install_starts;
mod install_supervision;
mod lease;
mod outer;
mod outer_upgrade;
mod record_ledger;
mod record_wire;
mod rollout;
mod shown;
mod spread_hostile;
mod spread_mesh;
mod spread_neighbours;
mod spread_reach;
mod spread_sync;
mod trust_certificates;
mod trust_fleet;
mod trust_releases;
mod trust_rollouts;
mod trust_rosters;
mod warrant;
