//! The documents in force: what was verified, what it supersedes, what it conflicts with.
//!
//! [`Shelf::offer`] is the one way in; it takes the numbered steps of [`super::verify`]. Expiry is never judged at receipt:
//! methods that judge take a wall clock. Each kind has its file: [`fleets`], [`certificates`], [`releases`], [`rosters`],
//! [`rollouts`]; [`retention`] keeps the whole within its bounds, [`shown`] judges what peers show at doors.

mod binder;
mod certificates;
mod fleets;
mod releases;
mod retention;
mod rollouts;
mod rosters;
mod shown;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use self::binder::{Binder, Held};
use super::local::LocalTrust;
use super::threshold::{Signers, count_distinct};
use super::{guard_rails, verify};
use crate::crypto::Crypto;
use crate::digest::Digest;
use crate::documents::envelope::Envelope;
use crate::documents::rejection::{Reason, Rejection};
use crate::documents::{Body, Kind};
use crate::lease::sight::Gone;
use crate::limits::{DOCUMENT_BYTES, PUBLISHED_ROSTER_BYTES};
use crate::node_id::NodeId;
use crate::number::Sequence;
use crate::once::Once;
use crate::record::sync_set::SyncSet;
use crate::spread::Paper;
use crate::text::{Product, RolloutId, Version};
use crate::time::Timestamp;
use crate::trust::key::PublicKey;

pub use rollouts::RolloutInForce;
pub use shown::Shown;

/// At most two bodies under one identity, in order of their digests: the second is proof of a conflict.
type Rivals = Vec<Digest>;

/// The documents in force.
#[derive(Clone, Debug)]
pub struct Shelf {
    fleet_id: Digest,
    local: LocalTrust,
    floor: Timestamp,
    held: Binder,
    /// The fleet version that verifies; set once the first arrives.
    fleet: Option<Digest>,
    fleets: BTreeMap<u64, Rivals>,
    certificates: BTreeMap<NodeId, BTreeMap<u64, Rivals>>,
    retired: BTreeSet<NodeId>,
    release_versions: BTreeMap<(Product, Version), Rivals>,
    release_sequences: BTreeMap<Product, BTreeMap<Sequence, Rivals>>,
    rosters: BTreeMap<u64, Rivals>,
    /// Rosters that this node's promises need, whatever documents say.
    pinned_rosters: BTreeSet<Digest>,
    rollouts: BTreeMap<RolloutId, rollouts::Generations>,
    /// Held documents that are neither certificates nor rosters.
    documents: usize,
    /// See [`Shelf::revision`].
    revision: u64,
    /// See [`Shelf::gone`]: worked out anew after each change.
    gone: Once<BTreeMap<NodeId, Gone>>,
}

/// What became of an offered document that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its kind.
    pub kind: Kind,
    /// Its body digest.
    pub digest: Digest,
    /// It was not here before.
    pub fresh: bool,
    /// It was here, and signatures were added to it.
    pub changed: bool,
    /// What is stored and passed on: stripped of signatures that were not verified.
    pub envelope: Vec<u8>,
    /// Documents that left the shelf because of it, in order: remove them from the store.
    pub dropped: Vec<Digest>,
    /// It and another body share their identity fields: both digests, in order.
    pub conflict: Option<[Digest; 2]>,
}

/// What placing a document did.
#[derive(Debug, Default)]
struct Placed {
    dropped: Vec<Digest>,
    conflict: Option<[Digest; 2]>,
}

/// Where an offered document comes from, as far as judging it goes.
#[derive(Clone, Copy)]
enum Origin {
    /// Anywhere: the wall clock of its arrival.
    Outside(Timestamp),
    /// A roster: fetched because a verified document names it, so its time was judged with that.
    Fetched,
    /// This node's own store: it was judged when it arrived.
    Store,
}

impl Shelf {
    /// An empty shelf of the fleet `fleet_id`, which came out of band.
    #[must_use]
    pub fn new(fleet_id: Digest, local: LocalTrust) -> Self {
        Self {
            fleet_id,
            local,
            floor: Timestamp::default(),
            held: Binder::default(),
            fleet: None,
            fleets: BTreeMap::new(),
            certificates: BTreeMap::new(),
            retired: BTreeSet::new(),
            release_versions: BTreeMap::new(),
            release_sequences: BTreeMap::new(),
            rosters: BTreeMap::new(),
            pinned_rosters: BTreeSet::new(),
            rollouts: BTreeMap::new(),
            documents: 0,
            revision: 0,
            gone: Once::default(),
        }
    }

    /// The fleet's id.
    #[must_use]
    pub fn fleet_id(&self) -> Digest {
        self.fleet_id
    }

