//! A small fleet with one key per role, and configurations of real agents for it.

#[path = "../../../testnet/src/fleet/ports.rs"]
#[expect(unreachable_pub, reason = "it is public where it lies")]
mod ports;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use groundswell_agent::clock;
use groundswell_agent::config::Config;
use groundswell_agent::identity::{self, Secret};
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

/// A published document.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
}

/// All keys of a fleet, its members, and a folder for everything.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) fleet: Published,
    body: Fleet,
    root: SecretKey,
    /// Signs certificates; the root key until it is rotated.
    enroll: SecretKey,
    certificates: Vec<(Certificate, Published)>,
    now: Timestamp,
}

pub(crate) fn product() -> Product {
    Product::new("svc").unwrap()
}

/// A second product: what a test takes for the agent itself.
pub(crate) fn agent_product() -> Product {
    Product::new("agent").unwrap()
}

const DAY_SECONDS: u64 = 86_400;

fn sign(body: &Body, key: &SecretKey) -> Published {
    let bytes = body.encode();
    let envelope = Envelope { kind: body.kind(), signatures: vec![key.endorse(&bytes)], body: bytes };
    Published { digest: envelope.digest(), bytes: envelope.to_bytes() }
}

impl World {
    pub(crate) fn new() -> Self {
        let root = SecretKey::generate(&[1; 32]).unwrap();
        let enroll = SecretKey::generate(&[1; 32]).unwrap();
        let now = clock::wall();
        let role = || Role { keys: vec![root.public().clone()], threshold: 1 };
        let fleet = Fleet {
            kind: FleetType,
            spec: Spec1,
            fleet: None,
            version: 1,
            previous: None,
            issued_at: now,
            expires_at: now.plus_seconds(30 * DAY_SECONDS),
            roles: Roles {
                root: role(),
                release: BTreeMap::from([(product(), role()), (agent_product(), role())]),
                rollout: role(),
                enroll: role(),
            },
            limits: Limits { min_soak_seconds: 0, max_first_wave_ppm: Ppm::ALL, max_budget_ppm: Ppm::ALL },
            anchor: None,
            revoked: Vec::new(),
        };
        let (body, fleet) = (fleet.clone(), sign(&Body::Fleet(fleet), &root));
        Self { folder: tempfile::tempdir().unwrap(), fleet, body, root, enroll, certificates: Vec::new(), now }
    }

    /// Time passes, and root signs the next fleet document: valid for two years, with another key that signs certificates,
    /// and `revoked`.
    pub(crate) fn rotate(&mut self, days: u64, revoked: Vec<NodeId>) -> Published {
        self.now = self.now.plus_seconds(days * DAY_SECONDS);
        self.enroll = SecretKey::generate(&[u8::try_from(self.body.version).unwrap() + 50; 32]).unwrap();
        let enroll = Role { keys: vec![self.enroll.public().clone()], threshold: 1 };
        self.next_fleet(|fleet| {
            fleet.roles.enroll = enroll;
            fleet.revoked = revoked;
        })
    }

    /// Root signs the next fleet document, under which the key that signed rosters and rollouts signs them no more.
    pub(crate) fn take_rollout_key_away(&mut self) -> Published {
        let other = SecretKey::generate(&[77; 32]).unwrap();
        self.next_fleet(|fleet| fleet.roles.rollout = Role { keys: vec![other.public().clone()], threshold: 1 })
    }

    fn next_fleet(&mut self, change: impl FnOnce(&mut Fleet)) -> Published {
        let previous = Digest::of(&Body::Fleet(self.body.clone()).encode());
        self.body.fleet = Some(self.fleet.digest);
        self.body.version += 1;
        self.body.previous = Some(previous);
        self.body.issued_at = self.now;
        self.body.expires_at = self.now.plus_seconds(730 * DAY_SECONDS);
        change(&mut self.body);
        sign(&Body::Fleet(self.body.clone()), &self.root)
    }

