//! Structural rules that several kinds of document share: order, distinctness, counts, listed keys, numbers.

use alloc::format;

use super::rejection::{Reason, Rejection};
use crate::limits::{JSON_INTEGER, ROLE_KEYS};
use crate::time::Timestamp;
use crate::trust::key::ListedKey;

/// Each item lies above the one before it: sorted and distinct.
pub(super) fn ascending<T: Ord>(items: impl IntoIterator<Item = T>, field: &str) -> Result<(), Rejection> {
    let mut last = None;
    for (index, item) in items.into_iter().enumerate() {
        if last.as_ref().is_some_and(|last| *last >= item) {
            return Err(Rejection::malformed(format!("{field}[{index}]"), "the list is sorted and names each once"));
        }
        last = Some(item);
    }
    Ok(())
}

/// At most `most` items.
pub(super) fn at_most(count: usize, most: usize, field: &str) -> Result<(), Rejection> {
    if count > most {
        return Err(Rejection::new(Reason::TooLarge, field, format!("{count} entries, at most {most} are allowed")));
    }
    Ok(())
}

/// An integer that canonical JSON carries exactly.
pub(super) fn integer(number: u64, field: &str) -> Result<(), Rejection> {
    if number > JSON_INTEGER {
        return Err(Rejection::malformed(field, "at most 2^53 − 1"));
    }
    Ok(())
}

/// A time in seconds that is above zero and exact.
pub(super) fn positive(number: u64, field: &str) -> Result<(), Rejection> {
    integer(number, field)?;
    if number == 0 {
        return Err(Rejection::malformed(field, "must be above 0"));
    }
    Ok(())
}

/// `expiresAt` lies after `issuedAt`.
pub(super) fn expiry(issued_at: Timestamp, expires_at: Timestamp) -> Result<(), Rejection> {
    if expires_at <= issued_at {
        return Err(Rejection::malformed("expiresAt", format!("must lie after issuedAt, {issued_at}")));
    }
    Ok(())
}

/// The keys beside a body's signers: sorted, distinct, each under its own pin.
pub(super) fn listed_keys(keys: &[ListedKey]) -> Result<(), Rejection> {
    at_most(keys.len(), ROLE_KEYS, "keys")?;
    ascending(keys.iter().map(|key| key.kid), "keys")?;
    match keys.iter().position(|key| key.kid != key.spki.pin()) {
        Some(index) => Err(Rejection::malformed(format!("keys[{index}].kid"), "is not the pin of the spki beside it")),
        None => Ok(()),
    }
}
