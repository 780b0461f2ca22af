//! The release manifest: which bytes are version V of product P.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::rejection::{Reason as Code, Rejection};
use super::rule::{ascending, at_most, expiry, listed_keys, positive};
use super::tag::{ReleaseType, Spec1};
use crate::digest::{Digest, Hex32};
use crate::limits::{ARTIFACTS, NOTES_BYTES};
use crate::number::Sequence;
use crate::text::{ArtifactName, Platform, Product, Reason, Version};
use crate::time::Timestamp;
use crate::trust::key::ListedKey;

/// Body of a `groundswell.release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Release {
    /// Always `groundswell.release`.
    #[serde(rename = "type")]
    pub kind: ReleaseType,
    /// Always 1.
    pub spec: Spec1,
    /// What is released.
    pub product: Product,
    /// Its version for people.
    pub version: Version,
    /// Its place in the product's order: higher is newer.
    pub sequence: Sequence,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// No upgrade to it starts after this.
    pub expires_at: Timestamp,
    /// The keys that its signers used; pins decide, this only carries the keys.
    pub keys: Vec<ListedKey>,
    /// The files, sorted by name, at most 256; at most one bare binary per platform.
    pub artifacts: Vec<Artifact>,
    /// Lowest sequence that may upgrade directly (a barrier).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_from: Option<Sequence>,
    /// Nobody upgrades past this version but by a visit; with a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_end: Option<Reason>,
    /// Releases that must not be started any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// For people, at most 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}

/// One file of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Artifact {
    /// A plain file name.
    pub name: ArtifactName,
    /// The platform whose bare binary this is; null for archives, checksums, metadata.
    pub platform: Option<Platform>,
    /// SHA-256 of the file.
    pub sha256: Hex32,
    /// Size in bytes, above 0.
    pub size: u64,
    /// BLAKE3 root of the file, for verifying pieces on arrival.
    pub blake3: Hex32,
}

/// A release that a newer one blocks after the fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Block {
    /// The blocked release's body digest.
    pub digest: Digest,
    /// Why.
    pub reason: Reason,
}

impl Release {
    /// The rules that need no other document.
    ///
    /// # Errors
    /// `malformed` or `too-large`, naming the field.
    pub fn validate(&self) -> Result<(), Rejection> {
        expiry(self.issued_at, self.expires_at)?;
        listed_keys(&self.keys)?;
        self.validate_artifacts()?;
        if self.upgrade_from.is_some_and(|least| least > self.sequence) {
            return Err(Rejection::malformed("upgradeFrom", format!("must not lie above sequence {}", self.sequence)));
        }
        at_most(self.blocks.len(), ARTIFACTS, "blocks")?;
        ascending(self.blocks.iter().map(|block| block.digest), "blocks")?;
        if self.notes.as_ref().is_some_and(|notes| notes.len() > NOTES_BYTES) {
            return Err(Rejection::new(Code::TooLarge, "notes", format!("at most {NOTES_BYTES} bytes")));
        }
        Ok(())
    }

    fn validate_artifacts(&self) -> Result<(), Rejection> {
        at_most(self.artifacts.len(), ARTIFACTS, "artifacts")?;
        if self.artifacts.is_empty() {
            return Err(Rejection::malformed("artifacts", "a release has at least one file"));
        }
        ascending(self.artifacts.iter().map(|artifact| &artifact.name), "artifacts")?;
        let (mut names, mut platforms) = (BTreeSet::new(), BTreeSet::new());
        for (index, artifact) in self.artifacts.iter().enumerate() {
            positive(artifact.size, &format!("artifacts[{index}].size"))?;
            // Some file systems fold case: two such names would be one file there.
            if !names.insert(artifact.name.to_ascii_lowercase()) {
                let detail = format!("{} differs from another name only in case", artifact.name);
                return Err(Rejection::malformed(format!("artifacts[{index}].name"), detail));
            }
            if let Some(platform) = &artifact.platform
                && !platforms.insert(platform)
            {
                let detail = format!("a second bare binary for {platform}: at most one per platform");
                return Err(Rejection::malformed(format!("artifacts[{index}].platform"), detail));
            }
        }
        Ok(())
    }

    /// The bare binary for `platform`.
    #[must_use]
    pub fn binary(&self, platform: &Platform) -> Option<&Artifact> {
        self.artifacts.iter().find(|artifact| artifact.platform.as_ref() == Some(platform))
    }
}
