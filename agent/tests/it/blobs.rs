//! The blob store against crashes, torn files, foreign files and full disks.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use groundswell_agent::blobs::{Begun, BlobStore, DownloadError, LookupError, Partial, PutError, Settings};
use groundswell_core::blob::{BlobName, HashList, HashListBuilder, Layout, PieceSet};
use groundswell_core::digest::{Digest, Hex32};
use groundswell_net::blobs::{BlobSource, PieceSink, ReadError, SinkError};
use tempfile::TempDir;

const PIECE: usize = 65_536;

struct Sample {
    bytes: Vec<u8>,
    list: HashList,
    name: BlobName,
}

fn sample(size: usize) -> Sample {
    let bytes: Vec<u8> = (0..size).map(|i| u8::try_from((i / 7 + i % 13 + size) % 251).unwrap()).collect();
    let layout = Layout::of(u64::try_from(size).unwrap()).unwrap();
    let mut builder = HashListBuilder::new(layout);
    builder.update(&bytes);
    let list = builder.finish().unwrap();
    let name = BlobName { sha256: Digest::of(&bytes), size_bytes: layout.size_bytes(), blake3: list.root() };
    Sample { bytes, list, name }
}

impl Sample {
    fn piece(&self, piece: u32) -> &[u8] {
        let range = self.list.layout().range(piece).unwrap();
        &self.bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
    }

    fn file(&self, folder: &Path, suffix: &str) -> std::path::PathBuf {
        folder.join(format!("{}{suffix}", self.name.sha256.hex()))
    }
}

fn settings(folder: &Path) -> Settings {
    Settings { folder: folder.to_path_buf(), quota_bytes: 1 << 30, reserve_bytes: 0 }
}

fn open(folder: &TempDir) -> BlobStore {
    BlobStore::open(settings(folder.path())).unwrap()
}

fn begin(store: &BlobStore, sample: &Sample) -> Arc<Partial> {
    match store.download(sample.name).unwrap() {
        Begun::Partial(partial) => partial,
        Begun::Whole => panic!("the blob is not here yet"),
    }
}

fn fill(partial: &Partial, sample: &Sample, pieces: impl Iterator<Item = u32>) {
    if partial.hash_list().is_none() {
        partial.keep_hash_list(&sample.list).unwrap();
    }
    for piece in pieces {
        partial.write_piece(piece, sample.piece(piece)).unwrap();
        partial.keep_up().unwrap();
    }
}

#[test]
fn a_piece_that_is_stored_waits_for_no_flush_which_comes_when_the_download_keeps_up() {
    let folder = TempDir::new().unwrap();
    let sample = sample(17 * 1024 * 1024);
    let store = open(&folder);
    let partial = begin(&store, &sample);
    partial.keep_hash_list(&sample.list).unwrap();
    let count = sample.list.layout().count();
    (1..count).for_each(|piece| partial.write_piece(piece, sample.piece(piece)).unwrap());
    assert!(!sample.file(folder.path(), ".have").exists(), "whoever waits for a piece waits for no disk");
    partial.keep_up().unwrap();
    assert!(sample.file(folder.path(), ".have").exists());
    kill(partial);
    assert_eq!(held(&begin(&open(&folder), &sample)), (1..count).collect::<Vec<u32>>());
}

fn held(partial: &Partial) -> Vec<u32> {
    partial.held().iter().collect()
}

/// As if the process had been killed: nothing is noted on the way out.
fn kill(partial: Arc<Partial>) {
    std::mem::forget(partial);
}

#[test]
fn a_blob_put_here_is_served_listed_opened_and_still_there_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let sample = sample(3 * PIECE + 5);
    let store = open(&folder);
    assert_eq!(store.put_bytes(&sample.bytes).unwrap(), sample.name);
    assert!(store.watch().borrow().contains(&sample.name.sha256));
    for store in [store, open(&folder)] {
        let described = store.describe(&sample.name.sha256).unwrap();
        assert!(described.held.is_full() && described.size_bytes == sample.name.size_bytes);
        assert_eq!(store.hash_list(&sample.name.sha256).unwrap(), sample.list);
        assert_eq!(store.read_piece(&sample.name.sha256, 3).unwrap(), sample.piece(3));
        assert!(matches!(store.read_piece(&sample.name.sha256, 4), Err(ReadError::Beyond(4))));
        assert!(matches!(store.read_piece(&Digest([0; 32]), 0), Err(ReadError::NoBlob)));
        let mut read = Vec::new();
        store.open_verified(&sample.name.sha256).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read, sample.bytes);
        assert_eq!(store.list().unwrap().len(), 1);
    }
}

