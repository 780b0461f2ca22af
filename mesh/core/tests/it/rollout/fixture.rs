//! A small fleet, rollouts and reports for tests, and an observer that follows one rollout.

use std::collections::BTreeMap;

use groundswell_core::digest::Digest;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::rollout::{Halt, Mode, ReleaseRef, Rollout, RosterRef, Scope, State, Wave};
use groundswell_core::documents::tag::{NodeType, RolloutType, Spec1};
use groundswell_core::node::view::Standing;
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Generation, Ppm, Sequence};
use groundswell_core::record::status::{HoldCode, HoldNotice, Outcome, Phase};
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::rollout::PoolTerms;
use groundswell_core::rollout::applies::Skip;
use groundswell_core::rollout::gate::Gate;
use groundswell_core::rollout::member::Member;
use groundswell_core::rollout::progress::{Change, Clock, Passed, Progress};
use groundswell_core::rollout::report::MemberReport;
use groundswell_core::text::{LabelKey, LabelValue, NodeName, Platform, Pool, Product, Reason, RolloutId, Version};
use groundswell_core::time::Timestamp;

pub(super) fn ppm(parts: u32) -> Ppm {
    Ppm::new(parts).unwrap()
}

pub(super) fn pool(name: &str) -> Pool {
    Pool::new(name).unwrap()
}

/// Node number `n`.
pub(super) fn node(n: usize) -> NodeId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&(n as u64).to_be_bytes());
    NodeId(id)
}

pub(super) fn certificate(n: usize, pool_name: &str) -> Certificate {
    Certificate {
        kind: NodeType,
        spec: Spec1,
        fleet: Digest::of(b"fleet"),
        node: node(n),
        serial: 1,
        issued_at: Timestamp::from_seconds(1),
        expires_at: None,
        name: NodeName::new(format!("n{n}")).unwrap(),
        pool: Some(pool(pool_name)),
        platform: Platform::new("linux-amd64").unwrap(),
        labels: BTreeMap::new(),
        retired: false,
    }
}

pub(super) fn label(certificate: &mut Certificate, key: &str, value: &str) {
    certificate.labels.insert(LabelKey::new(key).unwrap(), LabelValue::new(value).unwrap());
}

/// `count` nodes of the pool `edge`, numbered from 0.
pub(super) fn fleet(count: usize) -> Vec<Certificate> {
    (0..count).map(|n| certificate(n, "edge")).collect()
}

pub(super) fn members(certificates: &[Certificate]) -> Vec<Member<'_>> {
    certificates.iter().map(|certificate| Member { id: certificate.node, certificate, dormant: false }).collect()
}

pub(super) fn percent(parts: u32) -> Wave {
    Wave { percent_ppm: Some(ppm(parts)), soak_seconds: 600, ..Wave::default() }
}

pub(super) fn percents(parts: &[u32]) -> Vec<Wave> {
    parts.iter().copied().map(percent).collect()
}

pub(super) fn rollout(id: &str, waves: Vec<Wave>) -> Rollout {
    Rollout {
        kind: RolloutType,
        spec: Spec1,
        fleet: Digest::of(b"fleet"),
        id: RolloutId::new(id).unwrap(),
        generation: Generation::FIRST,
        previous: None,
        mode: Mode::Apply,
        state: State::Running,
        rollback: false,
        reason: Reason::none(),
        urgent: false,
        from: None,
        release: ReleaseRef {
            product: Product::new("bcd").unwrap(),
            version: Version::new("1.4.0").unwrap(),
            sequence: Sequence::new(14).unwrap(),
            digest: Digest::of(b"release"),
        },
        roster: RosterRef { version: 1, digest: Digest::of(b"roster"), size: 100 },
        scope: Scope::default(),
        hash_attributes: Vec::new(),
        wary: BTreeMap::new(),
        waves,
        open_waves: 0,
        min_soaked_ppm: ppm(500_000),
        halt: Halt { max_failure_ppm: ppm(50_000), min_failures: 1 },
        confirm_after_seconds: 60,
        upgrade_timeout_seconds: 900,
        revert_timeout_seconds: 300,
        offline_after_seconds: 1_800,
        grace_seconds: 1_800,
        prefetch: true,
        windows: Vec::new(),
        promotion: None,
        forgiven: Vec::new(),
        issued_at: Timestamp::from_seconds(1),
        expires_at: Timestamp::LAST,
        keys: Vec::new(),
    }
}

/// The next generation of `rollout`.
pub(super) fn next(rollout: &Rollout) -> Rollout {
    Rollout { generation: rollout.generation.next().unwrap(), ..rollout.clone() }
}

pub(super) fn claim(counter: u64) -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter })
}

/// A member that obeys generation 1 and is in `phase`.
pub(super) fn said(phase: Phase) -> MemberReport {
    MemberReport { generation: Some(1), phase, ..MemberReport::default() }
}

/// Staged, and waits for its turn.
pub(super) fn ready() -> MemberReport {
    MemberReport { hold: Some(HoldNotice { code: HoldCode::Queued, until: None }), ..said(Phase::Staged) }
}

