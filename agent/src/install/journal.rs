//! The journal: one line per entry, each with a checksum, flushed before what it names begins.
//!
//! Only the last whole line counts. A torn last line is an entry whose step never began, so the line before it holds.
//! A transaction's first entry replaces the file; later ones are appended.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use groundswell_core::install::{Entry, Mark};
use serde::{Deserialize, Serialize};

use super::durable::replace;
use super::files::{Files, Kind, Writing};

const NAME: &str = "journal";
/// What a folder in its place is called from then on.
const ASIDE: &str = "journal.damaged";
/// Beyond this the file is replaced instead of appended to. An entry has about 500 bytes, a transaction a dozen.
const LONGEST_BYTES: u64 = 32 * 1024;
/// No journal is longer; of a file that is, the rest is not read.
const MOST_READ_BYTES: u64 = 4 * LONGEST_BYTES;

/// The journal of one product.
pub struct Journal {
    files: Arc<dyn Files>,
    folder: PathBuf,
    /// Open for appending; `None` when the next entry must replace the file.
    file: Option<Box<dyn Writing>>,
    length: u64,
    last: Option<Entry>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("folder", &self.folder).field("last", &self.last).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    spec: u8,
    #[serde(flatten)]
    entry: Entry,
}

impl Journal {
    /// Reads the journal in `folder`. A missing, torn or damaged file is an old or empty journal, with a warning; so is
    /// whatever else has its name, and a folder is given another one.
    ///
    /// # Errors
    /// When the file is there and the disk does not tell what it holds.
    pub fn open(files: Arc<dyn Files>, folder: &Path) -> io::Result<Self> {
        let last = read(&*files, folder)?;
        if matches!(files.kind(&folder.join(NAME)), Ok(Some(Kind::Folder)))
            && let Err(error) = files.rename(&folder.join(NAME), &folder.join(ASIDE))
        {
            tracing::error!(folder = %folder.display(), %error, "a folder is where the journal should be");
        }
        // The first entry of this run replaces the file, so nothing is ever appended to a torn line.
        Ok(Self { files, folder: folder.to_owned(), file: None, length: 0, last })
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Option<&Entry> {
        self.last.as_ref()
    }

    /// Writes an entry and makes it durable.
    ///
    /// # Errors
    /// What the file system says; then [`Self::last`] is what the file says now, the entry before it or this one: after a crash
    /// either may count.
    pub fn note(&mut self, entry: &Entry) -> io::Result<()> {
        let line = encode(entry)?;
        let noted = self.write(&line, matches!(entry.mark, Mark::Stage | Mark::Switch));
        match &noted {
            Ok(()) => self.last = Some(entry.clone()),
            Err(_) => match read(&*self.files, &self.folder) {
                Ok(last) => self.last = last,
                // Of the two the one that leaves more to be done.
                Err(_) if entry.is_open() => self.last = Some(entry.clone()),
                Err(_) => {}
            },
        }
        noted
    }

    fn write(&mut self, line: &[u8], begins: bool) -> io::Result<()> {
        match self.file.take().filter(|_| !begins && self.length < LONGEST_BYTES) {
            Some(mut file) => {
                // On an error the file stays closed: the next entry replaces it, torn line and all.
                if let Err(error) = file.write_all(line).and_then(|()| file.sync()) {
                    let _ = file.set_length(self.length);
                    return Err(error);
                }
                self.file = Some(file);
                self.length = self.length.saturating_add(line.len() as u64);
            }
            None => {
                replace(&*self.files, &self.folder, NAME, line)?;
                self.file = self.files.append(&self.folder.join(NAME)).ok();
                self.length = line.len() as u64;
            }
        }
        Ok(())
    }
}

/// The last whole entry of the file.
fn read(files: &dyn Files, folder: &Path) -> io::Result<Option<Entry>> {
    let path = folder.join(NAME);
    let mut bytes = Vec::new();
    match files.open(&path) {
        Ok(file) => {
            file.take(MOST_READ_BYTES).read_to_end(&mut bytes)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::IsADirectory) => {
            tracing::warn!(path = %path.display(), %error, "this is no journal: it counts as an empty one");
        }
        Err(error) => return Err(error),
    }
    let mut damaged = 0_u32;
    let mut last = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match decode(line) {
            Some(entry) => last = Some(entry),
            None => damaged = damaged.saturating_add(1),
        }
    }
    if damaged > 0 {
        tracing::warn!(path = %path.display(), lines = damaged, "the journal has torn or damaged lines; the last whole one counts");
    }
    Ok(last)
}

/// 16 hex digits of the BLAKE3 of the rest, a space, JSON, a line feed.
fn encode(entry: &Entry) -> io::Result<Vec<u8>> {
    let json = serde_json::to_string(&Line { spec: 1, entry: entry.clone() }).map_err(io::Error::from)?;
    Ok(format!("{} {json}\n", checksum(json.as_bytes())).into_bytes())
}

