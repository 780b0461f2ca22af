//! Room in the blob store: what gives way to what, and puts that are interrupted and go on.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use groundswell_agent::blobs::{Begun, BlobStore, DownloadError, PutError, Settings};
use groundswell_core::blob::{BlobName, HashListBuilder, Layout};
use groundswell_core::digest::Digest;
use groundswell_net::blobs::PieceSink as _;
use tempfile::TempDir;

const PIECE: usize = 65_536;

fn bytes(number: u8, pieces: usize) -> Vec<u8> {
    vec![number; pieces * PIECE]
}

fn name(bytes: &[u8]) -> BlobName {
    let layout = Layout::of(u64::try_from(bytes.len()).unwrap()).unwrap();
    let mut builder = HashListBuilder::new(layout);
    builder.update(bytes);
    BlobName { sha256: Digest::of(bytes), size_bytes: layout.size_bytes(), blake3: builder.finish().unwrap().root() }
}

/// With room for ten pieces.
fn open(folder: &TempDir) -> BlobStore {
    let settings = Settings { folder: folder.path().into(), quota_bytes: 10 * 65_536, reserve_bytes: 0 };
    BlobStore::open(settings).unwrap()
}

/// The same with these blobs in it from an earlier run, and only what the test names needed.
fn holding(folder: &TempDir, blobs: &[&[u8]]) -> (BlobStore, Arc<Mutex<BTreeSet<Digest>>>) {
    let before = open(folder);
    for blob in blobs {
        before.put_bytes(blob).unwrap();
    }
    let (store, needed) = (open(folder), Arc::<Mutex<BTreeSet<Digest>>>::default());
    let asked = Arc::clone(&needed);
    store.spare_only(Arc::new(move || asked.lock().unwrap().clone()));
    (store, needed)
}

fn here(store: &BlobStore, blobs: &[&[u8]]) -> Vec<bool> {
    blobs.iter().map(|blob| store.holds(&Digest::of(blob))).collect()
}

#[test]
fn what_rollouts_need_stays_and_of_the_rest_what_was_used_longest_ago_gives_way() {
    let folder = TempDir::new().unwrap();
    let [one, two, three] = [1, 2, 3].map(|number| bytes(number, 3));
    let (store, needed) = holding(&folder, &[&one, &two, &three]);
    needed.lock().unwrap().insert(Digest::of(&one));
    store.open_blob(&Digest::of(&two)).unwrap();
    store.put_bytes(&bytes(4, 3)).unwrap();
    assert_eq!(here(&store, &[&one, &two, &three, &bytes(4, 3)]), [true, true, false, true]);
    store.put_bytes(&bytes(5, 3)).unwrap();
    assert_eq!(here(&store, &[&one, &two, &bytes(4, 3), &bytes(5, 3)]), [true, false, true, true], "what just came stays");
    let error = store.put_bytes(&bytes(6, 3)).unwrap_err();
    assert!(matches!(error, PutError::Room(DownloadError::Quota { left_bytes: 65_536, .. })), "{error}");
    assert!(error.to_string().contains("raise limits.blobs"), "{error}");
}

#[test]
fn nothing_gives_way_in_vain_nor_before_anybody_says_what_is_needed() {
    let folder = TempDir::new().unwrap();
    let [one, two] = [1, 2].map(|number| bytes(number, 3));
    let (store, _) = holding(&folder, &[&one, &two]);
    assert!(matches!(store.download(name(&bytes(3, 11))), Err(DownloadError::Quota { .. })), "it never fits");
    assert_eq!(here(&store, &[&one, &two]), [true, true]);
    drop(store);
    let unaware = open(&folder);
    assert!(matches!(unaware.download(name(&bytes(3, 5))), Err(DownloadError::Quota { left_bytes: 262_144, .. })));
    assert_eq!(here(&unaware, &[&one, &two]), [true, true]);
}

#[test]
fn downloads_under_way_stay_and_stopped_ones_that_nobody_needs_go_first() {
    let folder = TempDir::new().unwrap();
    let [whole, stopped, going] = [1, 2, 3].map(|number| bytes(number, 3));
    let (store, needed) = holding(&folder, &[&whole]);
    let begin = |blob: &[u8]| match store.download(name(blob)).unwrap() {
        Begun::Partial(partial) => {
            let mut builder = HashListBuilder::new(Layout::of(blob.len() as u64).unwrap());
            builder.update(blob);
            partial.keep_hash_list(&builder.finish().unwrap()).unwrap();
            partial.write_piece(0, &blob[..PIECE]).unwrap();
            partial
        }
        Begun::Whole => panic!("it is not here yet"),
    };
    drop(begin(&stopped));
    let going_on = begin(&going);
    drop(begin(&bytes(4, 2)));
    let left: BTreeSet<Digest> = store.list().unwrap().into_iter().map(|held| held.name.sha256).collect();
    let of = |blobs: [&[u8]; 3]| blobs.map(Digest::of).into();
    assert_eq!(left, of([&whole, &going, &bytes(4, 2)]), "the stopped one made room");
    needed.lock().unwrap().insert(Digest::of(&bytes(4, 2)));
    drop(begin(&bytes(5, 5)));
    let left: BTreeSet<Digest> = store.list().unwrap().into_iter().map(|held| held.name.sha256).collect();
    assert_eq!(
        left,
        of([&going, &bytes(4, 2), &bytes(5, 5)]),
        "a stopped one that is needed stays, a whole one that is not goes"
    );
    assert_eq!(going_on.held().held(), 1);
    going_on.write_piece(1, &going[PIECE..2 * PIECE]).unwrap();
}

