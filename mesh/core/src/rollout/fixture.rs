//! Rollouts, certificates and reports for tests of this room.
