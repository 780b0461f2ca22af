//! The node's key goes into the store, and is lost with it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use groundswell_agent::identity::{IdentityError, KeyFileError, generate, node_id, open_store, read_key_file, write_key_file};

#[test]
fn the_first_start_moves_the_key_into_the_store_and_later_ones_find_it_there() {
    let folder = tempfile::tempdir().unwrap();
    let (key, store) = (folder.path().join("node.key"), folder.path().join("store"));
    let secret = generate().unwrap();
    write_key_file(&key, &secret).unwrap();
    drop(open_store(&store, &key).unwrap());
    assert!(matches!(read_key_file(&key), Err(KeyFileError::Moved(_))));
    assert_eq!(open_store(&store, &key).unwrap().identity().unwrap(), secret);
}

#[test]
fn a_lost_store_is_a_lost_identity_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (key, store) = (folder.path().join("node.key"), folder.path().join("store"));
    write_key_file(&key, &generate().unwrap()).unwrap();
    drop(open_store(&store, &key).unwrap());
    std::fs::remove_dir_all(&store).unwrap();
    let error = open_store(&store, &key).unwrap_err();
    assert!(matches!(error, IdentityError::Key(KeyFileError::Moved(_))), "{error}");
    assert!(error.to_string().contains("admit the node anew"), "{error}");
}

#[test]
fn another_key_beside_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (key, store) = (folder.path().join("node.key"), folder.path().join("store"));
    write_key_file(&key, &generate().unwrap()).unwrap();
    drop(open_store(&store, &key).unwrap());
    std::fs::remove_file(&key).unwrap();
    let other = generate().unwrap();
    write_key_file(&key, &other).unwrap();
    let error = open_store(&store, &key).unwrap_err();
    assert!(matches!(&error, IdentityError::Differs { in_file, .. } if *in_file == node_id(&other)), "{error}");
    assert_eq!(read_key_file(&key).unwrap(), other, "the other key is left alone");
}

#[test]
fn key_files_that_are_missing_open_to_others_or_something_else_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("node.key");
    assert!(matches!(read_key_file(&key), Err(KeyFileError::Read { .. })));
    write_key_file(&key, &[7; 32]).unwrap();
    assert!(matches!(write_key_file(&key, &[8; 32]), Err(KeyFileError::Exists(_))));
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let error = read_key_file(&key).unwrap_err();
    assert!(matches!(error, KeyFileError::Permissions { mode: 0o640, .. }), "{error}");
    assert!(error.to_string().contains(&key.display().to_string()), "{error}");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, "something else").unwrap();
    assert!(matches!(read_key_file(&key), Err(KeyFileError::Malformed(_))));
}