    /// Signs everybody's certificate anew, with the next serial and no end.
    pub(crate) fn renew(&mut self) -> Vec<Published> {
        let (now, enroll) = (self.now, &self.enroll);
        for (certificate, published) in &mut self.certificates {
            certificate.serial += 1;
            certificate.issued_at = now;
            certificate.expires_at = None;
            *published = sign(&Body::Node(certificate.clone()), enroll);
        }
        self.certificates().cloned().collect()
    }

    /// Gives the newest certificate an end, as if it had been signed with it.
    pub(crate) fn end_certificate(&mut self, config: &Config, days: u64) -> Published {
        let (now, enroll) = (self.now, &self.enroll);
        let (certificate, published) = self.certificates.last_mut().unwrap();
        certificate.expires_at = Some(now.plus_seconds(days * DAY_SECONDS));
        *published = sign(&Body::Node(certificate.clone()), enroll);
        std::fs::write(config.certificate_file.as_ref().unwrap(), &published.bytes).unwrap();
        published.clone()
    }

    /// Signs a certificate; without a pool: an observer's.
    pub(crate) fn admit(&mut self, name: &str, secret: &Secret, pool: Option<&str>) -> Published {
        let certificate = Certificate {
            kind: NodeType,
            spec: Spec1,
            fleet: self.fleet.digest,
            node: identity::node_id(secret),
            serial: 1,
            issued_at: self.now,
            expires_at: None,
            name: NodeName::new(name).unwrap(),
            pool: pool.map(|pool| Pool::new(pool).unwrap()),
            platform: groundswell_agent::agent::platform(),
            labels: BTreeMap::new(),
            retired: false,
        };
        let published = sign(&Body::Node(certificate.clone()), &self.enroll);
        self.certificates.push((certificate, published.clone()));
        published
    }

    pub(crate) fn certificates(&self) -> impl Iterator<Item = &Published> {
        self.certificates.iter().map(|(_, published)| published)
    }

    /// Version 1 of the roster: everybody with a pool.
    pub(crate) fn roster(&self) -> (Published, RosterRef) {
        let listed = self.certificates.iter().filter(|(certificate, _)| certificate.pool.is_some());
        let mut nodes: Vec<_> = listed
            .clone()
            .map(|(certificate, published)| Listed { id: certificate.node, certificate: published.digest, dormant: false })
            .collect();
        nodes.sort_by_key(|listed| listed.id);
        let pools = listed.filter_map(|(certificate, _)| certificate.pool.clone());
        let roster = Body::Roster(Roster {
            kind: RosterType,
            spec: Spec1,
            fleet: self.fleet.digest,
            version: 1,
            previous: Vec::new(),
            settled: 1,
            issued_at: self.now,
            keys: vec![self.root.listed()],
            pools: pools
                .map(|pool| (pool, PoolPolicy { budget_ppm: Ppm::ALL, urgent_budget_ppm: Ppm::ALL, ..PoolPolicy::default() }))
                .collect(),
            nodes,
            removed: Vec::new(),
            written_off: Vec::new(),
            meet: Vec::new(),
        });
        let published = sign(&roster, &self.root);
        let size = u64::try_from(roster.encode().len()).unwrap();
        let named = RosterRef { version: 1, digest: published.digest, size };
        (published, named)
    }

    /// A release of one script.
    pub(crate) fn release(&self, version: &str, sequence: u64, content: &[u8]) -> (Published, Release) {
        self.release_of(product(), version, sequence, content)
    }

    /// A release of one script, of any product of the fleet.
    pub(crate) fn release_of(&self, product: Product, version: &str, sequence: u64, content: &[u8]) -> (Published, Release) {
        let release = Release {
            kind: ReleaseType,
            spec: Spec1,
            product,
            version: Version::new(version).unwrap(),
            sequence: Sequence::new(sequence).unwrap(),
            issued_at: self.now,
            expires_at: self.now.plus_seconds(30 * DAY_SECONDS),
            keys: vec![self.root.listed()],
            artifacts: vec![Artifact {
                name: ArtifactName::new("svc").unwrap(),
                platform: Some(groundswell_agent::agent::platform()),
                sha256: Digest::of(content).hex(),
                size: u64::try_from(content.len()).unwrap(),
                blake3: Hex32(*blake3::hash(content).as_bytes()),
            }],
            upgrade_from: None,
            dead_end: None,
            blocks: Vec::new(),
            notes: None,
        };
        (sign(&Body::Release(release.clone()), &self.root), release)
    }

