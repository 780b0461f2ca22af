//! The helper's memory: the archive of documents, as soon as it can be read whole.
//!
//! What must not be forgotten and cannot be read keeps everything new from being installed. It keeps nobody from finishing,
//! confirming or taking back what is under way: those need no document.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use groundswell_core::number::Sequence;
use groundswell_core::text::Product;

use super::archive::{Archive, Pins};
use crate::install::files::Files;

/// The archive, or why there is none.
pub struct Memory {
    pins: Pins,
    files: Arc<dyn Files>,
    folder: PathBuf,
    archive: Result<Archive, Closed>,
    /// Raised while there was no archive.
    floors: BTreeMap<Product, Sequence>,
}

/// Why nothing new is installed, with the file and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing new is installed: {0}")]
pub struct Closed(String);

impl Memory {
    /// One that has not looked into `folder` yet.
    #[must_use]
    pub fn new(pins: Pins, files: Arc<dyn Files>, folder: PathBuf) -> Self {
        let archive = Err(Closed("the documents have not been read yet".to_owned()));
        Self { pins, files, folder, archive, floors: BTreeMap::new() }
    }

    /// Reads the archive, unless it is open already. What a person has repaired counts from then on. Blocking.
    pub fn look(&mut self) {
        let Err(before) = &self.archive else { return };
        match Archive::open(self.pins.clone(), Arc::clone(&self.files), &self.folder) {
            Ok(mut archive) => {
                for (product, floor) in std::mem::take(&mut self.floors) {
                    archive.raise_floor(&product, floor);
                }
                self.archive = Ok(archive);
            }
            Err(error) => {
                let closed = Closed(error.to_string());
                if closed != *before {
                    tracing::error!("{closed}; what is under way is finished or taken back all the same");
                }
                self.archive = Err(closed);
            }
        }
    }

    /// The archive.
    ///
    /// # Errors
    /// Why it is not open.
    pub fn archive(&mut self) -> Result<&mut Archive, &Closed> {
        self.archive.as_mut().map_err(|closed| &*closed)
    }

    /// Takes down what a product has confirmed, now or when the archive opens.
    pub fn raise_floor(&mut self, product: &Product, floor: Sequence) {
        match &mut self.archive {
            Ok(archive) => archive.raise_floor(product, floor),
            Err(_) => {
                let known = self.floors.entry(product.clone()).or_default();
                *known = floor.max(*known);
            }
        }
    }
}