    /// Takes a document's published form from anywhere, `wall` being this machine's clock.
    ///
    /// With `source_is_store` it is verified again but not judged by its time of issue or sequence.
    ///
    /// # Errors
    /// A rejection leaves the shelf as it was. `rollback` means older than what is here: ignore it, blame nobody.
    pub fn offer(
        &mut self,
        bytes: &[u8],
        source_is_store: bool,
        wall: Timestamp,
        crypto: &dyn Crypto,
    ) -> Result<Offered, Rejection> {
        let origin = if source_is_store { Origin::Store } else { Origin::Outside(wall) };
        let envelope = Envelope::parse(bytes)?;
        if envelope.kind != Kind::Roster {
            verify::check_size(bytes, DOCUMENT_BYTES)?;
        }
        self.take(envelope, origin, crypto)
    }

    /// Takes a roster's published form.
    ///
    /// # Errors
    /// As [`Shelf::offer`]; `malformed` for another kind.
    pub fn offer_roster(&mut self, bytes: &[u8], crypto: &dyn Crypto) -> Result<Offered, Rejection> {
        verify::check_size(bytes, PUBLISHED_ROSTER_BYTES)?;
        let envelope = Envelope::parse(bytes)?;
        if envelope.kind != Kind::Roster {
            return Err(Rejection::malformed("type", format!("a roster was asked for, this is a {}", envelope.kind.name())));
        }
        self.take(envelope, Origin::Fetched, crypto)
    }

    /// Takes everything from the store at start, in any order, rosters included, and returns what was refused.
    /// Set the kept floor time afterwards, by [`Shelf::restore_floor_time`].
    #[must_use]
    pub fn restore(&mut self, envelopes: Vec<Vec<u8>>, crypto: &dyn Crypto) -> Vec<(Vec<u8>, Rejection)> {
        let mut refused = Vec::new();
        let mut ready = Vec::new();
        for bytes in envelopes {
            match verify::read(&bytes) {
                Ok((_, body)) => ready.push((body.order(), bytes)),
                Err(rejection) => refused.push((bytes, rejection)),
            }
        }
        ready.sort();
        for (_, bytes) in ready {
            let offered = Envelope::parse(&bytes).and_then(|envelope| self.take(envelope, Origin::Store, crypto));
            if let Err(rejection) = offered {
                refused.push((bytes, rejection));
            }
        }
        refused
    }

    /// Steps 3 to 9 of [`verify`].
    fn take(&mut self, envelope: Envelope, origin: Origin, crypto: &dyn Crypto) -> Result<Offered, Rejection> {
        let digest = envelope.digest();
        if self.held.contains_key(&digest) {
            return self.add_signatures(digest, &envelope, crypto);
        }
        let body = Body::parse(envelope.kind, &envelope.body)?;
        verify::check_fleet(&body, &digest, &self.fleet_id)?;
        let signers = self.authorise(&body, &digest, &envelope, origin, crypto)?;
        let is_first_fleet = digest == self.fleet_id;
        if let Origin::Outside(wall) = origin
            && !is_first_fleet
        {
            verify::check_issued_at(body.issued_at(), wall, self.floor)?;
        }
        self.check_limits(&body)?;
        let evicted = self.make_room(&body)?;
        let mut placed = match &body {
            Body::Fleet(fleet) => self.place_fleet(digest, fleet)?,
            Body::Node(certificate) => self.place_certificate(digest, certificate)?,
            Body::Token(_) => Placed::default(),
            Body::Release(release) => self.place_release(digest, release, matches!(origin, Origin::Store))?,
            Body::Roster(roster) => self.place_roster(digest, roster)?,
            Body::Rollout(rollout) => self.place_rollout(digest, rollout, &signers, matches!(origin, Origin::Store))?,
        };
        if !matches!(origin, Origin::Fetched) {
            self.floor = self.floor.max(body.issued_at());
        }
        let kind = envelope.kind;
        let stripped = Envelope { kind, body: envelope.body, signatures: signers.signatures() };
        let bytes = stripped.to_bytes();
        let (body_bytes, published) = (stripped.body.len(), Digest::of(&bytes));
        let held = Held { body, body_bytes, envelope: bytes.clone(), published, signers, map: Once::default() };
        self.note_change();
        self.documents += usize::from(!matches!(kind, Kind::Node | Kind::Roster));
        self.held.insert(digest, held);
        placed.dropped.extend(evicted);
        self.settle(digest, &mut placed.dropped);
        for gone in &placed.dropped {
            self.forget(gone);
        }
        placed.dropped.sort();
        Ok(Offered {
            kind,
            digest,
            fresh: true,
            changed: false,
            envelope: bytes,
            dropped: placed.dropped,
            conflict: placed.conflict,
        })
    }

