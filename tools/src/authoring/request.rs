//! A node's request to be admitted: what it calls itself, signed with its own key, so that nobody else's key is admitted.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use groundswell_core::crypto::{Crypto, SoftwareCrypto};
use groundswell_core::documents::canonical;
use groundswell_core::node_id::NodeId;
use groundswell_core::text::{LabelKey, LabelValue, NodeName, Platform, Pool};
use serde::{Deserialize, Serialize};

use super::folder::verifier;
use crate::failure::Failure;

/// What the signature covers, before the body: a request means nothing in another message's place.
const DOMAIN: &[u8] = b"groundswell.request.1\0";
/// Largest request read, in bytes.
const REQUEST_BYTES: u64 = 64 * 1024;

/// What a node asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Request {
    /// Its key.
    pub(crate) node: NodeId,
    /// Its name for people.
    pub(crate) name: NodeName,
    /// Its pool; null for an observer.
    pub(crate) pool: Option<Pool>,
    /// Its platform.
    pub(crate) platform: Platform,
    /// Its labels.
    pub(crate) labels: BTreeMap<LabelKey, LabelValue>,
}

/// The form of a request file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(rename = "groundswell.request")]
    body: String,
    signature: String,
}

impl Request {
    /// The request file, signed with the node's secret.
    pub(crate) fn sign(&self, secret: &[u8; 32]) -> Vec<u8> {
        let body = canonical::encode(self);
        let signature = SoftwareCrypto::from_secret(secret).sign(&[DOMAIN, &body].concat());
        let wire = Wire { body: STANDARD.encode(&body), signature: STANDARD.encode(signature) };
        serde_json::to_vec_pretty(&wire).expect("two strings have a JSON form")
    }

    /// Reads a request file and checks that the node itself signed it.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let size = std::fs::metadata(path).map_err(|source| Failure::unreadable(path, source))?.len();
        if size > REQUEST_BYTES {
            return Err(Failure::invalid(format!("{} is no request of a node: {size} bytes", path.display())));
        }
        let bytes = std::fs::read(path).map_err(|source| Failure::unreadable(path, source))?;
        let what = || format!("{} is no request as `swell node init` writes it", path.display());
        let wire: Wire = serde_json::from_slice(&bytes).map_err(|error| Failure::invalid_by(what(), error))?;
        let body = STANDARD.decode(&wire.body).map_err(|error| Failure::invalid_by(what(), error))?;
        let request: Self = canonical::decode(&body).map_err(|error| Failure::invalid_by(what(), error))?;
        let signature: Option<[u8; 64]> = STANDARD.decode(&wire.signature).ok().and_then(|bytes| bytes.try_into().ok());
        let valid = signature.is_some_and(|sig| verifier().verify_node(&request.node, &[DOMAIN, &body].concat(), &sig));
        if valid {
            return Ok(request);
        }
        Err(Failure::invalid(format!("{} is not signed by the node that it names, {}", path.display(), request.node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_back_and_a_changed_one_is_refused() {
        let secret = [7; 32];
        let request = Request {
            node: SoftwareCrypto::from_secret(&secret).node(),
            name: "a1".parse().unwrap(),
            pool: Some("edge".parse().unwrap()),
            platform: "linux-amd64".parse().unwrap(),
            labels: BTreeMap::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a1.req");
        std::fs::write(&path, request.sign(&secret)).unwrap();
        assert_eq!(Request::read(&path).unwrap(), request);
        std::fs::write(&path, request.sign(&[8; 32])).unwrap();
        assert!(Request::read(&path).unwrap_err().to_string().contains("not signed by the node"));
        std::fs::write(&path, "{}").unwrap();
        assert!(Request::read(&path).is_err());
    }
}