#[test]
fn a_put_with_other_bytes_than_announced_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let sample = sample(1000);
    let put = |announced: usize, bytes: &[u8]| {
        let mut put = store.put(sample.name.sha256, u64::try_from(announced).unwrap())?;
        bytes.chunks(300).try_for_each(|chunk| put.write(chunk))?;
        put.commit()
    };
    assert!(matches!(put(0, &[]), Err(PutError::Size(..))));
    assert!(matches!(put(1001, &sample.bytes), Err(PutError::Length { .. })));
    assert!(matches!(put(999, &sample.bytes), Err(PutError::Length { .. })));
    assert!(matches!(put(1000, &[7; 1000]), Err(PutError::Digest { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(put(1000, &sample.bytes).unwrap(), sample.name);
}

#[test]
fn a_second_put_of_the_same_blob_at_the_same_time_is_told_so() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let first = store.put(Digest([1; 32]), 10).unwrap();
    assert!(matches!(store.put(Digest([1; 32]), 10), Err(PutError::Underway(_))));
    drop(first);
    assert!(store.put(Digest([1; 32]), 10).is_ok());
}

#[test]
fn a_download_becomes_whole_only_when_every_piece_is_there_and_its_sha256_was_checked() {
    let folder = TempDir::new().unwrap();
    let sample = sample(5 * PIECE - 9);
    let store = open(&folder);
    let partial = begin(&store, &sample);
    fill(&partial, &sample, 0..4);
    assert!(!sample.file(folder.path(), "").exists());
    assert!(matches!(store.open_blob(&sample.name.sha256), Err(LookupError::NotHere(_))));
    assert_eq!(store.read_piece(&sample.name.sha256, 3).unwrap(), sample.piece(3), "what is verified is served at once");
    assert!(matches!(store.read_piece(&sample.name.sha256, 4), Err(ReadError::NotHeld(4))));
    fill(&partial, &sample, 4..5);
    partial.finish().unwrap();
    drop(partial);
    assert_eq!(std::fs::read(sample.file(folder.path(), "")).unwrap(), sample.bytes);
    assert!(!sample.file(folder.path(), ".part").exists() && !sample.file(folder.path(), ".have").exists());
    assert!(matches!(store.download(sample.name).unwrap(), Begun::Whole));
    assert!(matches!(open(&folder).download(sample.name).unwrap(), Begun::Whole));
}

#[test]
fn b1_a_zero_byte_or_short_leftover_under_the_blobs_name_is_never_taken_for_it() {
    let sample = sample(2 * PIECE);
    for leftover in [0, 1, PIECE, 2 * PIECE - 1] {
        let folder = TempDir::new().unwrap();
        open(&folder).put_bytes(&sample.bytes).unwrap();
        std::fs::write(sample.file(folder.path(), ""), &sample.bytes[..leftover]).unwrap();
        let store = open(&folder);
        assert!(!store.holds(&sample.name.sha256), "{leftover}");
        assert!(store.watch().borrow().is_empty());
        assert_eq!(held(&begin(&store, &sample)), Vec::<u32>::new(), "{leftover}");
    }
    let folder = TempDir::new().unwrap();
    std::fs::write(sample.file(folder.path(), ""), &sample.bytes).unwrap();
    assert!(!open(&folder).holds(&sample.name.sha256), "a file without its hash list was not put there by this store");
}

#[test]
fn b1_a_file_cut_short_while_the_store_is_open_is_noticed_before_use() {
    let folder = TempDir::new().unwrap();
    let sample = sample(2 * PIECE);
    let store = open(&folder);
    store.put_bytes(&sample.bytes).unwrap();
    std::fs::write(sample.file(folder.path(), ""), b"").unwrap();
    assert!(matches!(store.open_blob(&sample.name.sha256), Err(LookupError::Damaged(_))));
    assert!(!store.holds(&sample.name.sha256));
}

#[test]
fn a_whole_blob_with_one_bit_changed_is_neither_opened_nor_served() {
    let sample = sample(2 * PIECE);
    let flip = |folder: &TempDir| {
        let mut bytes = sample.bytes.clone();
        bytes[PIECE + 3] ^= 1;
        std::fs::write(sample.file(folder.path(), ""), bytes).unwrap();
    };
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    store.put_bytes(&sample.bytes).unwrap();
    flip(&folder);
    assert!(matches!(store.open_verified(&sample.name.sha256), Err(LookupError::Damaged(_))));
    assert!(matches!(store.open_verified(&sample.name.sha256), Err(LookupError::NotHere(_))));
    store.put_bytes(&sample.bytes).unwrap();
    flip(&folder);
    assert!(store.read_piece(&sample.name.sha256, 0).is_ok());
    assert!(matches!(store.read_piece(&sample.name.sha256, 1), Err(ReadError::NoBlob)));
    assert!(!store.holds(&sample.name.sha256));
}

#[test]
fn b4_a_download_that_stopped_goes_on_from_its_verified_pieces() {
    let folder = TempDir::new().unwrap();
    let sample = sample(10 * PIECE);
    let store = open(&folder);
    let partial = begin(&store, &sample);
    fill(&partial, &sample, 0..8);
    drop(partial);
    let noted = open(&folder).list().unwrap();
    assert_eq!((noted[0].held, noted[0].pieces), (8, 10));
    let partial = begin(&open(&folder), &sample);
    assert!(held(&partial).into_iter().eq(0..8));
    assert_eq!(partial.hash_list().as_ref(), Some(&sample.list));
    fill(&partial, &sample, 8..10);
    partial.finish().unwrap();
}

#[test]
fn b4_after_a_kill_nothing_that_was_verified_is_fetched_again() {
    let folder = TempDir::new().unwrap();
    let sample = sample(10 * PIECE);
    let partial = begin(&open(&folder), &sample);
    fill(&partial, &sample, [1, 3, 9].into_iter());
    assert!(!sample.file(folder.path(), ".have").exists(), "no flush was due yet");
    kill(partial);
    assert_eq!(held(&begin(&open(&folder), &sample)), [1, 3, 9]);
}

#[test]
fn torn_data_beyond_the_bitmap_is_not_taken_for_a_piece() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let partial = begin(&open(&folder), &sample);
    fill(&partial, &sample, 0..2);
    kill(partial);
    let path = sample.file(folder.path(), ".part");
    let mut data = std::fs::read(&path).unwrap();
    data[PIECE + 60_000..2 * PIECE].fill(0);
    data[3 * PIECE..3 * PIECE + 100].copy_from_slice(&sample.bytes[3 * PIECE..3 * PIECE + 100]);
    std::fs::write(&path, data).unwrap();
    assert_eq!(held(&begin(&open(&folder), &sample)), [0]);
}

#[test]
fn a_torn_foreign_or_missing_sidecar_costs_reading_and_never_trust() {
    let sample = sample(4 * PIECE);
    let spoil: [(&str, &[u8]); 4] = [(".have", b""), (".have", &[1; 34]), (".hashes", b""), (".hashes", &[1; 169])];
    for (suffix, content) in spoil {
        let folder = TempDir::new().unwrap();
        let partial = begin(&open(&folder), &sample);
        fill(&partial, &sample, 0..3);
        drop(partial);
        std::fs::write(sample.file(folder.path(), suffix), content).unwrap();
        let expected: &[u32] = if suffix == ".have" { &[0, 1, 2] } else { &[] };
        assert_eq!(held(&begin(&open(&folder), &sample)), expected, "{suffix} {}", content.len());
    }
}

#[test]
fn a_partial_of_the_wrong_length_starts_anew() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let partial = begin(&open(&folder), &sample);
    fill(&partial, &sample, 0..3);
    drop(partial);
    std::fs::write(sample.file(folder.path(), ".part"), &sample.bytes[..3 * PIECE]).unwrap();
    let partial = begin(&open(&folder), &sample);
    assert_eq!(held(&partial), Vec::<u32>::new());
    assert_eq!(std::fs::metadata(sample.file(folder.path(), ".part")).unwrap().len(), sample.name.size_bytes);
}

