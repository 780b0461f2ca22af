//! Keys in files: PKCS#8 PEM for the secret half, SPKI PEM (`.pub`) for the public one.

use std::path::{Path, PathBuf};

use groundswell_core::trust::key::PublicKey;
use groundswell_core::trust::signing::SecretKey;

use super::clock::random;
use crate::failure::Failure;

/// A new key.
pub(crate) fn generate() -> Result<SecretKey, Failure> {
    loop {
        // A draw that is no scalar of the curve comes once in 2^32.
        if let Ok(key) = SecretKey::generate(&random()?) {
            return Ok(key);
        }
    }
}

/// The secret key in a file.
pub(crate) fn read_secret(path: &Path) -> Result<SecretKey, Failure> {
    let pem = std::fs::read_to_string(path).map_err(|source| Failure::unreadable(path, source))?;
    SecretKey::from_pem(&pem).map_err(|error| Failure::invalid_by(format!("{} is no signing key", path.display()), error))
}

/// The secret keys in several files, each once.
pub(crate) fn read_secrets(paths: &[PathBuf]) -> Result<Vec<SecretKey>, Failure> {
    let mut keys: Vec<SecretKey> = Vec::new();
    for path in paths {
        let key = read_secret(path)?;
        if keys.iter().any(|other| other.pin() == key.pin()) {
            return Err(Failure::invalid(format!("{} holds a key that was given already: one key signs once", path.display())));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// The public key in a `.pub` file.
pub(crate) fn read_public(path: &Path) -> Result<PublicKey, Failure> {
    let pem = std::fs::read_to_string(path).map_err(|source| Failure::unreadable(path, source))?;
    let what = || format!("{} is no public key: give the .pub file that `swell release keygen` wrote", path.display());
    PublicKey::from_pem(&pem).map_err(|error| Failure::invalid_by(what(), error))
}

/// Where the public half of the key in `path` is kept.
pub(crate) fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    PathBuf::from(name)
}
