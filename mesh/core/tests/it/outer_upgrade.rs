//! What keeps an upgrade from starting keeps it from starting through outer doors too: a node that speaks nothing else does
//! nothing while there is a hindrance, and goes on by itself when that goes.

use std::collections::BTreeMap;

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::release::Release;
use groundswell_core::documents::rollout::{Forgiven, Rollout, State, Wave};
use groundswell_core::documents::roster::Roster;
use groundswell_core::limits::OUTER_AFTER_MS;
use groundswell_core::node::effect::{Effect, Step};
use groundswell_core::node::input::{Health, Input, Recovered, Report, Source, VisitEnd};
use groundswell_core::number::{Ppm, Sequence};
use groundswell_core::record::grants::{Grants, Promise};
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::{Claim, HoldCode, Outcome, Phase, Purpose, Running, Section, Status, Verdict};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::{Pool, Reason, Version};

use crate::fixture::{Fixture, at, crypto, digest, next, node, paused, product};
use crate::outer::Bench;

/// The other two nodes of the pool: its wardens, with the node itself, which outside of the mesh grants nothing.
const OTHERS: [u8; 2] = [32, 33];

/// A node that has lived through outer doors for a day, and what the others say at theirs.
struct Old {
    fixture: Fixture,
    roster: Roster,
    bench: Bench,
    sections: BTreeMap<u8, Section>,
    promises: Vec<Promise>,
    counter: u64,
}

/// Runs the release before, healthy, with nothing to say of any rollout.
fn at_rest() -> Section {
    Section {
        running: Some(before()),
        from: None,
        floor: Sequence::default(),
        rollout: None,
        phase: Phase::Idle,
        hold: None,
        claim: None,
        started_at: None,
        verdicts: Vec::new(),
    }
}

fn before() -> Running {
    Running {
        version: Version::new("0.9.0").unwrap(),
        sequence: Sequence::new(1).unwrap(),
        release: Digest::of(b"the release before"),
    }
}

impl Old {
    fn with_floor(floor: u64) -> Self {
        let fixture = Fixture::new();
        let roster = fixture.roster(1, &[31, 32, 33].map(|seed| fixture.certificate(seed, 1)));
        let mut bench = Bench::of_the_agent(&fixture);
        let brought = |bytes| Input::Document { bytes, source: Source::Visit { keeper: node(32), ticket: 1 } };
        bench.feed(brought(fixture.fleet_bytes()));
        for seed in [31, 32, 33] {
            bench.feed(brought(fixture.certificate_bytes(&fixture.certificate(seed, 1))));
        }
        bench.come_home();
        let recovered = Recovered::at_rest(Some(before()), Sequence::new(floor).unwrap());
        let sections = OTHERS.map(|seed| (seed, at_rest())).into();
        let mut old = Self { fixture, roster, bench, sections, promises: Vec::new(), counter: 1 };
        old.reports(Report::Recovered(recovered));
        old.reports(Report::Health(Health::Healthy));
        old.bench.pass(OUTER_AFTER_MS);
        assert!(old.bench.node.outer_door().is_some());
        old
    }

    fn new() -> Self {
        Self::with_floor(1)
    }

    fn reports(&mut self, report: Report) {
        self.bench.feed(Input::Device { product: product(), report });
    }

    fn brings(&mut self, bytes: Vec<u8>) {
        self.bench.feed(Input::Document { bytes, source: Source::Visit { keeper: node(32), ticket: 1 } });
    }

    /// Release number `sequence`, and a rollout of it in one wave.
    fn rollout(&self, sequence: u64) -> (Release, Rollout) {
        let release = self.fixture.release(&format!("{sequence}.0.0"), sequence);
        let mut rollout = self.fixture.rollout(&format!("rollout_{sequence}"), &release, &self.roster);
        rollout.waves = vec![Wave { percent_ppm: Some(Ppm::ALL), soak_seconds: 600, ..Wave::default() }];
        (release, rollout)
    }

    /// The documents are at every door.
    fn published(&mut self, release: &Release, rollout: &Rollout) {
        let (release, roster) = (self.fixture.release_bytes(release), self.fixture.roster_bytes(&self.roster));
        self.brings(release);
        let rollout = self.fixture.signed(rollout);
        self.brings(rollout);
        self.bench.feed(Input::Roster { bytes: roster, source: Source::Visit { keeper: node(32), ticket: 1 } });
    }

