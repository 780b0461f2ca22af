//! An operator with real keys: cuts rosters, signs releases and rollouts as the tools do.

use std::collections::{BTreeMap, BTreeSet};

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
use groundswell_core::trust::key::{ListedKey, PublicKey};
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
    /// The second key of the rollout role, where it asks for two.
    second: Option<SecretKey>,
    enroll: SecretKey,
    fleet: Vec<u8>,
    fleet_id: Digest,
    certificates: BTreeMap<NodeId, (Digest, Certificate)>,
    removed: BTreeSet<NodeId>,
    roster: Option<(RosterRef, Digest)>,
    /// Every roster that was cut, by its digest.
    pub rosters: BTreeMap<Digest, Roster>,
    /// The pools' policy in the next roster.
    pub policies: BTreeMap<Pool, PoolPolicy>,
    /// Pools whose policy the next roster does not say, as no tool would cut it.
    pub unsaid: BTreeSet<Pool>,
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

/// A role that asks for every one of its keys.
fn role(keys: &[&SecretKey]) -> Role {
    let mut public: Vec<_> = keys.iter().map(|key| key.public().clone()).collect();
    public.sort_by_key(PublicKey::pin);
    Role { threshold: u32::try_from(public.len()).expect("few keys"), keys: public }
}

fn listed(keys: &[&SecretKey]) -> Vec<ListedKey> {
    let mut listed: Vec<ListedKey> = keys.iter().map(|key| key.listed()).collect();
    listed.sort_by_key(|key| key.kid);
    listed
}

