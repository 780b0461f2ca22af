//! The outer door as the agent has it: what it gives to visitors, and what it fetches as one.
//!
//! [`keeper`] answers the mesh's questions about documents and records here; [`visitor`] goes to the doors of others. The bytes, the limits and who gets what are in
//! `groundswell_net::outer`; when this node goes visiting is the core's decision.

pub(crate) mod keeper;
pub(crate) mod visitor;