#[test]
fn a_piece_damaged_on_this_disk_is_found_at_the_end_and_only_it_is_missing_again() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let store = open(&folder);
    let partial = begin(&store, &sample);
    fill(&partial, &sample, 1..4);
    let path = sample.file(folder.path(), ".part");
    let mut data = std::fs::read(&path).unwrap();
    data[2 * PIECE] ^= 1;
    std::fs::write(&path, data).unwrap();
    fill(&partial, &sample, 0..1);
    assert!(matches!(partial.finish(), Err(SinkError::Damaged { pieces }) if pieces == [2]));
    assert_eq!(held(&partial), [0, 1, 3]);
    assert!(matches!(store.read_piece(&sample.name.sha256, 2), Err(ReadError::NotHeld(2))));
    fill(&partial, &sample, 2..3);
    partial.finish().unwrap();
}

#[test]
fn a_piece_damaged_while_a_download_was_stopped_is_found_at_the_end() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let partial = begin(&open(&folder), &sample);
    fill(&partial, &sample, 0..3);
    drop(partial);
    let path = sample.file(folder.path(), ".part");
    let mut data = std::fs::read(&path).unwrap();
    data[0] ^= 1;
    std::fs::write(&path, data).unwrap();
    let partial = begin(&open(&folder), &sample);
    fill(&partial, &sample, 3..4);
    assert!(matches!(partial.finish(), Err(SinkError::Damaged { pieces }) if pieces == [0]));
    fill(&partial, &sample, 0..1);
    partial.finish().unwrap();
}

