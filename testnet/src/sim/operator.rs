//! An operator with real keys: cuts rosters, signs releases and rollouts as the tools do.

use std::collections::BTreeMap;

use groundswell_core::crypto::{Crypto as _, SoftwareCrypto};
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::documents::Kind;
use groundswell_core::documents::canonical::encode;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::fleet::{Fleet, Limits, Role, Roles};
use groundswell_core::documents::release::{Artifact, Release};
use groundswell_core::documents::rollout::{Halt, Mode, ReleaseRef, Rollout, RosterRef, Scope, State, Wave};
use groundswell_core::documents::roster::{Listed, PoolPolicy, Roster};
use groundswell_core::documents::tag::{FleetType, NodeType, ReleaseType, RolloutType, RosterType, Spec1};
use groundswell_core::node_id::NodeId;
use groundswell_core::number::{Generation, Ppm, Sequence};
use groundswell_core::text::{ArtifactName, NodeName, Platform, Pool, Product, Reason, RolloutId, Version};
use groundswell_core::time::Timestamp;
use groundswell_core::trust::signing::SecretKey;
use serde::Serialize;

/// When the virtual world begins: 2026-11-30T00:00:00Z.
pub const BEGINNING: u64 = 1_795_996_800;

/// Holds every key of a fleet of one product, `svc`.
#[derive(Debug)]
pub struct Operator {
    root: SecretKey,
    release: SecretKey,
    rollout: SecretKey,
    enroll: SecretKey,
    fleet: Vec<u8>,
    fleet_id: Digest,
    certificates: BTreeMap<NodeId, (Digest, Certificate)>,
    roster: Option<(RosterRef, Digest)>,
    /// The pools' policy in the next roster.
    pub policies: BTreeMap<Pool, PoolPolicy>,
    /// The operator's wall clock.
    pub wall: Timestamp,
}

/// A published document with the digest of its body.
#[derive(Clone, Debug)]
pub struct Published {
    /// The envelope.
    pub bytes: Vec<u8>,
    /// Digest of the body.
    pub digest: Digest,
}

fn role(key: &SecretKey) -> Role {
    Role { keys: vec![key.public().clone()], threshold: 1 }
}

fn publish(kind: Kind, body: &impl Serialize, key: &SecretKey) -> Published {
    let body = encode(body);
    let digest = Digest::of(&body);
    let signatures = vec![key.endorse(&body)];
    Published { bytes: Envelope { kind, body, signatures }.to_bytes(), digest }
}

/// The product that virtual worlds roll out.
#[must_use]
pub fn product() -> Product {
    Product::new("svc").expect("a plain name")
}

/// The platform of every virtual machine.
#[must_use]
pub fn platform() -> Platform {
    Platform::new("linux-amd64").expect("a plain name")
}

/// The secret of the node number `index`.
#[must_use]
pub fn node_secret(index: u32) -> [u8; 32] {
    let mut secret = [0x5a; 32];
    secret[..4].copy_from_slice(&index.to_le_bytes());
    secret
}

impl Operator {
    /// A new fleet with one key per role, under guard rails that allow all but for what `limit` changes.
    #[must_use]
    pub fn new(limit: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits { min_soak_seconds: 0, max_first_wave_ppm: Ppm::ALL, max_budget_ppm: Ppm::ALL };
        limit(&mut limits);
        let key = |seed: u8| SecretKey::generate(&[seed; 32]).expect("any non-zero seed gives a key");
        let (root, release, rollout, enroll) = (key(1), key(2), key(3), key(4));
        let fleet = Fleet {
            kind: FleetType,
            spec: Spec1,
            fleet: None,
            version: 1,
            previous: None,
            issued_at: Timestamp::from_seconds(BEGINNING),
            expires_at: Timestamp::from_seconds(BEGINNING + 365 * 86_400),
            roles: Roles {
                root: role(&root),
                release: BTreeMap::from([(product(), role(&release))]),
                rollout: role(&rollout),
                enroll: role(&enroll),
            },
            limits,
            anchor: None,
            revoked: Vec::new(),
        };
        let published = publish(Kind::Fleet, &fleet, &root);
        Self {
            root,
            release,
            rollout,
            enroll,
            fleet: published.bytes,
            fleet_id: published.digest,
            certificates: BTreeMap::new(),
            roster: None,
            policies: BTreeMap::new(),
            wall: Timestamp::from_seconds(BEGINNING),
        }
    }

    /// The fleet's id.
    #[must_use]
    pub fn fleet_id(&self) -> Digest {
        self.fleet_id
    }

    /// The fleet document.
    #[must_use]
    pub fn fleet(&self) -> &[u8] {
        &self.fleet
    }

    /// The root key, for documents that this operator does not sign by itself.
    #[must_use]
    pub fn root(&self) -> &SecretKey {
        &self.root
    }

    /// Signs the certificate of node number `index`.
    pub fn admit(&mut self, index: u32, pool: &str) -> Published {
        let node = SoftwareCrypto::from_secret(&node_secret(index)).node();
        let certificate = Certificate {
            kind: NodeType,
            spec: Spec1,
            fleet: self.fleet_id,
            node,
            serial: 1,
            issued_at: self.wall,
            expires_at: None,
            name: NodeName::new(format!("n{index}")).expect("a plain name"),
            pool: Some(Pool::new(pool).expect("a plain name")),
            platform: platform(),
            labels: BTreeMap::new(),
            retired: false,
        };
        let published = publish(Kind::Node, &certificate, &self.enroll);
        self.certificates.insert(node, (published.digest, certificate));
        published
    }