    /// A rollout over everybody, in a canary wave and the rest.
    pub(crate) fn rollout(&self, id: &str, release: &Published, of: &Release, roster: &RosterRef) -> Published {
        let wave = |parts| Wave { percent_ppm: Some(Ppm::new(parts).unwrap()), soak_seconds: 1, ..Wave::default() };
        let rollout = Rollout {
            kind: RolloutType,
            spec: Spec1,
            fleet: self.fleet.digest,
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
                product: of.product.clone(),
                version: of.version.clone(),
                sequence: of.sequence,
                digest: release.digest,
            },
            roster: roster.clone(),
            scope: Scope::default(),
            hash_attributes: Vec::new(),
            wary: BTreeMap::new(),
            waves: vec![wave(100_000), wave(1_000_000)],
            open_waves: 2,
            min_soaked_ppm: Ppm::new(500_000).unwrap(),
            halt: Halt { max_failure_ppm: Ppm::new(50_000).unwrap(), min_failures: 1 },
            confirm_after_seconds: 1,
            upgrade_timeout_seconds: 60,
            revert_timeout_seconds: 30,
            offline_after_seconds: 300,
            grace_seconds: 60,
            prefetch: true,
            windows: Vec::new(),
            promotion: None,
            forgiven: Vec::new(),
            issued_at: self.now,
            expires_at: self.now.plus_seconds(30 * DAY_SECONDS),
            keys: vec![self.root.listed()],
        };
        sign(&Body::Rollout(rollout), &self.root)
    }

    /// A folder with key, certificate, fleet document and configuration of a new node; it supervises `svc`.
    pub(crate) fn machine(&mut self, name: &str, port: u16, bootstrap: &[u16]) -> Config {
        self.machine_with(name, port, bootstrap, &[product()])
    }

    /// The same with these products, each a child of the agent.
    pub(crate) fn machine_with(&mut self, name: &str, port: u16, bootstrap: &[u16], products: &[Product]) -> Config {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let secret = identity::generate().unwrap();
        identity::write_key_file(&folder.join("node.key"), &secret).unwrap();
        let certificate = self.admit(name, &secret, Some("pool"));
        std::fs::write(folder.join("node.json"), certificate.bytes).unwrap();
        std::fs::write(folder.join("fleet.json"), &self.fleet.bytes).unwrap();
        let peers: Vec<String> = bootstrap.iter().map(|port| format!("\"/ip4/127.0.0.1/tcp/{port}\"")).collect();
        let text = format!(
            r#"
            data-dir = "data"
            fleet = "{}"
            documents = ["fleet.json"]
            key-file = "node.key"
            certificate-file = "node.json"
            listen = ["/ip4/127.0.0.1/tcp/{port}"]
            bootstrap = [{}]
            [limits]
            keep-free = "1MiB"
            "#,
            self.fleet.digest,
            peers.join(", "),
        );
        let text = products.iter().fold(text, |text, product| {
            format!(
                r#"{text}
                [product.{product}]
                activator = {{ type = "supervise", run = ["{{binary}}"], stop-timeout = "1s" }}
                health = {{ type = "process", interval = "200ms", timeout = "1s" }}
                "#
            )
        });
        Config::parse(&folder.join("agent.toml"), &text).unwrap()
    }

    /// Everything that an observer must know.
    pub(crate) fn known(&self) -> Vec<Vec<u8>> {
        let fleet = std::iter::once(self.fleet.bytes.clone());
        fleet.chain(self.certificates().map(|published| published.bytes.clone())).collect()
    }
}

/// A port that nothing listens on now, and that no other test is given.
pub(crate) fn free_port() -> u16 {
    ports::free(1).unwrap().remove(0)
}

/// Writes a small program and returns its path.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}
