//! A disk in memory that tells what was written from what is safe, and loses the rest when the power fails.
//!
//! Contents and entries of folders are safe only after their own sync: that of a file does not save its name, that of a
//! folder does not save what its files hold. What is not safe may still be there after a power loss, any part of it: the
//! kernel writes when it likes. A rename is there or it is not.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use groundswell_agent::install::files::{Files, Kind, Reading, Writing};

use super::fate::Fate;

type Id = usize;

/// What a power loss takes of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing: the process was killed, the machine runs on.
    Nothing,
    /// All of it.
    Everything,
    /// What files hold; names and renames reached the disk.
    Contents,
    /// Names and renames; what files hold reached the disk.
    Entries,
    /// Any part, drawn from this seed; contents may be torn.
    Drawn(u64),
}

impl Loss {
    pub(crate) const ALL: [Self; 7] =
        [Self::Nothing, Self::Everything, Self::Contents, Self::Entries, Self::Drawn(1), Self::Drawn(2), Self::Drawn(3)];
}

#[derive(Clone, Debug)]
enum Node {
    File { live: Vec<u8>, safe: Vec<u8> },
    Folder { live: BTreeMap<OsString, Id>, safe: BTreeMap<OsString, Id>, unsynced: Vec<Change> },
    Link(PathBuf),
}

/// One change of a folder's entries.
#[derive(Clone, Debug)]
enum Change {
    Put(OsString, Id),
    Take(OsString),
    Move(OsString, OsString, Id),
}

fn apply(entries: &mut BTreeMap<OsString, Id>, change: &Change) {
    match change {
        Change::Put(name, id) => {
            entries.insert(name.clone(), *id);
        }
        Change::Take(name) => {
            entries.remove(name);
        }
        Change::Move(from, to, id) => {
            entries.remove(from);
            entries.insert(to.clone(), *id);
        }
    }
}

/// Everything on the disk; node 0 is the root.
#[derive(Clone, Debug)]
pub(crate) struct Tree(Vec<Node>);

impl Tree {
    pub(crate) fn empty() -> Self {
        Self(vec![Node::Folder { live: BTreeMap::new(), safe: BTreeMap::new(), unsynced: Vec::new() }])
    }

