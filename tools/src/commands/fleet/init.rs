//! `swell fleet init`: keys, the first fleet document, the folder, the operator's observer certificate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use groundswell_agent::identity;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::fleet::{Fleet, Limits, Role, Roles};
use groundswell_core::documents::tag::{FleetType, NodeType, Spec1};
use groundswell_core::limits::ROLE_KEYS;
use groundswell_core::text::{NodeName, Product};
use groundswell_core::trust::signing::SecretKey;
use serde::Serialize;

use crate::authoring::clock::now;
use crate::authoring::files::Batch;
use crate::authoring::measure::{Period, Share};
use crate::authoring::{keys, platform, roster_file};
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The fleet folder to make; keep it in git.
    dir: PathBuf,
    /// The folder for the secret keys; outside the fleet folder. Move them offline.
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// A product that the fleet runs; repeat for several.
    #[arg(long = "product", required = true, value_name = "NAME")]
    products: Vec<Product>,
    /// How many root keys to make.
    #[arg(long, default_value_t = 1, value_name = "N")]
    root_keys: u32,
    /// How many of them must sign a fleet document.
    #[arg(long, default_value_t = 1, value_name = "M")]
    root_threshold: u32,
    /// How many release keys to make; they sign every product.
    #[arg(long, default_value_t = 1, value_name = "N")]
    release_keys: u32,
    /// How many of them must sign a release.
    #[arg(long, default_value_t = 1, value_name = "M")]
    release_threshold: u32,
    /// How many rollout keys to make.
    #[arg(long, default_value_t = 1, value_name = "N")]
    rollout_keys: u32,
    /// How many of them must sign a rollout. One alone pauses and aborts.
    #[arg(long, default_value_t = 1, value_name = "M")]
    rollout_threshold: u32,
    /// How many enroll keys to make.
    #[arg(long, default_value_t = 1, value_name = "N")]
    enroll_keys: u32,
    /// How many of them must sign a certificate.
    #[arg(long, default_value_t = 1, value_name = "M")]
    enroll_threshold: u32,
    /// How long the fleet document is valid.
    #[arg(long, default_value = "1825d", value_name = "TIME")]
    expires_after: Period,
    /// Guard rail: every wave soaks at least this long.
    #[arg(long, default_value = "0s", value_name = "TIME")]
    min_soak: Period,
    /// Guard rail: the first wave holds at most this share of the nodes; one node always may.
    #[arg(long, default_value = "100%", value_name = "SHARE")]
    max_first_wave: Share,
    /// Guard rail: no pool's budget exceeds this share.
    #[arg(long, default_value = "100%", value_name = "SHARE")]
    max_budget: Share,
    /// The name of the operator's own observer certificate.
    #[arg(long, default_value = "operator", value_name = "NAME")]
    observer: NodeName,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    fleet: Digest,
    document: String,
    keys: BTreeMap<String, Vec<Digest>>,
    observer: String,
    files: Vec<String>,
}

/// The new keys of one role.
struct NewRole {
    name: &'static str,
    secrets: Vec<SecretKey>,
    threshold: u32,
}

/// Does it.
pub(crate) fn run(args: InitArgs) -> Result<(), Failure> {
    check_folders(&args)?;
    let root = NewRole::make("root", args.root_keys, args.root_threshold)?;
    let release = NewRole::make("release", args.release_keys, args.release_threshold)?;
    let rollout = NewRole::make("rollout", args.rollout_keys, args.rollout_threshold)?;
    let enroll = NewRole::make("enroll", args.enroll_keys, args.enroll_threshold)?;
    let fleet = document(&args, &root, &release, &rollout, &enroll);
    let document = signed(Body::Fleet(fleet), &root.secrets, "the fleet document")?;
    let id = document.digest();

    let secret = identity::generate().map_err(|source| Failure::failed("the operating system gives no randomness", source))?;
    let certificate = signed(Body::Node(observer(&args, id, &secret)), &enroll.secrets, "the operator's certificate")?;

    let mut batch = Batch::default();
    for role in [&root, &release, &rollout, &enroll] {
        role.write_to(&args.keys, &mut batch);
    }
    batch.new_public(args.dir.join("fleet-1.json"), document.to_bytes());
    batch.new_public(args.dir.join("certificates").join(format!("{}.json", args.observer)), certificate.to_bytes());
    batch.new_public(args.dir.join("roster.toml"), roster_file::DEFAULT);
    let observer_key = args.keys.join(format!("{}.key", args.observer));
    if observer_key.exists() {
        return Err(Failure::invalid(format!("{} exists already: nothing was written", observer_key.display())));
    }
    let mut files = batch.paths();
    batch.write()?;
    identity::write_key_file(&observer_key, &secret)
        .map_err(|error| Failure::failed(format!("cannot write {}", observer_key.display()), error))?;
    files.push(observer_key.display().to_string());

    let pins = [&root, &release, &rollout, &enroll].map(|role| (role.name.to_string(), role.pins()));
    let text = format!(
        "fleet {id}\nGive this id to every device by a way that you trust.\n\n{}\nMove the keys in {} offline: whoever has them can sign.",
        files.iter().map(|file| format!("  {file}\n")).collect::<String>(),
        args.keys.display()
    );
    let made = Made {
        fleet: id,
        document: args.dir.join("fleet-1.json").display().to_string(),
        keys: pins.into(),
        observer: observer_key.display().to_string(),
        files,
    };
    args.output.print(&text, &made);
    Ok(())
}

