//! Fields of one fixed value: `type` and `spec`. A body with any other value does not parse.

use alloc::string::String;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! tag {
    ($name:ident, $text:literal) => {
        #[doc = concat!("The `type` of a body: always `", $text, "`.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                if text == $text { Ok(Self) } else { Err(de::Error::custom(concat!("type must be ", $text))) }
            }
        }
    };
}

tag!(FleetType, "groundswell.fleet");
tag!(ReleaseType, "groundswell.release");
tag!(NodeType, "groundswell.node");
tag!(TokenType, "groundswell.token");
tag!(RosterType, "groundswell.roster");
tag!(RolloutType, "groundswell.rollout");

/// The `spec` of a body: always 1. A new field raises it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spec1;

impl Serialize for Spec1 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(1)
    }
}

impl<'de> Deserialize<'de> for Spec1 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            1 => Ok(Self),
            other => Err(de::Error::custom(alloc::format!("spec {other} is not known here: upgrade this software"))),
        }
    }
}
