//! Local reasons not to be disrupted now: files that inhibit, too little space, a file system that is read-only.
//!
//! They are looked at on a timer and checked before a claim (case L3). Windows come with their own issue.

use std::io;
use std::path::{Path, PathBuf};

use groundswell_core::record::status::{HoldCode, HoldNotice};
use rustix::fs::StatVfsMountFlags;

/// What holds the product in `folder` back now. Blocking.
#[must_use]
pub fn look(inhibit: &[PathBuf], folder: &Path, keep_free_bytes: u64) -> Vec<HoldNotice> {
    let mut codes = Vec::new();
    if inhibit.iter().any(|file| is_there(file)) {
        codes.push(HoldCode::Inhibited);
    }
    match rustix::fs::statvfs(folder) {
        Ok(stat) if stat.f_flag.contains(StatVfsMountFlags::RDONLY) => codes.push(HoldCode::DeviceFault),
        Ok(stat) if stat.f_bavail.saturating_mul(stat.f_frsize) < keep_free_bytes => codes.push(HoldCode::DiskFull),
        Ok(_) => {}
        Err(_) => codes.push(HoldCode::DeviceFault),
    }
    codes.into_iter().map(|code| HoldNotice { code, until: None }).collect()
}

/// A file that cannot be looked at may be there.
fn is_there(file: &Path) -> bool {
    match file.symlink_metadata() {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}
