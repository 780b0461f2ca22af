//! The store keeps what it said it keeps, and says so when it cannot.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use groundswell_agent::install::forks;
use groundswell_agent::store::{Store, StoreError};

const SECRET: [u8; 32] = [7; 32];

fn put(key: &str, value: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    (key.as_bytes().to_vec(), Some(value.to_vec()))
}

fn loaded(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut values = store.load().unwrap();
    values.sort();
    values
}

#[test]
fn what_was_committed_is_there_after_the_store_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let big = vec![3; 300_000];
    {
        let store = Store::create(&path, &SECRET).unwrap();
        store.commit(&[put("a", b"1"), put("ab", &big), put("empty", b"")]).unwrap();
        store.commit(&[put("a", b"2"), put("gone", &big)]).unwrap();
        store.commit(&[(b"gone".to_vec(), None)]).unwrap();
    }
    let store = Store::open(&path).unwrap();
    assert_eq!(store.identity().unwrap(), SECRET);
    let expected = [(b"a".to_vec(), b"2".to_vec()), (b"ab".to_vec(), big), (b"empty".to_vec(), Vec::new())];
    assert_eq!(loaded(&store), expected);
}

#[test]
fn a_value_that_shrinks_leaves_nothing_of_its_longer_self() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = Store::create(folder.path(), &SECRET).unwrap();
        store.commit(&[put("a", &[1; 50_000])]).unwrap();
    }
    {
        let store = Store::open(folder.path()).unwrap();
        store.commit(&[put("a", &[2; 9_000]), put("a", &[2; 5])]).unwrap();
    }
    assert_eq!(loaded(&Store::open(folder.path()).unwrap()), [(b"a".to_vec(), vec![2; 5])]);
}

#[test]
fn large_values_stay_inside_the_file_that_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path(), &SECRET).unwrap();
    for round in 0..8u8 {
        let batch: Vec<_> = (0..40).map(|key| put(&format!("document/{key}"), &vec![round; 100_000])).collect();
        store.commit(&batch).unwrap();
    }
    let outside = std::fs::read_dir(folder.path().join("blobs")).unwrap().count();
    assert_eq!(outside, 0, "sled moved pages into files that it never syncs");
}

#[test]
fn a_missing_store_is_never_made_by_opening_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    assert!(matches!(Store::open(&path), Err(StoreError::Missing(_))));
    assert!(!path.exists());
}

#[test]
fn a_second_identity_is_never_made_over_the_first() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::create(folder.path(), &SECRET).unwrap());
    assert!(matches!(Store::create(folder.path(), &SECRET), Err(StoreError::Exists(_))));
}

#[test]
fn a_store_in_use_names_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let _open = Store::create(folder.path(), &SECRET).unwrap();
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked(_)), "{error}");
    assert!(error.to_string().contains(&folder.path().display().to_string()));
}

/// A child between its fork and its exec holds the lock of a store that its parent has dropped already.
#[test]
fn a_store_that_is_just_being_let_go_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let open = Store::create(&path, &SECRET).unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(open);
    });
    assert_eq!(Store::open(&path).unwrap().identity().unwrap(), SECRET);
    holder.join().unwrap();
}

/// A store with enough in it that damage anywhere hits something.
fn filled(path: &Path) {
    let store = Store::create(path, &SECRET).unwrap();
    for number in 0..200u32 {
        store.commit(&[put(&format!("record/{number}"), &[number.to_le_bytes()[0]; 3_000])]).unwrap();
    }
}

