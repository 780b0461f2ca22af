//! The one map of the mesh: (node, kind) → that node's latest record.
