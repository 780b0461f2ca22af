//! Whose the configuration is: its commands and hooks run with all rights of the agent, so nobody may change it who has fewer.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

use crate::helper::ground::{GroundError, STICKY, check_hands, look};

/// A path that leads through more symlinks leads nowhere, as for the kernel.
const MOST_LINKS: u32 = 40;

/// Where this process is root: whether the file at `path`, and everything on the way to it, symlinks included, can be changed
/// by root alone. In a folder with the sticky bit others may make what they like, and touch nothing that is root's.
///
/// # Errors
/// The first part that others can change, or that cannot be looked at.
pub fn check_ground(path: &Path) -> Result<(), GroundError> {
    if geteuid().is_root() { check_way(path) } else { Ok(()) }
}

fn check_way(path: &Path) -> Result<(), GroundError> {
    let path = std::path::absolute(path).map_err(|source| GroundError::Io { path: path.to_owned(), source })?;
    let mut at = PathBuf::from("/");
    // The next one last.
    let mut rest = parts(&path);
    let mut links = 0;
    check_folder(&at)?;
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let found = look(&next)?;
        if found.is_symlink() {
            // Its mode says nothing; who made it does, in a folder where others may make some.
            check_hands(&next, found.uid(), 0)?;
            links += 1;
            let to = std::fs::read_link(&next).and_then(|to| if links > MOST_LINKS { Err(endless()) } else { Ok(to) });
            let to = to.map_err(|source| GroundError::Io { path: next, source })?;
            if to.is_absolute() {
                at = PathBuf::from("/");
            }
            rest.extend(parts(&to));
        } else if rest.is_empty() {
            return if found.is_file() {
                check_hands(&next, found.uid(), found.mode() & 0o7777)
            } else {
                Err(GroundError::NotAFile(next))
            };
        } else {
            check_folder(&next)?;
            at = next;
        }
    }
    Err(GroundError::NotAFile(at))
}

fn check_folder(folder: &Path) -> Result<(), GroundError> {
    let found = look(folder)?;
    if !found.is_dir() {
        return Err(GroundError::NotAFolder(folder.to_owned()));
    }
    let mode = found.mode() & 0o7777;
    check_hands(folder, found.uid(), if mode & STICKY != 0 { 0 } else { mode })
}

/// The names in a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

fn endless() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn everything_on_the_way_to_the_file_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str, mode| fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        fs::create_dir_all(at("etc/there")).unwrap();
        fs::write(at("etc/there/agent.toml"), "").unwrap();
        mode("etc/there/agent.toml", 0o644);
        symlink("../etc/there", at("etc/link")).unwrap();
        let ways = ["etc/there/agent.toml", "etc/link/agent.toml", "etc/there/../link/agent.toml"];
        let is_right = |right: bool| {
            for way in ways {
                assert_eq!(check_way(&at(way)).is_ok(), right, "{way}: {:?}", check_way(&at(way)));
            }
        };
        is_right(true);
        for (name, wrong, right) in [("etc/there/agent.toml", 0o664, 0o644), ("etc/there", 0o777, 0o755), ("etc", 0o775, 0o755)] {
            mode(name, wrong);
            is_right(false);
            mode(name, right);
            is_right(true);
        }
        // Nobody takes away what is there.
        mode("etc", 0o1777);
        is_right(true);
        assert!(matches!(check_way(&at("etc/there")), Err(GroundError::NotAFile(_))));
        assert!(matches!(check_way(&at("etc/none/agent.toml")), Err(GroundError::Io { .. })));
        symlink("round", at("round")).unwrap();
        assert!(matches!(check_way(&at("round")), Err(GroundError::Io { .. })));
    }
}
