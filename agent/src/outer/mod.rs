//! The outer door as the agent has it: what it gives to visitors, and what it fetches as one.
//!
//! [`keeper`] answers the mesh's questions about documents and records here; [`visitor`] goes to the doors of others, [`delivery`]
//! hands over what it finds, [`seen`] is what it need not fetch again. The bytes, the limits and who gets what are in `groundswell_net::outer`; when this node
//! goes visiting is the core's decision.

pub(crate) mod delivery;
pub(crate) mod keeper;
mod seen;
pub(crate) mod visitor;
