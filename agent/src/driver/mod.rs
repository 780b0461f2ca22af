//! The agent's one loop over the one enum of everything that can happen to it ([`Happening`]).
//!
//! Each happening becomes inputs of the core; the core's effects run strictly in order ([`crate::effects`]); then the
//! alarm is set to the core's next wakeup. `outlets` does the effects, `fetches` the downloads, `sweep` says which blobs
//! are old or needed, `housekeeping` removes them, `near` who is on this node's own network, `sharing` shows blobs, `fault` is what holds while the store cannot be written. Decisions are the core's.

mod company;
mod fault;
mod fetches;
mod housekeeping;
mod near;
mod outlets;
mod sharing;
pub(crate) mod sweep;
mod views;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::node::effect::{Accepted, Effect};
use groundswell_core::node::input::{Fault as Trouble, Input, Report, Source, VisitEnd};
use groundswell_core::text::Product;
use groundswell_core::time::Timestamp;
use groundswell_net::blobs::{BlobSource, Fetcher};
use groundswell_net::outer::guide::Guide;
use groundswell_net::pieces::{Swarms, Terms};
use groundswell_net::{Admission, Forward, Network, NetworkEvent};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use self::company::Company;
use self::fault::Fault;
use self::fetches::{Fetches, News};
use self::housekeeping::{Housekeeping, Room};
use self::outlets::Outlets;
use self::sweep::SWEEP_EVERY;
use crate::admission::{Door, SharedNode};
use crate::blobs::BlobStore;
use crate::clock::{Alarm, Clock};
use crate::effects::{self, Durable};
use crate::events::{EventLog, Told};
use crate::handle::{PublishError, Reply, Request};
use crate::install::Devices;
use crate::outer::delivery::Brought;
use crate::outer::keeper::Pushed;
use crate::outer::visitor::Visitor;
use crate::store::CommitError;

/// How often the peers of downloads under way are looked at: who serves what arrives as records, not as events.
const SOURCES_EVERY: Duration = Duration::from_secs(2);
/// Peers found on the local network are dialled while fewer are connected; the core chooses the rest.
const LOCAL_PEERS: usize = 8;
/// Requests that are put off while a disk is being waited for; then no question is read either.
const POSTPONED: usize = 16;

/// Why the loop ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The mesh's task has ended.
    #[error("the mesh ended by itself")]
    MeshEnded,
    /// The kernel gives no timer.
    #[error("the kernel gives no timer on CLOCK_BOOTTIME")]
    Timer(#[source] std::io::Error),
}

