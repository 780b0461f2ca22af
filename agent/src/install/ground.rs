//! Whose slots a device uses, and who carries its steps out: this agent, or a helper that it asks.

use std::path::PathBuf;
use std::sync::Arc;

use groundswell_core::node::effect::Step;
use groundswell_core::node::input::Recovered;

use super::activate::Launch;
use super::artifact::ArtifactSource;
use super::device::DeviceError;
use super::disk::{Disk, Place};
use super::durable::make_folder;
use super::executor::{Executor, Outcome};
use super::lock::{Lock, lock};
use super::remote::{Remote, Shown};

/// Whose slots they are.
pub(super) enum Ground {
    /// This agent's, once the disk lets them be used.
    Own { place: Place, artifacts: Arc<dyn ArtifactSource>, opened: Option<(Arc<Disk>, Lock)> },
    /// A helper's.
    Helper { socket: PathBuf, source: Arc<dyn ArtifactSource>, shown: Arc<Shown> },
}

impl Ground {
    /// The files, where they are this agent's and can be used.
    pub(super) fn disk(&self) -> Option<Arc<Disk>> {
        match self {
            Self::Own { opened, .. } => opened.as_ref().map(|(disk, _)| Arc::clone(disk)),
            Self::Helper { .. } => None,
        }
    }
}

/// Locks a product's folder and opens it, in this order: nothing is read before nobody else writes.
pub(super) fn open(place: Place, artifacts: Arc<dyn ArtifactSource>) -> Result<(Arc<Disk>, Lock), DeviceError> {
    let (product, folder) = (place.product.clone(), place.folder.clone());
    let refused = |source| DeviceError::Folder { product: product.clone(), folder: folder.clone(), source };
    make_folder(&*place.files, &folder).map_err(refused)?;
    let lock = lock(&folder).map_err(refused)?;
    let lock = lock.ok_or_else(|| DeviceError::InUse { product: product.clone(), folder: folder.clone() })?;
    Ok((Arc::new(Disk::open(place, artifacts).map_err(refused)?), lock))
}

/// Who carries steps out: this agent, or a helper that it asks.
pub(super) enum Installer {
    Own(Box<Executor>),
    Helper(Box<Remote>),
}

impl Installer {
    pub(super) async fn recover(&mut self) -> Option<Recovered> {
        match self {
            Self::Own(executor) => executor.recover().await,
            Self::Helper(remote) => remote.recover().await,
        }
    }

    pub(super) async fn execute(&mut self, step: &Step) -> Outcome {
        match self {
            Self::Own(executor) => executor.execute(step).await,
            Self::Helper(remote) => remote.execute(step).await,
        }
    }

    /// What runs, and the number of its start.
    pub(super) fn running(&self) -> (u64, Option<Launch>) {
        match self {
            Self::Own(executor) => executor.running(),
            Self::Helper(remote) => remote.running(),
        }
    }

    /// Gives space back where there is too little; a helper looks after its own.
    pub(super) async fn reclaim(&mut self) -> bool {
        match self {
            Self::Own(executor) => executor.reclaim().await,
            Self::Helper(_) => false,
        }
    }

    /// Writes what a full disk has left over.
    pub(super) async fn settle(&mut self) {
        match self {
            Self::Own(executor) => executor.settle().await,
            Self::Helper(_) => {}
        }
    }

    pub(super) async fn shutdown(self) {
        match self {
            Self::Own(executor) => executor.shutdown().await,
            // What it has begun it finishes without us.
            Self::Helper(_) => {}
        }
    }
}
