//! What `swell publish` is given: documents, release folders, fleet folders, loose files; put in an order that agents take.

use std::path::{Path, PathBuf};

use groundswell_agent::observer::files::{FileError, ReleaseFiles};
use groundswell_agent::observer::publish::{Named, NamedFile};
use groundswell_core::blob::BlobName;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::release::Release;
use groundswell_core::documents::{Body, Kind};

use crate::authoring::folder::{FleetFolder, read_document};
use crate::authoring::manifest::MANIFEST;
use crate::failure::Failure;

/// What is to be published.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Documents in an order in which a stranger can accept them.
    pub(crate) documents: Vec<Named>,
    /// Files of releases.
    pub(crate) files: Vec<NamedFile>,
    /// The same files, checked, ready to be served.
    pub(crate) sources: ReleaseFiles,
    /// A fleet folder among what was given.
    pub(crate) fleet: Option<PathBuf>,
    /// Documents that lack signatures and are left out, with what they lack.
    pub(crate) half_signed: Vec<String>,
}

/// What a published document says; `None` where it cannot be read, and nobody takes it.
fn body(published: &[u8]) -> Option<Body> {
    let envelope = Envelope::parse(published).ok()?;
    Body::parse(envelope.kind, &envelope.body).ok()
}

impl Gathered {
    /// Reads everything that `paths` name. Nothing is published unless all of it is what it should be.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut gathered = Self::default();
        let mut loose = Vec::new();
        for path in paths {
            if path.is_dir() {
                gathered.folder(path)?;
            } else if path.extension().is_some_and(|extension| extension == "json") || !path.exists() {
                gathered.document(path)?;
            } else {
                loose.push(path);
            }
        }
        for path in loose {
            gathered.loose_file(path)?;
        }
        gathered.documents.sort_by_cached_key(|document| (body(&document.bytes).map(|body| body.order()), document.digest));
        gathered.documents.dedup_by_key(|document| document.digest);
        gathered.files.sort_by_key(|file| (file.sha256, file.release));
        gathered.files.dedup_by_key(|file| (file.sha256, file.release));
        Ok(gathered)
    }

    fn folder(&mut self, dir: &Path) -> Result<(), Failure> {
        let (is_fleet, manifest) = (dir.join("fleet-1.json").is_file(), dir.join(MANIFEST));
        if !is_fleet && !manifest.is_file() {
            let what = format!("{} is neither a fleet folder (fleet-1.json) nor a release folder ({MANIFEST})", dir.display());
            return Err(Failure::invalid(what));
        }
        if is_fleet {
            self.fleet_folder(dir)?;
        }
        if manifest.is_file()
            && let Body::Release(release) = self.document(&manifest)?
        {
            for artifact in &release.artifacts {
                self.file(&release, &dir.join(artifact.name.as_str()), &BlobName::from(artifact))?;
            }
        }
        Ok(())
    }

    fn fleet_folder(&mut self, dir: &Path) -> Result<(), Failure> {
        let folder = FleetFolder::open(dir)?;
        let shelf = folder.shelf();
        let rosters = shelf.rosters().map(|(digest, _)| (digest, Kind::Roster));
        for (digest, kind) in shelf.inventory().chain(rosters) {
            let Some(bytes) = shelf.envelope(&digest) else { continue };
            let name = folder.path(&digest).map_or_else(|| digest.to_string(), |path| path.display().to_string());
            self.documents.push(Named { name, kind, digest, bytes: bytes.to_vec() });
        }
        let lacking = folder.half_signed().map(|half| format!("{}: {}", half.path.display(), half.lacks.detail));
        self.half_signed.extend(lacking);
        self.fleet.get_or_insert_with(|| dir.to_path_buf());
        Ok(())
    }

    fn document(&mut self, path: &Path) -> Result<Body, Failure> {
        let (envelope, body, bytes) = read_document(path)?;
        let named = Named { name: path.display().to_string(), kind: envelope.kind, digest: envelope.digest(), bytes };
        self.documents.push(named);
        Ok(body)
    }

    /// A file that one of the releases here names.
    fn loose_file(&mut self, path: &Path) -> Result<(), Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let releases: Vec<Release> = self.releases();
        let named = releases.iter().flat_map(|release| release.artifacts.iter().map(move |artifact| (release, artifact)));
        let mut found = false;
        for (release, artifact) in named.filter(|(_, artifact)| artifact.name.as_str() == name) {
            match self.file(release, path, &BlobName::from(artifact)) {
                Ok(()) => found = true,
                // Another release's file of that name.
                Err(Failure::Invalid { .. }) if !found => {}
                Err(other) => return Err(other),
            }
        }
        if found {
            return Ok(());
        }
        let what =
            format!("{}: no manifest among what is published names this very file: give its {MANIFEST} too", path.display());
        Err(Failure::invalid(what))
    }

    fn file(&mut self, release: &Release, path: &Path, name: &BlobName) -> Result<(), Failure> {
        self.sources.add(name, path).map_err(|error| match error {
            FileError::Read { .. } => Failure::invalid_by(format!("{} {} is not whole", release.product, release.version), error),
            FileError::Differs(_) => Failure::invalid(error.to_string()),
        })?;
        let body = Body::Release(release.clone());
        let release = groundswell_core::digest::Digest::of(&body.encode());
        self.files.push(NamedFile { name: path.display().to_string(), release, sha256: name.sha256 });
        Ok(())
    }

    fn releases(&self) -> Vec<Release> {
        let manifests = self.documents.iter().filter(|document| document.kind == Kind::Release);
        let bodies = manifests.filter_map(|document| body(&document.bytes));
        bodies.filter_map(|body| if let Body::Release(release) = body { Some(release) } else { None }).collect()
    }
}
