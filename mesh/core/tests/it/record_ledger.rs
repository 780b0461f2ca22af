//! The ledger: merging commutes, associates, is idempotent; old records change nothing; two under one stamp convict.

use super::spread_mesh::{node, signed, stamp, status};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::Sequence;
use groundswell_core::record::grants::{Grants, Promise};
use groundswell_core::record::ledger::{Entry, Ledger, Merged, NotAProof};
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::{Outcome, Phase, Section, Status, Verdict};
use groundswell_core::record::{ClaimName, RecordKey, RecordKind};
use groundswell_core::text::{Product, Reason, RolloutId};
use proptest::prelude::*;

fn product() -> Product {
    Product::new("bcd").unwrap()
}

fn verdict(rollout: &str, claim: u64, outcome: Outcome) -> Verdict {
    Verdict {
        rollout: RolloutId::new(rollout).unwrap(),
        claim: Some(ClaimName(stamp(claim))),
        outcome,
        reason: Reason::none(),
        confirmed_at: None,
        soaked_at: None,
    }
}

fn with_verdicts(phase: Phase, verdicts: &[Verdict]) -> RecordBody {
    let section = Section {
        running: None,
        from: None,
        floor: Sequence::default(),
        rollout: None,
        phase,
        hold: None,
        claim: None,
        started_at: None,
        verdicts: verdicts.to_vec(),
    };
    RecordBody::Status(Status { products: [(product(), section)].into(), ..Status::default() })
}

fn grants(slot: u16) -> RecordBody {
    let promise = Promise {
        pool: groundswell_core::text::Pool::new("edge").unwrap(),
        slot,
        holder: node(9),
        claim: ClaimName(stamp(1)),
        nonce: 1,
        roster: Digest([1; 32]),
    };
    RecordBody::Grants(Grants { declared: None, promises: vec![promise] })
}

fn of(entries: &[Entry]) -> Ledger {
    let mut ledger = Ledger::new();
    entries.iter().cloned().for_each(|entry| _ = ledger.merge_entry(entry));
    ledger
}

fn join(one: &Ledger, other: &Ledger) -> Ledger {
    let mut joined = one.clone();
    other.entries().for_each(|(_, entry)| _ = joined.merge_entry(entry.clone()));
    joined
}

fn entry(who: u64, counter: u64, text: u8) -> Entry {
    Entry::Record(signed(node(who), counter, status(&text.to_string())))
}

fn proof(who: u64, counter: u64, one: u8, other: u8) -> Entry {
    let mut ledger = of(&[entry(who, counter, one), entry(who, counter, other)]);
    assert!(one == other || ledger.is_convicted(&node(who)));
    let key = RecordKey { node: node(who), kind: RecordKind::Status };
    let entry = ledger.entry(&key).unwrap().clone();
    ledger.forget(&node(who));
    entry
}

/// Entries of two nodes, some of them contradictory, some proofs.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let record = (0..2_u64, 1..4_u64, 0..3_u8).prop_map(|(who, counter, text)| entry(who, counter, text));
    let pair = (0..2_u64, 1..4_u64, 0..3_u8, 0..3_u8).prop_map(|(who, counter, one, other)| proof(who, counter, one, other));
    proptest::collection::vec(prop_oneof![4 => record, 1 => pair], 0..6)
}