fn check_folders(args: &InitArgs) -> Result<(), Failure> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(|source| Failure::unreadable(path, source));
    if absolute(&args.keys)?.starts_with(absolute(&args.dir)?) {
        let what = format!("--keys {} lies in the fleet folder, which is public: name another folder", args.keys.display());
        return Err(Failure::invalid(what));
    }
    if args.dir.join("fleet-1.json").exists() {
        return Err(Failure::invalid(format!("{} holds a fleet already: nothing was written", args.dir.display())));
    }
    Ok(())
}

fn document(args: &InitArgs, root: &NewRole, release: &NewRole, rollout: &NewRole, enroll: &NewRole) -> Fleet {
    let Share(max_first_wave_ppm) = args.max_first_wave;
    let Share(max_budget_ppm) = args.max_budget;
    let issued_at = now();
    Fleet {
        kind: FleetType,
        spec: Spec1,
        fleet: None,
        version: 1,
        previous: None,
        issued_at,
        expires_at: issued_at.plus_seconds(args.expires_after.0),
        roles: Roles {
            root: root.role(),
            release: args.products.iter().map(|product| (product.clone(), release.role())).collect(),
            rollout: rollout.role(),
            enroll: enroll.role(),
        },
        limits: Limits { min_soak_seconds: args.min_soak.0, max_first_wave_ppm, max_budget_ppm },
        anchor: None,
        revoked: Vec::new(),
    }
}

fn observer(args: &InitArgs, fleet: Digest, secret: &identity::Secret) -> Certificate {
    Certificate {
        kind: NodeType,
        spec: Spec1,
        fleet,
        node: identity::node_id(secret),
        serial: 1,
        issued_at: now(),
        expires_at: None,
        name: args.observer.clone(),
        pool: None,
        platform: platform::of_this_machine(),
        labels: BTreeMap::new(),
        retired: false,
    }
}

fn signed(body: Body, keys: &[SecretKey], what: &str) -> Result<Envelope, Failure> {
    body.validate().map_err(|rejection| Failure::not_signable(what, rejection))?;
    let encoded = body.encode();
    let signatures = keys.iter().map(|key| key.endorse(&encoded)).collect();
    Ok(Envelope { kind: body.kind(), body: encoded, signatures })
}

impl NewRole {
    fn make(name: &'static str, count: u32, threshold: u32) -> Result<Self, Failure> {
        let most = u32::try_from(ROLE_KEYS).expect("a small number");
        if count == 0 || count > most || threshold == 0 || threshold > count {
            let what = format!(
                "--{name}-keys {count} --{name}-threshold {threshold}: 1 to {most} keys, and a threshold of 1 to all of them"
            );
            return Err(Failure::invalid(what));
        }
        let secrets = (0..count).map(|_| keys::generate()).collect::<Result<_, _>>()?;
        Ok(Self { name, secrets, threshold })
    }

    fn role(&self) -> Role {
        let mut keys: Vec<_> = self.secrets.iter().map(|key| key.public().clone()).collect();
        keys.sort();
        Role { keys, threshold: self.threshold }
    }

    fn pins(&self) -> Vec<Digest> {
        self.secrets.iter().map(SecretKey::pin).collect()
    }

    fn write_to(&self, dir: &Path, batch: &mut Batch) {
        for (number, key) in (1..).zip(&self.secrets) {
            let name = if self.secrets.len() == 1 { format!("{}.pem", self.name) } else { format!("{}-{number}.pem", self.name) };
            let path = dir.join(name);
            batch.new_public(keys::public_path(&path), key.public().to_pem());
            batch.new_secret(path, key.to_pem());
        }
    }
}
