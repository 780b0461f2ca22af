//! A small fleet with one key per role, and configurations of real agents for it.

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
    root: SecretKey,
    certificates: Vec<(Certificate, Published)>,
    now: Timestamp,
}

pub(crate) fn product() -> Product {
    Product::new("svc").unwrap()
}

fn sign(body: &Body, key: &SecretKey) -> Published {
    let bytes = body.encode();
    let envelope = Envelope { kind: body.kind(), signatures: vec![key.endorse(&bytes)], body: bytes };
    Published { digest: envelope.digest(), bytes: envelope.to_bytes() }
}

impl World {
    pub(crate) fn new() -> Self {
        let root = SecretKey::generate(&[1; 32]).unwrap();
        let now = clock::wall();
        let role = || Role { keys: vec![root.public().clone()], threshold: 1 };
        let fleet = Fleet {
            kind: FleetType,
            spec: Spec1,
            fleet: None,
            version: 1,
            previous: None,
            issued_at: now,
            expires_at: now.plus_seconds(86_400),
            roles: Roles { root: role(), release: BTreeMap::from([(product(), role())]), rollout: role(), enroll: role() },
            limits: Limits { min_soak_seconds: 0, max_first_wave_ppm: Ppm::ALL, max_budget_ppm: Ppm::ALL },
            anchor: None,
            revoked: Vec::new(),
        };
        let fleet = sign(&Body::Fleet(fleet), &root);
        Self { folder: tempfile::tempdir().unwrap(), fleet, root, certificates: Vec::new(), now }
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
        let published = sign(&Body::Node(certificate.clone()), &self.root);
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
        let release = Release {
            kind: ReleaseType,
            spec: Spec1,
            product: product(),
            version: Version::new(version).unwrap(),
            sequence: Sequence::new(sequence).unwrap(),
            issued_at: self.now,
            expires_at: self.now.plus_seconds(86_400),
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
                product: product(),
                version: of.version.clone(),
                sequence: of.sequence,
                digest: release.digest,
            },
            roster: roster.clone(),
            scope: Scope::default(),
            hash_attributes: Vec::new(),
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
            expires_at: self.now.plus_seconds(86_400),
            keys: vec![self.root.listed()],
        };
        sign(&Body::Rollout(rollout), &self.root)
    }

    /// A folder with key, certificate, fleet document and configuration of a new node; it supervises `svc`.
    pub(crate) fn machine(&mut self, name: &str, port: u16, bootstrap: &[u16]) -> Config {
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
            [product.svc]
            activator = {{ type = "supervise", run = ["{{binary}}"], stop-timeout = "1s" }}
            health = {{ type = "process", interval = "200ms", timeout = "1s" }}
            "#,
            self.fleet.digest,
            peers.join(", "),
        );
        Config::parse(&folder.join("agent.toml"), &text).unwrap()
    }

    /// Everything that an observer must know.
    pub(crate) fn known(&self) -> Vec<Vec<u8>> {
        let fleet = std::iter::once(self.fleet.bytes.clone());
        fleet.chain(self.certificates().map(|published| published.bytes.clone())).collect()
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes a small program and returns its path.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}
