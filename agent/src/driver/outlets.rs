//! Where effects go: the mesh, the devices, the downloads, the event log, waiting clients. Nothing here waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use groundswell_core::documents::rejection::{Reason as Code, Rejection};
use groundswell_core::node::effect::{Accepted, Effect, Event, Step};
use groundswell_core::node::input::{Fault, Report};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::{Product, Reason};
use groundswell_net::outer::guide::Guide;
use groundswell_net::{Forward, Network};

use super::fetches::Fetches;
use crate::clock::Clock;
use crate::effects::Hands;
use crate::events::EventLog;
use crate::handle::{PublishError, Reply};
use crate::install::Devices;
use crate::outer::visitor::Visitor;

/// Local tickets have the top bit; the mesh counts its own from below.
const LOCAL: u64 = 1 << 63;

/// Keepers of outer doors that downloads ask: the sources of one blob, and few enough for their rates.
const KEEPERS: usize = 4;

/// The driver's hands.
pub(super) struct Outlets {
    pub(super) network: Network,
    /// `None` on observers.
    pub(super) devices: Option<Devices>,
    pub(super) fetches: Fetches,
    pub(super) events: Arc<EventLog>,
    clock: Clock,
    pub(super) connected: BTreeSet<NodeId>,
    /// Where each of them is connected.
    pub(super) whereabouts: BTreeMap<NodeId, String>,
    /// Whose outer doors gave everything last time, and where: blobs and rosters come from there too. A few at most.
    pub(super) keepers: BTreeMap<NodeId, Vec<String>>,
    visitor: Visitor,
    guide: Arc<Guide>,
    /// Reports that a device could not give because it did not take the step; the driver hands them to the core.
    pub(super) refused_steps: Vec<(Product, Report)>,
    waiting: BTreeMap<u64, Reply<Result<Accepted, PublishError>>>,
    /// Visits that wait to hear what became of a document: as many as one visit asks for at once.
    visits: BTreeMap<u64, Reply<Result<Accepted, Rejection>>>,
    last_ticket: u64,
}

impl Outlets {
    pub(super) fn new(
        network: Network,
        devices: Option<Devices>,
        fetches: Fetches,
        events: Arc<EventLog>,
        clock: Clock,
        visitor: Visitor,
        guide: Arc<Guide>,
    ) -> Self {
        Self {
            network,
            devices,
            fetches,
            events,
            clock,
            connected: BTreeSet::new(),
            whereabouts: BTreeMap::new(),
            keepers: BTreeMap::new(),
            visitor,
            guide,
            refused_steps: Vec::new(),
            waiting: BTreeMap::new(),
            visits: BTreeMap::new(),
            last_ticket: LOCAL,
        }
    }

    /// Whom downloads may ask: members that are peers, and those whose outer doors are open to this node.
    pub(super) fn suppliers(&self) -> BTreeSet<NodeId> {
        self.connected.iter().chain(self.keepers.keys()).copied().collect()
    }

    /// A visit brought everything: its keeper may be asked for blobs too. Beyond a few, an arbitrary other is let go.
    pub(super) fn keep(&mut self, keeper: NodeId, addresses: Vec<String>) {
        if self.keepers.len() >= KEEPERS && !self.keepers.contains_key(&keeper) {
            self.keepers.pop_first();
        }
        self.keepers.insert(keeper, addresses);
        self.tell_guide();
    }

    /// What became of one keeper, or of all.
    pub(super) fn let_go(&mut self, keeper: Option<NodeId>) {
        match keeper {
            Some(keeper) => drop(self.keepers.remove(&keeper)),
            None => self.keepers.clear(),
        }
        self.tell_guide();
    }

    fn tell_guide(&self) {
        let only_by_visit = self.keepers.iter().filter(|(keeper, _)| !self.connected.contains(*keeper));
        self.guide.set_keepers(only_by_visit.map(|(keeper, addresses)| (*keeper, addresses.clone())).collect());
    }

    /// A ticket for a local document; its answer goes to `reply`.
    pub(super) fn ticket(&mut self, reply: Reply<Result<Accepted, PublishError>>) -> u64 {
        self.last_ticket += 1;
        self.waiting.insert(self.last_ticket, reply);
        self.last_ticket
    }

    /// The same for a document that a visit brought.
    pub(super) fn visit_ticket(&mut self, reply: Reply<Result<Accepted, Rejection>>) -> u64 {
        self.last_ticket += 1;
        self.visits.insert(self.last_ticket, reply);
        self.last_ticket
    }

