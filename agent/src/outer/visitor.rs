//! One visit at another node's outer door: brings what it has to the driver, judges nothing, believes nothing.
//!
//! In the order in which things can be used: this node's own record there; the fleet documents one by one; its own newest
//! certificate; other documents, certificates before what names them; records that are newer than those here. How documents
//! come to the driver is in [`super::delivery`]; rosters and blobs come by the ordinary downloads, through
//! [`groundswell_net::outer::guide::Guide`].

use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node::input::VisitEnd;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::{RecordKey, RecordKind};
use groundswell_net::Network;
use groundswell_net::outer::limits::{VISIT, WINDOW};
use groundswell_net::outer::visit::{Visit, VisitFailed};
use groundswell_net::outer::wire::{Refused, Standing};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::delivery::{Brought, Delivery};
use crate::admission::SharedNode;
use crate::clock::Clock;

/// What a visit brought that waits for the driver; the visit waits when it is full.
const BROUGHT: usize = 32;

/// Goes visiting, one visit at a time.
pub(crate) struct Visitor {
    errand: Errand,
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
    pub(crate) fn new(network: Network, node: SharedNode, fleet: Digest, clock: Clock) -> (Self, mpsc::Receiver<Brought>) {
        let (brought, inbox) = mpsc::channel(BROUGHT);
        let delivery = Delivery::new(node.clone(), brought);
        let errand = Errand { network, node, fleet, clock, delivery };
        (Self { errand, under_way: None }, inbox)
    }

    /// Begins a visit; one that is still under way is given up.
    pub(crate) fn go(&mut self, peer: Option<NodeId>, addresses: Vec<String>, push: Option<Vec<u8>>) {
        if let Some(visit) = self.under_way.take() {
            visit.abort();
        }
        let errand = self.errand.clone();
        self.under_way = Some(tokio::spawn(async move { errand.run(peer, addresses, push).await }));
    }
}

#[derive(Clone)]
struct Errand {
    network: Network,
    node: SharedNode,
    fleet: Digest,
    clock: Clock,
    delivery: Delivery,
}

/// How much a keeper gave.
enum Gave {
    /// Everything.
    All,
    /// Less, for this reason.
    Less(&'static str),
}

impl Errand {
    async fn run(self, peer: Option<NodeId>, addresses: Vec<String>, push: Option<Vec<u8>>) {
        let mut keeper = peer;
        let ended = timeout(VISIT, self.visit(&mut keeper, &addresses, push)).await.unwrap_or(Err(VisitFailed::Late));
        let (end, reason) = match ended {
            Ok(Gave::All) => (VisitEnd::Complete, None),
            Ok(Gave::Less(why)) => (VisitEnd::Partial, Some(why.to_owned())),
            Err(VisitFailed::Refused(refused)) => (VisitEnd::Partial, Some(refused.to_string())),
            Err(error) => (VisitEnd::Failed, Some(error.to_string())),
        };
        if let Some(reason) = &reason {
            tracing::debug!(?keeper, ?addresses, "a visit at an outer door did not bring everything: {reason}");
        }
        self.delivery.bring(Brought::Ended { keeper, addresses, end, reason }).await;
    }

    /// What it says of itself, its keeper may say falsely: it gave everything only if it is a member by the documents here, as
    /// they are in the end, and showed the fleet document that is in force here.
    async fn visit(
        &self,
        keeper: &mut Option<NodeId>,
        addresses: &[String],
        mut push: Option<Vec<u8>>,
    ) -> Result<Gave, VisitFailed> {
        let (met, stream) = self.network.visit(*keeper, addresses.to_vec()).await?;
        *keeper = Some(met);
        let certificate = self.node.lock().own_proof().map(<[u8]>::to_vec).unwrap_or_default();
        let mut visit = Visit::begin(stream, self.fleet, certificate).await?;
        self.push(&mut visit, met, &mut push).await?;
        let version = self.node.lock().shelf().fleet().map_or(0, |fleet| fleet.version);
        // From its own version on, so that a rival of it is seen.
        let fleets = visit.fleets(version.saturating_sub(1)).await?;
        self.delivery.documents(&mut visit, met, &fleets).await?;
        let own = visit.certificate().await?;
        self.delivery.documents(&mut visit, met, &own).await?;
        if visit.standing() < Standing::Former {
            return Ok(Gave::Less("this node is a stranger there"));
        }
        let mut listed = visit.documents().await?;
        listed.retain(|listed| !matches!(listed.kind, Kind::Fleet | Kind::Token | Kind::Roster));
        listed.sort_by_key(|listed| rank(listed.kind));
        self.delivery.documents(&mut visit, met, &listed).await?;
        // Its certificate may have been among them.
        self.push(&mut visit, met, &mut push).await?;
        for kind in [RecordKind::Status, RecordKind::Grants] {
            self.records(&mut visit, met, kind).await?;
        }
        let in_force = self.node.lock().shelf().fleet_digest();
        if !fleets.iter().any(|listed| Some(listed.digest) == in_force) {
            return Ok(Gave::Less("it does not have the fleet document that is in force here"));
        }
        Ok(if self.is_member(&met) { Gave::All } else { Gave::Less("by the documents here its keeper is no member") })
    }

    fn is_member(&self, keeper: &NodeId) -> bool {
        self.node.lock().shelf().member(keeper, self.clock.wall()).is_ok()
    }

    /// Hands this node's own record over, once, to a member to whom it is one.
    async fn push(&self, visit: &mut Visit, keeper: NodeId, push: &mut Option<Vec<u8>>) -> Result<(), VisitFailed> {
        if visit.standing() < Standing::Member || !self.is_member(&keeper) {
            return Ok(());
        }
        let Some(record) = push.take() else { return Ok(()) };
        match visit.push(record).await {
            // What the keeper does not take from this node it may still give to it.
            Ok(()) | Err(VisitFailed::Refused(Refused::Record | Refused::Later(_))) => Ok(()),
            Err(error) => Err(error),
        }
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
            self.delivery.bring(Brought::Records(keeper, records)).await;
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