    /// What the next start of the machine finds.
    pub(crate) fn after(mut self, loss: Loss) -> Self {
        let mut dice = Dice(match loss {
            Loss::Drawn(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            _ => 1,
        });
        for node in &mut self.0 {
            match node {
                Node::File { live, safe } => {
                    if live != safe {
                        *live = match loss {
                            Loss::Nothing | Loss::Entries => live.clone(),
                            Loss::Everything | Loss::Contents => safe.clone(),
                            Loss::Drawn(_) => dice.torn(live, safe),
                        };
                    }
                    // Only a loss of power is followed by a disk on which all that is there is safe.
                    if loss != Loss::Nothing {
                        safe.clone_from(live);
                    }
                }
                Node::Folder { live, safe, unsynced } => {
                    if loss == Loss::Nothing {
                        continue;
                    }
                    for change in unsynced.drain(..) {
                        let kept = match loss {
                            Loss::Nothing | Loss::Contents => true,
                            Loss::Everything | Loss::Entries => false,
                            Loss::Drawn(_) => dice.draw(2) == 0,
                        };
                        if kept {
                            apply(safe, &change);
                        }
                    }
                    live.clone_from(safe);
                }
                Node::Link(_) => {}
            }
        }
        self
    }

    fn find(&self, path: &Path) -> io::Result<Id> {
        let mut at = 0;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            // Only `current` is a symlink, and it leads to `slots/x` beside it.
            let folder = match &self.0[at] {
                Node::Folder { live, .. } => live,
                _ => return Err(io::ErrorKind::NotADirectory.into()),
            };
            at = *folder.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn folder_of(&mut self, path: &Path) -> io::Result<(Id, OsString)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        Ok((self.find(path.parent().unwrap_or(Path::new("/")))?, name))
    }

    fn change(&mut self, folder: Id, change: Change) -> io::Result<()> {
        let Node::Folder { live, unsynced, .. } = &mut self.0[folder] else {
            return Err(io::ErrorKind::NotADirectory.into());
        };
        apply(live, &change);
        unsynced.push(change);
        Ok(())
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<Id> {
        if self.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (folder, name) = self.folder_of(path)?;
        self.0.push(node);
        let id = self.0.len() - 1;
        self.change(folder, Change::Put(name, id))?;
        Ok(id)
    }

    fn content(&mut self, id: Id) -> io::Result<&mut Vec<u8>> {
        match &mut self.0[id] {
            Node::File { live, .. } => Ok(live),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn sync(&mut self, id: Id, part: Part) {
        match &mut self.0[id] {
            Node::File { live, safe } => match part {
                Part::Whole => safe.clone_from(live),
                Part::Half => {
                    let kept = untouched(live, safe);
                    *safe = live[..kept + (live.len() - kept) / 2].to_vec();
                }
            },
            Node::Folder { safe, unsynced, .. } => {
                let count = if part == Part::Whole { unsynced.len() } else { unsynced.len() / 2 };
                for change in unsynced.drain(..count) {
                    apply(safe, &change);
                }
            }
            Node::Link(_) => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Half,
    Whole,
}

/// What was safe and then only appended to stays safe: so many bytes.
fn untouched(live: &[u8], safe: &[u8]) -> usize {
    if live.starts_with(safe) { safe.len() } else { 0 }
}

/// A small generator: the same seed draws the same.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn torn(&mut self, live: &[u8], safe: &[u8]) -> Vec<u8> {
        let kept = untouched(live, safe);
        let cut = kept + usize::try_from(self.draw((live.len() - kept) as u64 + 1)).expect("no longer than the file");
        match self.draw(4) {
            0 => live.to_vec(),
            1 => safe.to_vec(),
            2 => live[..cut].to_vec(),
            // The length reached the disk, the blocks did not.
            _ => live[..cut].iter().copied().chain(std::iter::repeat_n(0, live.len() - cut)).collect(),
        }
    }
}

/// Which syncs do what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncs {
    /// All.
    Honest,
    /// Those of files do nothing: as if the install forgot them.
    NoFiles,
    /// Those of folders do nothing.
    NoFolders,
}

/// The disk, as the install sees it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    tree: Arc<Mutex<Tree>>,
    fate: Fate,
    syncs: Syncs,
}

impl Memory {
    pub(crate) fn new(tree: Tree, fate: Fate, syncs: Syncs) -> Self {
        Self { tree: Arc::new(Mutex::new(tree)), fate, syncs }
    }

    /// Whether the power has failed.
    pub(crate) fn is_off(&self) -> bool {
        self.fate.has_ended()
    }

    /// What is on it now.
    pub(crate) fn tree(&self) -> Tree {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that is there or is not: half of it is nothing.
    fn whole<T>(&self, call: impl FnOnce(&mut Tree) -> io::Result<T>) -> io::Result<T> {
        self.fate.call(|| {}, || call(&mut self.lock()))
    }
}

struct OpenFile {
    memory: Memory,
    id: Id,
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let put = |bytes: &[u8]| {
            self.memory.lock().content(self.id)?.extend_from_slice(bytes);
            Ok(bytes.len())
        };
        self.memory.fate.call(|| drop(put(&bytes[..bytes.len() / 2])), || put(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Writing for OpenFile {
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        self.memory.whole(|_| Ok(()))
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.memory.whole(|tree| {
            tree.content(self.id)?.resize(length, 0);
            Ok(())
        })
    }

    fn set_mode(&mut self, _: u32) -> io::Result<()> {
        self.memory.whole(|_| Ok(()))
    }

    fn sync(&mut self) -> io::Result<()> {
        let sync = |part| {
            if self.memory.syncs != Syncs::NoFiles {
                self.memory.lock().sync(self.id, part);
            }
        };
        self.memory.fate.call(
            || sync(Part::Half),
            || {
                sync(Part::Whole);
                Ok(())
            },
        )
    }
}

struct ReadFile {
    memory: Memory,
    id: Id,
    bytes: Cursor<Vec<u8>>,
}

impl Read for ReadFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer)
    }
}

impl Reading for ReadFile {
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.memory.lock().find(path)? == self.id)
    }
}

