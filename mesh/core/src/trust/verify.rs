//! The numbered steps from bytes to a verified document, in the order of `docs/TRUST.md`.
//!
//! Step 1 size, 2 envelope, 3 canonical form, 4 structure, 5 fleet, 6 signatures, 7 time of issue, 8 guard rails,
//! 9 identity (known, conflict, rollback, bounds). Steps 1 to 7 are functions here; step 8 is in [`super::guard_rails`],
//! step 9 in [`super::shelf`], which calls them all in this order.

use alloc::format;

use super::threshold::{Signers, count_distinct};
use crate::crypto::Crypto;
use crate::digest::Digest;
use crate::documents::Body;
use crate::documents::envelope::{Envelope, Signature};
use crate::documents::fleet::{Fleet, Role};
use crate::documents::rejection::{Reason, Rejection};
use crate::limits::ISSUED_AHEAD_SECONDS;
use crate::time::Timestamp;

/// Step 1: at most `most` bytes. Before anything is parsed.
///
/// # Errors
/// `too-large`.
pub fn check_size(bytes: &[u8], most: usize) -> Result<(), Rejection> {
    if bytes.len() > most {
        return Err(Rejection::new(Reason::TooLarge, "envelope", format!("{} bytes, at most {most} are read", bytes.len())));
    }
    Ok(())
}

/// Steps 2 to 4: the envelope, its body in canonical form, the structure of its kind.
///
/// # Errors
/// `malformed`, `not-canonical`, `too-large`.
pub fn read(bytes: &[u8]) -> Result<(Envelope, Body), Rejection> {
    let envelope = Envelope::parse(bytes)?;
    let body = Body::parse(envelope.kind, &envelope.body)?;
    Ok((envelope, body))
}

/// Step 5: the document is of this fleet. A fleet's first version is when its digest is the fleet's id.
///
/// # Errors
/// `fleet`.
pub fn check_fleet(body: &Body, digest: &Digest, fleet_id: &Digest) -> Result<(), Rejection> {
    let named = match body {
        Body::Release(_) => return Ok(()),
        Body::Fleet(first) if first.fleet.is_none() => *digest,
        other => other.fleet().expect("every body but releases and first fleet versions names its fleet"),
    };
    if named == *fleet_id {
        return Ok(());
    }
    Err(Rejection::new(Reason::Fleet, "fleet", format!("is for fleet {named}, this is fleet {fleet_id}")))
}

/// The role that signs documents like `body` under `fleet`, and its name for people.
///
/// # Errors
/// `product` when the fleet document knows no such product.
pub fn role_of<'a>(body: &Body, fleet: &'a Fleet) -> Result<(&'a Role, &'static str), Rejection> {
    let of_product = |product, field| {
        let role = fleet.roles.release.get(product);
        role.ok_or_else(|| Rejection::new(Reason::Product, field, format!("the fleet document knows no product {product}")))
    };
    match body {
        Body::Fleet(_) => Ok((&fleet.roles.root, "root")),
        Body::Release(release) => Ok((of_product(&release.product, "product")?, "release")),
        Body::Rollout(rollout) => {
            of_product(&rollout.release.product, "release.product")?;
            Ok((&fleet.roles.rollout, "rollout"))
        }
        Body::Roster(_) => Ok((&fleet.roles.rollout, "rollout")),
        Body::Node(_) | Body::Token(_) => Ok((&fleet.roles.enroll, "enroll")),
    }
}

/// Step 6 for a fleet document: its first version by its own root, every later one by the root before it *and* its own.
///
/// # Errors
/// `threshold`, `unknown-key`; `fleet` when the version before is missing or not the one named.
pub fn check_fleet_signatures(
    body: &[u8],
    signatures: &[Signature],
    fleet: &Fleet,
    before: Option<&Fleet>,
    crypto: &dyn Crypto,
) -> Result<Signers, Rejection> {
    let own = &fleet.roles.root;
    let all = own.keys.iter().chain(before.iter().flat_map(|before| &before.roles.root.keys));
    let signers = count_distinct(body, signatures, all, crypto);
    if fleet.version > 1 {
        let before = before.filter(|before| before.version + 1 == fleet.version).ok_or_else(|| {
            let detail = "the version before this one is not known here, or is another: bring the versions in order";
            Rejection::new(Reason::Fleet, "previous", detail)
        })?;
        signers.require(&before.roles.root.keys, before.roles.root.threshold, "root, of the version before,")?;
    }
    signers.require(&own.keys, own.threshold, "root")?;
    Ok(signers)
}

/// Step 7: an `issuedAt` more than a day past a wall clock that stands at or above the floor time is refused.
///
/// A clock below the floor is known to be wrong and judges nothing.
///
/// # Errors
/// `not-yet-valid`.
pub fn check_issued_at(issued_at: Timestamp, wall: Timestamp, floor: Timestamp) -> Result<(), Rejection> {
    if wall >= floor && issued_at > wall.plus_seconds(ISSUED_AHEAD_SECONDS) {
        let detail = format!("{issued_at} is more than a day ahead of the clock here, {wall}: one of the two clocks is wrong");
        return Err(Rejection::new(Reason::NotYetValid, "issuedAt", detail));
    }
    Ok(())
}
