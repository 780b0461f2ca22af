//! The door as the swarm sees it: keeps each connection from the inner behaviours until it is admitted.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use groundswell_core::node_id::NodeId;
use libp2p::core::transport::PortUse;
use libp2p::core::{ConnectedPoint, Endpoint};
use libp2p::swarm::behaviour::ConnectionEstablished;
use libp2p::swarm::{
    AddressChange, CloseConnection, ConnectionClosed, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, NotifyHandler,
    THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

use super::crowded::{self, Tenure};
use super::exchange::SESSION_BYTES;
use super::handler::{Caller, DoorHandler, FromDoor, ToDoor};
use super::{DoorEvent, Keeper, Knock};
use crate::config::{HANDSHAKES, UNADMITTED};
use crate::origin::{Origin, has_room};
use crate::outer::visit::VisitFailed;

/// Wraps `B`, which sees admitted connections only.
pub(crate) struct Door<B: NetworkBehaviour> {
    inner: B,
    keeper: Arc<Keeper>,
    /// Bounded by the connection limits, which stand beside the door.
    connections: HashMap<ConnectionId, Connection>,
    /// Inbound handshakes under way, at most [`HANDSHAKES`].
    handshakes: HashMap<ConnectionId, Origin>,
    /// Of inbound connections whose handler is made and that are not there yet.
    tenures: HashMap<ConnectionId, Tenure>,
    /// Dials that are visits at outer doors; taken out once the connection is there or has failed.
    knocks: HashMap<ConnectionId, Option<Knock>>,
    /// At most a few per handled event; drained before anything else is polled.
    events: VecDeque<Order<B>>,
}

/// What the door asks of the swarm.
type Order<B> = ToSwarm<DoorEvent<<B as NetworkBehaviour>::ToSwarm>, ToDoor<THandler<B>>>;

struct Connection {
    peer: PeerId,
    node: NodeId,
    endpoint: ConnectedPoint,
    state: State,
    /// Whether it keeps its place while it waits.
    tenure: Tenure,
    /// Whether it was reported as admitted or refused.
    told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The exchange runs.
    Waiting,
    /// The inner behaviours know the connection.
    Shown([u8; SESSION_BYTES]),
    /// A refusal was reported.
    Refused,
    /// It gave its place to another, and is being closed.
    GaveWay,
    /// A visit at an outer door, here or there: never admitted, and nobody's refusal.
    Outer,
}

/// The connection cannot be used at all.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("its identity is not an Ed25519 key")]
    Key,
    #[error("{UNADMITTED} connections wait to be admitted already")]
    Crowded,
    #[error("of {HANDSHAKES} handshakes too many are under way from where it comes")]
    Handshakes,
}

impl<B: NetworkBehaviour> Door<B> {
    pub(crate) fn new(inner: B, keeper: Keeper) -> Self {
        let (connections, handshakes, tenures) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (knocks, events) = (HashMap::new(), VecDeque::new());
        Self { inner, keeper: Arc::new(keeper), connections, handshakes, tenures, knocks, events }
    }

    pub(crate) fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// The connection that is about to be dialled is a visit at the peer's outer door.
    pub(crate) fn knock(&mut self, connection: ConnectionId, knock: Knock) {
        self.knocks.insert(connection, Some(knock));
    }

    /// A dial failed; if it was a visit, whoever knocked is told.
    pub(crate) fn knock_failed(&mut self, connection: ConnectionId, reason: impl FnOnce() -> String) {
        if let Some(Some(knock)) = self.knocks.remove(&connection) {
            // Nobody may wait for it any more.
            drop(knock.send(Err(VisitFailed::Unreachable(reason()))));
        }
    }

    fn node(peer: PeerId) -> Result<NodeId, ConnectionDenied> {
        node_id(peer).ok_or_else(|| ConnectionDenied::new(Unfit::Key))
    }

    /// How many connections of `peer` the inner behaviours know.
    fn shown(&self, peer: PeerId) -> usize {
        self.connections.values().filter(|c| c.peer == peer && matches!(c.state, State::Shown(_))).count()
    }

    /// How many peers the inner behaviours know.
    fn members(&self) -> usize {
        let shown = self.connections.values().filter(|c| matches!(c.state, State::Shown(_)));
        shown.map(|c| c.node).collect::<BTreeSet<_>>().len()
    }