fn decode(line: &[u8]) -> Option<Entry> {
    let line = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = line.split_once(' ')?;
    if sum != checksum(json.as_bytes()) {
        return None;
    }
    serde_json::from_str::<Line>(json).ok().filter(|line| line.spec == 1).map(|line| line.entry)
}

fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use groundswell_core::digest::Digest;
    use groundswell_core::install::{Boot, Contents, Counted, Slot, Starts, Transaction, Way};
    use groundswell_core::number::Sequence;
    use groundswell_core::text::{Reason, Version};

    use super::super::files::OnDisk;
    use super::*;

    fn open(folder: &Path) -> Journal {
        Journal::open(Arc::new(OnDisk), folder).unwrap()
    }

    fn entry(mark: Mark) -> Entry {
        let contents = Contents {
            release: Digest::of(b"release"),
            version: Version::new("1.0").unwrap(),
            sequence: Sequence::new(1).unwrap(),
            sha256: Digest::of(b"binary"),
            size_bytes: 6,
        };
        Entry { transaction: Transaction { contents, to: Slot::B, from: Some(Slot::A), claim: None }, mark }
    }

    fn first() -> Starts {
        Starts::first(Boot("this".to_owned()))
    }

    fn written(marks: &[Mark]) -> (tempfile::TempDir, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = open(folder.path());
        for mark in marks {
            journal.note(&entry(mark.clone())).unwrap();
        }
        let bytes = fs::read(folder.path().join(NAME)).unwrap();
        (folder, bytes)
    }

    #[test]
    fn the_last_entry_is_read_back() {
        let revert =
            Mark::Revert { reason: Reason::lossy("a \"reason\"\nwith lines"), at_fault: false, way: Way::Start, tries: 0 };
        let (folder, _) = written(&[Mark::Switch, Mark::Activate(first()), revert.clone()]);
        assert_eq!(open(folder.path()).last(), Some(&entry(revert)));
    }

    #[test]
    fn a_line_torn_anywhere_leaves_the_entry_before_it() {
        let (folder, bytes) = written(&[Mark::Switch, Mark::Activate(first())]);
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in first..bytes.len() {
            fs::write(folder.path().join(NAME), &bytes[..cut]).unwrap();
            let mut journal = open(folder.path());
            assert_eq!(journal.last(), Some(&entry(Mark::Switch)), "cut at {cut}");
            journal.note(&entry(Mark::Closed)).unwrap();
            assert_eq!(open(folder.path()).last(), Some(&entry(Mark::Closed)));
        }
    }

    #[test]
    fn whatever_else_has_its_name_is_an_empty_journal_and_the_next_entry_takes_its_place() {
        for what in ["folder", "symlink", "pipe"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(NAME);
            match what {
                "folder" => fs::create_dir_all(path.join("full")).unwrap(),
                "symlink" => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
                _ => rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap(),
            }
            let mut journal = open(folder.path());
            assert_eq!(journal.last(), None, "{what}");
            journal.note(&entry(Mark::Switch)).unwrap();
            journal.note(&entry(Mark::Closed)).unwrap();
            assert_eq!(open(folder.path()).last(), Some(&entry(Mark::Closed)), "{what}");
        }
    }

    #[test]
    fn an_entry_of_an_older_build_counts_starts_of_another_run_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let of_now = serde_json::to_string(&Line { spec: 1, entry: entry(Mark::Watch(first())) }).unwrap();
        let (before, after) = of_now.split_once(r#""watch":{"#).unwrap();
        let (_, after) = after.split_once('}').unwrap();
        let read = |starts: &str| {
            let json = format!(r#"{before}"watch":{starts}{after}"#);
            fs::write(folder.path().join(NAME), format!("{} {json}\n", checksum(json.as_bytes()))).unwrap();
            match open(folder.path()).last() {
                Some(Entry { mark: Mark::Watch(starts), .. }) => starts.clone(),
                other => panic!("{other:?}"),
            }
        };
        let starts = read(r#"{"starts":2}"#);
        assert_eq!(starts, Starts { count: 2, ..Starts::default() });
        assert!(!starts.boot.is(&starts.boot));
        // One that does not tell how many of its starts were the first in a run of the machine.
        let starts = read(r#"{"starts":3,"boot":"this","stops":1,"stopped":true}"#);
        assert_eq!(starts, Starts { count: 3, boots: 0, boot: Boot("this".to_owned()), stops: 1, stopped: true });
        assert_eq!((starts.runs(Counted::Starts), starts.ends(Counted::Starts)), (1, 2));
        assert_eq!((starts.runs(Counted::Boots), starts.ends(Counted::Boots)), (3, 0));
    }

    #[test]
    fn no_flipped_byte_makes_another_entry() {
        let (folder, bytes) = written(&[Mark::Watch(first())]);
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x01;
            fs::write(folder.path().join(NAME), &damaged).unwrap();
            let last = open(folder.path()).last;
            assert!(last.is_none() || last == Some(entry(Mark::Watch(first()))), "byte {position}");
        }
    }
}