    /// What follows from a document once it is held: others may no longer stand.
    fn settle(&mut self, digest: Digest, dropped: &mut Vec<Digest>) {
        match self.held.get(&digest).map(|held| held.body.kind()) {
            Some(Kind::Fleet) => self.settle_fleet(digest, dropped),
            Some(Kind::Roster) => self.settle_roster(&digest, dropped),
            Some(Kind::Release) => self.settle_release(&digest, dropped),
            Some(Kind::Rollout) => self.settle_rollout(&digest, dropped),
            _ => {}
        }
    }

    /// The same body again: only signatures that are new are looked at.
    fn add_signatures(&mut self, digest: Digest, envelope: &Envelope, crypto: &dyn Crypto) -> Result<Offered, Rejection> {
        let held = self.held.get(&digest).expect("asked for a held document");
        if held.body.kind() != envelope.kind {
            return Err(Rejection::malformed(
                "type",
                format!("does not match the envelope's outer kind {}", envelope.kind.name()),
            ));
        }
        let new: Vec<_> = envelope.signatures.iter().filter(|entry| !held.signers.contains(&entry.kid)).copied().collect();
        let signers = if new.is_empty() {
            Signers::default()
        } else {
            count_distinct(&envelope.body, &new, &self.keys_for(&held.body), crypto)
        };
        let mut merged = held.signers.clone();
        let changed = merged.extend(&signers);
        if changed {
            self.held.sign_anew(&digest, |held| {
                let signatures = merged.signatures();
                held.envelope = Envelope { kind: envelope.kind, body: envelope.body.clone(), signatures }.to_bytes();
                held.published = Digest::of(&held.envelope);
                held.signers = merged;
            });
            self.note_change();
        }
        let bytes = self.envelope(&digest).unwrap_or_default().to_vec();
        let (kind, dropped) = (envelope.kind, Vec::new());
        Ok(Offered { kind, digest, fresh: false, changed, envelope: bytes, dropped, conflict: None })
    }

    fn note_change(&mut self) {
        self.revision += 1;
        self.gone = Once::default();
    }

    /// Every key whose signature on `body` is worth keeping.
    fn keys_for(&self, body: &Body) -> Vec<PublicKey> {
        let Some(fleet) = self.fleet() else { return Vec::new() };
        match body {
            Body::Fleet(own) => {
                let before = own.previous.and_then(|digest| self.fleet_by_digest(&digest));
                [own.roles.root.keys.clone(), before.map(|before| before.roles.root.keys.clone()).unwrap_or_default()].concat()
            }
            body => verify::role_of(body, fleet).map(|(role, _)| role.keys.clone()).unwrap_or_default(),
        }
    }

    /// Step 6: enough distinct valid signatures of the role.
    fn authorise(
        &self,
        body: &Body,
        digest: &Digest,
        envelope: &Envelope,
        origin: Origin,
        crypto: &dyn Crypto,
    ) -> Result<Signers, Rejection> {
        if let Body::Fleet(own) = body {
            let before = own.previous.and_then(|digest| self.fleet_by_digest(&digest));
            return verify::check_fleet_signatures(&envelope.body, &envelope.signatures, own, before, crypto);
        }
        let fleet = self
            .fleet()
            .ok_or_else(|| Rejection::new(Reason::Fleet, "fleet", "no fleet document is known here yet: bring it first"))?;
        let (role, name) = verify::role_of(body, fleet)?;
        let signers = count_distinct(&envelope.body, &envelope.signatures, &role.keys, crypto);
        let Err(refusal) = signers.require(&role.keys, role.threshold, name) else { return Ok(signers) };
        let excused = match body {
            Body::Rollout(rollout) => signers.count() > 0 && self.brakes_one(rollout),
            Body::Roster(_) => fleet.anchor == Some(*digest),
            Body::Node(certificate) => self.anchored(certificate, digest),
            _ => false,
        };
        if excused && matches!(body, Body::Rollout(_)) {
            return Ok(signers);
        }
        // What an anchor keeps valid was signed under an earlier version; so was what this node stored and has not dropped since.
        for earlier in self.fleets.values().flatten().filter_map(|digest| self.fleet_by_digest(digest)) {
            if !excused && !matches!(origin, Origin::Store) {
                break;
            }
            let Ok((role, name)) = verify::role_of(body, earlier) else { continue };
            let signers = count_distinct(&envelope.body, &envelope.signatures, &role.keys, crypto);
            if signers.require(&role.keys, role.threshold, name).is_ok() {
                return Ok(signers);
            }
        }
        Err(match body {
            Body::Rollout(rollout) => self.unless_superseded(refusal, rollout),
            _ => refusal,
        })
    }