    /// The proofs are in: the inner behaviours learn of the connection and give their handler.
    fn show(&mut self, id: ConnectionId, session: [u8; SESSION_BYTES]) {
        let Some(connection) = self.connections.get(&id).filter(|connection| connection.state == State::Waiting) else { return };
        let (peer, endpoint) = (connection.peer, connection.endpoint.clone());
        let other_established = self.shown(peer);
        let most = self.keeper.most_peers;
        if other_established == 0 && self.members() >= most {
            self.refuse(id, format!("{most} peers are connected already"));
            return self.close(id);
        }
        let handler = match &endpoint {
            ConnectedPoint::Dialer { address, role_override, port_use } => {
                self.inner.handle_established_outbound_connection(id, peer, address, *role_override, *port_use)
            }
            ConnectedPoint::Listener { local_addr, send_back_addr } => {
                self.inner.handle_established_inbound_connection(id, peer, local_addr, send_back_addr)
            }
        };
        let handler = match handler {
            Ok(handler) => handler,
            Err(denied) => {
                self.refuse(id, denied.to_string());
                return self.close(id);
            }
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::Shown(session);
        }
        self.events.push_back(ToSwarm::NotifyHandler {
            peer_id: peer,
            handler: NotifyHandler::One(id),
            event: ToDoor::Open(Box::new(handler)),
        });
        self.inner.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
            peer_id: peer,
            connection_id: id,
            endpoint: &endpoint,
            failed_addresses: &[],
            other_established,
        }));
    }

    fn admitted(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let State::Shown(session) = connection.state else { return };
        connection.told = true;
        self.events.push_back(ToSwarm::GenerateEvent(DoorEvent::Admitted {
            peer: connection.node,
            connection: id,
            session,
            dialled: connection.endpoint.is_dialer(),
            address: connection.endpoint.get_remote_address().to_string(),
        }));
    }

    fn refuse(&mut self, id: ConnectionId, reason: String) {
        self.refuse_for(id, reason, false);
    }

    /// `later`: this side dialled, and is to come again.
    fn refuse_for(&mut self, id: ConnectionId, reason: String, later: bool) {
        let reportable = |connection: &&mut Connection| !matches!(connection.state, State::Outer | State::GaveWay);
        let Some(connection) = self.connections.get_mut(&id).filter(reportable) else { return };
        let refused = connection.refused(reason, later);
        // What the inner behaviours already know, they must hear the end of.
        if connection.state == State::Waiting {
            connection.state = State::Refused;
        }
        connection.told = true;
        self.events.push_back(ToSwarm::GenerateEvent(refused));
    }

    /// Makes a place for one more connection from `origin` among those that have proven nothing yet.
    fn make_place(&mut self, origin: Origin) -> Result<(), ConnectionDenied> {
        let waits = |connection: &Connection| {
            matches!(connection.state, State::Waiting | State::Refused) && connection.endpoint.is_listener()
        };
        let waiting = self.connections.iter().filter(|(_, connection)| waits(connection));
        let waiting: Vec<_> = waiting.map(|(id, connection)| connection.at_the_door(*id)).collect();
        if waiting.len() < UNADMITTED {
            return Ok(());
        }
        let crowded = || ConnectionDenied::new(Unfit::Crowded);
        let id = crowded::gives_way(waiting.into_iter(), origin).ok_or_else(crowded)?;
        if self.connections.get(&id).is_some_and(|connection| connection.state == State::Waiting) {
            self.refuse(id, "it gave its place to another: it had not said hello yet".to_owned());
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.state = State::GaveWay;
        }
        self.close(id);
        Ok(())
    }

    fn close(&mut self, id: ConnectionId) {
        let Some(peer_id) = self.connections.get(&id).map(|connection| connection.peer) else { return };
        self.events.push_back(ToSwarm::CloseConnection { peer_id, connection: CloseConnection::One(id) });
    }

    fn closed(&mut self, closed: ConnectionClosed<'_>) {
        let Some(connection) = self.connections.remove(&closed.connection_id) else { return };
        if matches!(connection.state, State::Shown(_)) {
            let remaining_established = self.shown(connection.peer);
            self.inner.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed { remaining_established, ..closed }));
        }
        if !connection.told && connection.state != State::Outer {
            let refused = connection.refused("the connection closed before both sides had admitted each other".into(), false);
            self.events.push_back(ToSwarm::GenerateEvent(refused));
        }
    }
}

