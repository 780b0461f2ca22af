//! The power fails at every call to the disk that a helper makes for its memory: the documents that it verified, the floor
//! time, and its products' floors.
//!
//! What it has said it has taken, it has after the cut: no older fleet, roster or generation counts again, and no floor falls.
//! Nor does what a newer fleet document ended: whether the helper would install by it is asked in every cell.
//! And it opens: what it cannot read back keeps everything new out, so that must never come of a cut.

use std::path::PathBuf;
use std::sync::Arc;

use groundswell_agent::agent::platform;
use groundswell_agent::clock;
use groundswell_agent::helper::archive::{Archive, ArchiveError, Pins};
use groundswell_agent::identity;
use groundswell_core::digest::Digest;
use groundswell_core::number::Sequence;
use groundswell_core::time::Timestamp;
use groundswell_core::trust::local::LocalTrust;

use super::Report;
use super::fate::{Fate, Phase};
use super::memory::{Loss, Memory, Syncs, Tree};
use crate::fleet::{Published, World, product};

/// What an agent shows, or what came of an install, in the order of a node's life.
enum Step {
    Shown(Published),
    Confirmed(u64),
    /// A fleet document that takes a key away, and the documents that only this key signed.
    Ended(Published, Vec<Digest>),
}

struct Stage {
    pins: Pins,
    steps: Vec<Step>,
    /// The release that is warranted until its rollout's key is taken away.
    release: Digest,
    rollout: Digest,
    wall: Timestamp,
    syncs: Syncs,
}

/// What the helper has said it has.
#[derive(Default)]
struct Said {
    documents: Vec<Digest>,
    floor: u64,
    floor_time: Timestamp,
}

fn folder() -> PathBuf {
    PathBuf::from("/documents")
}

/// The matrix, on a disk of which some syncs may lie.
pub(crate) fn matrix(syncs: Syncs) -> Report {
    let stage = Stage::new(syncs);
    let mut report = Report::default();
    let fate = Fate::kind(false);
    let (_, ended) = stage.live(&Memory::new(Tree::empty(), fate.clone(), syncs));
    assert!(!ended, "nothing is cut short");
    let calls = fate.calls();
    for (at, phase) in (0..calls).flat_map(|at| Phase::of(at).iter().map(move |phase| (at, *phase))) {
        for loss in Loss::ALL {
            report.cell(&format!("helper {at} {phase:?} {loss:?}"), || {
                let fate = Fate::kind(false);
                fate.set(at, phase);
                let memory = Memory::new(Tree::empty(), fate.clone(), syncs);
                let (said, ended) = stage.live(&memory);
                assert!(ended && fate.has_ended(), "there are fewer calls than were counted");
                stage.judge(&said, memory.tree().after(loss));
            });
        }
    }
    report.lines.push(format!("helper: {calls} calls, {} cells, {} failed", report.cells, report.failures.len()));
    report
}

impl Stage {
    fn new(syncs: Syncs) -> Self {
        let mut world = World::new();
        let renewed = world.rotate(1, Vec::new());
        let secret = identity::generate().expect("randomness");
        let certificate = world.admit("one", &secret, Some("pool"));
        let (roster, named) = world.roster();
        let mut steps = vec![world.fleet.clone(), renewed, roster, certificate];
        let of = |number: u64| {
            let (release, body) = world.release(&format!("{number}.0"), number, format!("binary {number}").as_bytes());
            let rollout = world.rollout(&format!("rollout_{number}"), &release, &body, &named);
            [release, rollout]
        };
        let (one, two) = (of(1), of(2));
        let ended = vec![steps[2].digest, one[1].digest, two[1].digest];
        let (release, rollout) = (two[0].digest, two[1].digest);
        steps.extend(one);
        let mut steps: Vec<Step> = steps.into_iter().map(Step::Shown).collect();
        steps.push(Step::Confirmed(1));
        steps.extend(two.into_iter().map(Step::Shown));
        steps.push(Step::Confirmed(2));
        steps.push(Step::Ended(world.take_rollout_key_away(), ended));
        let pins = Pins {
            fleet: world.fleet.digest,
            node: identity::node_id(&secret),
            trust: LocalTrust::default(),
            products: [product()].into(),
            platform: platform(),
        };
        // Later than anything was signed.
        Self { pins, steps, release, rollout, wall: clock::wall().plus_seconds(2 * 86_400), syncs }
    }