    fn further(&mut self, rollout: &Rollout) {
        let bytes = self.fixture.signed(rollout);
        self.brings(bytes);
    }

    /// What the others say: their status records, and what they promise as wardens.
    fn records(&mut self) -> Vec<Vec<Vec<u8>>> {
        self.counter += 1;
        let stamp = Stamp { incarnation: 1, counter: self.counter };
        let signed = |seed: u8, body: RecordBody| {
            let crypto = SoftwareCrypto::from_secret(&[seed; 32]);
            vec![SignedRecord::sign(&self.fixture.id(), stamp, body, &crypto).unwrap().bytes().to_vec()]
        };
        let grants = Grants { declared: Some(self.roster_digest()), promises: self.promises.clone() };
        let of = |seed: u8| {
            let products = BTreeMap::from([(product(), self.sections[&seed].clone())]);
            let status = Status { products, protocols: vec![1], ..Status::default() };
            [signed(seed, RecordBody::Status(status)), signed(seed, RecordBody::Grants(grants.clone()))]
        };
        OTHERS.into_iter().flat_map(of).collect()
    }

    fn roster_digest(&self) -> Digest {
        digest(&Body::Roster(self.roster.clone()))
    }

    /// The wardens read a record that was handed over, and grant what it claims, where nobody has the slot.
    fn read_by_wardens(&mut self, pushed: &[u8]) {
        let record = SignedRecord::verify(&self.fixture.id(), pushed, &crypto()).unwrap();
        let status = record.status().expect("a status");
        let Some(claim) = status.products.get(&product()).and_then(|section| section.claim.clone()) else { return };
        let taken = self.promises.iter().any(|promise| Some(promise.slot) == claim.slot);
        if let Some(slot) = claim.slot.filter(|_| !taken) {
            let Claim { name, nonce, pool, roster, .. } = claim;
            self.promises.push(Promise { pool, slot, holder: node(31), claim: name, nonce, roster });
        }
    }

    /// Three hours of its life, each effect answered as a device and keepers that have everything answer. Whether it went as
    /// far as to start the upgrade, and whether it ever claimed.
    fn lives(&mut self) -> (bool, bool) {
        let end = self.bench.ms + 3 * 3_600_000;
        let mut claimed = false;
        while self.bench.ms < end {
            for effect in std::mem::take(&mut self.bench.effects) {
                match effect {
                    Effect::Visit { push, .. } => {
                        if let Some(pushed) = push {
                            self.read_by_wardens(&pushed);
                        }
                        let records = self.records();
                        for keeper in OTHERS {
                            self.bench.feed(Input::Shown { keeper: node(keeper), records: records.clone() });
                            self.bench.feed(Input::Visited { keeper: Some(node(keeper)), end: VisitEnd::Complete });
                        }
                    }
                    Effect::Device { step: Step::Fetch { artifact, .. }, .. } => {
                        self.reports(Report::Fetched { sha256: artifact.sha256.into() });
                    }
                    Effect::Device { step: Step::Stage { install }, .. } => {
                        self.reports(Report::Staged { release: install.release });
                    }
                    Effect::Device { step: Step::Activate { .. }, .. } => return (true, claimed),
                    Effect::Device { step: Step::CancelFetch { .. }, .. } => {}
                    Effect::Device { step, .. } => panic!("{step:?}"),
                    _ => {}
                }
            }
            claimed |= self.section().claim.is_some();
            let wakeup = self.bench.node.next_wakeup().map_or(end, |wakeup| wakeup.0);
            self.bench.ms = wakeup.clamp(self.bench.ms + 1, self.bench.ms + 60_000);
            self.bench.feed(Input::Wake);
        }
        (false, claimed)
    }

    /// What it says of the product itself.
    fn section(&self) -> Section {
        let status = self.bench.node.ledger().status(&node(31));
        status.and_then(|status| status.products.get(&product()).cloned()).unwrap_or_else(at_rest)
    }

    fn stands_still(&mut self, why: Option<HoldCode>) {
        assert_eq!(self.lives(), (false, false), "it did something");
        let hold = self.bench.node.explain(self.bench.now(), &product()).unwrap().hold;
        assert_eq!(hold.as_ref().map(|hold| hold.code), why, "{hold:?} {:?}", self.section());
    }

    fn goes_on(&mut self) {
        assert_eq!(self.lives(), (true, true), "{:?}", self.section());
    }
}

#[test]
fn nothing_in_its_way_lets_an_old_node_start() {
    let mut old = Old::new();
    let (release, rollout) = old.rollout(2);
    old.published(&release, &rollout);
    old.goes_on();
}

