//! The drawing of the install machine in `docs/INSTALL.md` against the functions that make the lists: no edge is missing,
//! and none is made up.

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::documents::release::Artifact;
use groundswell_core::install::machine::{self, Cause, Plan};
use groundswell_core::install::recovery::{self, Ending};
use groundswell_core::install::{
    Boot, Confirmed, Contents, Counted, Described, Entry, Found, Manner, Mark, Operation, Slot, SlotState, Starts, Transaction,
    Way,
};
use groundswell_core::limits::{RESTARTS_BACK, TRIES_BACK};
use groundswell_core::node::effect::Install;
use groundswell_core::number::Sequence;
use groundswell_core::record::ClaimName;
use groundswell_core::text::{ArtifactName, Reason, Version};

const DOC: &str = include_str!("../../../../docs/INSTALL.md");
const CODE: [&str; 2] = [include_str!("../../src/install/machine.rs"), include_str!("../../src/install/recovery.rs")];
const TRIAL_STARTS: u32 = 3;

type Edges = BTreeSet<(String, String)>;

/// Edges and labels.
fn drawn() -> (Edges, Vec<String>) {
    let drawing = DOC.split("stateDiagram-v2\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the drawing");
    let mut edges = Edges::new();
    let mut labels = Vec::new();
    for line in drawing.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (from, rest) = line.split_once(" --> ").expect("an edge");
        let (to, label) = rest.split_once(": ").expect("an edge with its label");
        edges.insert((from.to_owned(), to.to_owned()));
        labels.push(label.to_owned());
    }
    (edges, labels)
}

fn name(mark: &Mark) -> &'static str {
    match mark {
        Mark::Stage => "Stage",
        Mark::Switch => "Switch",
        Mark::Activate(_) => "Activate",
        Mark::Reboot { .. } => "Reboot",
        Mark::Watch(_) => "Watch",
        Mark::Confirm => "Confirm",
        Mark::Revert { .. } => "Revert",
        Mark::Closed => "Closed",
    }
}

/// Every mark, with each content that decides anything.
fn marks() -> Vec<Mark> {
    let boots = || ["this", "before", ""].map(|boot| Boot(boot.to_owned()));
    let mut marks = vec![Mark::Stage, Mark::Switch, Mark::Confirm, Mark::Closed];
    for starts in [1, TRIAL_STARTS] {
        for boot in boots() {
            let first = Starts { count: starts, boots: starts, ..Starts::first(boot.clone()) };
            for starts in [Starts { stopped: true, ..first.clone() }, first] {
                marks.extend([Mark::Activate(starts.clone()), Mark::Watch(starts)]);
            }
            marks.extend(boots().map(|last| Mark::Reboot { starts, boot: boot.clone(), last }));
        }
    }
    let mut ways = vec![Way::Keep, Way::Start, Way::Restart];
    ways.extend(boots().map(|boot| Way::Next { boot }));
    for missed in [0, RESTARTS_BACK] {
        for unset in [false, true] {
            ways.extend(boots().map(|boot| Way::Restarting { boot, missed, unset }));
        }
    }
    for way in ways {
        for tries in [0, TRIES_BACK - 1, TRIES_BACK] {
            marks.push(Mark::Revert { reason: Reason::lossy("unhealthy"), at_fault: true, way: way.clone(), tries });
        }
    }
    marks
}

fn install(number: u64) -> Install {
    let sha256 = Digest::of(format!("bytes {number}").as_bytes());
    Install {
        release: Digest::of(format!("release {number}").as_bytes()),
        version: Version::new(format!("{number}.0")).unwrap(),
        sequence: Sequence::new(number).unwrap(),
        artifact: Artifact {
            name: ArtifactName::new("bcd").unwrap(),
            platform: None,
            sha256: sha256.hex(),
            size: 1,
            blake3: sha256.hex(),
        },
    }
}