    /// Step 8: the guard rails that root signed.
    fn check_limits(&self, body: &Body) -> Result<(), Rejection> {
        match (body, self.fleet()) {
            (Body::Rollout(rollout), Some(fleet)) => guard_rails::check_rollout(&fleet.limits, rollout),
            (Body::Roster(roster), Some(fleet)) => guard_rails::check_roster(&fleet.limits, roster),
            _ => Ok(()),
        }
    }

    /// The published form of a document here, rosters included.
    #[must_use]
    pub fn envelope(&self, digest: &Digest) -> Option<&[u8]> {
        self.held.get(digest).map(|held| held.envelope.as_slice())
    }

    /// SHA-256 of the published form of a document here.
    #[must_use]
    pub fn published(&self, digest: &Digest) -> Option<Digest> {
        self.held.get(digest).map(|held| held.published)
    }

    /// Counts what changes here since this process began: another number means that a document came, went, or has other
    /// signatures, and that a verdict of before may be another now.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A document's body.
    #[must_use]
    pub fn body(&self, digest: &Digest) -> Option<&Body> {
        self.held.get(digest).map(|held| &held.body)
    }

    /// Who signed a document here.
    #[must_use]
    pub fn signers(&self, digest: &Digest) -> Option<&Signers> {
        self.held.get(digest).map(|held| &held.signers)
    }

    /// Where a document that is here stands in the order in which a stranger can accept them: [`Body::order`].
    #[must_use]
    pub fn order(&self, digest: &Digest) -> Option<(u8, u64)> {
        self.held.get(digest).map(|held| held.body.order())
    }

    /// Everything that sync carries, in order of digests; rosters are fetched instead.
    pub fn inventory(&self) -> impl Iterator<Item = (Digest, Kind)> + '_ {
        self.held.iter().map(|(digest, held)| (*digest, held.body.kind())).filter(|(_, kind)| *kind != Kind::Roster)
    }

    /// The same above `after`.
    pub fn inventory_after(&self, after: Digest) -> impl Iterator<Item = (Digest, Kind)> + '_ {
        let above = self.held.after(after);
        above.map(|(digest, held)| (*digest, held.body.kind())).filter(|(_, kind)| *kind != Kind::Roster)
    }

    /// What sync compares of the same.
    #[must_use]
    pub fn sync_set(&self) -> &SyncSet<Paper> {
        self.held.inventory()
    }

    /// The newest `issuedAt` verified; a new fleet version sets it anew. Keep it on disk.
    #[must_use]
    pub fn floor_time(&self) -> Timestamp {
        self.floor
    }

    /// Sets the floor time kept on disk, after [`Shelf::restore`].
    pub fn restore_floor_time(&mut self, floor: Timestamp) {
        self.floor = floor;
    }

    /// The time that expiry is judged by: the later of the wall clock and the floor time.
    #[must_use]
    pub fn time(&self, wall: Timestamp) -> Timestamp {
        wall.max(self.floor)
    }

    /// Whether a release, a rollout or this node's own certificate, and the fleet document that vouches for it, satisfy this
    /// node's own raised thresholds. Asked before *this* node starts, never before it grants or passes on; brakes are obeyed
    /// without asking.
    ///
    /// # Errors
    /// `threshold`; `malformed` when no such document is here.
    pub fn locally_trusted(&self, digest: &Digest) -> Result<(), Rejection> {
        if let Some(fleet) = self.fleet.and_then(|fleet| self.held.get(&fleet)) {
            self.local.root.require(&fleet.signers, "root")?;
        }
        match self.held.get(digest) {
            Some(Held { body: Body::Release(release), signers, .. }) => {
                self.local.release.get(&release.product).map_or(Ok(()), |raise| raise.require(signers, "release"))
            }
            Some(Held { body: Body::Rollout(_), signers, .. }) => self.local.rollout.require(signers, "rollout"),
            Some(Held { body: Body::Node(_), signers, .. }) => self.local.enroll.require(signers, "enroll"),
            _ => Err(Rejection::malformed("digest", format!("no release, rollout or certificate {digest} is here"))),
        }
    }
}

/// Adds a second body to an identity.
fn add_rival(rivals: &Rivals, digest: Digest, what: &str) -> Result<(Rivals, Option<[Digest; 2]>), Rejection> {
    match rivals.as_slice() {
        [] => Ok((alloc::vec![digest], None)),
        [one] => {
            let pair = [digest.min(*one), digest.max(*one)];
            Ok((pair.to_vec(), Some(pair)))
        }
        _ => Err(Rejection::new(Reason::Conflict, "type", format!("two other bodies of {what} are kept as proof already"))),
    }
}