#[test]
fn a_piece_damaged_after_it_was_hashed_is_never_given_out() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let store = open(&folder);
    let partial = begin(&store, &sample);
    fill(&partial, &sample, 0..4);
    let path = sample.file(folder.path(), ".part");
    let mut data = std::fs::read(&path).unwrap();
    data[2 * PIECE] ^= 1;
    std::fs::write(&path, data).unwrap();
    partial.finish().unwrap();
    assert!(matches!(store.read_piece(&sample.name.sha256, 2), Err(ReadError::NoBlob)));
    assert!(!store.holds(&sample.name.sha256), "and is fetched again");
}

#[test]
fn a_partial_cut_short_before_its_end_misses_what_was_cut() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let partial = begin(&open(&folder), &sample);
    fill(&partial, &sample, 1..4);
    let file = std::fs::OpenOptions::new().write(true).open(sample.file(folder.path(), ".part")).unwrap();
    file.set_len(3 * 65_536).unwrap();
    fill(&partial, &sample, 0..1);
    assert!(matches!(partial.finish(), Err(SinkError::Damaged { pieces }) if pieces == [3]));
    fill(&partial, &sample, 3..4);
    partial.finish().unwrap();
}

#[test]
fn a_manifest_whose_sha256_and_blake3_are_of_different_files_is_a_contradiction() {
    let folder = TempDir::new().unwrap();
    let mut sample = sample(2 * PIECE);
    let whole = sample.name;
    sample.name.sha256 = Digest([9; 32]);
    let store = open(&folder);
    let partial = begin(&store, &sample);
    fill(&partial, &sample, 0..2);
    assert!(matches!(partial.finish(), Err(SinkError::Contradiction)));
    assert!(!store.holds(&Digest([9; 32])));
    store.put_bytes(&sample.bytes).unwrap();
    let other_root = BlobName { blake3: Hex32([1; 32]), ..whole };
    assert!(matches!(store.download(other_root), Err(DownloadError::Contradiction(_))));
}

#[test]
fn a_download_that_is_still_letting_go_is_given_out_again() {
    let folder = TempDir::new().unwrap();
    let sample = sample(2 * PIECE);
    let store = open(&folder);
    let first = begin(&store, &sample);
    fill(&first, &sample, 0..1);
    let second = begin(&store, &sample);
    assert!(Arc::ptr_eq(&first, &second));
    let other_root = BlobName { blake3: Hex32([1; 32]), ..sample.name };
    assert!(matches!(store.download(other_root), Err(DownloadError::Contradiction(_))));
}

