//! One visit at another node's outer door: brings what it has to the driver, judges nothing.
//!
//! In the order in which things can be used: this node's own record there; the fleet documents one by one; its own newest
//! certificate; other documents, certificates before what names them; records that are newer than those here. Rosters and
//! blobs come by the ordinary downloads, through [`groundswell_net::outer::guide::Guide`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::limits::DOCUMENT_BYTES;
use groundswell_core::node::input::VisitEnd;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKey, RecordKind};
use groundswell_net::Network;
use groundswell_net::outer::limits::{VISIT, WINDOW};
use groundswell_net::outer::visit::{Visit, VisitFailed};
use groundswell_net::outer::wire::{Listed, Refused, Standing};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::admission::SharedNode;

/// What a visit brought that waits for the driver; the visit waits when it is full.
const BROUGHT: usize = 32;
/// Published forms that were brought and not kept, which need not be brought again: of superseded documents, mostly.
const REMEMBERED: usize = 4_096;

/// What a visit brings.
#[derive(Debug)]
pub(crate) enum Brought {
    /// A document's published form.
    Document(NodeId, Vec<u8>),
    /// Records: each alone, or the two of a proof.
    Records(NodeId, Vec<Vec<Vec<u8>>>),
    /// It has ended.
    Ended {
        /// Whose door it was, if anybody was there.
        keeper: Option<NodeId>,
        /// Where.
        addresses: Vec<String>,
        /// How.
        end: VisitEnd,
        /// Why, in words, unless it is complete.
        reason: Option<String>,
    },
}

/// Goes visiting, one visit at a time.
pub(crate) struct Visitor {
    network: Network,
    node: SharedNode,
    fleet: Digest,
    brought: mpsc::Sender<Brought>,
    seen: Arc<Mutex<BTreeSet<Digest>>>,
    under_way: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if let Some(visit) = &self.under_way {
            visit.abort();
        }
    }
}

impl Visitor {
    /// A visitor at home, and where what it brings comes out.
    pub(crate) fn new(network: Network, node: SharedNode, fleet: Digest) -> (Self, mpsc::Receiver<Brought>) {
        let (brought, inbox) = mpsc::channel(BROUGHT);
        (Self { network, node, fleet, brought, seen: Arc::default(), under_way: None }, inbox)
    }

    /// Begins a visit; one that is still under way is given up.
    pub(crate) fn go(&mut self, peer: Option<NodeId>, addresses: Vec<String>, push: Option<Vec<u8>>) {
        if let Some(visit) = self.under_way.take() {
            visit.abort();
        }
        let errand = Errand {
            network: self.network.clone(),
            node: self.node.clone(),
            fleet: self.fleet,
            brought: self.brought.clone(),
            seen: Arc::clone(&self.seen),
        };
        self.under_way = Some(tokio::spawn(async move { errand.run(peer, addresses, push).await }));
    }
}

struct Errand {
    network: Network,
    node: SharedNode,
    fleet: Digest,
    brought: mpsc::Sender<Brought>,
    seen: Arc<Mutex<BTreeSet<Digest>>>,
}

impl Errand {
    async fn run(self, peer: Option<NodeId>, addresses: Vec<String>, push: Option<Vec<u8>>) {
        let mut keeper = peer;
        let ended = timeout(VISIT, self.visit(&mut keeper, &addresses, push)).await.unwrap_or(Err(VisitFailed::Late));
        let (end, reason) = match ended {
            Ok(Standing::Stranger) => (VisitEnd::Partial, Some("this node is a stranger there".to_owned())),
            Ok(_) => (VisitEnd::Complete, None),
            Err(VisitFailed::Refused(refused)) => (VisitEnd::Partial, Some(refused.to_string())),
            Err(error) => (VisitEnd::Failed, Some(error.to_string())),
        };
        if let Some(reason) = &reason {
            tracing::debug!(?keeper, ?addresses, "a visit at an outer door did not bring everything: {reason}");
        }
        self.bring(Brought::Ended { keeper, addresses, end, reason }).await;
    }

