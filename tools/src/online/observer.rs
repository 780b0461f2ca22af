//! Joining the mesh as the operator's observer, for as long as a command runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use groundswell_agent::identity;
use groundswell_agent::observer::files::ReleaseFiles;
use groundswell_agent::observer::{Observer, ObserverError, Settings};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::documents::envelope::Envelope;

use super::rejection;
use crate::authoring::folder::FleetFolder;
use crate::failure::{Failure, with_causes};

/// How long a peer has to let an observer in: a dial that hangs is given up after ten seconds and tried again.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// Who the observer is.
#[derive(Clone, Debug, Args)]
pub(crate) struct ObserverArgs {
    /// The observer's key, e.g. operator.key as `swell fleet init` wrote it. Default: $SWELL_KEY.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

/// Published documents that the observer starts with, and the fleet's id.
pub(crate) struct Known {
    /// The fleet's id.
    pub(crate) fleet: Digest,
    /// The documents: fleet documents and certificates at least.
    pub(crate) documents: Vec<Vec<u8>>,
}

impl Known {
    /// What a fleet folder knows of who is who: rollouts and releases come from the mesh, or are to be published.
    pub(crate) fn of(folder: &FleetFolder) -> Self {
        let shelf = folder.shelf();
        let wanted = shelf.inventory().filter(|(_, kind)| matches!(kind, Kind::Fleet | Kind::Node | Kind::Token));
        let mut documents: Vec<_> = wanted.collect();
        documents.sort_by_key(|(digest, _)| shelf.order(digest));
        let documents = documents.into_iter().filter_map(|(digest, _)| shelf.envelope(&digest)).map(<[u8]>::to_vec).collect();
        Self { fleet: folder.id(), documents }
    }

    /// Loose documents. The first version of the fleet document among them gives the fleet's id.
    pub(crate) fn loose(documents: Vec<Vec<u8>>) -> Option<Self> {
        let first = documents.iter().filter_map(|bytes| Envelope::parse(bytes).ok()).find(|it| it.kind == Kind::Fleet)?;
        Some(Self { fleet: first.digest(), documents })
    }
}

impl ObserverArgs {
    /// Joins through `addresses` and waits until a peer has let it in.
    pub(crate) async fn join(&self, known: Known, addresses: &[String], files: Arc<ReleaseFiles>) -> Result<Observer, Failure> {
        let key = self.key.clone().or_else(|| std::env::var_os("SWELL_KEY").map(PathBuf::from));
        let key =
            key.ok_or_else(|| Failure::invalid("--key is missing: the observer's key, e.g. operator.key of `swell fleet init`"))?;
        let secret = identity::read_key_file(&key).map_err(|error| Failure::invalid_by("cannot join the mesh", error))?;
        let peers = addresses.iter().map(|address| multiaddress(address)).collect::<Result<_, _>>()?;
        let settings = Settings { fleet: known.fleet, secret, documents: known.documents, peers };
        let observer = Observer::start(settings, files).await.map_err(failure)?;
        observer.connected(CONNECT_WITHIN).await.map_err(failure)?;
        Ok(observer)
    }
}

/// `host:port`, `[v6]:port`, or a multiaddress as it is.
pub(crate) fn multiaddress(text: &str) -> Result<String, Failure> {
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    let wrong = || Failure::invalid(format!("`{text}` is no address: write it like 10.0.0.7:7490 or /ip4/10.0.0.7/tcp/7490"));
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let protocol = match host.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => "ip4",
        Ok(std::net::IpAddr::V6(_)) => "ip6",
        Err(_) if !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) => "dns",
        Err(_) => return Err(wrong()),
    };
    Ok(format!("/{protocol}/{host}/tcp/{port}"))
}

/// The exit code of what an observer says.
pub(crate) fn failure(error: ObserverError) -> Failure {
    match error {
        ObserverError::Unreachable { .. } => Failure::Unreachable(with_causes(&error)),
        ObserverError::Refused { peer, ref reason } => {
            let mut parts = reason.splitn(3, ": ");
            let (code, field, detail) = (parts.next(), parts.next(), parts.next());
            let known = rejection(code.unwrap_or_default(), field.unwrap_or_default(), detail.unwrap_or_default());
            match known {
                Some(rejection) => Failure::Refused { what: format!("this observer, by {peer},"), rejection },
                None => Failure::Unreachable(error.to_string()),
            }
        }
        ObserverError::Rejected { name, source } => Failure::Refused { what: name, rejection: source },
        ObserverError::Document(rejection) => Failure::Refused { what: "a document of the fleet folder".to_owned(), rejection },
        ObserverError::NoFleet(_) | ObserverError::NoCertificate(_) | ObserverError::NoRollout(_) => {
            Failure::invalid(error.to_string())
        }
        ObserverError::Start { .. } | ObserverError::Mesh(_) | ObserverError::Ended(_) | ObserverError::Late { .. } => {
            Failure::failed("not done", error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let read = |text: &str| multiaddress(text).ok();
        assert_eq!(read("10.0.0.7:7490").as_deref(), Some("/ip4/10.0.0.7/tcp/7490"));
        assert_eq!(read("[fd00::1]:7490").as_deref(), Some("/ip6/fd00::1/tcp/7490"));
        assert_eq!(read("mesh.example.com:7490").as_deref(), Some("/dns/mesh.example.com/tcp/7490"));
        assert_eq!(read("/ip4/10.0.0.7/udp/1/quic-v1").as_deref(), Some("/ip4/10.0.0.7/udp/1/quic-v1"));
        for bad in ["", "10.0.0.7", "a:b", ":7490", "a b:1", "10.0.0.7:99999"] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }
}