/// Everything that the loop reads.
pub(crate) struct Sources {
    pub(crate) network: mpsc::Receiver<NetworkEvent>,
    pub(crate) reports: mpsc::Receiver<(Product, Report)>,
    pub(crate) requests: mpsc::Receiver<Request>,
    /// What members handed over at the outer door.
    pub(crate) pushed: mpsc::Receiver<Pushed>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Everything that the loop writes to.
pub(crate) struct Parts {
    pub(crate) node: SharedNode,
    pub(crate) door: Arc<Door>,
    pub(crate) store: Arc<dyn Durable>,
    pub(crate) blobs: BlobStore,
    pub(crate) network: Network,
    pub(crate) devices: Option<Devices>,
    pub(crate) events: Arc<EventLog>,
    /// What it goes by.
    pub(crate) clock: Clock,
    /// Metered: serves nobody.
    pub(crate) lean: bool,
    /// What others may have of this node.
    pub(crate) served: Arc<dyn BlobSource>,
    /// What it gives to swarms and takes from them.
    pub(crate) swarm: Terms,
    /// Effects of opening the node, before anything else happens.
    pub(crate) initial: Vec<Effect>,
}

/// Everything that can happen to the agent.
enum Happening {
    Network(NetworkEvent),
    Device(Product, Report),
    /// Room was made for a device, as far as there was any to make: what it said.
    Room(Product, VecDeque<Report>),
    Fetch(News),
    Request(Request),
    /// The set of whole blobs changed.
    Blobs,
    /// The core's wakeup.
    Wake,
    /// A member handed its status record over at the outer door.
    Pushed(Pushed),
    /// A visit at an outer door brought something, or ended.
    Brought(Brought),
    /// Time to look at the peers of downloads.
    Sources,
    /// Time to look for blobs that are not needed any more.
    Sweep,
    /// Time to try the store again.
    RetryStore,
    MeshEnded,
    Stop,
}

/// The loop's state.
pub(crate) struct Driver {
    node: SharedNode,
    door: Arc<Door>,
    store: Arc<dyn Durable>,
    blobs: watch::Receiver<BTreeSet<Digest>>,
    blob_store: BlobStore,
    unnamed_blobs: BTreeSet<Digest>,
    sweep_at: Instant,
    housekeeping: Housekeeping,
    hands: Outlets,
    sources: Sources,
    fetched: mpsc::Receiver<News>,
    brought: mpsc::Receiver<Brought>,
    queue: VecDeque<Effect>,
    /// What was asked while a disk was being waited for, and changes something. At most [`POSTPONED`].
    postponed: Vec<Request>,
    fault: Option<Fault>,
    clock: Clock,
    alarm: Alarm,
    look_at_sources: Instant,
    /// Members that it is connected to for its downloads.
    company: Company,
    addresses: Vec<String>,
    last_dial_failure: Option<String>,
    last_visit_failure: Option<String>,
    lean: bool,
    swarms: Swarms,
    started_at: Timestamp,
}

impl Driver {
    /// # Errors
    /// When the kernel gives no timer.
    pub(crate) fn new(parts: Parts, sources: Sources) -> Result<Self, DriverError> {
        let admission: Arc<dyn Admission> = Arc::<Door>::clone(&parts.door);
        let guide = Arc::new(Guide::new(parts.network.clone(), Arc::clone(&admission)));
        let swarms = Swarms::new(Arc::<Guide>::clone(&guide), parts.served, parts.network.local_id(), parts.swarm);
        let fetcher = Arc::new(Fetcher::new(swarms.clone()));
        let (visitor, brought) = Visitor::new(parts.network.clone(), parts.node.clone(), admission.fleet(), parts.clock.clone());
        let blobs = parts.blobs.watch();
        let (fetches, fetched) = Fetches::new(fetcher, parts.blobs.clone());
        Ok(Self {
            node: parts.node,
            door: parts.door,
            store: parts.store,
            blobs,
            blob_store: parts.blobs,
            unnamed_blobs: BTreeSet::new(),
            sweep_at: Instant::now() + SWEEP_EVERY,
            housekeeping: Housekeeping::default(),
            hands: Outlets::new(parts.network, parts.devices, fetches, parts.events, parts.clock.clone(), visitor, guide),
            sources,
            fetched,
            brought,
            queue: parts.initial.into(),
            postponed: Vec::new(),
            fault: None,
            alarm: Alarm::new(parts.clock.clone()).map_err(DriverError::Timer)?,
            look_at_sources: Instant::now(),
            company: Company::default(),
            addresses: Vec::new(),
            last_dial_failure: None,
            last_visit_failure: None,
            lean: parts.lean,
            swarms,
            started_at: parts.clock.wall(),
            clock: parts.clock,
        })
    }

    /// The swarms that the node takes part in, for whoever lets others in.
    pub(crate) fn swarms(&self) -> Swarms {
        self.swarms.clone()
    }

    /// Runs until told to stop. Then the last words are sent and devices are stopped; what is not durable is let go: a
    /// crash would do the same.
    ///
    /// # Errors
    /// When the mesh ends by itself.
    pub(crate) async fn run(mut self) -> Result<(), DriverError> {
        self.blobs.mark_changed();
        let ended = loop {
            self.settle().await;
            match self.next().await {
                Happening::Stop => {
                    self.feed(Input::Stopping);
                    self.settle().await;
                    break Ok(());
                }
                Happening::MeshEnded => break Err(DriverError::MeshEnded),
                happening => self.take(happening),
            }
        };
        // The devices' last reports are not read any more; their senders notice.
        drop(self.sources.reports);
        if let Some(devices) = self.hands.devices.take() {
            devices.shutdown().await;
        }
        ended
    }