impl Connection {
    fn refused<E>(&self, reason: String, later: bool) -> DoorEvent<E> {
        let proven = matches!(self.state, State::Shown(_)) && self.endpoint.is_dialer();
        let later = later && self.endpoint.is_dialer();
        DoorEvent::Refused { peer: self.node, address: self.endpoint.get_remote_address().to_string(), reason, proven, later }
    }

    fn at_the_door(&self, id: ConnectionId) -> crowded::Waiting<ConnectionId> {
        let has_tenure = self.state == State::Waiting && self.tenure.is_granted();
        crowded::Waiting { origin: Origin::of(self.endpoint.get_remote_address()), since: id, has_tenure }
    }
}

/// The node behind a PeerId; `None` when its key is not Ed25519.
pub(crate) fn node_id(peer: PeerId) -> Option<NodeId> {
    NodeId::from_peer_id_bytes(&peer.to_bytes()).ok()
}

impl<B: NetworkBehaviour> NetworkBehaviour for Door<B> {
    type ConnectionHandler = DoorHandler<THandler<B>>;
    type ToSwarm = DoorEvent<B::ToSwarm>;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let origin = Origin::of(remote);
        if !has_room(self.handshakes.values().copied(), origin, HANDSHAKES) {
            return Err(ConnectionDenied::new(Unfit::Handshakes));
        }
        self.handshakes.insert(id, origin);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.handshakes.remove(&id);
        let (node, origin) = (Self::node(peer)?, Origin::of(remote));
        self.make_place(origin)?;
        let tenure = Tenure::default();
        self.tenures.insert(id, tenure.clone());
        Ok(DoorHandler::called(Caller { peer: node, origin, tenure }, Arc::clone(&self.keeper)))
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        role: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let knock = self.knocks.get_mut(&id).and_then(Option::take);
        // Under hole punching both sides dial, and one of them plays the acceptor.
        let (node, keeper) = (Self::node(peer)?, Arc::clone(&self.keeper));
        Ok(match role {
            Endpoint::Dialer => DoorHandler::dialled(node, keeper, knock),
            // Whoever it is was chosen here: it waits for nobody's turn, and takes nobody's place.
            Endpoint::Listener => DoorHandler::called(Caller::chosen(node), keeper),
        })
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(established) => {
                let visit = self.knocks.remove(&established.connection_id).is_some();
                let tenure = self.tenures.remove(&established.connection_id).unwrap_or_default();
                if let Some(node) = node_id(established.peer_id) {
                    let connection = Connection {
                        peer: established.peer_id,
                        node,
                        endpoint: established.endpoint.clone(),
                        state: if visit { State::Outer } else { State::Waiting },
                        tenure,
                        told: false,
                    };
                    self.connections.insert(established.connection_id, connection);
                }
            }
            FromSwarm::ConnectionClosed(closed) => self.closed(closed),
            FromSwarm::AddressChange(AddressChange { connection_id, new, .. }) => {
                let Some(connection) = self.connections.get_mut(&connection_id) else { return };
                connection.endpoint = new.clone();
                if matches!(connection.state, State::Shown(_)) {
                    self.inner.on_swarm_event(event);
                }
            }
            // Failed handshakes of strangers are nothing that an inner behaviour may hear of.
            FromSwarm::ListenFailure(failed) => {
                self.handshakes.remove(&failed.connection_id);
                self.tenures.remove(&failed.connection_id);
            }
            other => self.inner.on_swarm_event(other),
        }
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, id: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {
            FromDoor::Proven(session) => self.show(id, session),
            FromDoor::Opened => self.admitted(id),
            FromDoor::Refused { reason, later } => self.refuse_for(id, reason, later),
            FromDoor::Outer => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.state = State::Outer;
                }
            }
            FromDoor::Close => self.close(id),
            FromDoor::Inner(event) => self.inner.on_connection_handler_event(peer, id, event),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            let Poll::Ready(event) = self.inner.poll(cx) else { return Poll::Pending };
            let event = match event {
                // "Any" connection must be an admitted one.
                ToSwarm::NotifyHandler { peer_id, handler: NotifyHandler::Any, event } => {
                    let shown = self.connections.iter().find(|(_, c)| c.peer == peer_id && matches!(c.state, State::Shown(_)));
                    match shown {
                        Some((id, _)) => ToSwarm::NotifyHandler { peer_id, handler: NotifyHandler::One(*id), event },
                        None => continue,
                    }
                }
                event => event,
            };
            return Poll::Ready(event.map_out(DoorEvent::Inner).map_in(ToDoor::Inner));
        }
    }
}
