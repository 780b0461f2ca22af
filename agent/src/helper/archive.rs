//! The documents that the helper has verified, on disk: what was newer once stays newer.
//!
//! Each is a file named by its digest, durable before anything is decided by it; beside them lie the floor time, which fleet
//! document is in force, and each product's floor, once more than in its slots. So an agent that was broken into cannot show
//! an older fleet, roster or generation than this machine has seen, nor does it gain by a file that is damaged. The shelf is
//! the core's own; nothing here counts a signature.
//!
//! A removal may be undone by a power loss until its folder is synced, so what a start finds is judged by the newest fleet
//! document first. That document is written before what it ends is removed: the other way round, a power loss in between
//! would leave the older one in force, without the pauses and aborts that went.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::rejection::{Reason as Code, Rejection};
use groundswell_core::documents::{Body, Kind};
use groundswell_core::limits::{DOCUMENT_BYTES, PUBLISHED_ROSTER_BYTES, ROSTERS};
use groundswell_core::node::warrant::{Asking, Unwarranted, Warrant, warrant};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Sequence;
use groundswell_core::record::status::Running;
use groundswell_core::text::{Platform, Product};
use groundswell_core::time::Timestamp;
use groundswell_core::trust::local::LocalTrust;
use groundswell_core::trust::shelf::Shelf;
use groundswell_core::trust::verify;

use super::in_force::{InForce, OLD_IN_FORCE, in_force_name};
use crate::install::durable::{make_folder, read_small, remove_file, replace};
use crate::install::files::Files;

const FLOOR_TIME: &str = "floor-time";
/// Begins the names of the files that hold products' floors.
const FLOOR: &str = "floor-of-";
/// Bytes of rosters that are kept, in their published form: two of the largest. Those that rollouts in force name stay in any
/// case, and so does what came last.
pub const ROSTERS_BYTES: usize = 2 * PUBLISHED_ROSTER_BYTES;
/// Longest form of a time, a number, or a number with two digests that is read.
const LINE_BYTES: u64 = 256;

/// What a helper is pinned to: from its own configuration, never from an agent.
#[derive(Clone, Debug)]
pub struct Pins {
    /// The fleet.
    pub fleet: Digest,
    /// The node.
    pub node: NodeId,
    /// What must be signed beyond what the fleet document asks for.
    pub trust: LocalTrust,
    /// The products that it installs.
    pub products: BTreeSet<Product>,
    /// This machine's platform.
    pub platform: Platform,
}

/// Why a document is not kept.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// It is refused.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The disk does not take it, or not what came before it.
    #[error("the documents cannot be written down: {0}")]
    Disk(#[from] io::Error),
}