    /// Waits for the next happening. Cancel-safe: each source is.
    async fn next(&mut self) -> Happening {
        let well = self.fault.is_none();
        let retry_at = self.fault.as_ref().map_or_else(Instant::now, |fault| fault.retry_at);
        tokio::select! {
            // An error means that whoever could say stop is gone.
            _ = self.sources.stop.wait_for(|stop| *stop) => Happening::Stop,
            event = self.sources.network.recv() => event.map_or(Happening::MeshEnded, Happening::Network),
            Some((product, report)) = self.sources.reports.recv(), if well && self.housekeeping.hears() => {
                Happening::Device(product, report)
            }
            Some((product, reports)) = self.housekeeping.made(), if well => Happening::Room(product, reports),
            Some(news) = self.fetched.recv(), if well => Happening::Fetch(news),
            Some(request) = self.sources.requests.recv() => Happening::Request(request),
            Some(brought) = self.brought.recv(), if well => Happening::Brought(brought),
            Some(pushed) = self.sources.pushed.recv(), if well => Happening::Pushed(pushed),
            Ok(()) = self.blobs.changed(), if well => Happening::Blobs,
            () = self.alarm.rings(), if well => Happening::Wake,
            () = sleep_until(self.look_at_sources), if well && (self.hands.fetches.any() || self.company.any()) => {
                Happening::Sources
            }
            () = sleep_until(self.sweep_at), if well => Happening::Sweep,
            () = sleep_until(retry_at), if !well => Happening::RetryStore,
        }
    }

