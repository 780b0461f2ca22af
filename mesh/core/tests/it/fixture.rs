//! A small fleet with fixed keys: three rollout keys of which two must sign, one key for every other role.

use std::collections::BTreeMap;

use groundswell_core::crypto::SoftwareCrypto;
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::documents::Body;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::fleet::{Fleet, Limits, Role, Roles};
use groundswell_core::documents::rejection::{Reason, Rejection};
use groundswell_core::documents::release::{Artifact, Release};
use groundswell_core::documents::rollout::{Halt, Mode, ReleaseRef, Rollout, RosterRef, Scope, State, Wave};
use groundswell_core::documents::roster::{Listed, PoolPolicy, Roster};
use groundswell_core::documents::tag::{FleetType, NodeType, ReleaseType, RolloutType, RosterType, Spec1};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Generation, Ppm, Sequence};
use groundswell_core::text::{ArtifactName, Platform, Pool, Product, RolloutId, Version};
use groundswell_core::time::Timestamp;
use groundswell_core::trust::local::LocalTrust;
use groundswell_core::trust::shelf::{Offered, Shelf};
use groundswell_core::trust::signing::SecretKey;

/// 2026-11-30T00:00:00Z, when everything here is signed.
pub(crate) const SIGNED: u64 = 1_795_996_800;

pub(crate) fn at(seconds_later: u64) -> Timestamp {
    Timestamp::from_seconds(SIGNED + seconds_later)
}

pub(crate) fn crypto() -> SoftwareCrypto {
    SoftwareCrypto::from_secret(&[1; 32])
}

pub(crate) fn secret(seed: u8) -> SecretKey {
    SecretKey::generate(&[seed; 32]).unwrap()
}

pub(crate) fn role(keys: &[&SecretKey], threshold: u32) -> Role {
    let mut keys: Vec<_> = keys.iter().map(|key| key.public().clone()).collect();
    keys.sort();
    Role { keys, threshold }
}

pub(crate) fn node(seed: u8) -> NodeId {
    use groundswell_core::crypto::Crypto as _;
    SoftwareCrypto::from_secret(&[seed; 32]).node()
}

/// The keys of a fleet, and its first document.
pub(crate) struct Fixture {
    pub(crate) root: SecretKey,
    pub(crate) release: SecretKey,
    pub(crate) rollout: [SecretKey; 3],
    pub(crate) enroll: SecretKey,
    pub(crate) fleet: Fleet,
}

