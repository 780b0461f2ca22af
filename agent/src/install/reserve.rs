//! Space that is taken beforehand, so that a full disk never keeps us from writing down how far something is, or from going
//! back: a file that is given up for that, and made again when there is space.

use std::path::Path;

use super::durable::replace;
use super::files::Files;

/// A reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// The file's name.
    pub(crate) name: &'static str,
    /// Its size.
    pub(crate) size_bytes: usize,
}

impl Reserve {
    /// Takes the space, where it is not held and can be had.
    pub(crate) fn make(self, files: &dyn Files, folder: &Path) {
        let path = folder.join(self.name);
        if matches!(files.kind(&path), Ok(Some(_)) | Err(_)) {
            return;
        }
        let mut bytes = vec![0; self.size_bytes];
        // A file system that packs what it stores would hold no space for zeros.
        if let Err(error) = getrandom::fill(&mut bytes) {
            tracing::debug!(%error, "the reserve is of zeros");
        }
        if let Err(error) = replace(files, folder, self.name, &bytes) {
            tracing::debug!(path = %path.display(), %error, "no space is held in reserve");
        }
    }

    /// Gives the space up; `false` when it was used up before.
    pub(crate) fn spend(self, files: &dyn Files, folder: &Path) -> bool {
        let spent = files.remove_file(&folder.join(self.name)).is_ok();
        if spent {
            tracing::warn!(folder = %folder.display(), "the disk is full: it goes on with the space held in reserve");
        }
        spent
    }
}
