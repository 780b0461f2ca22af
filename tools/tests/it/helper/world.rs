//! A small fleet whose keys the tests hold: every document can be signed as it should be, or bent first.

use std::collections::BTreeMap;

use groundswell_agent::{agent, clock, identity};
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::documents::Body;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::fleet::{Fleet, Limits, Role, Roles};
use groundswell_core::documents::release::{Artifact, Release};
use groundswell_core::documents::rollout::{Halt, Mode, ReleaseRef, Rollout, RosterRef, Scope, State, Wave};
use groundswell_core::documents::roster::{Listed, PoolPolicy, Roster};
use groundswell_core::documents::tag::{FleetType, NodeType, ReleaseType, RolloutType, RosterType, Spec1};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Generation, Ppm, Sequence};
use groundswell_core::text::{ArtifactName, NodeName, Pool, Product, Reason, RolloutId, Version};
use groundswell_core::time::Timestamp;
use groundswell_core::trust::signing::SecretKey;

/// The keys of a fleet: releases and rollouts need two of three, all else one.
pub(crate) struct World {
    pub(crate) root: SecretKey,
    pub(crate) makers: [SecretKey; 3],
    pub(crate) movers: [SecretKey; 3],
    pub(crate) enroll: SecretKey,
    pub(crate) stranger: SecretKey,
    /// The Ed25519 secret of the node that the helper installs for.
    pub(crate) secret: [u8; 32],
    pub(crate) now: Timestamp,
}

/// What a node needs to see to install a release.
pub(crate) struct Papers {
    pub(crate) fleet: Fleet,
    pub(crate) certificate: Certificate,
    pub(crate) roster: Roster,
    pub(crate) release: Release,
    pub(crate) rollout: Rollout,
}

pub(crate) fn product() -> Product {
    Product::new("bcd").unwrap()
}

pub(crate) fn digest(body: &Body) -> Digest {
    Digest::of(&body.encode())
}

pub(crate) fn sign(body: &Body, keys: &[&SecretKey]) -> Vec<u8> {
    let bytes = body.encode();
    let signatures = keys.iter().map(|key| key.endorse(&bytes)).collect();
    Envelope { kind: body.kind(), body: bytes, signatures }.to_bytes()
}

fn role(keys: &[&SecretKey], threshold: u32) -> Role {
    let mut keys: Vec<_> = keys.iter().map(|key| key.public().clone()).collect();
    keys.sort();
    Role { keys, threshold }
}

/// A script that is release number `sequence`.
pub(crate) fn program(sequence: u64) -> Vec<u8> {
    format!("#!/bin/sh\necho release {sequence}\n").into_bytes()
}

impl World {
    pub(crate) fn new() -> Self {
        let key = |seed| SecretKey::generate(&[seed; 32]).unwrap();
        Self {
            root: key(1),
            makers: [key(2), key(3), key(4)],
            movers: [key(5), key(6), key(7)],
            enroll: key(8),
            stranger: key(9),
            secret: [31; 32],
            now: clock::wall(),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        identity::node_id(&self.secret)
    }

    /// Version 1 of the fleet.
    pub(crate) fn fleet(&self) -> Fleet {
        let ([a, b, c], [d, e, f]) = (&self.makers, &self.movers);
        Fleet {
            kind: FleetType,
            spec: Spec1,
            fleet: None,
            version: 1,
            previous: None,
            issued_at: self.now,
            expires_at: self.now.plus_seconds(90 * 86_400),
            roles: Roles {
                root: role(&[&self.root], 1),
                release: BTreeMap::from([
                    (product(), role(&[a, b, c], 2)),
                    (Product::new("other").unwrap(), role(&[a, b, c], 2)),
                ]),
                rollout: role(&[d, e, f], 2),
                enroll: role(&[&self.enroll], 1),
            },
            limits: Limits { min_soak_seconds: 0, max_first_wave_ppm: Ppm::ALL, max_budget_ppm: Ppm::ALL },
            anchor: None,
            revoked: Vec::new(),
        }
    }

    pub(crate) fn fleet_id(&self) -> Digest {
        digest(&Body::Fleet(self.fleet()))
    }

    /// The version after `before`.
    pub(crate) fn next_fleet(&self, before: &Fleet) -> Fleet {
        Fleet {
            fleet: Some(self.fleet_id()),
            version: before.version + 1,
            previous: Some(digest(&Body::Fleet(before.clone()))),
            ..before.clone()
        }
    }

    pub(crate) fn certificate(&self) -> Certificate {
        Certificate {
            kind: NodeType,
            spec: Spec1,
            fleet: self.fleet_id(),
            node: self.node(),
            serial: 1,
            issued_at: self.now,
            expires_at: None,
            name: NodeName::new("n1").unwrap(),
            pool: Some(Pool::new("edge").unwrap()),
            platform: agent::platform(),
            labels: BTreeMap::new(),
            retired: false,
        }
    }

    pub(crate) fn roster(&self, certificate: &Certificate) -> Roster {
        Roster {
            kind: RosterType,
            spec: Spec1,
            fleet: self.fleet_id(),
            version: 1,
            previous: Vec::new(),
            settled: 1,
            issued_at: self.now,
            keys: self.mover_keys(),
            pools: BTreeMap::from([(
                Pool::new("edge").unwrap(),
                PoolPolicy { budget_ppm: Ppm::ALL, urgent_budget_ppm: Ppm::ALL, ..PoolPolicy::default() },
            )]),
            nodes: vec![Listed { id: self.node(), certificate: digest(&Body::Node(certificate.clone())), dormant: false }],
            removed: Vec::new(),
            written_off: Vec::new(),
            meet: Vec::new(),
        }
    }

    fn mover_keys(&self) -> Vec<groundswell_core::trust::key::ListedKey> {
        let [a, b, _] = &self.movers;
        let mut keys = vec![a.listed(), b.listed()];
        keys.sort_by_key(|key| key.kid);
        keys
    }

    /// Release number `sequence` of `bcd`, one file for this platform.
    pub(crate) fn release(&self, sequence: u64, content: &[u8]) -> Release {
        let [a, b, _] = &self.makers;
        let mut keys = vec![a.listed(), b.listed()];
        keys.sort_by_key(|key| key.kid);
        Release {
            kind: ReleaseType,
            spec: Spec1,
            product: product(),
            version: Version::new(format!("{sequence}.0")).unwrap(),
            sequence: Sequence::new(sequence).unwrap(),
            issued_at: self.now,
            expires_at: self.now.plus_seconds(86_400),
            keys,
            artifacts: vec![Artifact {
                name: ArtifactName::new("bcd").unwrap(),
                platform: Some(agent::platform()),
                sha256: Digest::of(content).hex(),
                size: u64::try_from(content.len()).unwrap(),
                blake3: Hex32(*blake3::hash(content).as_bytes()),
            }],
            upgrade_from: None,
            dead_end: None,
            blocks: Vec::new(),
            notes: None,
        }
    }

    pub(crate) fn rollout(&self, id: &str, release: &Release, roster: &Roster) -> Rollout {
        let body = Body::Roster(roster.clone());
        let size = u64::try_from(body.encode().len()).unwrap();
        Rollout {
            kind: RolloutType,
            spec: Spec1,
            fleet: self.fleet_id(),
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
                product: release.product.clone(),
                version: release.version.clone(),
                sequence: release.sequence,
                digest: digest(&Body::Release(release.clone())),
            },
            roster: RosterRef { version: roster.version, digest: digest(&body), size },
            scope: Scope::default(),
            hash_attributes: Vec::new(),
            wary: BTreeMap::new(),
            waves: vec![Wave { percent_ppm: Some(Ppm::ALL), soak_seconds: 1, ..Wave::default() }],
            open_waves: 1,
            min_soaked_ppm: Ppm::new(500_000).unwrap(),
            halt: Halt { max_failure_ppm: Ppm::new(50_000).unwrap(), min_failures: 1 },
            confirm_after_seconds: 1,
            upgrade_timeout_seconds: 120,
            revert_timeout_seconds: 60,
            offline_after_seconds: 300,
            grace_seconds: 60,
            prefetch: true,
            windows: Vec::new(),
            promotion: None,
            forgiven: Vec::new(),
            issued_at: self.now,
            expires_at: self.now.plus_seconds(86_400),
            keys: self.mover_keys(),
        }
    }

