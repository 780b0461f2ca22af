//! What is started: placeholders in arguments, and the environment that every command gets.

use std::path::{Path, PathBuf};
use std::{fs, io};

use groundswell_core::install::{Contents, Slot, Transaction};
use groundswell_core::record::ClaimName;
use groundswell_core::text::Product;

use crate::install::disk::Failure;
use crate::install::slots::Slots;
use crate::scarcity::is_of_the_file;

/// A version to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The product.
    pub product: Product,
    /// The version.
    pub contents: Contents,
    /// The folder of its slot.
    pub slot: PathBuf,
    /// Its binary.
    pub binary: PathBuf,
    /// The claim under which it is activated; none for a confirmed version.
    pub claim: Option<ClaimName>,
    /// Whether it is on trial; the last confirmed version otherwise.
    pub trial: bool,
}

impl Launch {
    /// The version in a slot; `trial` is the transaction that brings it, as long as it is not confirmed.
    #[must_use]
    pub fn new(slots: &Slots, slot: Slot, contents: Contents, trial: Option<&Transaction>) -> Self {
        Self {
            product: slots.product().clone(),
            contents,
            slot: slots.slot_folder(slot),
            binary: slots.binary(slot),
            claim: trial.and_then(|transaction| transaction.claim),
            trial: trial.is_some(),
        }
    }

    /// The product's folder: that of its slots is in it. `None` for a slot that is in no such folder.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.slot.parent()?.parent()
    }

    /// Replaces `{slot}`, `{binary}`, `{version}` and `{product}` in a text. One pass: what is put in is not looked at.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let (value, behind) = match after.split_once('}') {
                Some(("slot", behind)) => (self.slot.to_string_lossy().into_owned(), behind),
                Some(("binary", behind)) => (self.binary.to_string_lossy().into_owned(), behind),
                Some(("version", behind)) => (self.contents.version.to_string(), behind),
                Some(("product", behind)) => (self.product.to_string(), behind),
                _ => ("{".to_owned(), after),
            };
            filled.push_str(&value);
            rest = behind;
        }
        filled.push_str(rest);
        filled
    }

    /// Whether this version is to blame that a program cannot be run: the kernel does not take the version's own file, as it
    /// is. Whatever else is missing, or may not be run, the configuration names or this device lacks.
    #[must_use]
    pub fn is_to_blame(&self, program: &str, error: &io::Error) -> bool {
        let of_the_slot = || {
            let (program, slot) = (fs::canonicalize(program).ok()?, fs::canonicalize(&self.slot).ok()?);
            program.starts_with(slot).then_some(())
        };
        is_of_the_file(error) && of_the_slot().is_some()
    }

    /// [`Launch::fill`] for each argument.
    #[must_use]
    pub fn fill_all(&self, texts: &[String]) -> Vec<String> {
        texts.iter().map(|text| self.fill(text)).collect()
    }

    /// What it means that a program cannot be run for this version.
    pub(super) fn cannot_run(&self, program: &str, error: &io::Error) -> Failure {
        let at_fault = self.is_to_blame(program, error);
        Failure { at_fault, ..Failure::broken(format!("cannot run {program}: {error}")) }
    }

    /// The `GROUNDSWELL_…` variables.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut environment = vec![
            ("PRODUCT", self.product.to_string()),
            ("VERSION", self.contents.version.to_string()),
            ("SEQUENCE", self.contents.sequence.to_string()),
            ("RELEASE", self.contents.release.to_string()),
            ("SLOT", self.slot.to_string_lossy().into_owned()),
            ("BINARY", self.binary.to_string_lossy().into_owned()),
        ];
        if let Some(claim) = self.claim {
            environment.push(("CLAIM", claim.to_string()));
        }
        environment.into_iter().map(|(name, value)| (format!("GROUNDSWELL_{name}"), value)).collect()
    }
}
