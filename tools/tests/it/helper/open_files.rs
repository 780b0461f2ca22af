//! What is handed over in the place of the artifact: no file, another kind of file, other bytes, or a file that changes
//! while it is copied.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Seek as _, SeekFrom, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use groundswell_agent::helper::wire::{Header, Kind, Order, Outcome, Why, encode_order};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, openat};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::bench::{Bench, Client, appears, outcome, refused};
use super::world::{Papers, product, program};

/// A helper that has seen the right papers, and a connection to it.
async fn shown() -> (Bench, Papers, Client) {
    let bench = Bench::running();
    let papers = bench.world.papers(1);
    let mut client = bench.client().await;
    for document in bench.world.published(&papers) {
        client.document(&document).await;
    }
    (bench, papers, client)
}

/// Hands this over; it must be refused before it is read.
async fn refuses_file(hand: impl FnOnce(&Bench) -> Option<File>, says: &str) {
    let (bench, papers, mut client) = shown().await;
    let file = hand(&bench);
    refused(&client.stage(papers.id(), file.as_ref()).await, Why::File, says);
    assert!(bench.holds_nothing());
}

/// Hands over a file with this content; it must not be staged.
async fn fails_to_stage(hand: impl FnOnce(&Bench) -> File, says: &str) {
    let (bench, papers, mut client) = shown().await;
    let file = hand(&bench);
    let reply = client.stage(papers.id(), Some(&file)).await;
    match outcome(&reply) {
        Outcome::StageFailed { disk_full: false, reason } => assert!(reason.contains(says), "{}", reason.as_str()),
        outcome => panic!("{outcome:?}"),
    }
    assert!(bench.holds_nothing());
}

fn open(bench: &Bench, name: &str, flags: OFlags) -> File {
    File::from(openat(CWD, bench.path(name), flags | OFlags::CLOEXEC, Mode::empty()).unwrap())
}

#[tokio::test]
async fn no_file_at_all() {
    refuses_file(|_| None, "no open file").await;
}