#[test]
fn a_put_that_was_interrupted_goes_on_where_it_was_until_the_agent_ends() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let blob = bytes(1, 4);
    let sha256 = Digest::of(&blob);
    let mut first = store.put(sha256, 4 * 65_536).unwrap();
    first.write(&blob[..100_000]).unwrap();
    assert!(matches!(store.put_from(sha256, 4 * 65_536, 100_000), Err(PutError::Underway(_))));
    drop(first);
    assert_eq!(store.put_bytes_here(&sha256), 100_000);
    for wrong in [1, 99_999, 100_001, u64::MAX] {
        let outcome = store.put_from(sha256, 4 * 65_536, wrong);
        assert!(matches!(outcome, Err(PutError::Offset { here: 100_000, .. })), "{wrong}");
    }
    let mut second = store.put_from(sha256, 4 * 65_536, 100_000).unwrap();
    second.write(&blob[100_000..]).unwrap();
    assert_eq!(second.commit().unwrap(), name(&blob));
    assert!(store.open_verified(&sha256).is_ok() && store.put_bytes_here(&sha256) == 0);

    let other = Digest::of(&bytes(2, 4));
    store.put(other, 4 * 65_536).unwrap().write(&[2; 1000]).unwrap();
    assert_eq!(store.put_bytes_here(&other), 1000);
    assert_eq!(open(&folder).put_bytes_here(&other), 0);
}

#[test]
fn what_an_interrupted_put_left_of_something_else_is_found_out_and_removed() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let blob = bytes(1, 2);
    let sha256 = Digest::of(&blob);
    store.put(sha256, 2 * 65_536).unwrap().write(&[9; 1000]).unwrap();
    let mut again = store.put_from(sha256, 2 * 65_536, 1000).unwrap();
    again.write(&blob[1000..]).unwrap();
    assert!(matches!(again.commit(), Err(PutError::Digest { .. })));
    assert_eq!(store.put_bytes_here(&sha256), 0, "it is not gone on from again");
    store.put(sha256, 2 * 65_536).unwrap().write(&[9; 1000]).unwrap();
    store.put_bytes(&blob).expect("a put from the beginning overwrites what was left");
    assert_eq!(files_of(folder.path()), 2);
}

#[test]
fn what_an_interrupted_put_left_counts_and_makes_room() {
    let folder = TempDir::new().unwrap();
    let (store, _) = holding(&folder, &[]);
    let sha256 = Digest::of(&bytes(1, 8));
    store.put(sha256, 8 * 65_536).unwrap().write(&bytes(1, 6)).unwrap();
    store.put_bytes(&bytes(2, 4)).unwrap();
    assert_eq!(store.put_bytes_here(&sha256), 6 * 65_536, "there is room for both");
    store.put_bytes(&bytes(3, 3)).unwrap();
    assert_eq!(store.put_bytes_here(&sha256), 0);
}

#[test]
fn puts_at_the_same_time_keep_the_quota_together_though_nothing_of_them_is_written_yet() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let (one, two) = (bytes(1, 6), bytes(2, 6));
    let mut first = store.put(Digest::of(&one), 6 * 65_536).unwrap();
    let second = store.put(Digest::of(&two), 6 * 65_536);
    assert!(matches!(second, Err(PutError::Room(DownloadError::Quota { left_bytes: 262_144, .. }))), "{second:?}");
    let download = store.download(name(&two));
    assert!(matches!(download, Err(DownloadError::Quota { .. })), "{download:?}");
    // What is written is not counted twice, and what ends is not counted any more.
    first.write(&one[..3 * PIECE]).unwrap();
    store.put(Digest::of(&bytes(3, 4)), 4 * 65_536).unwrap();
    drop(first);
    assert!(store.put(Digest::of(&two), 6 * 65_536).is_ok());
}

fn files_of(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn where_a_slot_finds_no_room_for_its_copy_blobs_that_nobody_needs_give_way() {
    let folder = TempDir::new().unwrap();
    let [staged, old, older] = [1, 2, 3].map(|number| bytes(number, 2));
    let (_, needed) = holding(&folder, &[&staged, &older, &old]);
    let full = |reserve_bytes| {
        let settings = Settings { folder: folder.path().into(), quota_bytes: u64::MAX, reserve_bytes };
        let store = BlobStore::open(settings).unwrap();
        let asked = Arc::clone(&needed);
        store.spare_only(Arc::new(move || asked.lock().unwrap().clone()));
        store.open_blob(&Digest::of(&old)).unwrap();
        store
    };
    let (sha256, size) = (Digest::of(&staged), 2 * 65_536);
    let roomy = full(0);
    roomy.make_free(&sha256, size).unwrap();
    assert_eq!(here(&roomy, &[&staged, &old, &older]), [true; 3], "there is room");
    drop(roomy);
    let store = full(u64::MAX);
    store.make_free(&sha256, 3 * size).unwrap();
    assert_eq!(here(&store, &[&staged, &old, &older]), [true; 3], "nothing goes in vain");
    store.make_free(&sha256, size).unwrap();
    assert_eq!(here(&store, &[&staged, &old, &older]), [true, true, false], "what was used longest ago, and not what is staged");
    needed.lock().unwrap().insert(Digest::of(&old));
    store.make_free(&sha256, size).unwrap();
    assert_eq!(here(&store, &[&staged, &old]), [true; 2], "what rollouts need stays");
}