#[test]
fn an_old_node_does_nothing_while_its_rollout_is_paused() {
    let mut old = Old::new();
    let (release, rollout) = old.rollout(2);
    old.published(&release, &rollout);
    let paused = paused(&rollout);
    old.further(&paused);
    old.stands_still(Some(HoldCode::Paused));
    old.further(&Rollout { state: State::Running, ..next(&paused) });
    old.goes_on();
}

fn verdict(rollout: &Rollout, outcome: Outcome, old: &Old) -> Verdict {
    let wall = at(old.bench.wall + old.bench.ms / 1_000);
    let soaked = (outcome == Outcome::Soaked).then_some(wall);
    let claim = Some(ClaimName(Stamp { incarnation: 1, counter: 1 }));
    Verdict { rollout: rollout.id.clone(), claim, outcome, reason: Reason::none(), confirmed_at: soaked, soaked_at: soaked }
}

#[test]
fn an_old_node_does_nothing_while_its_rollout_is_halted() {
    let mut old = Old::new();
    let (release, rollout) = old.rollout(2);
    let failed = verdict(&rollout, Outcome::RolledBack, &old);
    let section = Section { phase: Phase::RolledBack, verdicts: vec![failed.clone()], ..at_rest() };
    old.sections.insert(32, section);
    old.published(&release, &rollout);
    old.stands_still(Some(HoldCode::Halted));
    let forgiven = vec![Forgiven { node: node(32), claim: failed.claim, retry: false }];
    old.further(&Rollout { forgiven, ..next(&rollout) });
    old.goes_on();
}

#[test]
fn an_old_node_does_nothing_below_its_floor() {
    let mut old = Old::with_floor(3);
    let (release, rollout) = old.rollout(2);
    old.published(&release, &rollout);
    old.stands_still(None);
    assert_eq!(old.section().phase, Phase::Skipped);
    let (release, rollout) = old.rollout(4);
    old.published(&release, &rollout);
    old.goes_on();
}

#[test]
fn an_old_node_does_nothing_while_its_pools_budget_is_taken() {
    let mut old = Old::new();
    let (release, rollout) = old.rollout(2);
    let name = ClaimName(Stamp { incarnation: 1, counter: 1 });
    let (pool, roster) = (Pool::new("edge").unwrap(), old.roster_digest());
    let purpose = Purpose::Rollout(digest(&Body::Rollout(rollout.clone())));
    let claim = Claim { name, nonce: 7, pool: pool.clone(), slot: Some(0), roster, purpose };
    old.sections.insert(33, Section { phase: Phase::Activating, claim: Some(claim), ..at_rest() });
    old.promises = vec![Promise { pool, slot: 0, holder: node(33), claim: name, nonce: 7, roster }];
    old.published(&release, &rollout);
    old.stands_still(Some(HoldCode::SlotsTaken));
    old.sections.insert(33, Section { phase: Phase::Confirmed, ..at_rest() });
    old.promises.clear();
    old.goes_on();
}

#[test]
fn an_old_node_does_nothing_under_a_rollout_that_has_expired() {
    let mut old = Old::new();
    let (release, mut rollout) = old.rollout(2);
    rollout.expires_at = at(3_600);
    old.published(&release, &rollout);
    old.stands_still(Some(HoldCode::Expired));
    old.further(&Rollout { expires_at: at(30 * 86_400), ..next(&rollout) });
    old.goes_on();
}

#[test]
fn an_old_node_does_nothing_before_its_wave() {
    // Who comes first is by the rollout's name: one is found in which it is somebody else.
    let waits = (0..64).find_map(|number| {
        let mut old = Old::new();
        let (release, _) = old.rollout(2);
        let rollout = old.fixture.rollout(&format!("rollout_{number}"), &release, &old.roster);
        old.published(&release, &rollout);
        let hold = old.bench.node.explain(old.bench.now(), &product()).unwrap().hold;
        (hold?.code == HoldCode::WaveShut).then_some((old, rollout))
    });
    let (mut old, rollout) = waits.expect("a rollout in which another node is the canary");
    old.stands_still(Some(HoldCode::NoEvidence));
    for seed in OTHERS {
        let soaked = verdict(&rollout, Outcome::Soaked, &old);
        old.sections.insert(seed, Section { phase: Phase::Soaked, verdicts: vec![soaked], ..at_rest() });
    }
    old.goes_on();
}
