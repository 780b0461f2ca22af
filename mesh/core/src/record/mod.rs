//! What nodes say: one signed record per (node, kind), written by that node alone, merged by maximum.
//!
//! [`status`] and [`grants`] are the two bodies, [`signed`] their signed wire form,
//! [`ledger`] the map that merges them and convicts equivocators, [`verdicts`] why a verdict never goes back,
//! [`fit`] how a status stays small, [`sync_set`] what two replicas compare.

pub mod fit;
pub mod grants;
pub mod ledger;
pub mod signed;
pub mod status;
pub mod sync_set;
pub mod verdicts;

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::node_id::NodeId;

/// The order of one node's records: a higher stamp replaces a lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// Rises only when a set-back store is noticed; never reused.
    pub incarnation: u64,
    /// Rises with each record of the incarnation.
    pub counter: u64,
}

impl Stamp {
    /// Where a proof of equivocation stands among stamps: above them all. No record is signed under it.
    pub const PROOF: Self = Self { incarnation: u64::MAX, counter: u64::MAX };
}

/// The two kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RecordKind {
    /// What the node runs and does: [`status::Status`].
    Status,
    /// What it promised as a warden: [`grants::Grants`].
    Grants,
}

/// Whose record of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordKey {
    /// Its only writer.
    pub node: NodeId,
    /// Its kind.
    pub kind: RecordKind,
}

/// The name of a claim: the stamp of the status record that first carried it. Written `7.412`.
///
/// Ordered like stamps: to name a claim is to name every earlier one of that node too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimName(pub Stamp);

/// The text is not a claim's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a claim is written as incarnation.counter, like 7.412")]
pub struct ClaimNameError;

impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.incarnation, self.0.counter)
    }
}

impl FromStr for ClaimName {
    type Err = ClaimNameError;

    fn from_str(text: &str) -> Result<Self, ClaimNameError> {
        let (incarnation, counter) = text.split_once('.').ok_or(ClaimNameError)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| ClaimNameError);
        let name = Self(Stamp { incarnation: number(incarnation)?, counter: number(counter)? });
        // One form only: no signs, no leading zeros.
        if alloc::format!("{name}") == text { Ok(name) } else { Err(ClaimNameError) }
    }
}

impl Serialize for ClaimName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for ClaimName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
        } else {
            Stamp::deserialize(deserializer).map(Self)
        }
    }
}