    /// Answers everybody who waits for a document to become durable: it is not, now.
    pub(super) fn fail_waiting(&mut self, detail: &str) {
        self.visits.clear();
        for (_, reply) in std::mem::take(&mut self.waiting) {
            // A client that has gone needs no answer.
            let _ = reply.send(Err(PublishError::Fault(detail.to_owned())));
        }
    }

    fn answer(&mut self, ticket: u64, outcome: Result<Accepted, Rejection>) {
        if let Some(reply) = self.visits.remove(&ticket) {
            // A visit that was given up hears nothing more.
            let _ = reply.send(outcome);
            return;
        }
        if ticket & LOCAL != 0 {
            if let Some(reply) = self.waiting.remove(&ticket) {
                let _ = reply.send(outcome.map_err(PublishError::Rejected));
            }
            return;
        }
        let forward = match &outcome {
            Ok(Accepted::New(_)) => Forward::Accept,
            Ok(Accepted::Known(_)) => Forward::Ignore,
            Err(rejection) => blame(rejection.reason),
        };
        if let Err(busy) = self.network.answer(ticket, forward) {
            tracing::debug!("a gossip message goes no further: {busy}");
        }
    }

    fn device(&mut self, product: Product, step: Step) {
        match step {
            Step::Fetch { artifact, .. } => self.fetches.fetch(product, &artifact, &self.suppliers()),
            Step::CancelFetch { sha256 } => self.fetches.cancel(&product, &sha256),
            step => {
                let Some(devices) = &self.devices else {
                    return tracing::error!("{product}: asked for {} without a device", name(&step));
                };
                let failed = failed_report(&step);
                if let Err(refused) = devices.step(&product, step) {
                    tracing::error!("{product}: {refused}");
                    let report = failed.map(|report| (product, report(Reason::lossy(&refused.to_string()))));
                    self.refused_steps.extend(report);
                }
            }
        }
    }
}

impl Hands for Outlets {
    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Persist { .. } => unreachable!("persists are committed before they could come here"),
            Effect::Gossip { bytes } => {
                if let Err(busy) = self.network.gossip(bytes) {
                    tracing::debug!("a document is left to sync: {busy}");
                }
            }
            Effect::Answer { ticket, outcome } => self.answer(ticket, outcome),
            Effect::Send { peer, bytes } => {
                self.network.send(peer, bytes);
            }
            Effect::Dial { peer, addresses } => {
                if let Err(busy) = self.network.dial(peer, addresses) {
                    tracing::debug!("not dialled: {busy}");
                }
            }
            Effect::Hangup { peer, reason } => {
                if let Err(busy) = self.network.hangup(peer, &reason) {
                    tracing::debug!(%peer, "not hung up on: {busy}");
                }
            }
            Effect::FetchRoster { digest, size_bytes } => self.fetches.fetch_roster(digest, size_bytes, &self.suppliers()),
            Effect::Device { product, step } => self.device(product, step),
            Effect::Visit { peer, addresses, push } => self.visitor.go(peer, addresses, push),
            Effect::Event(event) => {
                if let Event::OuterDoor { why: None } = &event {
                    self.let_go(None);
                }
                self.events.tell(self.clock.wall(), event.into());
            }
        }
    }
}

/// What no honest peer passes on costs it standing; what this node merely cannot judge, or judges differently, does not.
fn blame(reason: Code) -> Forward {
    match reason {
        Code::Malformed | Code::NotCanonical | Code::TooLarge => Forward::Reject,
        _ => Forward::Ignore,
    }
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Fetch { .. } => "a fetch",
        Step::CancelFetch { .. } => "the end of a fetch",
        Step::Stage { .. } => "staging",
        Step::Activate { .. } => "activation",
        Step::Confirm { .. } => "confirmation",
        Step::Revert { .. } => "a revert",
    }
}

/// How the core hears that a step was not taken, for which no release is to blame. A confirm or revert is asked for again when no answer comes.
fn failed_report(step: &Step) -> Option<Box<dyn FnOnce(Reason) -> Report>> {
    match step {
        Step::Stage { install } => {
            let release = install.release;
            Some(Box::new(move |reason| Report::StageFailed { release, fault: Fault::Broken, reason }))
        }
        Step::Activate { install, .. } => {
            let release = install.release;
            Some(Box::new(move |reason| Report::ActivateFailed { release, reason, at_fault: false }))
        }
        Step::Fetch { .. } | Step::CancelFetch { .. } | Step::Confirm { .. } | Step::Revert { .. } => None,
    }
}