    /// Everything for release number `sequence`, as it should be.
    pub(crate) fn papers(&self, sequence: u64) -> Papers {
        let certificate = self.certificate();
        let roster = self.roster(&certificate);
        let release = self.release(sequence, &program(sequence));
        let rollout = self.rollout(&format!("rollout_{sequence}"), &release, &roster);
        Papers { fleet: self.fleet(), certificate, roster, release, rollout }
    }

    pub(crate) fn sign_fleet(&self, fleet: &Fleet) -> Vec<u8> {
        sign(&Body::Fleet(fleet.clone()), &[&self.root])
    }

    pub(crate) fn sign_certificate(&self, certificate: &Certificate) -> Vec<u8> {
        sign(&Body::Node(certificate.clone()), &[&self.enroll])
    }

    pub(crate) fn sign_release(&self, release: &Release) -> Vec<u8> {
        let [a, b, _] = &self.makers;
        sign(&Body::Release(release.clone()), &[a, b])
    }

    pub(crate) fn sign_roster(&self, roster: &Roster) -> Vec<u8> {
        let [a, b, _] = &self.movers;
        sign(&Body::Roster(roster.clone()), &[a, b])
    }

    pub(crate) fn sign_rollout(&self, rollout: &Rollout) -> Vec<u8> {
        let [a, b, _] = &self.movers;
        sign(&Body::Rollout(rollout.clone()), &[a, b])
    }

    /// The published forms of `papers`, each signed as it should be.
    pub(crate) fn published(&self, papers: &Papers) -> Vec<Vec<u8>> {
        vec![
            self.sign_fleet(&papers.fleet),
            self.sign_roster(&papers.roster),
            self.sign_certificate(&papers.certificate),
            self.sign_release(&papers.release),
            self.sign_rollout(&papers.rollout),
        ]
    }
}

impl Papers {
    /// The body digest of the release.
    pub(crate) fn id(&self) -> Digest {
        digest(&Body::Release(self.release.clone()))
    }

    /// A roster, release or rollout that was bent is named anew by what names it.
    pub(crate) fn tied(mut self) -> Self {
        for listed in &mut self.roster.nodes {
            listed.certificate = digest(&Body::Node(self.certificate.clone()));
        }
        let roster = Body::Roster(self.roster.clone());
        self.rollout.roster.digest = digest(&roster);
        self.rollout.roster.size = u64::try_from(roster.encode().len()).unwrap();
        self.rollout.roster.version = self.roster.version;
        self.rollout.release.digest = self.id();
        self.rollout.release.version = self.release.version.clone();
        self.rollout.release.sequence = self.release.sequence;
        self.rollout.release.product = self.release.product.clone();
        self
    }
}

/// The generation after `before`, running.
pub(crate) fn next(before: &Rollout) -> Rollout {
    Rollout {
        generation: before.generation.next().unwrap(),
        previous: Some(digest(&Body::Rollout(before.clone()))),
        ..before.clone()
    }
}
