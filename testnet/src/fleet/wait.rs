//! Waiting for something to come about: look, and look again soon, until a deadline.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::error::FleetError;

/// How soon one looks again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks until `look` gives a value. It gives what it saw otherwise, which the error carries when time is over.
///
/// # Errors
/// When `look` fails, or it did not come about within that time.
pub async fn until<T, S: Display>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Result<T, S>, FleetError>,
) -> Result<T, FleetError> {
    let began = Instant::now();
    loop {
        let seen = match look().await? {
            Ok(value) => return Ok(value),
            Err(seen) => seen,
        };
        if began.elapsed() >= within {
            return Err(FleetError::Late { what: what.to_owned(), within, seen: seen.to_string() });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
