//! What operators do offline, without a terminal: the fleet folder, keys, manifests, requests, rosters, rollouts.
//!
//! Nothing here prints. Everything that is written is written at the end, at once, by [`files`].

pub(crate) mod attribute;
pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod keys;
pub(crate) mod manifest;
pub(crate) mod measure;
pub(crate) mod platform;
pub(crate) mod request;
pub(crate) mod rollout;
pub(crate) mod rollout_file;
pub(crate) mod roster;
pub(crate) mod roster_file;
pub(crate) mod toml_file;
