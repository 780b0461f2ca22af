//! Makes a status record small enough: what goes when it would grow beyond its limit, and in which order.
//!
//! The log tail goes first, then the oldest verdicts of finished rollouts (design, section 5), then the length of reasons,
//! then hints that peers can do without: what it serves, and all addresses but the first.
//! What a gate or a warden counts (claims, phases, verdicts of unfinished rollouts) never goes.

use alloc::string::String;
use alloc::vec::Vec;

use super::signed::HEAD_BYTES;
use super::status::{Section, Status};
use crate::limits::{ADDRESSES, LOG_TAIL_BYTES, STATUS_BYTES, VERDICTS};
use crate::text::{Product, Reason, RolloutId};

/// Characters of a verdict's reason that stay when room is short.
const SHORT_REASON: usize = 48;

/// What must stay does not fit: too many products on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a status of {bytes} bytes after trimming; the limit is {STATUS_BYTES}: configure fewer products on this node")]
pub struct Oversize {
    /// How large it would be, signed.
    pub bytes: usize,
}

/// Trims `status` until it fits a record. `finished` says of which rollouts the outcome is settled for everyone.
///
/// # Errors
/// When what must stay is too large. The status is trimmed as far as it goes, then.
pub fn fit(status: &mut Status, finished: impl Fn(&RolloutId) -> bool) -> Result<(), Oversize> {
    status.addresses.truncate(ADDRESSES);
    status.log = tail(&status.log, LOG_TAIL_BYTES);
    for section in status.products.values_mut() {
        while section.verdicts.len() > VERDICTS && drop_verdict(section, &finished) {}
    }
    if size(status) > STATUS_BYTES {
        status.log.clear();
    }
    while size(status) > STATUS_BYTES && drop_oldest_finished(status, &finished) {}
    if size(status) > STATUS_BYTES {
        for verdict in status.products.values_mut().flat_map(|section| &mut section.verdicts) {
            let short: String = verdict.reason.chars().take(SHORT_REASON).collect();
            verdict.reason = Reason::lossy(&short);
        }
    }
    while size(status) > STATUS_BYTES && status.serves.pop().is_some() {}
    while size(status) > STATUS_BYTES && status.addresses.len() > 1 {
        status.addresses.pop();
    }
    match size(status) {
        bytes if bytes > STATUS_BYTES => Err(Oversize { bytes }),
        _ => Ok(()),
    }
}

/// Size of the signed record, at most.
fn size(status: &Status) -> usize {
    HEAD_BYTES + postcard::to_allocvec(status).map_or(usize::MAX - HEAD_BYTES, |bytes| bytes.len())
}

/// Drops one verdict too many: the oldest of a finished rollout, else the oldest of the lowest outcome.
fn drop_verdict(section: &mut Section, finished: &impl Fn(&RolloutId) -> bool) -> bool {
    let lowest = section.verdicts.iter().map(|verdict| verdict.outcome).min();
    let settled = section.verdicts.iter().position(|verdict| finished(&verdict.rollout));
    let at = settled.or_else(|| section.verdicts.iter().position(|verdict| Some(verdict.outcome) == lowest));
    at.map(|at| section.verdicts.remove(at)).is_some()
}

/// Drops the finished verdict that stands furthest to the front of its product's list.
fn drop_oldest_finished(status: &mut Status, finished: &impl Fn(&RolloutId) -> bool) -> bool {
    let first = |section: &Section| section.verdicts.iter().position(|verdict| finished(&verdict.rollout));
    let places: Vec<(usize, Product)> =
        status.products.iter().filter_map(|(product, section)| Some((first(section)?, product.clone()))).collect();
    let Some((at, product)) = places.into_iter().min() else { return false };
    status.products.get_mut(&product).map(|section| section.verdicts.remove(at)).is_some()
}

/// The last `most` bytes of `text`, at a character's edge.
fn tail(text: &str, most: usize) -> String {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    String::from(text.get(from..).unwrap_or_default())
}
