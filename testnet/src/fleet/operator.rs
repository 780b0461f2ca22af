//! The operator of a fleet: keys and fleet folder, releases and rollouts, all by the real `swell`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::builds::{self, Build};
use super::error::FleetError;
use super::plan::{PRODUCT, Plan, RolloutPlan};
use super::service::{Behaviour, Description, write_version};
use super::swell::Swell;

/// An operator with all keys.
#[derive(Clone, Debug)]
pub struct Operator {
    swell: Swell,
    folder: PathBuf,
    fleet: String,
    observer_key: PathBuf,
    program: PathBuf,
    padding_bytes: usize,
}

/// What `swell fleet init --json` prints.
#[derive(Deserialize)]
struct Made {
    fleet: String,
    observer: PathBuf,
}

/// What `swell node admit --json` prints for each node.
#[derive(Clone, Debug, Deserialize)]
pub struct Admitted {
    /// The node's id.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Its certificate's file.
    pub file: PathBuf,
}

/// A rollout generation that was signed.
#[derive(Clone, Debug, Deserialize)]
pub struct Signed {
    /// The rollout's id.
    pub id: String,
    /// Its generation.
    pub generation: u64,
    /// Its document.
    pub rollout: SignedDocument,
    /// The roster that was cut with it.
    #[serde(default)]
    pub roster: Option<SignedDocument>,
}

/// A document that was signed.
#[derive(Clone, Debug, Deserialize)]
pub struct SignedDocument {
    /// Its file.
    pub file: PathBuf,
}

impl Operator {
    /// Makes keys and a fleet folder under `folder`. `program` is the program of the sample service.
    ///
    /// # Errors
    /// When `swell` refuses.
    pub async fn new(swell: Swell, folder: &Path, program: &Path, plan: &Plan) -> Result<Self, FleetError> {
        let (fleet_folder, keys) = (folder.join("fleet"), folder.join("keys"));
        std::fs::create_dir_all(folder).map_err(FleetError::io(format!("cannot make {}", folder.display())))?;
        let arguments = ["fleet", "init", &text(&fleet_folder), "--keys", &text(&keys), "--product", PRODUCT];
        let made: Made = swell.json(arguments).await?;
        let roster = fleet_folder.join("roster.toml");
        std::fs::write(&roster, plan.roster_toml()).map_err(FleetError::io(format!("cannot write {}", roster.display())))?;
        Ok(Self {
            swell,
            folder: folder.to_path_buf(),
            fleet: made.fleet,
            observer_key: made.observer,
            program: program.to_path_buf(),
            padding_bytes: plan.padding_bytes,
        })
    }

    /// The fleet's id.
    #[must_use]
    pub fn fleet_id(&self) -> &str {
        &self.fleet
    }

    /// The fleet folder.
    #[must_use]
    pub fn fleet_folder(&self) -> PathBuf {
        self.folder.join("fleet")
    }

    /// The key of the operator's own observer certificate.
    #[must_use]
    pub fn observer_key(&self) -> &Path {
        &self.observer_key
    }

    /// A key of a role: `rollout`.
    #[must_use]
    pub fn key(&self, role: &str) -> PathBuf {
        self.folder.join("keys").join(format!("{role}.pem"))
    }

    /// Makes a node's key and request in `folder`; the request's file.
    ///
    /// # Errors
    /// When `swell` refuses.
    pub async fn init_node(&self, folder: &Path, name: &str, pool: &str) -> Result<PathBuf, FleetError> {
        self.swell.text(["node", "init", "--dir", &text(folder), "--name", name, "--pool", pool]).await?;
        Ok(folder.join(format!("{name}.req")))
    }

    /// Signs certificates for requests; by name.
    ///
    /// # Errors
    /// When `swell` refuses.
    pub async fn admit(&self, requests: &[PathBuf]) -> Result<BTreeMap<String, Admitted>, FleetError> {
        let mut arguments = vec!["node".to_owned(), "admit".to_owned(), text(&self.fleet_folder())];
        arguments.extend(["--key".to_owned(), text(&self.key("enroll"))]);
        arguments.extend(requests.iter().map(|request| text(request)));
        let admitted: Vec<Admitted> = self.swell.json(arguments).await?;
        Ok(admitted.into_iter().map(|node| (node.name.clone(), node)).collect())
    }