#[test]
fn an_emptied_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    std::fs::write(folder.path().join("db"), b"").unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("snap") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let error = Store::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn a_truncated_or_overwritten_database_never_reads_as_an_older_one() {
    let whole = tempfile::tempdir().unwrap();
    filled(whole.path());
    let length = std::fs::metadata(whole.path().join("db")).unwrap().len();
    let bytes = std::fs::read(whole.path().join("db")).unwrap();
    let before = loaded(&Store::open(whole.path()).unwrap());
    for tenth in 1..10 {
        for overwrite in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("blobs")).unwrap();
            for name in ["conf", "witness"] {
                std::fs::copy(whole.path().join(name), folder.path().join(name)).unwrap();
            }
            let at = usize::try_from(length * tenth / 10).unwrap();
            let mut damaged = bytes.clone();
            if overwrite {
                damaged[at..at + 64].fill(0xa5)
            } else {
                damaged.truncate(at)
            }
            std::fs::write(folder.path().join("db"), damaged).unwrap();
            match Store::open(folder.path()) {
                // The damage hit free space.
                Ok(store) => assert_eq!(loaded(&store), before, "{tenth} {overwrite}"),
                Err(StoreError::Damaged { .. } | StoreError::SetBack { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_copy_put_back_over_a_newer_store_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::create(folder.path(), &SECRET).unwrap());
    let old = std::fs::read(folder.path().join("db")).unwrap();
    {
        let store = Store::open(folder.path()).unwrap();
        (0..3u8).for_each(|number| store.commit(&[put("a", &[number])]).unwrap());
    }
    std::fs::write(folder.path().join("db"), old).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("snap") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    assert!(matches!(Store::open(folder.path()), Err(StoreError::SetBack { lost: 3, .. })));
}

/// Not a test of its own: the process that the next test kills.
#[test]
#[ignore = "run by what_was_committed_survives_kill_9 as a child process"]
fn child_that_commits_for_ever() {
    let Some(folder) = std::env::var_os("GROUNDSWELL_STORE_UNDER_TEST") else { return };
    let store = Store::create(Path::new(&folder), &SECRET).unwrap();
    for number in 0u64.. {
        store.commit(&[put("number", &number.to_be_bytes())]).unwrap();
        println!("committed {number}");
    }
}

/// Not a test of its own: the process that the next test traces.
#[test]
#[ignore = "run by every_commit_syncs_the_database_s_own_file as a child process"]
fn child_that_commits_ten_times() {
    let Some(folder) = std::env::var_os("GROUNDSWELL_STORE_UNDER_TEST") else { return };
    let store = Store::create(Path::new(&folder), &SECRET).unwrap();
    (0..10u8).for_each(|number| store.commit(&[put("number", &[number])]).unwrap());
}

#[test]
fn every_commit_syncs_the_database_s_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-y", "-e", "trace=fdatasync"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "store::child_that_commits_ten_times", "--ignored"])
        .env("GROUNDSWELL_STORE_UNDER_TEST", folder.path().join("store"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let traced = forks::starting(|| strace.spawn()).and_then(Child::wait_with_output);
    // Not everywhere is there a tracer, or the right to trace.
    let Ok(traced) = traced else { return };
    let text = String::from_utf8_lossy(&traced.stderr);
    if text.contains("ptrace") {
        return;
    }
    let syncs = text.lines().filter(|line| line.contains("fdatasync(") && line.contains("/db>")).count();
    assert!(syncs >= 10, "{syncs} of 10 commits were synced:\n{text}");
}

#[test]
fn what_was_committed_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "store::child_that_commits_for_ever", "--ignored", "--nocapture"])
        .env("GROUNDSWELL_STORE_UNDER_TEST", &path)
        .stdout(Stdio::piped());
    let mut child = forks::starting(|| child.spawn()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let number = |line: &String| line.split_once("committed ").and_then(|(_, number)| number.parse::<u64>().ok());
    lines.by_ref().filter_map(|line| number(&line)).find(|seen| *seen >= 100).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let said = lines.filter_map(|line| number(&line)).last().unwrap_or(100);
    let kept = loaded(&Store::open(&path).unwrap());
    let kept = u64::from_be_bytes(kept[0].1.as_slice().try_into().unwrap());
    assert!(kept >= said, "said {said}, kept {kept}");
}