#[tokio::test]
async fn a_pipe_with_a_name() {
    let pipe = |bench: &Bench| {
        mkfifoat(CWD, bench.path("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        Some(open(bench, "pipe", OFlags::RDWR))
    };
    refuses_file(pipe, "not a regular file").await;
}

#[tokio::test]
async fn a_folder() {
    refuses_file(|bench| Some(open(bench, "", OFlags::RDONLY | OFlags::DIRECTORY)), "not a regular file").await;
}

#[tokio::test]
async fn a_device_without_an_end() {
    refuses_file(|_| Some(File::open("/dev/zero").unwrap()), "not a regular file").await;
}

#[tokio::test]
async fn a_socket() {
    let socket = |_: &Bench| {
        let (one, _) = StdStream::pair().unwrap();
        Some(File::from(OwnedFd::from(one)))
    };
    refuses_file(socket, "not a regular file").await;
}

#[tokio::test]
async fn a_symlink_that_was_opened_itself() {
    let link = |bench: &Bench| {
        std::os::unix::fs::symlink("/etc/passwd", bench.path("link")).unwrap();
        Some(open(bench, "link", OFlags::PATH | OFlags::NOFOLLOW))
    };
    refuses_file(link, "not a regular file").await;
}

#[tokio::test]
async fn a_file_that_is_longer() {
    let longer = |bench: &Bench| Some(bench.file("longer", &[program(1), b"more".to_vec()].concat()));
    refuses_file(longer, "bytes instead of").await;
}

#[tokio::test]
async fn a_file_that_is_shorter() {
    refuses_file(|bench| Some(bench.file("shorter", &program(1)[1..])), "bytes instead of").await;
}

#[tokio::test]
async fn an_empty_file() {
    refuses_file(|bench| Some(bench.file("empty", b"")), "0 bytes instead of").await;
}

#[tokio::test]
async fn other_bytes_of_the_same_length() {
    fails_to_stage(|bench| bench.file("other", &program(9)), "digest").await;
}

#[tokio::test]
async fn a_file_that_may_not_be_read() {
    // Named by its path alone: looking at it is allowed, reading is not. Nobody opens it again with more rights.
    let by_path = |bench: &Bench| {
        fs::write(bench.path("secret"), program(1)).unwrap();
        open(bench, "secret", OFlags::PATH)
    };
    fails_to_stage(by_path, "cannot").await;
}

#[tokio::test]
async fn a_file_that_is_open_for_writing_only() {
    let written = |bench: &Bench| {
        fs::write(bench.path("written"), program(1)).unwrap();
        OpenOptions::new().write(true).open(bench.path("written")).unwrap()
    };
    fails_to_stage(written, "cannot").await;
}

#[tokio::test]
async fn a_place_in_the_file_that_was_moved_to_its_end() {
    let (bench, papers, mut client) = shown().await;
    let mut file = bench.file("artifact", &program(1));
    file.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(outcome(&client.stage(papers.id(), Some(&file)).await), &Outcome::Staged, "it is read from its beginning");
}

/// Stages a file that `change`s after it was looked at and before it is copied: the hook in between waits for that.
async fn changed_in_between(change: impl FnOnce(&Bench)) -> (Bench, Outcome) {
    let mut bench = Bench::prepare("", "");
    let hook = "[product.bcd.hooks]\nbefore-stage = [\"/bin/sh\", \"-c\", \"touch HOME/seen; until test -e HOME/go; do sleep 0.01; done\"]";
    let hook = hook.replace("HOME", &bench.home());
    bench.append(&hook);
    bench.start();
    let papers = bench.world.papers(1);
    let mut client = bench.client().await;
    for document in bench.world.published(&papers) {
        client.document(&document).await;
    }
    let file = bench.file("artifact", &program(1));
    let (seen, go) = (bench.path("seen"), bench.path("go"));
    let asked = client.stage(papers.id(), Some(&file));
    let swapped = async {
        appears(&seen).await;
        change(&bench);
        fs::write(go, "").unwrap();
    };
    let (reply, ()) = tokio::join!(asked, swapped);
    let outcome = outcome(&reply).clone();
    (bench, outcome)
}

#[tokio::test]
async fn a_file_whose_bytes_change_before_it_is_copied() {
    let (bench, outcome) = changed_in_between(|bench| fs::write(bench.path("artifact"), program(9)).unwrap()).await;
    assert!(matches!(&outcome, Outcome::StageFailed { reason, .. } if reason.contains("digest")), "{outcome:?}");
    assert!(bench.holds_nothing());
}

#[tokio::test]
async fn a_file_that_is_cut_off_before_it_is_copied() {
    let cut = |bench: &Bench| OpenOptions::new().write(true).open(bench.path("artifact")).unwrap().set_len(3).unwrap();
    let (bench, outcome) = changed_in_between(cut).await;
    assert!(matches!(&outcome, Outcome::StageFailed { reason, .. } if reason.contains("3 bytes instead of")), "{outcome:?}");
    assert!(bench.holds_nothing());
}

#[tokio::test]
async fn a_file_that_grows_before_it_is_copied() {
    let grow = |bench: &Bench| {
        let mut file = OpenOptions::new().append(true).open(bench.path("artifact")).unwrap();
        file.write_all(&[b'x'; 1 << 20]).unwrap();
    };
    let (bench, outcome) = changed_in_between(grow).await;
    assert!(matches!(&outcome, Outcome::StageFailed { reason, .. } if reason.contains("bytes instead of")), "{outcome:?}");
    assert!(bench.holds_nothing());
}

#[tokio::test]
async fn another_file_under_the_name_of_the_one_that_was_handed_over() {
    let swap = |bench: &Bench| {
        fs::write(bench.path("evil"), program(9)).unwrap();
        fs::rename(bench.path("evil"), bench.path("artifact")).unwrap();
    };
    let (_bench, outcome) = changed_in_between(swap).await;
    assert_eq!(outcome, Outcome::Staged, "what was handed over is the open file, whatever its name leads to");
}

#[tokio::test]
async fn a_file_that_changes_all_the_time_while_it_is_copied() {
    use std::os::unix::fs::FileExt as _;
    let bench = Bench::running();
    let content = vec![7; 4 << 20];
    let mut papers = bench.world.papers(1);
    papers.release = bench.world.release(1, &content);
    let papers = papers.tied();
    let mut client = bench.client().await;
    for document in bench.world.published(&papers) {
        client.document(&document).await;
    }
    let file = bench.file("artifact", &content);
    let written = OpenOptions::new().write(true).open(bench.path("artifact")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            for place in (0..4 << 20).step_by(4_099).cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
                written.write_all_at(&[8], place).unwrap();
                std::thread::yield_now();
                written.write_all_at(&[7], place).unwrap();
            }
        }
    });
    for _ in 0..10 {
        let reply = client.stage(papers.id(), Some(&file)).await;
        match outcome(&reply) {
            // By luck no change was read: then none was kept.
            Outcome::Staged => assert!(fs::read(bench.path("data/products/bcd/slots/a/bcd")).unwrap() == content),
            Outcome::StageFailed { reason, .. } => {
                assert!(reason.contains("digest") && bench.holds_nothing(), "{}", reason.as_str());
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

#[tokio::test]
async fn a_file_that_changes_after_it_was_staged() {
    let (bench, papers, mut client) = shown().await;
    let file = bench.file("artifact", &program(1));
    assert_eq!(outcome(&client.stage(papers.id(), Some(&file)).await), &Outcome::Staged);
    fs::write(bench.path("artifact"), program(9)).unwrap();
    assert_eq!(outcome(&client.activate(papers.id()).await), &Outcome::Activated);
    assert_eq!(bench.current(), Some(program(1)), "only the helper's own copy is ever run");
    assert_eq!(bench.started(), ["release 1"]);
}

#[tokio::test]
async fn a_second_name_for_the_file_that_was_staged() {
    let (bench, papers, mut client) = shown().await;
    let file = bench.file("artifact", &program(1));
    fs::hard_link(bench.path("artifact"), bench.path("second")).unwrap();
    assert_eq!(outcome(&client.stage(papers.id(), Some(&file)).await), &Outcome::Staged);
    fs::write(bench.path("second"), program(9)).unwrap();
    assert_eq!(outcome(&client.activate(papers.id()).await), &Outcome::Activated);
    assert_eq!(bench.current(), Some(program(1)), "the copy shares nothing with it");
    let staged = fs::metadata(bench.path("data/products/bcd/slots/a/bcd")).unwrap();
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!((staged.nlink(), staged.mode() & 0o7777), (1, 0o555));
}

/// Sends a frame with these files beside its first byte.
fn send_with(client: &Client, kind: Kind, body: &[u8], files: &[&File]) {
    let header = Header { kind, length: body.len() }.encode();
    let borrowed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)));
    let slices = [IoSlice::new(&header), IoSlice::new(body)];
    sendmsg(client.stream(), &slices, &mut control, SendFlags::NOSIGNAL).unwrap();
}

#[tokio::test]
async fn two_files_beside_one_order() {
    let (bench, papers, mut client) = shown().await;
    let (one, two) = (bench.file("one", &program(1)), bench.file("two", &program(9)));
    let order = encode_order(&Order::Stage { product: product(), release: papers.id() });
    send_with(&client, Kind::Order, &order, &[&two, &one]);
    refused(&client.reply().await.unwrap(), Why::Frame, "open file");
    assert!(client.reply().await.is_none(), "the connection ends");
    assert!(bench.holds_nothing());
}

#[tokio::test]
async fn a_file_beside_a_document() {
    let (bench, papers, mut client) = shown().await;
    let file = bench.file("one", &program(1));
    send_with(&client, Kind::Document, &bench.world.sign_release(&papers.release), &[&file]);
    refused(&client.reply().await.unwrap(), Why::Frame, "open file");
}

#[tokio::test]
async fn a_file_beside_an_order_that_takes_none() {
    let (bench, papers, mut client) = shown().await;
    let file = bench.file("one", &program(1));
    let order = encode_order(&Order::Confirm { product: product(), release: papers.id() });
    send_with(&client, Kind::Order, &order, &[&file]);
    refused(&client.reply().await.unwrap(), Why::Frame, "open file");
}