impl Files for Memory {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let node = Node::Folder { live: BTreeMap::new(), safe: BTreeMap::new(), unsynced: Vec::new() };
        self.whole(|tree| tree.add(path, node).map(|_| ()))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let id = self.lock().find(path)?;
        let sync = |part| {
            if self.syncs != Syncs::NoFolders {
                self.lock().sync(id, part);
            }
        };
        self.fate.call(
            || sync(Part::Half),
            || {
                sync(Part::Whole);
                Ok(())
            },
        )
    }

    fn entries(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let tree = self.lock();
        match &tree.0[tree.find(path)?] {
            Node::Folder { live, .. } => Ok(live.keys().map(|name| path.join(name)).collect()),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        let tree = self.lock();
        match tree.find(path) {
            Ok(id) => Ok(Some(match &tree.0[id] {
                Node::File { .. } => Kind::File,
                Node::Folder { .. } => Kind::Folder,
                Node::Link(_) => Kind::Other,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path, _: u32) -> io::Result<Box<dyn Writing>> {
        let id = self.whole(|tree| tree.add(path, Node::File { live: Vec::new(), safe: Vec::new() }))?;
        Ok(Box::new(OpenFile { memory: self.clone(), id }))
    }

    /// In slot `b` blocks can be shared, in slot `a` they are copied: the matrix knows both ways.
    fn create_shared(&self, path: &Path, _: u32, mut source: &std::fs::File) -> io::Result<Option<Box<dyn Writing>>> {
        if !path.parent().is_some_and(|folder| folder.ends_with("slots/b")) {
            return Ok(None);
        }
        let mut live = Vec::new();
        source.read_to_end(&mut live)?;
        let id = self.whole(|tree| tree.add(path, Node::File { live, safe: Vec::new() }))?;
        Ok(Some(Box::new(OpenFile { memory: self.clone(), id })))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Writing>> {
        let id = self.lock().find(path)?;
        Ok(Box::new(OpenFile { memory: self.clone(), id }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Reading>> {
        let mut tree = self.lock();
        let id = tree.find(path)?;
        let bytes = Cursor::new(tree.content(id)?.clone());
        Ok(Box::new(ReadFile { memory: self.clone(), id, bytes }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole(|tree| {
            let id = tree.find(from)?;
            let (folder, name) = tree.folder_of(from)?;
            let (into, new) = tree.folder_of(to)?;
            assert_eq!(folder, into, "a rename between folders is not atomic on every file system: {}", from.display());
            tree.change(folder, Change::Move(name, new, id))
        })
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.whole(|tree| tree.add(link, Node::Link(target.to_owned())).map(|_| ()))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let tree = self.lock();
        match &tree.0[tree.find(path)?] {
            Node::Link(target) => Ok(target.clone()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        // What is not there is no call that could be cut short.
        self.lock().find(path)?;
        self.whole(|tree| {
            let (folder, name) = tree.folder_of(path)?;
            tree.change(folder, Change::Take(name))
        })
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.whole(|tree| {
            match &tree.0[tree.find(path)?] {
                Node::Folder { live, .. } if live.is_empty() => {}
                _ => return Err(io::ErrorKind::DirectoryNotEmpty.into()),
            }
            let (folder, name) = tree.folder_of(path)?;
            tree.change(folder, Change::Take(name))
        })
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}
