//! Release manifests: the files of a folder as artifacts, and whether files are what a manifest says.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use groundswell_core::digest::Hex32;
use groundswell_core::documents::release::{Artifact, Release};
use groundswell_core::text::{ArtifactName, Platform};
use sha2::{Digest as _, Sha256};

use super::platform;
use crate::failure::Failure;

/// The file in a release's folder that is its manifest, never an artifact.
pub(crate) const MANIFEST: &str = "manifest.json";
const BUFFER: usize = 256 * 1024;

/// What a file's bytes are.
#[derive(Debug, PartialEq, Eq)]
struct Measured {
    size: u64,
    sha256: Hex32,
    blake3: Hex32,
    head: Vec<u8>,
}

/// Every file of `dir` but its manifest, in order of names.
pub(crate) fn artifacts(dir: &Path) -> Result<Vec<Artifact>, Failure> {
    let mut artifacts = Vec::new();
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|source| Failure::unreadable(dir, source))? {
        paths.push(entry.map_err(|source| Failure::unreadable(dir, source))?.path());
    }
    for path in paths {
        let kind = std::fs::symlink_metadata(&path).map_err(|source| Failure::unreadable(&path, source))?.file_type();
        if !kind.is_file() {
            let what = format!("{} is no plain file: a release is a flat folder of files; nothing was signed", path.display());
            return Err(Failure::invalid(what));
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name == MANIFEST {
            continue;
        }
        let name = ArtifactName::new(name)
            .map_err(|error| Failure::invalid_by(format!("{} cannot be an artifact: rename it", path.display()), error))?;
        let measured = measure(&path)?;
        if measured.size == 0 {
            return Err(Failure::invalid(format!("{} is empty: nothing was signed", path.display())));
        }
        let platform = platform::of_name(&name);
        if let Some(why) = platform.as_ref().and_then(|platform| platform::contradiction(platform, &measured.head)) {
            return Err(Failure::invalid(format!("{} {why}: nothing was signed", path.display())));
        }
        artifacts.push(Artifact { name, platform, sha256: measured.sha256, size: measured.size, blake3: measured.blake3 });
    }
    artifacts.sort_by(|one, other| one.name.cmp(&other.name));
    if artifacts.is_empty() {
        return Err(Failure::invalid(format!("{} holds no file to release", dir.display())));
    }
    Ok(artifacts)
}

/// Names of the platforms for which a release has a bare binary.
pub(crate) fn platforms(release: &Release) -> Vec<Platform> {
    release.artifacts.iter().filter_map(|artifact| artifact.platform.clone()).collect()
}

/// Why the files of `dir` are not those of `release`: one sentence each, in order.
pub(crate) fn differences(release: &Release, dir: &Path) -> Result<Vec<String>, Failure> {
    let mut differences = Vec::new();
    for (index, artifact) in release.artifacts.iter().enumerate() {
        let path = dir.join(artifact.name.as_str());
        let is_file = match std::fs::symlink_metadata(&path) {
            Ok(metadata) => metadata.file_type().is_file(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(source) => return Err(Failure::unreadable(&path, source)),
        };
        if !is_file {
            differences.push(format!("artifacts[{index}]: {} is missing", path.display()));
            continue;
        }
        let measured = measure(&path)?;
        let checks = [
            ("size", measured.size.to_string(), artifact.size.to_string()),
            ("sha256", measured.sha256.to_string(), artifact.sha256.to_string()),
            ("blake3", measured.blake3.to_string(), artifact.blake3.to_string()),
        ];
        if let Some((field, is, signed)) = checks.into_iter().find(|(_, is, signed)| is != signed) {
            differences.push(format!("artifacts[{index}].{field}: {} has {is}, signed is {signed}", path.display()));
        }
    }
    Ok(differences)
}

fn measure(path: &Path) -> Result<Measured, Failure> {
    let unreadable = |source| Failure::unreadable(path, source);
    let mut file = File::open(path).map_err(unreadable)?;
    let (mut sha256, mut blake3, mut size, mut head) = (Sha256::new(), blake3::Hasher::new(), 0_u64, Vec::new());
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(source) => return Err(unreadable(source)),
        };
        let read = buffer.get(..count).expect("a read fills no more than the buffer");
        if head.is_empty() {
            head = read.iter().take(64).copied().collect();
        }
        sha256.update(read);
        blake3.update(read);
        size += u64::try_from(count).expect("a buffer's length fits 64 bits");
    }
    Ok(Measured { size, sha256: Hex32(sha256.finalize().into()), blake3: Hex32(*blake3.finalize().as_bytes()), head })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_of_files_becomes_sorted_artifacts() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("linux-amd64", "binary"), ("README", "text"), (MANIFEST, "{}")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let artifacts = artifacts(dir.path()).unwrap();
        let names: Vec<_> = artifacts.iter().map(|artifact| artifact.name.to_string()).collect();
        assert_eq!(names, ["README", "linux-amd64"]);
        assert_eq!(artifacts[1].platform.as_ref().map(ToString::to_string).as_deref(), Some("linux-amd64"));
        assert_eq!(artifacts[0].sha256, Hex32(Sha256::digest("text").into()));
        assert_eq!(artifacts[0].blake3, Hex32(*blake3::hash(b"text").as_bytes()));
    }

    #[test]
    fn k6_what_cannot_be_an_artifact_is_named() {
        for bad in [".hidden", "with blank"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(bad), "x").unwrap();
            assert!(artifacts(dir.path()).unwrap_err().to_string().contains(bad));
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("empty"), "").unwrap();
        assert!(artifacts(dir.path()).unwrap_err().to_string().contains("empty"));
        fs::remove_file(dir.path().join("empty")).unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        assert!(artifacts(dir.path()).unwrap_err().to_string().contains("sub"));
        assert!(artifacts(&dir.path().join("missing")).is_err());
    }
}
