//! The node's Ed25519 key: as a file while it is new, and in the store from the first start on.
//!
//! The agent *takes over* its key file: it moves the secret into the store and leaves a note in the file, so that a lost
//! store is a lost identity (design, section 7, rule 7). Observers promise nothing and keep their key in the file.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use groundswell_core::crypto::{Crypto as _, SoftwareCrypto};
use groundswell_core::digest::Hex32;
use groundswell_core::node_id::NodeId;

use crate::install::durable::read_bounded;
use crate::install::files::{Link, open_regular};
use crate::store::{Store, StoreError};

const HEAD: &str = "groundswell.node-key 1";
const MOVED: &str = "groundswell.node-key moved";
/// Longest key file that is read, in bytes: head, key and a note.
const FILE_BYTES: u64 = 4096;

/// The 32 secret bytes of an Ed25519 key.
pub type Secret = [u8; 32];

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("cannot read the node key {}: make one by `swell node init`, or name the right file", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write the node key {}: name a folder that can be written", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is one already.
    #[error("there is a node key {} already: a node keeps its identity; move the file away to make a new one", .0.display())]
    Exists(PathBuf),
    /// Others can read it.
    #[error("the node key {} can be read by others (mode {mode:03o}): run `chmod 600` on it", .path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is something else.
    #[error("{} is not a node key as `swell node init` makes it", .0.display())]
    Malformed(PathBuf),
    /// An agent has taken it over, and its store is not there.
    #[error(
        "the node key of {} was moved into an agent's store, and that store is not where it was: if it is lost, the identity is lost \
         with its promises; move the file away, run `swell node init`, and admit the node anew", .0.display()
    )]
    Moved(PathBuf),
}

/// Why a node has no identity to start with.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The key file.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key file holds another key than the store.
    #[error(
        "{} holds another identity ({in_file}) than the store {} ({in_store}): name the right key file, or another data folder",
        .key_file.display(), .store.display()
    )]
    Differs {
        /// The key file.
        key_file: PathBuf,
        /// Its identity.
        in_file: NodeId,
        /// The store's folder.
        store: PathBuf,
        /// Its identity.
        in_store: NodeId,
    },
}

/// A new random secret.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn generate() -> io::Result<Secret> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(secret)
}

/// The node id of a secret.
#[must_use]
pub fn node_id(secret: &Secret) -> NodeId {
    SoftwareCrypto::from_secret(secret).node()
}

/// Writes `secret` to a new file that only its owner can read, durably.
///
/// # Errors
/// When the file exists or cannot be written.
pub fn write_key_file(path: &Path, secret: &Secret) -> Result<(), KeyFileError> {
    let text = format!("{HEAD}\n{}\n", Hex32(*secret));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists(path.to_path_buf()),
        _ => KeyFileError::Write { path: path.to_path_buf(), source },
    })
}

/// Reads a key file.
///
/// # Errors
/// When it cannot be read, is no key file, is readable by others, or was taken over by an agent.
pub fn read_key_file(path: &Path) -> Result<Secret, KeyFileError> {
    let read = |source| KeyFileError::Read { path: path.to_path_buf(), source };
    let malformed = || KeyFileError::Malformed(path.to_path_buf());
    let file = match open_regular(path, Link::Followed) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(malformed()),
        opened => opened.map_err(read)?,
    };
    let metadata = file.metadata().map_err(read)?;
    let text = match read_bounded(file, FILE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(malformed()),
        content => String::from_utf8(content.map_err(read)?).map_err(|_| malformed())?,
    };
    if text.starts_with(MOVED) {
        return Err(KeyFileError::Moved(path.to_path_buf()));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Permissions { path: path.to_path_buf(), mode });
    }
    let secret = text.strip_prefix(HEAD).and_then(|rest| rest.trim().parse::<Hex32>().ok());
    secret.map(|Hex32(secret)| secret).ok_or_else(malformed)
}

/// Opens the node's store; at the first start makes it from the key file, which is taken over.
///
/// # Errors
/// When there is neither store nor key, when both disagree, or when one cannot be used.
pub fn open_store(folder: &Path, key_file: &Path) -> Result<Store, IdentityError> {
    match Store::open(folder) {
        Ok(store) => {
            let in_store = node_id(&store.identity()?);
            match read_key_file(key_file) {
                Ok(secret) if node_id(&secret) == in_store => take_over(key_file, in_store, folder),
                Ok(secret) => {
                    let (key_file, store) = (key_file.to_path_buf(), folder.to_path_buf());
                    return Err(IdentityError::Differs { key_file, in_file: node_id(&secret), store, in_store });
                }
                // The store has the identity; the file is not needed any more.
                Err(_) => {}
            }
            Ok(store)
        }
        Err(StoreError::Missing(_)) => {
            let secret = read_key_file(key_file)?;
            let store = Store::create(folder, &secret)?;
            take_over(key_file, node_id(&secret), folder);
            Ok(store)
        }
        Err(error) => Err(error.into()),
    }
}

/// Replaces the secret in the key file by a note, once the store holds it durably. Where the file cannot be replaced
/// (a read-only folder), says so: then only people prevent that a lost store starts again under the old identity.
fn take_over(path: &Path, node: NodeId, store: &Path) {
    let note = format!("{MOVED}\nThe key of {node} lives in {} now: the two are lost together.\n", store.display());
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let replaced = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(note.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    });
    if let Err(error) = replaced {
        let key_file = path.display();
        tracing::warn!("the store holds the node's key, but {key_file} cannot be replaced by a note ({error}): delete it");
    }
}
