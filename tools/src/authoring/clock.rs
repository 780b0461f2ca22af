//! The signer's clock and randomness, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use groundswell_core::time::Timestamp;

use crate::failure::Failure;

/// What this machine's clock says.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_seconds(since.as_secs())
}

/// `N` random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed("the operating system gives no randomness", error.to_string()))?;
    Ok(bytes)
}