#[test]
fn a_blob_that_does_not_fit_is_refused_before_a_byte_is_fetched_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let quota = BlobStore::open(Settings { quota_bytes: 7 * 65_536, ..settings(folder.path()) }).unwrap();
    drop(begin(&quota, &sample));
    begin(&quota, &sample);
    let other = self::sample(4 * PIECE + 1);
    assert!(matches!(quota.download(other.name), Err(DownloadError::Quota { left_bytes: 196_608, .. })), "stopped ones count");
    quota.remove(&sample.name.sha256).unwrap();
    begin(&quota, &other);
    quota.remove(&other.name.sha256).unwrap();
    let full = BlobStore::open(Settings { reserve_bytes: u64::MAX, ..settings(folder.path()) }).unwrap();
    assert!(matches!(full.download(sample.name), Err(DownloadError::DiskFull { free_bytes: 0, .. })));
    assert!(matches!(full.put_bytes(&sample.bytes), Err(PutError::Room(DownloadError::DiskFull { .. }))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_blob_removed_while_it_is_fetched_is_gone_and_its_bitmap_does_not_come_back() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let store = open(&folder);
    let old = begin(&store, &sample);
    fill(&old, &sample, 0..3);
    store.remove(&sample.name.sha256).unwrap();
    assert!(matches!(old.write_piece(3, sample.piece(3)), Err(SinkError::Io(_))));
    let new = begin(&store, &sample);
    drop(old);
    assert_eq!(held(&new), Vec::<u32>::new());
    assert!(!sample.file(folder.path(), ".have").exists());
}

#[test]
fn what_a_crash_left_is_cleared_and_foreign_files_are_left_alone() {
    let folder = TempDir::new().unwrap();
    let sample = sample(PIECE + 1);
    open(&folder);
    for suffix in [".put", ".have.7.new", ".hashes.0.new", ".have", ".part"] {
        std::fs::write(sample.file(folder.path(), suffix), b"left over").unwrap();
    }
    std::fs::write(folder.path().join("README"), b"mine").unwrap();
    std::fs::write(folder.path().join(format!("{}.orig", sample.name.sha256.hex())), b"mine").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", sample.file(folder.path(), "")).unwrap();
    let store = open(&folder);
    assert!(store.list().unwrap().is_empty());
    let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_link_under_the_name_of_a_partial_is_not_followed() {
    let folder = TempDir::new().unwrap();
    let sample = sample(PIECE + 1);
    let store = open(&folder);
    let outside = folder.path().join("outside");
    std::fs::write(&outside, b"precious").unwrap();
    std::os::unix::fs::symlink(&outside, sample.file(folder.path(), ".part")).unwrap();
    assert!(matches!(store.download(sample.name), Err(DownloadError::Io(..))));
    assert_eq!(std::fs::read(&outside).unwrap(), b"precious");
}

#[test]
fn k6_files_in_the_store_are_named_by_digest_whatever_the_artifact_is_called() {
    use groundswell_core::text::ArtifactName;
    let long = "a".repeat(300);
    for name in ["../x", "a/b", ".", "..", "", "a\0b", &long] {
        assert!(name.parse::<ArtifactName>().is_err(), "{name:?} is refused where documents are read");
    }
    // Two that differ only in case are two blobs, or one if their bytes are the same.
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    store.put_bytes(b"Tool").unwrap();
    store.put_bytes(b"tool").unwrap();
    for found in std::fs::read_dir(folder.path()).unwrap() {
        let name = found.unwrap().file_name().into_string().unwrap();
        let (stem, _) = name.split_once('.').unwrap_or((&name, ""));
        assert!(stem.parse::<Hex32>().is_ok(), "{name}");
    }
}

#[test]
fn the_bitmap_never_claims_a_piece_that_is_not_in_the_data() {
    let folder = TempDir::new().unwrap();
    let sample = sample(300 * PIECE);
    let layout = sample.list.layout();
    let partial = begin(&open(&folder), &sample);
    fill(&partial, &sample, 0..layout.count() - 1);
    kill(partial);
    let have = std::fs::read(sample.file(folder.path(), ".have")).unwrap();
    let claimed = PieceSet::from_bytes(layout, &have[1..have.len() - 32]).unwrap();
    let data = std::fs::read(sample.file(folder.path(), ".part")).unwrap();
    assert!(claimed.held() > 0, "a flush was due");
    for piece in claimed.iter() {
        let range = layout.range(piece).unwrap();
        let bytes = &data[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
        assert_eq!(sample.list.verify_piece(piece, bytes), Ok(()));
    }
}

#[test]
fn two_peers_that_bring_the_hash_list_at_once_do_not_fail_the_download() {
    let sample = sample(3 * PIECE);
    for _ in 0..50 {
        let folder = TempDir::new().unwrap();
        let store = open(&folder);
        let partial = begin(&store, &sample);
        std::thread::scope(|scope| {
            let keepers: Vec<_> = (0..4).map(|_| scope.spawn(|| partial.keep_hash_list(&sample.list))).collect();
            for keeper in keepers {
                keeper.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn what_is_put_takes_room_beside_a_download_of_the_same_blob() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let store = BlobStore::open(Settings { quota_bytes: 6 * 65_536, ..settings(folder.path()) }).unwrap();
    let _download = begin(&store, &sample);
    let refused = store.put_bytes(&sample.bytes);
    assert!(matches!(refused, Err(PutError::Room(DownloadError::Quota { left_bytes: 131_072, .. }))), "{refused:?}");
}

#[test]
fn a_download_that_a_put_overtakes_ends_well_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let store = open(&folder);
    let download = begin(&store, &sample);
    fill(&download, &sample, 0..2);
    store.put_bytes(&sample.bytes).unwrap();
    download.write_piece(2, sample.piece(2)).unwrap();
    download.finish().unwrap();
    drop(download);
    assert!(matches!(store.download(sample.name).unwrap(), Begun::Whole));
    for suffix in [".part", ".have", ".put"] {
        assert!(!sample.file(folder.path(), suffix).exists(), "{suffix}");
    }
    // A crash may leave it all the same.
    std::fs::write(sample.file(folder.path(), ".part"), &sample.bytes[..PIECE]).unwrap();
    drop(store);
    assert!(open(&folder).holds(&sample.name.sha256));
    assert!(!sample.file(folder.path(), ".part").exists());
}

#[test]
fn what_nobody_puts_any_more_gives_way_to_a_download_of_the_same_blob() {
    let folder = TempDir::new().unwrap();
    let sample = sample(4 * PIECE);
    let store = BlobStore::open(Settings { quota_bytes: 6 * 65_536, ..settings(folder.path()) }).unwrap();
    let mut put = store.put(sample.name.sha256, sample.name.size_bytes).unwrap();
    put.write(&sample.bytes[..3 * PIECE]).unwrap();
    drop(put);
    assert_eq!(store.put_bytes_here(&sample.name.sha256), 3 * 65_536);
    let download = begin(&store, &sample);
    fill(&download, &sample, 0..4);
    download.finish().unwrap();
    assert_eq!(store.put_bytes_here(&sample.name.sha256), 0);
}

#[test]
fn a_file_that_got_its_name_and_no_more_before_the_disk_failed_is_not_fetched_again() {
    let folder = TempDir::new().unwrap();
    let sample = sample(5 * PIECE + 1);
    let store = open(&folder);
    let partial = begin(&store, &sample);
    fill(&partial, &sample, 0..6);
    drop(partial);
    // The folder could not be flushed after this.
    std::fs::rename(sample.file(folder.path(), ".part"), sample.file(folder.path(), "")).unwrap();
    let again = begin(&store, &sample);
    assert!(again.held().is_full(), "{:?}", held(&again));
    again.finish().unwrap();
    assert!(store.open_verified(&sample.name.sha256).is_ok());
    // What only has the name and the length is found out, piece by piece.
    let other = TempDir::new().unwrap();
    let store = open(&other);
    let partial = begin(&store, &sample);
    fill(&partial, &sample, [1].into_iter());
    drop(partial);
    std::fs::remove_file(sample.file(other.path(), ".part")).unwrap();
    std::fs::remove_file(sample.file(other.path(), ".have")).unwrap();
    let mut foreign = sample.bytes.clone();
    foreign[2 * PIECE] ^= 1;
    std::fs::write(sample.file(other.path(), ""), foreign).unwrap();
    assert_eq!(held(&begin(&store, &sample)), [0, 1, 3, 4, 5]);
}