/// Whether no record that is contradicted can be replaced or absorbed before anybody notices: then order means nothing at
/// all. Otherwise whether, and with which pair, a liar is convicted depends on who heard what first; replicas agree anyway.
fn noticed(all: &[&[Entry]]) -> bool {
    let all: Vec<&Entry> = all.iter().copied().flatten().collect();
    let of_key = |key: RecordKey| all.iter().filter(move |entry| entry.key() == key);
    let stamp = |entry: &Entry| entry.records()[0].stamp();
    all.iter().all(|entry| match entry {
        Entry::Proof(_) => true,
        Entry::Record(record) => {
            let contradicted = of_key(record.key())
                .any(|other| stamp(other) == record.stamp() && other.records().iter().any(|twin| twin != record));
            !contradicted || of_key(record.key()).all(|other| stamp(other) == record.stamp())
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 65_536, ..ProptestConfig::default() })]

    #[test]
    fn merging_commutes_and_is_idempotent(one in entries(), other in entries()) {
        let (one, other) = (of(&one), of(&other));
        prop_assert_eq!(join(&one, &other), join(&other, &one));
        prop_assert_eq!(join(&one, &one), one.clone());
        let both = join(&one, &other);
        prop_assert_eq!(join(&both, &other), both);
    }

    #[test]
    fn merging_associates(one in entries(), two in entries(), three in entries()) {
        prop_assume!(noticed(&[&one, &two, &three]));
        let (one, two, three) = (of(&one), of(&two), of(&three));
        prop_assert_eq!(join(&join(&one, &two), &three), join(&one, &join(&two, &three)));
    }

    #[test]
    fn replicas_that_exchange_entries_end_equal_whatever_was_said(sides in proptest::collection::vec(entries(), 2..5)) {
        let mut sides: Vec<Ledger> = sides.iter().map(|side| of(side)).collect();
        for _ in 0..sides.len() {
            for to in 0..sides.len() {
                for from in 0..sides.len() {
                    sides[to] = join(&sides[to], &sides[from]);
                }
            }
        }
        prop_assert!(sides.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

#[test]
fn g5_an_old_record_replayed_changes_nothing() {
    let mut ledger = Ledger::new();
    let old = signed(node(1), 3, with_verdicts(Phase::Activating, &[]));
    let new = signed(node(1), 4, with_verdicts(Phase::Soaked, &[verdict("r1", 3, Outcome::Soaked)]));
    assert_eq!(ledger.merge(old.clone()), Merged::New);
    assert_eq!(ledger.merge(new.clone()), Merged::New);
    let before = ledger.clone();
    assert_eq!(ledger.merge(old), Merged::Old);
    assert_eq!(ledger.merge(new), Merged::Same);
    assert_eq!(ledger, before);
    assert_eq!(ledger.status(&node(1)).unwrap().products[&product()].phase, Phase::Soaked);
}

#[test]
fn g5_a_higher_incarnation_wins_over_any_counter() {
    let mut ledger = Ledger::new();
    let crypto = super::spread_mesh::HashCrypto(node(1));
    let sign = |incarnation, counter| {
        let stamp = groundswell_core::record::Stamp { incarnation, counter };
        SignedRecord::sign(&super::spread_mesh::FLEET, stamp, status("x"), &crypto).unwrap()
    };
    assert_eq!(ledger.merge(sign(1, 900)), Merged::New);
    assert_eq!(ledger.merge(sign(2, 1)), Merged::New);
    assert_eq!(ledger.merge(sign(1, 901)), Merged::Old);
}

#[test]
fn g5_a_newer_record_takes_no_verdict_back() {
    let failed = verdict("r1", 3, Outcome::Failed);
    let soaked = verdict("r1", 3, Outcome::Soaked);
    for later in [vec![], vec![soaked.clone()], vec![verdict("r2", 8, Outcome::Soaked)]] {
        let mut ledger = Ledger::new();
        ledger.merge(signed(node(1), 5, with_verdicts(Phase::Failed, std::slice::from_ref(&soaked))));
        ledger.merge(signed(node(1), 6, with_verdicts(Phase::Failed, std::slice::from_ref(&failed))));
        ledger.merge(signed(node(1), 7, with_verdicts(Phase::Idle, &later)));
        let verdicts = ledger.verdicts(&node(1), &product());
        assert!(verdicts.contains(&failed), "{verdicts:?}");
        assert!(!verdicts.contains(&soaked));
        ledger.forget_verdicts(|rollout| rollout.as_str() != "r1");
        assert!(!ledger.verdicts(&node(1), &product()).contains(&failed), "its rollout is not known any more");
    }
}

#[test]
fn a_verdict_under_a_new_claim_stands_beside_the_old_one() {
    let mut ledger = Ledger::new();
    ledger.merge(signed(node(1), 5, with_verdicts(Phase::Failed, &[verdict("r1", 3, Outcome::RolledBack)])));
    ledger.merge(signed(node(1), 9, with_verdicts(Phase::Soaked, &[verdict("r1", 8, Outcome::Soaked)])));
    assert_eq!(ledger.verdicts(&node(1), &product()).len(), 2);
}

#[test]
fn verdicts_withdrawn_without_end_are_remembered_within_bounds() {
    let mut ledger = Ledger::new();
    ledger.merge(signed(node(1), 1, with_verdicts(Phase::Failed, &[verdict("first", 1, Outcome::Failed)])));
    for counter in 2..60 {
        let soaked = verdict(&format!("r{counter}"), counter, Outcome::Soaked);
        ledger.merge(signed(node(1), counter, with_verdicts(Phase::Soaked, &[soaked])));
    }
    let verdicts = ledger.verdicts(&node(1), &product());
    assert!(verdicts.len() <= 9, "eight withdrawn and the one that stands");
    assert!(verdicts.contains(&verdict("first", 1, Outcome::Failed)), "a failure outlives what only soaked");
}

#[test]
fn m1_d20_a_cloned_image_convicts_itself_and_neither_can_speak() {
    let twin = node(1);
    let mut ledger = Ledger::new();
    assert_eq!(ledger.merge(signed(twin, 1, grants(0))), Merged::New);
    assert_eq!(ledger.merge(signed(twin, 7, with_verdicts(Phase::Soaked, &[verdict("r1", 3, Outcome::Soaked)]))), Merged::New);
    assert_eq!(ledger.merge(signed(twin, 7, with_verdicts(Phase::Claiming, &[]))), Merged::Convicted);
    assert!(ledger.is_convicted(&twin));
    assert_eq!(ledger.convicts().collect::<Vec<NodeId>>(), [twin]);
    assert_eq!(ledger.status(&twin), None);
    assert_eq!(ledger.grants(&twin), None, "a conviction by either kind convicts the node");
    assert_eq!(ledger.verdicts(&twin, &product()), []);
    assert_eq!(ledger.merge(signed(twin, 8, status("I am fine"))), Merged::Old, "nothing later replaces the proof");
    assert_eq!(ledger.statuses_kept(&twin).count(), 2, "its slot stays taken");
    assert_eq!(ledger.promises(&twin).count(), 1, "what it listed as warden is honoured");
    assert_eq!(ledger.statuses().count() + ledger.all_grants().count(), 0);
}

#[test]
fn d20_promises_of_both_records_of_a_proof_are_honoured() {
    let mut ledger = Ledger::new();
    ledger.merge(signed(node(1), 2, grants(0)));
    assert_eq!(ledger.merge(signed(node(1), 2, grants(1))), Merged::Convicted);
    let slots: Vec<u16> = ledger.promises(&node(1)).map(|promise| promise.slot).collect();
    assert_eq!(slots.len(), 2);
}

#[test]
fn only_two_different_records_under_one_stamp_convict() {
    let mut ledger = Ledger::new();
    let one = signed(node(1), 2, status("a"));
    for innocent in [signed(node(1), 2, status("a")), signed(node(1), 3, status("b")), signed(node(2), 2, status("b"))] {
        assert_eq!(ledger.convict(one.clone(), innocent), Err(NotAProof));
    }
    assert_eq!(ledger.convict(one.clone(), signed(node(1), 2, grants(0))), Err(NotAProof));
    assert!(ledger.is_empty());
    ledger.merge(signed(node(1), 9, status("much later")));
    assert_eq!(ledger.convict(one, signed(node(1), 2, status("b"))), Ok(Merged::Convicted), "a proof outranks every stamp");
}

#[test]
fn a_forgotten_node_leaves_nothing_behind() {
    let mut ledger = Ledger::new();
    ledger.merge(signed(node(1), 1, grants(0)));
    ledger.merge(signed(node(1), 1, with_verdicts(Phase::Failed, &[verdict("r1", 1, Outcome::Failed)])));
    ledger.merge(signed(node(1), 2, with_verdicts(Phase::Idle, &[])));
    ledger.forget(&node(1));
    assert!(ledger.is_empty());
    assert_eq!(ledger.verdicts(&node(1), &product()), []);
}
