//! Who the agent is: a user and a group, by name or by number.

use std::path::Path;

use crate::install::durable::read_named_text;

/// No longer table of accounts is read: a hundred thousand of them fit.
const TABLE_BYTES: u64 = 16 * 1024 * 1024;

/// A user and a group, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Why an account cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No such user.
    #[error("agent.user: there is no user `{0}` in /etc/passwd: make it, or give its number")]
    User(String),
    /// No such group.
    #[error("agent.group: there is no group `{0}` in /etc/group: make it, or give its number")]
    Group(String),
    /// A number without an entry, and no group.
    #[error("agent.group: user {0} has no entry in /etc/passwd that would tell its group: give one")]
    NoGroup(String),
}

impl Account {
    /// Looks `user` and `group` up; without a group, the user's own.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn find(user: &str, group: Option<&str>) -> Result<Self, AccountError> {
        let read = |path| read_named_text(Path::new(path), TABLE_BYTES).unwrap_or_default();
        Self::find_in(&read("/etc/passwd"), &read("/etc/group"), user, group)
    }

    fn find_in(passwd: &str, groups: &str, user: &str, group: Option<&str>) -> Result<Self, AccountError> {
        let entry = entry(passwd, user);
        let uid = match (&entry, user.parse()) {
            (Some(entry), _) => entry.id,
            (None, Ok(number)) => number,
            (None, Err(_)) => return Err(AccountError::User(user.to_owned())),
        };
        let gid = match (group, entry) {
            (Some(group), _) => match (self::entry(groups, group), group.parse()) {
                (Some(entry), _) => entry.id,
                (None, Ok(number)) => number,
                (None, Err(_)) => return Err(AccountError::Group(group.to_owned())),
            },
            (None, Some(entry)) => entry.next.ok_or_else(|| AccountError::NoGroup(user.to_owned()))?,
            (None, None) => return Err(AccountError::NoGroup(user.to_owned())),
        };
        Ok(Self { uid, gid })
    }
}

/// `name:x:id:next:…`
struct Entry {
    id: u32,
    /// In the file of users, the group.
    next: Option<u32>,
}

/// The line of a name, or of a number.
fn entry(file: &str, wanted: &str) -> Option<Entry> {
    let lines = file.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        Some((name, number, fields.next()))
    });
    let (_, number, next) = lines.into_iter().find(|(name, number, _)| *name == wanted || *number == wanted)?;
    Some(Entry { id: number.parse().ok()?, next: next.and_then(|next| next.parse().ok()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nswell:x:990:991::/nonexistent:/usr/sbin/nologin\n";
    const GROUPS: &str = "root:x:0:\nmesh:x:77:swell\n";

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        let find = |user, group| Account::find_in(PASSWD, GROUPS, user, group);
        assert_eq!(find("swell", None).unwrap(), Account { uid: 990, gid: 991 });
        assert_eq!(find("990", None).unwrap(), Account { uid: 990, gid: 991 });
        assert_eq!(find("swell", Some("mesh")).unwrap(), Account { uid: 990, gid: 77 });
        assert_eq!(find("1234", Some("5")).unwrap(), Account { uid: 1234, gid: 5 });
        assert!(matches!(find("nobody", None), Err(AccountError::User(_))));
        assert!(matches!(find("1234", None), Err(AccountError::NoGroup(_))));
        assert!(matches!(find("swell", Some("none")), Err(AccountError::Group(_))));
    }
}
