//! The fleet folder: every public document of a fleet as files under git.
//!
//! `fleet-N.json`, `certificates/`, `rosters/`, `releases/`, `rollouts/`, and `roster.toml`, which people write.
//! Opening it verifies everything in it; half-signed documents are kept apart until they are complete.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::fleet::Fleet;
use groundswell_core::documents::rejection::{Reason, Rejection};
use groundswell_core::documents::{Body, Kind};
use groundswell_core::limits::PUBLISHED_ROSTER_BYTES;
use groundswell_core::trust::local::LocalTrust;
use groundswell_core::trust::shelf::Shelf;
use groundswell_core::trust::signing::SecretKey;
use groundswell_core::trust::verify;

use super::clock::now;
use super::files::Batch;
use crate::failure::Failure;

/// A fleet folder, read and verified.
#[derive(Debug)]
pub(crate) struct FleetFolder {
    dir: PathBuf,
    shelf: Shelf,
    paths: BTreeMap<Digest, PathBuf>,
    half_signed: BTreeMap<Digest, HalfSigned>,
}

/// A document in the folder that lacks signatures.
#[derive(Clone, Debug)]
pub(crate) struct HalfSigned {
    /// Its file.
    pub(crate) path: PathBuf,
    /// It.
    pub(crate) envelope: Envelope,
    /// What it says.
    pub(crate) body: Body,
    /// What it lacks.
    pub(crate) lacks: Rejection,
}

/// A document that was signed and is about to be written.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    /// Its body digest.
    pub(crate) digest: Digest,
    /// Where it will be.
    pub(crate) path: PathBuf,
    /// Its published form.
    pub(crate) bytes: Vec<u8>,
    /// What it still lacks; `None` when it is complete.
    pub(crate) lacks: Option<Rejection>,
}

/// Cryptography that only verifies.
pub(crate) fn verifier() -> SoftwareCrypto {
    SoftwareCrypto::from_secret(&[1; 32])
}

/// Reads a published document of any kind from a file. Nothing about it is trusted yet.
pub(crate) fn read_document(path: &Path) -> Result<(Envelope, Body, Vec<u8>), Failure> {
    let size = std::fs::metadata(path).map_err(|source| Failure::unreadable(path, source))?.len();
    if usize::try_from(size).map_or(true, |size| size > PUBLISHED_ROSTER_BYTES) {
        let rejection = Rejection::new(Reason::TooLarge, "envelope", format!("{size} bytes"));
        return Err(Failure::refused(path, rejection));
    }
    let bytes = std::fs::read(path).map_err(|source| Failure::unreadable(path, source))?;
    let (envelope, body) = verify::read(&bytes).map_err(|rejection| Failure::refused(path, rejection))?;
    Ok((envelope, body, bytes))
}

impl FleetFolder {
    /// Reads and verifies the folder.
    pub(crate) fn open(dir: &Path) -> Result<Self, Failure> {
        let first = dir.join("fleet-1.json");
        if !first.is_file() {
            let what = format!("{} is no fleet folder: it has no fleet-1.json; make one by `swell fleet init`", dir.display());
            return Err(Failure::invalid(what));
        }
        let mut files: BTreeMap<Digest, (PathBuf, Envelope, Body)> = BTreeMap::new();
        let mut all = Vec::new();
        for path in document_files(dir)? {
            let (envelope, body, bytes) = read_document(&path)?;
            files.insert(envelope.digest(), (path, envelope, body));
            all.push(bytes);
        }
        let fleet_id = files.values().find(|(path, ..)| *path == first).map(|(_, envelope, _)| envelope.digest());
        let mut shelf = Shelf::new(fleet_id.expect("fleet-1.json is among the files just read"), LocalTrust::default());
        let refused = shelf.restore(all, &verifier());
        let mut half_signed = BTreeMap::new();
        for (bytes, lacks) in refused {
            let digest = Envelope::parse(&bytes).map(|envelope| envelope.digest()).expect("it was read above");
            let (path, envelope, body) = files.get(&digest).expect("it was read above").clone();
            if !matches!(lacks.reason, Reason::Threshold | Reason::UnknownKey) || body.kind() == Kind::Fleet {
                return Err(Failure::refused(&path, lacks));
            }
            half_signed.insert(digest, HalfSigned { path, envelope, body, lacks });
        }
        let paths = files.into_iter().map(|(digest, (path, ..))| (digest, path)).collect();
        Ok(Self { dir: dir.to_path_buf(), shelf, paths, half_signed })
    }

    /// The documents in force.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The fleet's id.
    pub(crate) fn id(&self) -> Digest {
        self.shelf.fleet_id()
    }

    /// The fleet document in force.
    pub(crate) fn fleet(&self) -> &Fleet {
        self.shelf.fleet().expect("opening verified fleet-1.json")
    }

    /// The folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Documents that lack signatures.
    pub(crate) fn half_signed(&self) -> impl Iterator<Item = &HalfSigned> {
        self.half_signed.values()
    }

