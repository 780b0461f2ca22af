//! kill −9 of a real process that stores the pieces of a download, while it does.
//!
//! The process is this very program, started again: it says which pieces it has stored until it is killed. Whoever opens
//! the folder then has every piece that was said, nothing that is not the blob's, and finishes it.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use groundswell_agent::blobs::{Begun, BlobStore, Settings};
use groundswell_agent::install::forks;
use groundswell_core::blob::{BlobName, HashList, HashListBuilder, Layout};
use groundswell_core::digest::Digest;
use groundswell_net::blobs::PieceSink as _;
use tempfile::TempDir;

/// In the environment of the process that is killed: the folder.
const FOLDER: &str = "GROUNDSWELL_BLOB_KILLED";
const SIGKILL: i32 = 9;
/// Several times what is written between two notes of the bitmap.
const SIZE_BYTES: u64 = 36 * 1024 * 1024 + 77;
/// Coprime to the number of pieces: each comes once, in an order that looks like none.
const STRIDE: u64 = 397;

fn byte(at: u64) -> u8 {
    u8::try_from((at / 5 + at % 241) % 251).unwrap()
}

fn piece(layout: Layout, piece: u32) -> Vec<u8> {
    layout.range(piece).unwrap().map(byte).collect()
}

fn blob() -> (BlobName, HashList) {
    let layout = Layout::of(SIZE_BYTES).unwrap();
    let (mut builder, mut whole) = (HashListBuilder::new(layout), Vec::new());
    (0..layout.count()).for_each(|number| whole.extend(piece(layout, number)));
    builder.update(&whole);
    let list = builder.finish().unwrap();
    (BlobName { sha256: Digest::of(&whole), size_bytes: SIZE_BYTES, blake3: list.root() }, list)
}

fn open(folder: &Path) -> BlobStore {
    BlobStore::open(Settings { folder: folder.to_path_buf(), quota_bytes: 1 << 30, reserve_bytes: 0 }).unwrap()
}

/// Does nothing but in the process that is killed.
#[test]
fn the_process_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (name, list) = blob();
    let Begun::Partial(partial) = open(&folder).download(name).unwrap() else { panic!("it is whole already") };
    partial.keep_hash_list(&list).unwrap();
    let count = u64::from(list.layout().count());
    for nth in 0..count - 1 {
        let number = u32::try_from(nth * STRIDE % count).unwrap();
        partial.write_piece(number, &piece(list.layout(), number)).unwrap();
        partial.keep_up().unwrap();
        println!("stored {number}");
        std::io::stdout().flush().unwrap();
    }
    loop {
        std::thread::park();
    }
}

/// Lets a process store pieces and kills it as soon as it has said so many. Returns all that it said.
fn kill_after(folder: &Path, said: usize) -> Vec<u32> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "blob_kill::the_process_that_is_killed", "--nocapture"]).env(FOLDER, folder);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = forks::starting(|| command.spawn()).unwrap();
    let mut stored = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let read = |line: String| line.split_once("stored ").and_then(|(_, number)| number.parse::<u32>().ok());
    while stored.len() < said {
        stored.extend(lines.next().expect("it goes on until it is killed").ok().and_then(read));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(SIGKILL));
    stored.extend(lines.map_while(Result::ok).filter_map(read));
    stored
}

#[test]
fn b4_after_kill_9_at_any_time_every_stored_piece_is_held_and_the_blob_is_finished() {
    let (name, list) = blob();
    let layout = list.layout();
    for said in [1, 140, 260] {
        let folder = TempDir::new().unwrap();
        let stored = kill_after(folder.path(), said);
        let store = open(folder.path());
        let Begun::Partial(partial) = store.download(name).unwrap() else { panic!("it is not whole yet") };
        let held = partial.held();
        assert!(stored.len() >= said && stored.iter().all(|number| held.contains(*number)), "{said}: what was stored stays");
        // Nothing is held that is not the blob's: only what is missing is brought, and the whole has its digest.
        let missing: Vec<u32> = held.missing().collect();
        assert!(!missing.is_empty(), "{said}: the last one was never stored");
        missing.iter().for_each(|number| partial.write_piece(*number, &piece(layout, *number)).unwrap());
        partial.finish().unwrap();
        assert!(store.open_verified(&name.sha256).is_ok());
    }
}