/// Why the documents cannot be read back. Each names the file, and what a person can do about it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file that must not be forgotten does not say what was written there.
    #[error("{} is damaged: put back what it said, or remove it if what else lies beside it may be believed without it", .0.display())]
    Damaged(PathBuf),
    /// The disk does not tell.
    #[error("{} cannot be read ({source}): repair the file system", .path.display())]
    Unread {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What follows from it cannot be written.
    #[error("{} cannot be written ({source}): it needs space, and a file system that takes writes", .folder.display())]
    Unwritten {
        /// Where.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What became of a document that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its body digest.
    pub digest: Digest,
    /// It was not here before, or has signatures that were not.
    pub fresh: bool,
}

/// A change that the disk does not have yet.
#[derive(Debug)]
enum Owed {
    Write(Digest),
    Remove(Digest),
    /// Makes the removals before it last.
    Removed,
    FloorTime,
    InForce,
    /// Removes the file that named the fleet document in force before its name told the fleet.
    OldInForce,
    Floor(Product),
}

/// The documents in force, and where they lie.
pub struct Archive {
    pins: Pins,
    shelf: Shelf,
    /// The newest fleet document that this machine has seen, whether or not it can still be read.
    in_force: Option<InForce>,
    floors: BTreeMap<Product, Sequence>,
    crypto: SoftwareCrypto,
    files: Arc<dyn Files>,
    folder: PathBuf,
    /// Written in this order before anything else happens.
    owed: Vec<Owed>,
}

impl Archive {
    /// Reads what lies in `folder`, which is made when it is not there. What does not stand any more is removed; but nothing
    /// is while the newest fleet document that was seen here cannot be read: what it vouches for verifies again with it.
    ///
    /// # Errors
    /// [`ArchiveError`]. A floor, a floor time, or the name of the fleet document in force that cannot be read must not be
    /// forgotten.
    pub fn open(pins: Pins, files: Arc<dyn Files>, folder: &Path) -> Result<Self, ArchiveError> {
        make_folder(&*files, folder).map_err(|source| unread(folder, source))?;
        // What is small comes first: nothing is verified for an archive that does not open.
        let floor_time: Option<Timestamp> = line(&*files, &folder.join(FLOOR_TIME))?;
        let mut floors = BTreeMap::new();
        for product in &pins.products {
            let path = folder.join(format!("{FLOOR}{product}"));
            if let Some(number) = line(&*files, &path)? {
                floors.insert(product.clone(), Sequence::new(number).map_err(|_| ArchiveError::Damaged(path))?);
            }
        }
        let in_force: Option<InForce> = line(&*files, &folder.join(in_force_name(&pins.fleet)))?;
        let old: Option<InForce> = match in_force {
            Some(_) => None,
            None => line(&*files, &folder.join(OLD_IN_FORCE))?,
        };
        let mut envelopes = Vec::new();
        let mut names = Vec::new();
        for path in files.entries(folder).map_err(|source| unread(folder, source))? {
            let Some(digest) = digest_of(&path) else { continue };
            names.push(digest);
            match read_small(&*files, &path, PUBLISHED_ROSTER_BYTES as u64) {
                Ok(envelope) => envelopes.push(envelope),
                Err(error) if is_damage(&error) => {
                    tracing::warn!(path = %path.display(), %error, "what lies in the place of a document is none");
                }
                Err(error) => return Err(unread(&path, error)),
            }
        }
        let mut owed = Vec::new();
        let is_foreign = old.as_ref().is_some_and(|old| old.is_of_another(&pins.fleet, &envelopes));
        if is_foreign {
            // Before the documents go that tell whose it was.
            owed.extend([Owed::OldInForce, Owed::Removed]);
        }
        let old = old.filter(|_| !is_foreign);
        let is_old = old.is_some();
        let in_force = in_force.or(old);
        // Verifying needs no key of its own, and nothing here is ever signed.
        let crypto = SoftwareCrypto::from_secret(&[0; 32]);
        let mut shelf = Shelf::new(pins.fleet, pins.trust.clone());
        for (_, rejection) in shelf.restore(envelopes, &crypto) {
            tracing::warn!(%rejection, "a document that was kept does not stand any more");
        }
        for digest in shelf.drop_fallen() {
            tracing::warn!(%digest, "a document that was removed lies here again: the fleet document does not vouch for it");
        }
        if let Some(time) = floor_time {
            shelf.restore_floor_time(time);
        }
        let folder = folder.to_owned();
        let mut archive = Self { pins, shelf, in_force, floors, crypto, files, folder, owed };
        match archive.lost() {
            Some(lost) if is_old => {
                let path = archive.folder.join(OLD_IN_FORCE);
                // Nothing tells which fleet it was written for.
                let path = path.display();
                tracing::error!("{lost}; nothing is installed until then. If this machine has left that fleet, remove {path}");
            }
            Some(lost) => tracing::error!("{lost}; nothing is installed until then"),
            None => {
                let gone = names.into_iter().filter(|digest| archive.shelf.envelope(digest).is_none()).collect();
                archive.remove(gone);
                if is_old {
                    // What it names lies here, and is this fleet's: it is told by its name from now on.
                    archive.owed.extend([Owed::InForce, Owed::OldInForce]);
                }
                archive.note_fleet();
            }
        }
        archive.settle().map_err(|source| ArchiveError::Unwritten { folder: archive.folder.clone(), source })?;
        Ok(archive)
    }

    /// The documents in force.
    #[must_use]
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The highest sequence that a product has confirmed, as far as it is taken down here.
    #[must_use]
    pub fn floor(&self, product: &Product) -> Sequence {
        self.floors.get(product).copied().unwrap_or_default()
    }

    /// What it is pinned to.
    #[must_use]
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Verifies a document's published form and keeps it. It is on disk when this returns. Blocking.
    ///
    /// # Errors
    /// [`OfferError`]; a refused document changes nothing.
    pub fn offer(&mut self, bytes: &[u8], wall: Timestamp) -> Result<Kept, OfferError> {
        self.settle()?;
        let envelope = Envelope::parse(bytes)?;
        if envelope.kind != Kind::Roster {
            verify::check_size(bytes, DOCUMENT_BYTES)?;
        }
        let body = Body::parse(envelope.kind, &envelope.body)?;
        self.concerns(&body)?;
        let before = self.shelf.floor_time();
        let offered = match &body {
            Body::Roster(_) => self.shelf.offer_roster(bytes, &self.crypto)?,
            _ => self.shelf.offer(bytes, false, wall, &self.crypto)?,
        };
        let fresh = offered.fresh || offered.changed;
        // Between the two a crash may leave the higher of both times, never the lower one.
        let after = self.shelf.floor_time();
        if after > before {
            self.owed.push(Owed::FloorTime);
        }
        if fresh {
            self.owed.push(Owed::Write(offered.digest));
        }
        if after < before {
            self.owed.push(Owed::FloorTime);
        }
        self.note_fleet();
        self.remove(offered.dropped);
        if offered.fresh && envelope.kind == Kind::Roster {
            self.make_room_for_rosters(&offered.digest);
        }
        self.settle()?;
        Ok(Kept { digest: envelope.digest(), fresh })
    }

    /// Whether documents let this node install `release` now. What they were is on disk before.
    ///
    /// # Errors
    /// Why not; what the file system says when they cannot be written down.
    pub fn warrant(
        &mut self,
        product: &Product,
        release: &Digest,
        version_lock: Option<&str>,
        running: Option<&Running>,
        floor: Sequence,
        wall: Timestamp,
    ) -> io::Result<Result<Warrant, Unwarranted>> {
        self.settle()?;
        if let Some(lost) = self.lost() {
            return Ok(Err(lost));
        }
        let floor = floor.max(self.floor(product));
        let Pins { node, platform, .. } = &self.pins;
        Ok(warrant(&self.shelf, &Asking { node, product, release, platform, version_lock, running, floor, wall }))
    }

    /// Takes down what a product has confirmed. What the disk does not take now is owed, before anything else happens.
    pub fn raise_floor(&mut self, product: &Product, floor: Sequence) {
        if self.floor(product) < floor {
            self.floors.insert(product.clone(), floor);
            self.owed.push(Owed::Floor(product.clone()));
        }
        if let Err(error) = self.settle() {
            tracing::error!(%product, %error, "the floor is not written down beside its slots yet");
        }
    }

    /// Documents about other nodes and other products have no place here: so an agent cannot fill the disk with them.
    fn concerns(&self, body: &Body) -> Result<(), Rejection> {
        let foreign = |field: &str, detail: String| Err(Rejection::new(Code::Product, field, detail));
        match body {
            Body::Node(certificate) if certificate.node != self.pins.node => {
                foreign("node", format!("is {}, this helper installs for {}", certificate.node, self.pins.node))
            }
            Body::Release(release) if !self.pins.products.contains(&release.product) => {
                foreign("product", format!("{} is not in this helper's configuration", release.product))
            }
            Body::Rollout(rollout) if !self.pins.products.contains(&rollout.release.product) => {
                foreign("release.product", format!("{} is not in this helper's configuration", rollout.release.product))
            }
            Body::Token(_) => foreign("type", "a helper needs no tokens".to_owned()),
            _ => Ok(()),
        }
    }

    /// The newest fleet document that was seen here is not on the shelf: an older one must not count in its place.
    fn lost(&self) -> Option<Unwarranted> {
        let in_force = self.in_force.as_ref()?;
        let digest = in_force.digests().find(|digest| self.shelf.envelope(digest).is_none())?;
        Some(Unwarranted::FleetLost { version: in_force.version(), digest: *digest })
    }

    /// Takes down which fleet document is in force, once its own file is written.
    fn note_fleet(&mut self) {
        let newest = InForce::of(&self.shelf);
        if newest.as_ref().is_some_and(|newest| newest.follows(self.in_force.as_ref())) {
            self.in_force = newest;
            self.owed.extend([Owed::InForce, Owed::OldInForce]);
        }
    }

    fn remove(&mut self, gone: Vec<Digest>) {
        if !gone.is_empty() {
            self.owed.extend(gone.into_iter().map(Owed::Remove));
            self.owed.push(Owed::Removed);
        }
    }

    /// Leases need chains of rosters; a helper has no part in them. What comes next may name `new`, which has just been
    /// verified: only one that was is worth the others' places.
    fn make_room_for_rosters(&mut self, new: &Digest) {
        let lengths = self.shelf.rosters().filter_map(|(digest, _)| self.shelf.envelope(&digest)).map(<[u8]>::len);
        let (count, bytes) = lengths.fold((0, 0_usize), |(count, bytes), length| (count + 1, bytes.saturating_add(length)));
        if count > ROSTERS / 2 || bytes > ROSTERS_BYTES {
            let dropped = self.shelf.drop_rosters_but_for_rollouts(new);
            self.remove(dropped);
        }
    }

    /// Writes what is owed, in order; the rest stays owed when the disk refuses.
    fn settle(&mut self) -> io::Result<()> {
        while let Some(next) = self.owed.first() {
            match next {
                Owed::Write(digest) => {
                    // What was dropped again since needs no file.
                    if let Some(envelope) = self.shelf.envelope(digest) {
                        replace(&*self.files, &self.folder, &name(digest), envelope)?;
                    }
                }
                Owed::Remove(digest) => {
                    if self.shelf.envelope(digest).is_none() {
                        remove_file(&*self.files, &self.folder.join(name(digest)))?;
                    }
                }
                Owed::Removed => self.files.sync_folder(&self.folder)?,
                Owed::InForce => {
                    if let Some(in_force) = &self.in_force {
                        let name = in_force_name(&self.pins.fleet);
                        replace(&*self.files, &self.folder, &name, format!("{in_force}\n").as_bytes())?;
                    }
                }
                // One that comes back by a power loss is not looked at beside the one that took its place.
                Owed::OldInForce => remove_file(&*self.files, &self.folder.join(OLD_IN_FORCE))?,
                Owed::FloorTime => {
                    let text = format!("{}\n", self.shelf.floor_time());
                    replace(&*self.files, &self.folder, FLOOR_TIME, text.as_bytes())?;
                }
                Owed::Floor(product) => {
                    let floor = self.floors.get(product).copied().unwrap_or_default();
                    replace(&*self.files, &self.folder, &format!("{FLOOR}{product}"), format!("{floor}\n").as_bytes())?;
                }
            }
            self.owed.remove(0);
        }
        Ok(())
    }
}

fn name(digest: &Digest) -> String {
    format!("{}.json", digest.hex())
}

fn digest_of(path: &Path) -> Option<Digest> {
    let hex = path.file_name()?.to_str()?.strip_suffix(".json")?;
    format!("sha256/{hex}").parse().ok()
}

/// The one line of a file, read as what it holds; `None` where there is no such file.
fn line<T: FromStr>(files: &dyn Files, path: &Path) -> Result<Option<T>, ArchiveError> {
    let damaged = || ArchiveError::Damaged(path.to_owned());
    match read_small(files, path, LINE_BYTES) {
        Ok(text) => {
            let held = str::from_utf8(&text).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok());
            held.map(Some).ok_or_else(damaged)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if is_damage(&error) => Err(damaged()),
        Err(error) => Err(unread(path, error)),
    }
}

/// What lies there can be read, and is not what belongs there.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::FileTooLarge)
}

fn unread(path: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::Unread { path: path.to_owned(), source }
}