pub(super) fn claiming(counter: u64) -> MemberReport {
    MemberReport { claim: Some(claim(counter)), ..said(Phase::Claiming) }
}

pub(super) fn activating(counter: u64) -> MemberReport {
    MemberReport { claim: Some(claim(counter)), ..said(Phase::Activating) }
}

pub(super) fn soaked(counter: u64) -> MemberReport {
    MemberReport { verdicts: vec![(Some(claim(counter)), Outcome::Soaked)], ..said(Phase::Soaked) }
}

pub(super) fn failed(counter: u64) -> MemberReport {
    MemberReport { verdicts: vec![(Some(claim(counter)), Outcome::Failed)], ..said(Phase::Failed) }
}

pub(super) fn skipped() -> MemberReport {
    MemberReport { skip: Some(Skip::Said), ..said(Phase::Skipped) }
}

pub(super) fn at_generation(generation: u64, report: MemberReport) -> MemberReport {
    MemberReport { generation: Some(generation), ..report }
}

/// An observer that follows one rollout. Its up time starts at a million seconds, as on a machine with a past.
pub(super) struct Observer {
    pub(super) certificates: Vec<Certificate>,
    pub(super) progress: Progress,
    pub(super) up_ms: u64,
    pub(super) wall: Timestamp,
    pub(super) remembered: BTreeMap<u32, Passed>,
}

impl Observer {
    pub(super) fn of(rollout: &Rollout, certificates: Vec<Certificate>) -> Self {
        let up_ms = 1_000_000_000;
        let progress = Progress::new(rollout, &members(&certificates), &pools(), Vec::new(), up_ms);
        let wall = Timestamp::from_seconds(1_700_000_000);
        let mut observer = Self { certificates, progress, up_ms, wall, remembered: BTreeMap::new() };
        observer.settle();
        observer
    }

    /// The same observer after a restart: only what was remembered, and the records, are left.
    pub(super) fn restarted(self, records: &[(NodeId, MemberReport, u64)]) -> Self {
        let passed = self.remembered.values().cloned().collect();
        let rollout = self.progress.rollout().clone();
        let progress = Progress::new(&rollout, &members(&self.certificates), &pools(), passed, self.up_ms);
        let mut observer = Self { progress, ..self };
        for (node, report, up_ms) in records {
            observer.progress.hear(node, report.clone(), *up_ms);
        }
        observer.settle();
        observer
    }

    pub(super) fn follow(&mut self, rollout: &Rollout) -> Vec<Change> {
        self.progress.follow(rollout, &members(&self.certificates), &pools(), self.up_ms);
        self.settle()
    }

    pub(super) fn hears(&mut self, n: NodeId, report: MemberReport) -> Vec<Change> {
        self.progress.hear(&n, report, self.up_ms);
        self.settle()
    }

    /// All members of a wave say the same.
    pub(super) fn hears_wave(&mut self, wave: u32, report: &MemberReport) -> Vec<Change> {
        let nodes = self.progress.waves().members(wave).to_vec();
        nodes.into_iter().flat_map(|node| self.hears(node, report.clone())).collect()
    }

    /// Time passes on all clocks.
    pub(super) fn waits(&mut self, seconds: u64) -> Vec<Change> {
        self.up_ms += seconds * 1_000;
        self.wall = self.wall.plus_seconds(seconds);
        self.settle()
    }

    /// Time passes while the observer is off or asleep: its up time stands.
    pub(super) fn sleeps(&mut self, seconds: u64) -> Vec<Change> {
        self.wall = self.wall.plus_seconds(seconds);
        self.settle()
    }

    pub(super) fn settle(&mut self) -> Vec<Change> {
        let changes = self.progress.settle(Clock { up_ms: self.up_ms, wall: self.wall });
        for change in &changes {
            if let Change::Passed(passed) = change {
                self.remembered.insert(passed.wave, passed.clone());
            }
        }
        changes
    }

    pub(super) fn standing(&self, n: NodeId) -> Standing {
        self.progress.tally().standing(&n).unwrap()
    }

    pub(super) fn excused(&self, n: NodeId) -> bool {
        self.progress.tally().is_excused(&n)
    }

    /// The `k`-th member of a wave, in its order.
    pub(super) fn member(&self, wave: u32, k: usize) -> NodeId {
        self.progress.waves().members(wave)[k]
    }

    pub(super) fn open(&self, wave: u32) -> bool {
        self.progress.gate(wave) == Gate::Open
    }

    /// Why a wave is shut, for people.
    pub(super) fn why(&self, wave: u32) -> String {
        match self.progress.gate(wave) {
            Gate::Open => "open".to_owned(),
            Gate::Shut(hold) => hold.to_string(),
        }
    }
}

pub(super) fn pools() -> BTreeMap<Pool, PoolTerms> {
    BTreeMap::from([
        (pool("edge"), PoolTerms { slots: 1, start_within_seconds: 60 }),
        (pool("core"), PoolTerms { slots: 2, start_within_seconds: 60 }),
    ])
}