    /// The file of a document.
    pub(crate) fn path(&self, digest: &Digest) -> Option<&Path> {
        self.paths.get(digest).map(PathBuf::as_path)
    }

    /// Refuses to sign more under a fleet document that has expired or has a rival.
    pub(crate) fn check_in_force(&self) -> Result<(), Failure> {
        let fleet = self.fleet();
        if fleet.expires_at <= now() {
            let rejection =
                Rejection::new(Reason::Expired, "expiresAt", format!("expired at {}: sign a new version", fleet.expires_at));
            return Err(Failure::Refused { what: format!("fleet document {}", fleet.version), rejection });
        }
        if self.shelf.fleet_conflicted() {
            let rejection =
                Rejection::new(Reason::Conflict, "version", "two bodies of it are signed: a later version must name one");
            return Err(Failure::Refused { what: format!("fleet document {}", fleet.version), rejection });
        }
        Ok(())
    }

    /// Where a document of this body belongs.
    pub(crate) fn place(&self, body: &Body) -> PathBuf {
        place(&self.dir, body)
    }

    /// Signs `body` and takes it onto the shelf as every agent would; one that lacks signatures is taken as half-signed.
    /// Nothing is written yet: see [`Signed::write_to`].
    pub(crate) fn sign(&mut self, body: Body, keys: &[SecretKey]) -> Result<Signed, Failure> {
        let path = self.place(&body);
        let what = || path.display().to_string();
        body.validate().map_err(|rejection| Failure::not_signable(what(), rejection))?;
        let encoded = body.encode();
        let signatures = keys.iter().map(|key| key.endorse(&encoded)).collect();
        let envelope = Envelope { kind: body.kind(), body: encoded, signatures };
        self.take(envelope, body, path)
    }

    /// Takes a signed document from elsewhere, e.g. a manifest.
    pub(crate) fn take(&mut self, envelope: Envelope, body: Body, path: PathBuf) -> Result<Signed, Failure> {
        let digest = envelope.digest();
        if let Some(other) = self.paths.iter().find(|(known, at)| **at == path && **known != digest) {
            let detail = format!("{} holds another body, {}: nothing was signed", path.display(), other.0);
            return Err(Failure::refused(&path, Rejection::new(Reason::Conflict, "type", detail)));
        }
        let offered = self.shelf.offer(&envelope.to_bytes(), false, now(), &verifier());
        let (bytes, lacks) = match offered {
            Ok(offered) if offered.conflict.is_some() => {
                let detail = "another body with the same version, sequence, serial or generation is signed: nothing was written";
                return Err(Failure::refused(&path, Rejection::new(Reason::Conflict, "type", detail)));
            }
            Ok(offered) => (offered.envelope, None),
            Err(lacks) if lacks.reason == Reason::Threshold => (envelope.to_bytes(), Some(lacks)),
            Err(rejection) => return Err(Failure::refused(&path, rejection)),
        };
        if let Some(lacks) = &lacks {
            let half = HalfSigned { path: path.clone(), envelope, body, lacks: lacks.clone() };
            self.half_signed.insert(digest, half);
        } else {
            self.half_signed.remove(&digest);
        }
        self.paths.insert(digest, path.clone());
        Ok(Signed { digest, path, bytes, lacks })
    }
}

impl Signed {
    /// Adds the document to what is written at the end.
    pub(crate) fn write_to(&self, batch: &mut Batch) {
        batch.public(&self.path, self.bytes.clone());
    }

    /// `complete`, or what it lacks.
    pub(crate) fn standing(&self) -> String {
        self.lacks.as_ref().map_or_else(|| "complete".to_string(), |lacks| lacks.detail.clone())
    }
}

/// Where a document of this body belongs in the fleet folder `dir`.
pub(crate) fn place(dir: &Path, body: &Body) -> PathBuf {
    match body {
        Body::Fleet(fleet) => dir.join(format!("fleet-{}.json", fleet.version)),
        Body::Node(node) if node.serial == 1 => dir.join("certificates").join(format!("{}.json", node.name)),
        Body::Node(node) => dir.join("certificates").join(format!("{}-{}.json", node.name, node.serial)),
        Body::Token(token) => dir.join("tokens").join(format!("{}.json", token.key.pin().hex())),
        Body::Roster(roster) => dir.join("rosters").join(format!("{}.json", roster.version)),
        Body::Release(release) => dir.join("releases").join(format!("{}-{}.json", release.product, release.version)),
        Body::Rollout(rollout) => dir.join("rollouts").join(format!("{}-{}.json", rollout.id, rollout.generation)),
    }
}

/// All `.json` files of the folder that hold documents, in order.
fn document_files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for folder in [".", "certificates", "tokens", "rosters", "releases", "rollouts"] {
        let folder = if folder == "." { dir.to_path_buf() } else { dir.join(folder) };
        if !folder.is_dir() {
            continue;
        }
        let entries = std::fs::read_dir(&folder).map_err(|source| Failure::unreadable(&folder, source))?;
        for entry in entries {
            let path = entry.map_err(|source| Failure::unreadable(&folder, source))?.path();
            if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