    /// Signs the retirement of node number `index`: the same certificate under the next serial.
    ///
    /// # Panics
    /// When it was never admitted.
    #[must_use]
    pub fn retire(&self, index: u32) -> Published {
        let node = SoftwareCrypto::from_secret(&node_secret(index)).node();
        let (_, certificate) = self.certificates.get(&node).expect("only an admitted node is retired");
        let retired = Certificate { serial: certificate.serial + 1, retired: true, ..certificate.clone() };
        publish(Kind::Node, &retired, &self.enroll)
    }

    /// Cuts the next roster from every certificate.
    pub fn cut_roster(&mut self) -> Published {
        let (version, previous) = match &self.roster {
            Some((roster, digest)) => (roster.version + 1, vec![*digest]),
            None => (1, Vec::new()),
        };
        let nodes = self.certificates.iter();
        let nodes = nodes.map(|(id, (certificate, _))| Listed { id: *id, certificate: *certificate, dormant: false }).collect();
        let mut pools = self.policies.clone();
        for (_, certificate) in self.certificates.values() {
            if let Some(pool) = &certificate.pool {
                pools.entry(pool.clone()).or_default();
            }
        }
        let roster = Roster {
            kind: RosterType,
            spec: Spec1,
            fleet: self.fleet_id,
            version,
            previous,
            settled: 1,
            issued_at: self.wall,
            keys: vec![self.rollout.listed()],
            pools,
            nodes,
            removed: Vec::new(),
            written_off: Vec::new(),
            meet: Vec::new(),
        };
        let size = encode(&roster).len() as u64;
        let published = publish(Kind::Roster, &roster, &self.rollout);
        self.roster = Some((RosterRef { version, digest: published.digest, size }, published.digest));
        published
    }

    /// Signs a release of one artifact whose content is `content`.
    #[must_use]
    pub fn release(&self, version: &str, sequence: u64, content: &[u8]) -> (Published, Release) {
        let release = Release {
            kind: ReleaseType,
            spec: Spec1,
            product: product(),
            version: Version::new(version).expect("a plain version"),
            sequence: Sequence::new(sequence).expect("a small sequence"),
            issued_at: self.wall,
            expires_at: self.wall.plus_seconds(90 * 86_400),
            keys: vec![self.release.listed()],
            artifacts: vec![Artifact {
                name: ArtifactName::new("svc-linux-amd64").expect("a plain name"),
                platform: Some(platform()),
                sha256: Digest::of(content).hex(),
                size: content.len() as u64,
                blake3: Hex32(*blake3_of(content).as_bytes()),
            }],
            upgrade_from: None,
            dead_end: None,
            blocks: Vec::new(),
            notes: None,
        };
        (self.sign_release(&release), release)
    }

    /// Signs a release as it is.
    #[must_use]
    pub fn sign_release(&self, release: &Release) -> Published {
        publish(Kind::Release, release, &self.release)
    }

    /// The first generation of a rollout of `release` over everybody, with short times; not signed yet.
    ///
    /// # Panics
    /// When no roster was cut before.
    #[must_use]
    pub fn rollout(&self, id: &str, release: &Published, of: &Release) -> Rollout {
        let share = |percent_ppm| Wave {
            percent_ppm: Some(Ppm::new(percent_ppm).expect("a share")),
            soak_seconds: 30,
            ..Wave::default()
        };
        Rollout {
            kind: RolloutType,
            spec: Spec1,
            fleet: self.fleet_id,
            id: RolloutId::new(id).expect("a plain id"),
            generation: Generation::FIRST,
            previous: None,
            mode: Mode::Apply,
            state: State::Running,
            rollback: false,
            reason: Reason::none(),
            urgent: false,
            from: None,
            release: ReleaseRef {
                product: of.product.clone(),
                version: of.version.clone(),
                sequence: of.sequence,
                digest: release.digest,
            },
            roster: self.roster.as_ref().expect("a roster is cut before a rollout").0.clone(),
            scope: Scope::default(),
            hash_attributes: Vec::new(),
            waves: vec![share(100_000), share(500_000), share(1_000_000)],
            open_waves: 3,
            min_soaked_ppm: Ppm::new(500_000).expect("a share"),
            halt: Halt { max_failure_ppm: Ppm::new(50_000).expect("a share"), min_failures: 1 },
            confirm_after_seconds: 5,
            upgrade_timeout_seconds: 60,
            revert_timeout_seconds: 30,
            offline_after_seconds: 300,
            grace_seconds: 60,
            prefetch: true,
            windows: Vec::new(),
            promotion: None,
            forgiven: Vec::new(),
            issued_at: self.wall,
            expires_at: self.wall.plus_seconds(30 * 86_400),
            keys: vec![self.rollout.listed()],
        }
    }

    /// Signs a generation as it is.
    #[must_use]
    pub fn sign_rollout(&self, rollout: &Rollout) -> Published {
        publish(Kind::Rollout, rollout, &self.rollout)
    }

    /// The next generation of `rollout`, changed by `change`, with the link to its predecessor.
    #[must_use]
    pub fn next(&self, rollout: &Rollout, change: impl FnOnce(&mut Rollout)) -> Rollout {
        let mut next = rollout.clone();
        next.previous = Some(self.sign_rollout(rollout).digest);
        next.generation = rollout.generation.next().expect("few generations");
        next.issued_at = self.wall;
        change(&mut next);
        next
    }
}

fn blake3_of(content: &[u8]) -> blake3::Hash {
    blake3::hash(content)
}