    /// An error of the channel means that the driver has ended.
    async fn bring(&self, brought: Brought) {
        drop(self.brought.send(brought).await);
    }

    async fn visit(
        &self,
        keeper: &mut Option<NodeId>,
        addresses: &[String],
        push: Option<Vec<u8>>,
    ) -> Result<Standing, VisitFailed> {
        let (met, stream) = self.network.visit(*keeper, addresses.to_vec()).await?;
        *keeper = Some(met);
        let certificate = self.node.lock().own_proof().map(<[u8]>::to_vec).unwrap_or_default();
        let mut visit = Visit::begin(stream, self.fleet, certificate).await?;
        if let Some(record) = push.filter(|_| visit.standing() == Standing::Member) {
            match visit.push(record).await {
                // What the keeper does not take from this node it may still give to it.
                Ok(()) | Err(VisitFailed::Refused(Refused::Record | Refused::Later(_))) => {}
                Err(error) => return Err(error),
            }
        }
        let version = self.node.lock().shelf().fleet().map_or(0, |fleet| fleet.version);
        // From its own version on, so that a rival of it is seen.
        let fleets = visit.fleets(version.saturating_sub(1)).await?;
        self.documents(&mut visit, met, fleets).await?;
        let own = visit.certificate().await?;
        self.documents(&mut visit, met, own).await?;
        if visit.standing() >= Standing::Former {
            let mut listed = visit.documents().await?;
            listed.retain(|listed| !matches!(listed.kind, Kind::Fleet | Kind::Token | Kind::Roster));
            listed.sort_by_key(|listed| rank(listed.kind));
            self.documents(&mut visit, met, listed).await?;
            for kind in [RecordKind::Status, RecordKind::Grants] {
                self.records(&mut visit, met, kind).await?;
            }
        }
        Ok(visit.standing())
    }

    /// Brings those that are not here in this published form.
    async fn documents(&self, visit: &mut Visit, keeper: NodeId, mut listed: Vec<Listed>) -> Result<(), VisitFailed> {
        {
            let (node, seen) = (self.node.lock(), self.seen.lock().unwrap_or_else(PoisonError::into_inner));
            listed.retain(|listed| {
                let here = node.shelf().envelope(&listed.digest);
                let same = here.is_some_and(|here| Digest::of(here) == listed.published);
                !same && !seen.contains(&listed.published)
            });
        }
        for batch in listed.chunks(WINDOW) {
            let published = visit.small_documents(batch, DOCUMENT_BYTES).await?;
            for (listed, bytes) in batch.iter().zip(published) {
                let Some(bytes) = bytes else { continue };
                {
                    let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                    // Fleet documents and certificates may be refused today and taken tomorrow.
                    if !matches!(listed.kind, Kind::Fleet | Kind::Node) {
                        if seen.len() >= REMEMBERED {
                            seen.clear();
                        }
                        seen.insert(listed.published);
                    }
                }
                self.bring(Brought::Document(keeper, bytes)).await;
            }
        }
        Ok(())
    }

    /// Brings records that are newer than those here.
    async fn records(&self, visit: &mut Visit, keeper: NodeId, kind: RecordKind) -> Result<(), VisitFailed> {
        let stamps = visit.stamps(kind).await?;
        let newer: Vec<NodeId> = {
            let node = self.node.lock();
            let missing = |(of, stamp): &(NodeId, _)| !node.has_record(&RecordKey { node: *of, kind }, *stamp);
            stamps.iter().filter(|stamp| missing(stamp)).map(|(of, _)| *of).collect()
        };
        for batch in newer.chunks(WINDOW) {
            let records = visit.records(kind, batch).await?;
            self.bring(Brought::Records(keeper, records)).await;
        }
        Ok(())
    }
}

/// Certificates before rosters' readers, releases before the rollouts that name them.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Fleet => 0,
        Kind::Node => 1,
        Kind::Token | Kind::Roster => 2,
        Kind::Release => 3,
        Kind::Rollout => 4,
    }
}