fn publish(kind: Kind, body: &impl Serialize, keys: &[&SecretKey]) -> Published {
    let body = encode(body);
    let digest = Digest::of(&body);
    let signatures = keys.iter().map(|key| key.endorse(&body)).collect();
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
        Self::with_rollout_keys(limit, 1)
    }

    /// The same where the rollout role asks for so many signatures: 1 or 2.
    #[must_use]
    pub fn with_rollout_keys(limit: impl FnOnce(&mut Limits), asked: u32) -> Self {
        let mut limits = Limits { min_soak_seconds: 0, max_first_wave_ppm: Ppm::ALL, max_budget_ppm: Ppm::ALL };
        limit(&mut limits);
        let key = |seed: u8| SecretKey::generate(&[seed; 32]).expect("any non-zero seed gives a key");
        let (root, release, rollout, enroll) = (key(1), key(2), key(3), key(4));
        let second = (asked > 1).then(|| key(5));
        let both: Vec<&SecretKey> = std::iter::once(&rollout).chain(&second).collect();
        let fleet = Fleet {
            kind: FleetType,
            spec: Spec1,
            fleet: None,
            version: 1,
            previous: None,
            issued_at: Timestamp::from_seconds(BEGINNING),
            expires_at: Timestamp::from_seconds(BEGINNING + 365 * 86_400),
            roles: Roles {
                root: role(&[&root]),
                release: BTreeMap::from([(product(), role(&[&release]))]),
                rollout: role(&both),
                enroll: role(&[&enroll]),
            },
            limits,
            anchor: None,
            revoked: Vec::new(),
        };
        let published = publish(Kind::Fleet, &fleet, &[&root]);
        Self {
            root,
            release,
            rollout,
            second,
            enroll,
            fleet: published.bytes,
            fleet_id: published.digest,
            certificates: BTreeMap::new(),
            removed: BTreeSet::new(),
            roster: None,
            rosters: BTreeMap::new(),
            policies: BTreeMap::new(),
            unsaid: BTreeSet::new(),
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
        let published = publish(Kind::Node, &certificate, &[&self.enroll]);
        self.certificates.insert(node, (published.digest, certificate));
        published
    }

    /// Signs the retirement of node number `index`: the same certificate under the next serial. No later roster lists it.
    ///
    /// # Panics
    /// When it was never admitted, or is retired already.
    pub fn retire(&mut self, index: u32) -> Published {
        let node = SoftwareCrypto::from_secret(&node_secret(index)).node();
        let (_, certificate) = self.certificates.remove(&node).expect("only an admitted node is retired");
        self.removed.insert(node);
        let retired = Certificate { serial: certificate.serial + 1, retired: true, ..certificate };
        publish(Kind::Node, &retired, &[&self.enroll])
    }

    fn rollout_keys(&self) -> Vec<&SecretKey> {
        std::iter::once(&self.rollout).chain(&self.second).collect()
    }

    /// Cuts the next roster from every certificate. After rivals it names both.
    pub fn cut_roster(&mut self) -> Published {
        let newest = self.roster.as_ref().map_or(0, |(roster, _)| roster.version);
        let before = self.rosters.iter().filter(|(_, roster)| roster.version == newest);
        let previous = before.map(|(digest, _)| *digest).collect();
        self.cut(newest + 1, previous)
    }

    /// Cuts a rival of the newest roster: the same version, from what came before that.
    ///
    /// # Panics
    /// When there is no roster yet.
    pub fn cut_rival(&mut self) -> Published {
        let (newest, _) = self.roster.as_ref().expect("a roster is cut before its rival");
        let version = newest.version;
        let previous = self.rosters.get(&newest.digest).map(|roster| roster.previous.clone());
        self.cut(version, previous.unwrap_or_default())
    }

    fn cut(&mut self, version: u64, previous: Vec<Digest>) -> Published {
        let nodes = self.certificates.iter();
        let nodes = nodes.map(|(id, (certificate, _))| Listed { id: *id, certificate: *certificate, dormant: false }).collect();
        let mut pools = self.policies.clone();
        for (_, certificate) in self.certificates.values() {
            if let Some(pool) = &certificate.pool {
                pools.entry(pool.clone()).or_default();
            }
        }
        pools.retain(|pool, _| !self.unsaid.contains(pool));
        let roster = Roster {
            kind: RosterType,
            spec: Spec1,
            fleet: self.fleet_id,
            version,
            previous,
            settled: 1,
            issued_at: self.wall,
            keys: listed(&self.rollout_keys()),
            pools,
            nodes,
            removed: self.removed.iter().copied().collect(),
            written_off: Vec::new(),
            meet: Vec::new(),
        };
        let size = encode(&roster).len() as u64;
        let published = publish(Kind::Roster, &roster, &self.rollout_keys());
        self.roster = Some((RosterRef { version, digest: published.digest, size }, published.digest));
        self.rosters.insert(published.digest, roster);
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
        publish(Kind::Release, release, &[&self.release])
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
            wary: BTreeMap::new(),
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
            keys: listed(&self.rollout_keys()),
        }
    }

    /// Signs a generation as it is, with the keys that it names.
    #[must_use]
    pub fn sign_rollout(&self, rollout: &Rollout) -> Published {
        let named = |key: &&SecretKey| rollout.keys.iter().any(|listed| listed.kid == key.pin());
        let keys: Vec<&SecretKey> = self.rollout_keys().into_iter().filter(named).collect();
        publish(Kind::Rollout, rollout, &keys)
    }

    /// What a generation names as its keys when one operator brakes alone.
    #[must_use]
    pub fn one_key(&self) -> Vec<ListedKey> {
        listed(&[&self.rollout])
    }

    /// The next generation of `rollout`, changed by `change`, with the link to its predecessor.
    #[must_use]
    pub fn next(&self, rollout: &Rollout, change: impl FnOnce(&mut Rollout)) -> Rollout {
        let mut next = rollout.clone();
        next.previous = Some(self.sign_rollout(rollout).digest);
        next.generation = rollout.generation.next().expect("few generations");
        next.issued_at = self.wall;
        next.keys = listed(&self.rollout_keys());
        change(&mut next);
        next
    }
}

fn blake3_of(content: &[u8]) -> blake3::Hash {
    blake3::hash(content)
}