    /// Turns a happening into inputs of the core.
    fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Network(event) => self.hear(event),
            Happening::Device(product, report) => {
                let room = self.room_to_stage(&report);
                if let Some((product, report)) = self.housekeeping.report(product, report, room) {
                    self.feed(Input::Device { product, report });
                }
            }
            Happening::Room(product, reports) => {
                for report in reports {
                    self.feed(Input::Device { product: product.clone(), report });
                }
            }
            Happening::Fetch(news) => self.fetch_ended(news),
            Happening::Request(request) => self.answer(request),
            Happening::Blobs => {
                let blobs = self.blobs.borrow_and_update().clone();
                self.feed(Input::Serves(if self.lean { BTreeSet::new() } else { blobs }));
            }
            Happening::Wake => self.feed(Input::Wake),
            Happening::Brought(brought) => self.take_brought(brought),
            Happening::Pushed(Pushed::Certificate(peer, bytes)) => {
                self.feed(Input::Document { bytes, source: Source::Peer(peer) })
            }
            Happening::Pushed(Pushed::Status(peer, bytes)) => self.feed(Input::Pushed { peer, bytes }),
            Happening::Sources => self.look_at_sources(),
            Happening::Sweep => self.sweep(),
            // `settle` tries.
            Happening::RetryStore => {}
            Happening::MeshEnded | Happening::Stop => unreachable!("the loop itself takes them"),
        }
    }

    /// One step of the core.
    fn feed(&mut self, input: Input) {
        let mut node = self.node.lock();
        node.handle(self.clock.now(), input);
        self.queue.extend(node.take_effects());
    }

    /// Runs what is queued and sets the alarm. When the store fails, says so once and keeps the rest for later.
    async fn settle(&mut self) {
        loop {
            match self.run_effects().await {
                Ok(()) => self.store_works(),
                Err(error) => {
                    self.store_fails(&error);
                    return self.answer_postponed();
                }
            }
            for (product, report) in std::mem::take(&mut self.hands.refused_steps) {
                self.feed(Input::Device { product, report });
            }
            self.answer_postponed();
            if self.queue.is_empty() {
                break;
            }
        }
        if self.hands.fetches.take_begun() {
            self.look_at_sources = Instant::now();
        }
        let wakeup = self.node.lock().next_wakeup();
        if let Err(error) = self.alarm.set(wakeup) {
            tracing::error!("the alarm cannot be set: {error}");
        }
    }

    /// Runs what is queued. While a disk makes a batch durable, questions are answered as things stand in memory; whatever
    /// changes something waits. Not cancel-safe.
    async fn run_effects(&mut self) -> Result<(), CommitError> {
        while let Some(batch) = effects::next_batch(&mut self.queue, &mut self.hands) {
            let mut commit = std::pin::pin!(effects::commit(Arc::clone(&self.store), batch));
            let (batch, outcome) = loop {
                tokio::select! {
                    done = &mut commit => break done,
                    Some(request) = self.sources.requests.recv(), if self.postponed.len() < POSTPONED => {
                        if request.is_question() {
                            self.answer(request);
                        } else {
                            self.postponed.push(request);
                        }
                    }
                }
            };
            if let Err(error) = outcome {
                effects::put_back(&mut self.queue, batch);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes what was asked while a disk was being waited for.
    fn answer_postponed(&mut self) {
        for request in std::mem::take(&mut self.postponed) {
            self.answer(request);
        }
    }

    fn store_fails(&mut self, error: &CommitError) {
        let detail = fault::told(error);
        self.hands.fail_waiting(&detail);
        match &mut self.fault {
            Some(fault) => fault.again(detail),
            None => {
                self.hands.events.tell(self.clock.wall(), Told::Fault { what: "store".to_owned(), detail: detail.clone() });
                self.fault = Some(Fault::new(detail, self.clock.wall()));
            }
        }
    }

    fn store_works(&mut self) {
        let Some(fault) = self.fault.take() else { return };
        self.hands.events.tell(self.clock.wall(), Told::FaultEnded { what: "store".to_owned() });
        for input in fault.catch_up() {
            self.feed(input);
        }
    }

    fn hear(&mut self, event: NetworkEvent) {
        match &event {
            NetworkEvent::PeerUp { peer, address, .. } => {
                self.hands.connected.insert(*peer);
                self.hands.whereabouts.insert(*peer, address.clone());
                self.look_who_is_near();
            }
            NetworkEvent::PeerDown { peer } => {
                self.hands.connected.remove(peer);
                self.hands.whereabouts.remove(peer);
                self.look_who_is_near();
            }
            _ => {}
        }
        if let Some(fault) = &mut self.fault {
            if let Some(ticket) = fault.miss(event) {
                // Left to sync; an answer that is not taken has the same effect.
                let _ = self.hands.network.answer(ticket, Forward::Ignore);
            }
            return;
        }
        match event {
            NetworkEvent::PeerUp { peer, dialled, address } => {
                if let Some(bytes) = self.door.take_proof(&peer) {
                    self.feed(Input::Document { bytes, source: Source::Peer(peer) });
                }
                self.feed(Input::PeerUp { peer, dialled, address: dialled.then_some(address) });
            }
            NetworkEvent::Reached { peer, address } => self.feed(Input::Reached { peer, address }),
            NetworkEvent::PeerDown { peer } => self.feed(Input::PeerDown { peer }),
            NetworkEvent::Frame { peer, bytes } => self.feed(Input::Frame { peer, bytes }),
            NetworkEvent::Gossip { peer, ticket, bytes } => {
                self.feed(Input::Document { bytes, source: Source::Gossip { peer, ticket } });
            }
            NetworkEvent::Addresses(addresses) => {
                self.addresses.clone_from(&addresses);
                self.look_who_is_near();
                self.feed(Input::Addresses(addresses));
            }
            NetworkEvent::Discovered { peer, addresses } => {
                let known = peer.is_some_and(|peer| self.hands.connected.contains(&peer));
                if !known && self.hands.connected.len() < LOCAL_PEERS {
                    // A hint: when it is not taken, the next one comes in minutes.
                    let _ = self.hands.network.dial(peer, addresses);
                }
            }
            NetworkEvent::Refused { peer, address, reason } => {
                self.hands.events.tell(self.clock.wall(), Told::PeerRefused { peer, address, reason });
            }
            NetworkEvent::DialFailed { peer, addresses, reason } => {
                tracing::debug!(?peer, ?addresses, "not reached: {reason}");
                self.last_dial_failure = Some(reason);
                self.feed(Input::DialFailed { peer, addresses });
            }
        }
    }

    /// What a visit brought, verified by the core like everything else.
    fn take_brought(&mut self, brought: Brought) {
        match brought {
            Brought::Document { keeper, bytes, verdict } => {
                let ticket = self.hands.visit_ticket(verdict);
                self.feed(Input::Document { bytes, source: Source::Visit { keeper, ticket } });
            }
            Brought::Records(keeper, records) => self.feed(Input::Shown { keeper, records }),
            Brought::Ended { keeper, addresses, end, reason } => {
                match (end, keeper) {
                    (VisitEnd::Complete, Some(keeper)) => self.hands.keep(keeper, addresses),
                    _ => self.hands.let_go(keeper),
                }
                self.last_visit_failure = reason;
                self.look_at_sources = Instant::now();
                self.feed(Input::Visited { keeper, end });
            }
        }
    }

    fn fetch_ended(&mut self, news: News) {
        let (sha256, ended, report): (Digest, bool, Box<dyn Fn() -> Report>) = match news {
            News::Fetched(sha256) => {
                self.hands.events.tell(self.clock.wall(), Told::BlobStored { sha256 });
                (sha256, true, Box::new(move || Report::Fetched { sha256 }))
            }
            News::NoSource(sha256) => (sha256, false, Box::new(move || Report::NoSource { sha256 })),
            News::Failed(sha256, fault, reason) => {
                tracing::warn!("a download failed: {reason}");
                (sha256, true, Box::new(move || Report::FetchFailed { sha256, fault, reason: reason.clone() }))
            }
            News::Roster { digest, bytes } => {
                self.hands.fetches.roster_ended(&digest);
                // Whoever brought it is not to blame for what is signed in it: its digest was checked.
                return self.feed(Input::Roster { bytes, source: Source::Store });
            }
        };
        for product in self.hands.fetches.products(&sha256, ended) {
            self.feed(Input::Device { product, report: report() });
        }
    }

    fn look_who_is_near(&mut self) {
        let near = self.hands.whereabouts.iter().filter(|(_, address)| near::is_near(&self.addresses, address));
        self.hands.fetches.set_near(near.map(|(peer, _)| *peer).collect());
        self.look_at_sources = Instant::now();
    }

    /// Tells the downloads whom they may ask, and connects to members that have what no connected peer has.
    fn look_at_sources(&mut self) {
        self.look_at_sources = Instant::now() + SOURCES_EVERY;
        if !self.hands.fetches.any() {
            let takers = self.takers_here();
            for peer in self.company.part(Instant::now(), &takers) {
                // A link that the node needs otherwise is made again.
                let _ = self.hands.network.hangup(peer, "the download is over");
            }
            return;
        }
        self.tell_progress();
        let members = self.node.lock().peers(self.clock.now());
        let suppliers = self.hands.suppliers();
        let me = self.hands.network.local_id();
        for (peer, addresses) in self.hands.fetches.refresh(me, &suppliers, &members) {
            // Tried again with the next look.
            let _ = self.hands.network.dial(Some(peer), addresses);
        }
        // A metered node passes nothing on, and does not need more links than it has. For a roster links are made too: what it
        // names comes next, and everybody fetches that at once.
        if !self.lean {
            for (peer, addresses) in self.company.invite(Instant::now(), me, &self.hands.connected, &members) {
                let _ = self.hands.network.dial(Some(peer), addresses);
            }
        }
    }

    /// Removes blobs that nobody needs any more.
    fn sweep(&mut self) {
        self.sweep_at = Instant::now() + SWEEP_EVERY;
        let remove = {
            let node = self.node.lock();
            let releases: Vec<_> = node.shelf().releases().collect();
            let running = sweep::running(&node);
            let rollouts = node.rollouts(self.clock.now());
            let blobs = self.blobs.borrow().clone();
            let (remove, unnamed) = sweep::unneeded(&blobs, &releases, &rollouts, &running, &self.unnamed_blobs);
            self.unnamed_blobs = unnamed;
            remove
        };
        self.housekeeping.sweep(self.blob_store.clone(), remove);
    }

    /// Where a slot found no room for a copy of its artifact: what makes some, for before that is tried again, blobs that nobody
    /// needs give way.
    fn room_to_stage(&self, report: &Report) -> Option<Room> {
        let Report::StageFailed { release, fault: Trouble::DiskFull, .. } = report else { return None };
        let here = self.blobs.borrow().clone();
        let artifacts = self.node.lock().shelf().release(release).map(|release| release.artifacts.clone()).unwrap_or_default();
        let staged = artifacts.iter().map(|it| (Digest::from(it.sha256), it.size)).find(|(sha256, _)| here.contains(sha256));
        let (sha256, size_bytes) = staged?;
        let store = self.blob_store.clone();
        Some(Box::new(move || {
            if let Err(error) = store.make_free(&sha256, size_bytes) {
                tracing::warn!("no blob gives way to the copy of {sha256}: {error}");
            }
        }))
    }

    /// Takes a published document from this machine.
    fn publish(&mut self, bytes: Vec<u8>, reply: Reply<Result<Accepted, PublishError>>) {
        if let Some(fault) = &self.fault {
            // A client that has gone needs no answer.
            let _ = reply.send(Err(PublishError::Fault(fault.detail.clone())));
            return;
        }
        let ticket = self.hands.ticket(reply);
        self.feed(Input::Document { bytes, source: Source::Local { ticket } });
    }
}
