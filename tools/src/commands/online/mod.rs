//! Commands that read what an agent knows, and the one that hands it something new.

pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod leases;
pub(crate) mod peers;
pub(crate) mod publish;
pub(crate) mod rollouts;
pub(crate) mod status;