/// What a disk may say whose journal says `mark`.
fn disks(mark: &Mark) -> Vec<Found> {
    let [old, new, newer] = [1, 2, 3].map(|number| Contents::of(&install(number)));
    let described = |contents: &Contents, state| Some(Described { contents: contents.clone(), state });
    let mut disks = Vec::new();
    for first in [false, true] {
        let confirmed = (!first).then(|| Confirmed { slot: Slot::A, contents: old.clone() });
        let (from, to) = (confirmed.as_ref().map(|_| Slot::A), Slot::B);
        let transaction = Transaction { contents: new.clone(), to, from, claim: None };
        for current in [from, Some(to)] {
            let (staged, failed) = (described(&new, SlotState::Staged), described(&new, SlotState::Failed));
            for b in [None, staged, failed, described(&newer, SlotState::Staged)] {
                for entry in [Some(Entry { transaction: transaction.clone(), mark: mark.clone() }), None] {
                    disks.push(Found {
                        entry,
                        current,
                        a: confirmed.as_ref().and_then(|_| described(&old, SlotState::Staged)),
                        b: b.clone(),
                        confirmed: confirmed.clone(),
                        damaged: false,
                        denied: Vec::new(),
                        unread: BTreeSet::new(),
                        boot: Boot("this".to_owned()),
                        origin: None,
                    });
                }
            }
        }
    }
    disks
}

/// Every list that the functions make of `found`.
fn lists(found: &Found, manner: Manner) -> Vec<Vec<Operation>> {
    let (new, newer) = (install(2), install(3));
    let cause = Cause { reason: Reason::lossy("unhealthy"), at_fault: true };
    let plans = [
        machine::stage(found, &new),
        machine::activate(found, &new, ClaimName::default(), manner),
        machine::stage(found, &newer),
        machine::activate(found, &newer, ClaimName::default(), manner),
        machine::confirm(found, new.release),
        Ok(machine::revert(found, new.release, &cause, manner)),
    ];
    let done = plans.into_iter().filter_map(|plan| match plan {
        Ok(Plan::Do(operations)) => Some(operations),
        _ => None,
    });
    let mut lists: Vec<Vec<Operation>> = done.collect();
    lists.push(machine::unstage(found));
    lists.push(machine::reclaim(found));
    lists.push(machine::stop(found, manner).into_iter().collect());
    lists.extend([false, true].map(|answered| recovery::try_again(found, manner, answered).operations));
    let recovery = recovery::recover(found, manner);
    if matches!(recovery.ending, Ending::Trial(_) | Ending::Restarting) {
        for failed in &recovery.operations {
            for answered in [false, true] {
                lists.push(recovery::give_up(found, &cause, manner, failed, answered).operations);
            }
        }
    }
    lists.push(recovery.operations);
    lists
}

fn coded() -> Edges {
    let mut edges = Edges::new();
    for mark in marks() {
        for found in disks(&mark) {
            let manners = [(Counted::Starts, false), (Counted::Boots, false), (Counted::Boots, true), (Counted::Elsewhere, true)];
            for (counted, restarts_machine) in manners {
                for list in lists(&found, Manner { trial_starts: TRIAL_STARTS, counted, restarts_machine }) {
                    let mut from = found.open().map_or("Closed", |entry| name(&entry.mark));
                    for operation in &list {
                        if let Operation::Note(entry) = operation {
                            let to = name(&entry.mark);
                            edges.insert((from.to_owned(), to.to_owned()));
                            from = to;
                        }
                    }
                }
            }
        }
    }
    edges
}

#[test]
fn the_drawing_has_every_edge_of_the_machine_and_no_other() {
    let (drawn, coded) = (drawn().0, coded());
    let missing: Vec<_> = coded.difference(&drawn).collect();
    let invented: Vec<_> = drawn.difference(&coded).collect();
    assert!(missing.is_empty() && invented.is_empty(), "not drawn: {missing:?}; not in the code: {invented:?}");
}

#[test]
fn every_edge_is_named_as_the_function_that_makes_it() {
    for label in drawn().1 {
        let function = label.split([' ', ',']).next().expect("a label begins with a word");
        let definition = format!("fn {function}(");
        assert!(CODE.iter().any(|code| code.contains(&definition)), "no function {function}: {label}");
    }
}
