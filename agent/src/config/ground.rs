//! Whose the configuration is: its commands and hooks run with all rights of the agent, so nobody may change it who has fewer.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::geteuid;

use crate::helper::ground::{GroundError, STICKY, check_hands, look};

/// A path that leads through more symlinks leads nowhere, as for the kernel.
const MOST_LINKS: u32 = 40;

/// Where this process is root: whether the file at `path`, and everything on the way to it, symlinks included, can be changed
/// by root alone. In a folder with the sticky bit others may make what they like, and touch nothing that is root's. In a container
/// nobody writes what was mounted into it to be read, a ConfigMap say, and nobody is a user that it does not have.
///
/// # Errors
/// The first part that others can change, or that cannot be looked at.
pub fn check_ground(path: &Path) -> Result<(), GroundError> {
    if geteuid().is_root() { check_way(path, &is_read_only) } else { Ok(()) }
}

/// Whether what lies there is on a file system that takes no writes here, whatever its modes say.
fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Root, for a user whom this process's users do not include: nobody in here can act as that one.
fn owner_in_here(owner: u32) -> u32 {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    if is_outside(owner, &text("/proc/self/uid_map"), &text("/proc/sys/kernel/overflowuid")) { 0 } else { owner }
}

/// Whether this is the one number as which all users are shown that these do not include. Each line of `users` has the first of a
/// range, whom that is outside, and how many follow.
fn is_outside(owner: u32, users: &str, shown_as: &str) -> bool {
    let includes = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(first)), _, Some(Ok(count))) = (numbers.next(), numbers.next(), numbers.next()) else { return false };
        owner.checked_sub(first).is_some_and(|after| after < count)
    };
    shown_as.trim().parse() == Ok(owner) && !users.is_empty() && !users.lines().any(includes)
}

fn check_way(path: &Path, is_read_only: &dyn Fn(&Path) -> bool) -> Result<(), GroundError> {
    let path = std::path::absolute(path).map_err(|source| GroundError::Io { path: path.to_owned(), source })?;
    let mut at = PathBuf::from("/");
    // The next one last.
    let mut rest = parts(&path);
    let mut links = 0;
    check_folder(&at, is_read_only)?;
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let found = look(&next)?;
        if found.is_symlink() {
            // Its mode says nothing; who made it does, in a folder where others may make some.
            check_hands(&next, owner_in_here(found.uid()), 0)?;
            links += 1;
            let to = fs::read_link(&next).and_then(|to| if links > MOST_LINKS { Err(endless()) } else { Ok(to) });
            let to = to.map_err(|source| GroundError::Io { path: next, source })?;
            if to.is_absolute() {
                at = PathBuf::from("/");
            }
            rest.extend(parts(&to));
        } else if rest.is_empty() {
            return if found.is_file() {
                let mode = if is_read_only(&next) { 0 } else { found.mode() & 0o7777 };
                check_hands(&next, owner_in_here(found.uid()), mode)
            } else {
                Err(GroundError::NotAFile(next))
            };
        } else {
            check_folder(&next, is_read_only)?;
            at = next;
        }
    }
    Err(GroundError::NotAFile(at))
}

fn check_folder(folder: &Path, is_read_only: &dyn Fn(&Path) -> bool) -> Result<(), GroundError> {
    let found = look(folder)?;
    if !found.is_dir() {
        return Err(GroundError::NotAFolder(folder.to_owned()));
    }
    let mode = found.mode() & 0o7777;
    let shut = mode & STICKY != 0 || is_read_only(folder);
    check_hands(folder, owner_in_here(found.uid()), if shut { 0 } else { mode })
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
    fn whoever_is_none_of_a_container_s_users_can_change_nothing_in_it() {
        let rootless = "         0       1000          1\n         1     100000      65533\n";
        assert!(is_outside(65_534, rootless, "65534\n"));
        assert!(!is_outside(65_533, rootless, "65534\n") && !is_outside(0, rootless, "65534\n"));
        assert!(!is_outside(65_534, "0 100000 65536\n", "65534\n"), "it has that user");
        assert!(!is_outside(65_534, "         0          0 4294967295\n", "65534\n"), "no container");
        assert!(!is_outside(65_534, "", "65534\n") && !is_outside(65_534, rootless, ""), "nothing is known");
    }

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
                assert_eq!(check_way(&at(way), &|_| false).is_ok(), right, "{way}: {:?}", check_way(&at(way), &|_| false));
            }
        };
        is_right(true);
        for (name, wrong, right) in [("etc/there/agent.toml", 0o664, 0o644), ("etc/there", 0o777, 0o755), ("etc", 0o775, 0o755)] {
            mode(name, wrong);
            is_right(false);
            // As a ConfigMap is: its folder anybody's, its files behind symlinks, and nobody can write any of it.
            assert_eq!(ways.map(|way| check_way(&at(way), &|part| part == at(name)).is_ok()), [true; 3], "{name}");
            mode(name, right);
            is_right(true);
        }
        // Nobody takes away what is there.
        mode("etc", 0o1777);
        is_right(true);
        assert!(matches!(check_way(&at("etc/there"), &|_| false), Err(GroundError::NotAFile(_))));
        assert!(matches!(check_way(&at("etc/none/agent.toml"), &|_| false), Err(GroundError::Io { .. })));
        symlink("round", at("round")).unwrap();
        assert!(matches!(check_way(&at("round"), &|_| false), Err(GroundError::Io { .. })));
    }
}
