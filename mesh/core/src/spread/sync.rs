//! Sync.
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// One turn of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// Ranges.
    pub(super) ranges: Vec<u8>,
}

impl Turn {
    pub(super) fn longest_list(&self) -> usize {
        self.ranges.len()
    }
}