    fn open(&self, memory: &Memory) -> Result<Archive, ArchiveError> {
        Archive::open(self.pins.clone(), Arc::new(memory.clone()), &folder())
    }

    /// Everything from the first start on; what was said to be kept, and whether the power failed meanwhile.
    fn live(&self, memory: &Memory) -> (Said, bool) {
        let mut said = Said::default();
        let Ok(mut archive) = self.open(memory) else { return (said, true) };
        let mut floor = 0;
        for step in &self.steps {
            match step {
                Step::Shown(document) => {
                    if archive.offer(&document.bytes, self.wall).is_err() {
                        return (said, true);
                    }
                    said.documents.push(document.digest);
                    // What was owed before is on disk once anything is taken.
                    said.floor = floor;
                    said.floor_time = archive.shelf().floor_time();
                }
                Step::Confirmed(sequence) => {
                    floor = *sequence;
                    archive.raise_floor(&product(), Sequence::new(*sequence).expect("a number"));
                }
                Step::Ended(fleet, ended) => {
                    if archive.offer(&fleet.bytes, self.wall).is_err() {
                        return (said, true);
                    }
                    said.documents.retain(|digest| !ended.contains(digest));
                    said.documents.push(fleet.digest);
                    said.floor = floor;
                    said.floor_time = archive.shelf().floor_time();
                }
            }
        }
        (said, memory.is_off())
    }

    fn ends(&self, digest: &Digest) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Ended(_, ended) if ended.contains(digest)))
    }

    fn is_warranted(&self, archive: &mut Archive) -> bool {
        let asked = archive.warrant(&product(), &self.release, None, None, Sequence::default(), self.wall);
        asked.expect("the disk takes writes").is_ok()
    }

    /// Under the fleet document that took the key away nothing that it ended is there, and nothing is installed by it.
    fn judge_ended(&self, archive: &mut Archive) -> bool {
        let steps = self.steps.iter();
        let (fleet, ended) = steps
            .filter_map(|step| match step {
                Step::Ended(fleet, ended) => Some((fleet, ended)),
                _ => None,
            })
            .next()
            .expect("a step takes a key away");
        let in_force = archive.shelf().envelope(&fleet.digest).is_some();
        if in_force {
            let there = ended.iter().find(|digest| archive.shelf().envelope(digest).is_some());
            assert_eq!(there, None, "what the fleet document ended is there again");
            assert!(!self.is_warranted(archive), "the helper installs by a rollout of a key that was taken away");
        }
        in_force
    }

    fn judge(&self, said: &Said, tree: Tree) {
        let memory = Memory::new(tree, Fate::kind(false), self.syncs);
        let mut archive = self.open(&memory).expect("it starts");
        for digest in &said.documents {
            let gone = archive.shelf().envelope(digest).is_none();
            assert!(!gone || (self.ends(digest) && self.judge_ended(&mut archive)), "{digest} was taken and is gone");
        }
        if !self.judge_ended(&mut archive) && said.documents.contains(&self.rollout) {
            assert!(self.is_warranted(&mut archive), "what was taken warrants it");
        }
        assert!(archive.shelf().floor_time() >= said.floor_time, "the floor time fell");
        assert!(archive.floor(&product()).get() >= said.floor, "the floor fell");
        // It goes on: shown everything once more, it has everything.
        for step in &self.steps {
            match step {
                Step::Shown(document) => {
                    let refused = archive.offer(&document.bytes, self.wall).is_err();
                    let ended = self.judge_ended(&mut archive);
                    assert!(!refused || ended, "{} is taken", document.digest);
                }
                Step::Confirmed(sequence) => archive.raise_floor(&product(), Sequence::new(*sequence).expect("a number")),
                Step::Ended(fleet, _) => drop(archive.offer(&fleet.bytes, self.wall).expect("it is taken")),
            }
        }
        assert!(self.judge_ended(&mut archive));
        let mut again = self.open(&memory).expect("it starts again");
        assert_eq!(again.floor(&product()).get(), 2);
        assert_eq!(again.shelf().floor_time(), archive.shelf().floor_time());
        assert!(self.judge_ended(&mut again));
        for step in &self.steps {
            if let Step::Shown(document) = step {
                let there = again.shelf().envelope(&document.digest).is_some();
                assert!(there || self.ends(&document.digest), "{} is gone", document.digest);
            }
        }
    }
}