pub(crate) fn product() -> Product {
    Product::new("bcd").unwrap()
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let (root, release, enroll) = (secret(11), secret(12), secret(13));
        let rollout = [secret(21), secret(22), secret(23)];
        let [a, b, c] = &rollout;
        let roles = Roles {
            root: role(&[&root], 1),
            release: BTreeMap::from([(product(), role(&[&release], 1))]),
            rollout: role(&[a, b, c], 2),
            enroll: role(&[&enroll], 1),
        };
        let limits = Limits { min_soak_seconds: 10, max_first_wave_ppm: Ppm::ALL, max_budget_ppm: Ppm::new(500_000).unwrap() };
        let fleet = Fleet {
            kind: FleetType,
            spec: Spec1,
            fleet: None,
            version: 1,
            previous: None,
            issued_at: at(0),
            expires_at: at(365 * 86_400),
            roles,
            limits,
            anchor: None,
            revoked: Vec::new(),
        };
        Self { root, release, rollout, enroll, fleet }
    }

    pub(crate) fn id(&self) -> Digest {
        Digest::of(&Body::Fleet(self.fleet.clone()).encode())
    }

    /// An empty shelf of this fleet.
    pub(crate) fn empty_shelf(&self) -> Shelf {
        Shelf::new(self.id(), LocalTrust::default())
    }

    /// A shelf with the fleet document.
    pub(crate) fn shelf(&self) -> Shelf {
        let mut shelf = self.empty_shelf();
        offer(&mut shelf, &self.fleet_bytes()).unwrap();
        shelf
    }

    pub(crate) fn fleet_bytes(&self) -> Vec<u8> {
        sign(&Body::Fleet(self.fleet.clone()), &[&self.root])
    }

    /// Signed by two rollout keys: the threshold.
    pub(crate) fn signed(&self, rollout: &Rollout) -> Vec<u8> {
        let [a, b, _] = &self.rollout;
        sign(&Body::Rollout(rollout.clone()), &[a, b])
    }

    /// Signed by one rollout key.
    pub(crate) fn signed_by_one(&self, rollout: &Rollout) -> Vec<u8> {
        let [_, _, c] = &self.rollout;
        sign(&Body::Rollout(rollout.clone()), &[c])
    }

    pub(crate) fn certificate(&self, seed: u8, serial: u64) -> Certificate {
        Certificate {
            kind: NodeType,
            spec: Spec1,
            fleet: self.id(),
            node: node(seed),
            serial,
            issued_at: at(1),
            expires_at: None,
            name: format!("n{seed}").parse().unwrap(),
            pool: Some(Pool::new("edge").unwrap()),
            platform: Platform::new("linux-amd64").unwrap(),
            labels: BTreeMap::new(),
            retired: false,
        }
    }

    pub(crate) fn certificate_bytes(&self, certificate: &Certificate) -> Vec<u8> {
        sign(&Body::Node(certificate.clone()), &[&self.enroll])
    }

    pub(crate) fn release(&self, version: &str, sequence: u64) -> Release {
        Release {
            kind: ReleaseType,
            spec: Spec1,
            product: product(),
            version: Version::new(version).unwrap(),
            sequence: Sequence::new(sequence).unwrap(),
            issued_at: at(2),
            expires_at: at(90 * 86_400),
            keys: vec![self.release.listed()],
            artifacts: vec![Artifact {
                name: ArtifactName::new("bcd-linux-amd64").unwrap(),
                platform: Some(Platform::new("linux-amd64").unwrap()),
                sha256: Hex32([1; 32]),
                size: 1000,
                blake3: Hex32([2; 32]),
            }],
            upgrade_from: None,
            dead_end: None,
            blocks: Vec::new(),
            notes: None,
        }
    }

    pub(crate) fn release_bytes(&self, release: &Release) -> Vec<u8> {
        sign(&Body::Release(release.clone()), &[&self.release])
    }

    pub(crate) fn roster(&self, version: u64, certificates: &[Certificate]) -> Roster {
        let mut nodes: Vec<_> = certificates
            .iter()
            .map(|certificate| Listed {
                id: certificate.node,
                certificate: digest(&Body::Node(certificate.clone())),
                dormant: false,
            })
            .collect();
        nodes.sort_by_key(|listed| listed.id);
        Roster {
            kind: RosterType,
            spec: Spec1,
            fleet: self.id(),
            version,
            previous: if version == 1 { Vec::new() } else { vec![Digest::of(b"before")] },
            settled: 0,
            issued_at: at(3),
            keys: self.rollout_keys(),
            pools: BTreeMap::from([(Pool::new("edge").unwrap(), PoolPolicy::default())]),
            nodes,
            removed: Vec::new(),
            written_off: Vec::new(),
            meet: Vec::new(),
        }
    }

    pub(crate) fn roster_bytes(&self, roster: &Roster) -> Vec<u8> {
        let [a, b, _] = &self.rollout;
        sign(&Body::Roster(roster.clone()), &[a, b])
    }

    fn rollout_keys(&self) -> Vec<groundswell_core::trust::key::ListedKey> {
        let [a, b, _] = &self.rollout;
        let mut keys = vec![a.listed(), b.listed()];
        keys.sort_by_key(|key| key.kid);
        keys
    }

    /// Generation 1 of a rollout of `release` over `roster`, running.
    pub(crate) fn rollout(&self, id: &str, release: &Release, roster: &Roster) -> Rollout {
        let roster_body = Body::Roster(roster.clone());
        Rollout {
            kind: RolloutType,
            spec: Spec1,
            fleet: self.id(),
            id: RolloutId::new(id).unwrap(),
            generation: Generation::FIRST,
            previous: None,
            mode: Mode::Apply,
            state: State::Running,
            rollback: false,
            reason: groundswell_core::text::Reason::none(),
            urgent: false,
            from: None,
            release: ReleaseRef {
                product: release.product.clone(),
                version: release.version.clone(),
                sequence: release.sequence,
                digest: digest(&Body::Release(release.clone())),
            },
            roster: RosterRef {
                version: roster.version,
                digest: digest(&roster_body),
                size: u64::try_from(roster_body.encode().len()).unwrap(),
            },
            scope: Scope::default(),
            hash_attributes: Vec::new(),
            wary: BTreeMap::new(),
            waves: vec![
                Wave { percent_ppm: Some(Ppm::new(100_000).unwrap()), soak_seconds: 600, ..Wave::default() },
                Wave { percent_ppm: Some(Ppm::ALL), soak_seconds: 600, ..Wave::default() },
            ],
            open_waves: 0,
            min_soaked_ppm: Ppm::new(500_000).unwrap(),
            halt: Halt { max_failure_ppm: Ppm::new(50_000).unwrap(), min_failures: 1 },
            confirm_after_seconds: 60,
            upgrade_timeout_seconds: 900,
            revert_timeout_seconds: 300,
            offline_after_seconds: 1800,
            grace_seconds: 1800,
            prefetch: true,
            windows: Vec::new(),
            promotion: None,
            forgiven: Vec::new(),
            issued_at: at(4),
            expires_at: at(30 * 86_400),
            keys: self.rollout_keys(),
        }
    }

    /// Release 1.0.0, a roster of three nodes, and a rollout of the one over the other.
    pub(crate) fn scene(&self) -> (Release, Roster, Rollout) {
        let release = self.release("1.0.0", 1);
        let roster = self.roster(1, &[self.certificate(31, 1), self.certificate(32, 1), self.certificate(33, 1)]);
        let rollout = self.rollout("rollout_a", &release, &roster);
        (release, roster, rollout)
    }
}

/// The generation after `before`, running, with a later time of issue.
pub(crate) fn next(before: &Rollout) -> Rollout {
    Rollout {
        generation: before.generation.next().unwrap(),
        previous: Some(digest(&Body::Rollout(before.clone()))),
        issued_at: before.issued_at.plus_seconds(60),
        ..before.clone()
    }
}

/// The generation after `before`, paused.
pub(crate) fn paused(before: &Rollout) -> Rollout {
    Rollout { state: State::Paused, ..next(before) }
}

pub(crate) fn digest(body: &Body) -> Digest {
    Digest::of(&body.encode())
}

pub(crate) fn sign(body: &Body, keys: &[&SecretKey]) -> Vec<u8> {
    let bytes = body.encode();
    let signatures = keys.iter().map(|key| key.endorse(&bytes)).collect();
    Envelope { kind: body.kind(), body: bytes, signatures }.to_bytes()
}

/// Offers a document an hour after everything was signed.
pub(crate) fn offer(shelf: &mut Shelf, bytes: &[u8]) -> Result<Offered, Rejection> {
    shelf.offer(bytes, false, at(3600), &crypto())
}

/// The reason code with which a document is refused, and the field that it names.
pub(crate) fn refused(shelf: &mut Shelf, bytes: &[u8]) -> (Reason, String) {
    let rejection = offer(shelf, bytes).expect_err("the document must be refused");
    (rejection.reason, rejection.field)
}
