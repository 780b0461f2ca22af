//! Frames from a hostile member: refused by name, never a panic, and bounded in what they make the node do or keep.

use super::spread_mesh::{Mesh, Papers, node, signed, status};
use groundswell_core::limits::FRAME_BYTES;
use groundswell_core::record::ledger::Ledger;
use groundswell_core::spread::{FrameError, Heard, Spread};
use groundswell_core::time::Time;
use proptest::prelude::*;

/// A node with some records, one good neighbour, and the attacker connected.
struct Target {
    spread: Spread,
    ledger: Ledger,
    papers: Papers,
    now: Time,
}

const ATTACKER: u64 = 1;

impl Target {
    fn new() -> Self {
        let mut spread = Spread::new(node(0), [1; 32]);
        spread.peer_up(Time(0), node(ATTACKER));
        spread.peer_up(Time(0), node(2));
        let mut ledger = Ledger::new();
        (10..60).for_each(|number| _ = ledger.merge(signed(node(number), 3, status("known"))));
        let mut papers = Papers::default();
        (0..20_u8).for_each(|number| papers.offer(vec![number, 1]));
        Self { spread, ledger, papers, now: Time(0) }
    }

    fn hears(&mut self, frame: &[u8]) -> Result<Vec<Heard>, FrameError> {
        let heard = self.spread.handle(self.now, node(ATTACKER), frame, &self.ledger, &self.papers);
        self.now = self.now.after_ms(10);
        self.spread.wake(self.now, &self.ledger, &self.papers);
        for (_, bytes) in self.spread.take_frames() {
            assert!(bytes.len() <= FRAME_BYTES);
        }
        heard
    }
}

/// Every frame that honest nodes send each other while they exchange records, documents and proofs.
fn honest_frames() -> Vec<Vec<u8>> {
    let mut mesh = Mesh::new(11, 5);
    mesh.ring();
    mesh.record_frames();
    let (one, two) = (mesh.id(0), mesh.id(2));
    (0..30_u8).for_each(|number| mesh.at(one).papers.offer(vec![number, 1]));
    (10..80).for_each(|number| _ = mesh.at(two).ledger.merge(signed(node(number), 9, status("theirs"))));
    mesh.hears(one, signed(node(5_000), 1, status("yes")));
    mesh.hears(two, signed(node(5_000), 1, status("no")));
    mesh.run(3_000);
    for _ in 0..5 {
        mesh.says_something(one);
        mesh.says_something(two);
        mesh.run(1_000);
    }
    mesh.recorded()
}

#[test]
fn frames_that_are_none_are_named() {
    let mut target = Target::new();
    assert_eq!(target.hears(&[]), Err(FrameError::Malformed));
    assert_eq!(target.hears(&[9, 0, 0]), Err(FrameError::Version(9)));
    assert_eq!(target.hears(&[1, 77]), Err(FrameError::Malformed), "no such frame");
    assert_eq!(target.hears(&vec![1; FRAME_BYTES + 1]), Err(FrameError::TooLarge(FRAME_BYTES + 1)));
    // A list of records that says that it has 2^32 − 1 entries, and one of half a million empty ones.
    assert_eq!(target.hears(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), Err(FrameError::Malformed));
    let empty = [&[1_u8, 0, 0, 0, 0x80, 0x80, 0x1e][..], &vec![0; 491_520]].concat();
    assert_eq!(target.hears(&empty), Err(FrameError::TooMany(491_520)));
    assert_eq!(target.hears(&[1, 0, 0, 0, 1, 1, 7]), Err(FrameError::Record));
}

#[test]
fn a_frame_from_a_stranger_is_refused() {
    let mut target = Target::new();
    let frame = honest_frames().pop().unwrap();
    let heard = target.spread.handle(Time(0), node(99), &frame, &target.ledger, &target.papers);
    assert_eq!(heard, Err(FrameError::NotConnected));
}

#[test]
fn frames_cut_anywhere_are_refused() {
    for frame in honest_frames() {
        let mut target = Target::new();
        for keep in (0..frame.len()).step_by(1 + frame.len() / 40) {
            assert!(target.hears(&frame[..keep]).is_err());
        }
        let longer = [frame.as_slice(), &[0]].concat();
        assert!(target.hears(&longer).is_err());
    }
}

#[test]
fn replayed_frames_of_another_conversation_do_no_harm() {
    let mut target = Target::new();
    for frame in honest_frames().iter().cycle().take(2_000) {
        let heard = target.hears(frame).expect("well formed");
        assert!(!heard.contains(&Heard::Synced(node(2))), "only who takes part is in sync");
    }
    assert!(target.spread.next_wakeup().is_some());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut target = Target::new();
        _ = target.hears(&bytes);
        _ = target.hears(&[&[1, bytes.first().copied().unwrap_or(0) % 6], bytes.as_slice()].concat());
    }

    #[test]
    fn changed_frames_never_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..60)) {
        static FRAMES: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(honest_frames);
        let mut target = Target::new();
        for (which, at, byte) in changes {
            let mut frame = FRAMES[which.index(FRAMES.len())].clone();
            let at = at.index(frame.len());
            frame[at] = byte;
            _ = target.hears(&frame);
        }
    }
}