    /// The folder of a release's files.
    #[must_use]
    pub fn release_folder(&self, version: &str) -> PathBuf {
        self.folder.join("releases").join(version)
    }

    /// Makes a version of the sample service and signs it as a release; its folder.
    ///
    /// # Errors
    /// When a file cannot be written or `swell` refuses.
    pub async fn release(&self, version: &str, sequence: u64, behaviour: Behaviour) -> Result<PathBuf, FleetError> {
        let folder = self.release_folder(version);
        std::fs::create_dir_all(&folder).map_err(FleetError::io(format!("cannot make {}", folder.display())))?;
        let binary = folder.join(format!("{PRODUCT}-{}", platform()));
        let description = Description { version: version.to_owned(), behaviour };
        write_version(&self.program, &binary, &description, self.padding_bytes)
            .map_err(FleetError::io(format!("cannot make {}", binary.display())))?;
        self.sign(&folder, version, sequence).await?;
        Ok(folder)
    }

    /// Makes a build of the agent itself and signs it as a release; its folder.
    ///
    /// # Errors
    /// When a file cannot be written or `swell` refuses.
    pub async fn build(&self, version: &str, sequence: u64, build: Build) -> Result<PathBuf, FleetError> {
        let folder = self.release_folder(version);
        std::fs::create_dir_all(&folder).map_err(FleetError::io(format!("cannot make {}", folder.display())))?;
        let binary = folder.join(format!("{PRODUCT}-{}", platform()));
        builds::write(&binary, version, build, self.swell.path(), &self.program)
            .map_err(FleetError::io(format!("cannot make {}", binary.display())))?;
        self.sign(&folder, version, sequence).await?;
        Ok(folder)
    }

    /// Signs the files of `folder` as a release.
    ///
    /// # Errors
    /// When `swell` refuses.
    pub async fn sign(&self, folder: &Path, version: &str, sequence: u64) -> Result<(), FleetError> {
        let sequence = sequence.to_string();
        let (dir, key, fleet) = (text(folder), text(&self.key("release")), text(&self.fleet_folder()));
        let arguments = ["release", "sign", &dir, "--product", PRODUCT, "--version", version, "--sequence", &sequence];
        self.swell.text(arguments.into_iter().chain(["--key", &key, "--fleet", &fleet])).await?;
        Ok(())
    }

    /// Signs a rollout of a release, with a roster where membership changed.
    ///
    /// # Errors
    /// When `swell` refuses.
    pub async fn rollout(&self, version: &str, plan: &RolloutPlan, reason: &str) -> Result<Signed, FleetError> {
        let file = self.folder.join(format!("rollout-{version}.toml"));
        std::fs::write(&file, plan.to_toml(version, reason))
            .map_err(FleetError::io(format!("cannot write {}", file.display())))?;
        let (key, fleet) = (text(&self.key("rollout")), text(&self.fleet_folder()));
        let id = format!("rollout-{version}");
        self.swell.json(["rollout", "create", &text(&file), "--fleet", &fleet, "--key", &key, "--id", &id]).await
    }

    /// Signs the next generation of a rollout: `pause`, `resume`, `abort`, with further arguments.
    ///
    /// # Errors
    /// When `swell` refuses.
    pub async fn steer(&self, what: &str, rollout: &str, further: &[&str]) -> Result<Signed, FleetError> {
        let (key, fleet) = (text(&self.key("rollout")), text(&self.fleet_folder()));
        let arguments = ["rollout", what, rollout, "--fleet", &fleet, "--key", &key];
        self.swell.json(arguments.into_iter().chain(further.iter().copied())).await
    }
}

/// This machine's platform as artifacts name it.
#[must_use]
pub fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}-{architecture}", std::env::consts::OS)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
