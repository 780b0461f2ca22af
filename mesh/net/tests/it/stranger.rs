//! A libp2p peer that is not this code: it speaks every protocol of the mesh, opens any stream by name, and passes the door
//! or not as a test likes.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use groundswell_core::node_id::NodeId;
use groundswell_net::Config;
use libp2p::core::transport::PortUse;
use libp2p::core::upgrade::{DeniedUpgrade, ReadyUpgrade};
use libp2p::core::{Endpoint, Multiaddr};
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity};
use libp2p::swarm::handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedOutbound};
use libp2p::swarm::{
    ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour, NotifyHandler,
    StreamProtocol, StreamUpgradeError, SubstreamProtocol, SwarmEvent, THandlerInEvent, ToSwarm,
};
use libp2p::{PeerId, Stream, Swarm, SwarmBuilder, identify, noise, ping, tcp, yamux};
use tokio::time::timeout;

use crate::node::{Over, PATIENCE, Password, TestNode, listen};

/// What members have behind the door.
pub(crate) const MEMBERS_ONLY: [&str; 7] = [
    "/groundswell/link/1",
    "/groundswell/blob/1",
    "/meshsub/1.2.0",
    "/meshsub/1.1.0",
    "/meshsub/1.0.0",
    "/ipfs/id/1.0.0",
    "/ipfs/ping/1.0.0",
];

/// Everything that members speak, as libp2p brings it, and streams by name.
#[derive(NetworkBehaviour)]
pub(crate) struct Everything {
    gossip: gossipsub::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    opener: Opener,
}

pub(crate) struct Stranger {
    swarm: Swarm<Everything>,
    /// What its behaviours heard.
    pub(crate) heard: Vec<EverythingEvent>,
}

impl Stranger {
    pub(crate) fn start() -> Self {
        let swarm = SwarmBuilder::with_new_identity()
            .with_tokio()
            .with_tcp(tcp::Config::default(), noise::Config::new, yamux::Config::default)
            .expect("a TCP transport")
            .with_behaviour(|identity| Everything {
                gossip: gossipsub::Behaviour::new(
                    MessageAuthenticity::Signed(identity.clone()),
                    gossipsub::ConfigBuilder::default().flood_publish(true).build().expect("defaults"),
                )
                .expect("defaults"),
                identify: identify::Behaviour::new(identify::Config::new("/groundswell/1".into(), identity.public())),
                ping: ping::Behaviour::default(),
                opener: Opener::default(),
            })
            .expect("infallible")
            .build();
        Self { swarm, heard: Vec::new() }
    }

    pub(crate) fn id(&self) -> NodeId {
        NodeId::from_peer_id_bytes(&self.swarm.local_peer_id().to_bytes()).expect("an Ed25519 key")
    }

    pub(crate) fn dial(&mut self, address: &str) {
        self.swarm.dial(address.parse::<Multiaddr>().expect("a multiaddress")).expect("a dial");
    }

    /// Dials and waits until it is connected; it says nothing after that.
    pub(crate) async fn connected(&mut self, address: &str) {
        self.dial(address);
        while !matches!(self.next().await, SwarmEvent::ConnectionEstablished { .. }) {}
    }

    async fn next(&mut self) -> SwarmEvent<EverythingEvent> {
        timeout(PATIENCE, self.swarm.select_next_some()).await.expect("an event in time")
    }

    /// Waits until its connection is closed.
    pub(crate) async fn closed(&mut self) {
        loop {
            match self.next().await {
                SwarmEvent::ConnectionClosed { .. } => return,
                SwarmEvent::Behaviour(event) => self.heard.push(event),
                _ => {}
            }
        }
    }

    /// Opens a stream; `None` when the peer does not offer the protocol. One at a time.
    pub(crate) async fn open(&mut self, protocol: &'static str) -> Option<Stream> {
        self.swarm.behaviour_mut().opener.wanted.push_back(protocol);
        loop {
            match self.next().await {
                SwarmEvent::Behaviour(EverythingEvent::Opener(Opened(stream))) => return stream,
                SwarmEvent::Behaviour(event) => self.heard.push(event),
                _ => {}
            }
        }
    }

    /// Says hello as a member of fleet 1 would, and reads the answer's first byte.
    pub(crate) async fn hello(&mut self) -> (Stream, u8) {
        let mut stream = self.open("/groundswell/admit/1").await.expect("the door's protocol");
        let mut hello = vec![1];
        hello.extend_from_slice(&[1; 32]);
        hello.extend_from_slice(&[0xEE; 16]);
        hello.extend_from_slice(b"\0\0\0\x06member");
        stream.write_all(&hello).await.expect("an open stream");
        stream.flush().await.expect("an open stream");
        let mut answer = [0; 1 + 32 + 16 + 4 + 6];
        stream.read_exact(&mut answer).await.expect("a whole hello");
        (stream, answer[0])
    }

    /// Passes the door as a member would.
    pub(crate) async fn admitted(&mut self, address: &str) {
        self.dial(address);
        let (mut stream, _) = self.hello().await;
        stream.write_all(&[2]).await.expect("an open stream");
        stream.flush().await.expect("an open stream");
        let mut ready = [0];
        stream.read_exact(&mut ready).await.expect("a byte");
        assert_eq!(ready, [3]);
    }
}

#[tokio::test]
async fn s7_an_unadmitted_peer_negotiates_no_protocol_but_the_door_and_hears_nothing() {
    let config = Config { admit_within: std::time::Duration::from_secs(6), ..listen(Over::Tcp) };
    let mut member = TestNode::start(1, config, Password { fleet: 1, own: "member" }).await;
    let friend = TestNode::member(2, Over::Tcp).await;
    friend.dial(&member);
    member.up(friend.id()).await;

    let mut stranger = Stranger::start();
    let topic = IdentTopic::new(format!("groundswell/1/{}", "01".repeat(32)));
    stranger.swarm.behaviour_mut().gossip.subscribe(&topic).expect("a subscription");
    stranger.dial(&member.address);
    for protocol in MEMBERS_ONLY {
        assert!(stranger.open(protocol).await.is_none(), "{protocol}");
    }
    // Both try to reach the other by gossip, and the member tries to send it a frame.
    let published = stranger.swarm.behaviour_mut().gossip.publish(topic, b"from a stranger".to_vec());
    assert!(published.is_err(), "the member never told it a subscription: {published:?}");
    member.network.gossip(b"for members".to_vec()).expect("a free command queue");
    assert!(!member.network.send(stranger.id(), b"for members".to_vec()));

    stranger.closed().await;
    assert!(
        stranger.heard.iter().all(|event| matches!(
            event,
            EverythingEvent::Gossip(gossipsub::Event::GossipsubNotSupported { .. })
                | EverythingEvent::Ping(ping::Event { result: Err(_), .. })
                | EverythingEvent::Identify(identify::Event::Error { .. })
        )),
        "{:?}",
        stranger.heard
    );
    assert_eq!(member.refused().await, (stranger.id(), "it did not prove its certificate within 6000 ms".into()));
    assert!(!member.heard_of(stranger.id()));
}

/// Opens streams by name on its newest connection.
#[derive(Default)]
pub(crate) struct Opener {
    connection: Option<(PeerId, ConnectionId)>,
    wanted: VecDeque<&'static str>,
    opened: VecDeque<Opened>,
}

/// The stream, when the protocol was negotiated.
#[derive(Debug)]
pub(crate) struct Opened(Option<Stream>);

#[derive(Default)]
pub(crate) struct OpenerHandler {
    wanted: VecDeque<&'static str>,
    opened: VecDeque<Opened>,
}

impl NetworkBehaviour for Opener {
    type ConnectionHandler = OpenerHandler;
    type ToSwarm = Opened;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<OpenerHandler, ConnectionDenied> {
        Ok(OpenerHandler::default())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<OpenerHandler, ConnectionDenied> {
        Ok(OpenerHandler::default())
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        if let FromSwarm::ConnectionEstablished(established) = event {
            self.connection = Some((established.peer_id, established.connection_id));
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: Opened) {
        self.opened.push_back(event);
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some(opened) = self.opened.pop_front() {
            return Poll::Ready(ToSwarm::GenerateEvent(opened));
        }
        match (self.connection, self.wanted.front().copied()) {
            (Some((peer_id, connection)), Some(protocol)) => {
                self.wanted.pop_front();
                Poll::Ready(ToSwarm::NotifyHandler { peer_id, handler: NotifyHandler::One(connection), event: protocol })
            }
            // Woken by the connection, or by the test that wants a stream and polls the swarm for it.
            _ => Poll::Pending,
        }
    }
}

impl ConnectionHandler for OpenerHandler {
    type FromBehaviour = &'static str;
    type ToBehaviour = Opened;
    type InboundProtocol = DeniedUpgrade;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = ();

    fn listen_protocol(&self) -> SubstreamProtocol<DeniedUpgrade, ()> {
        SubstreamProtocol::new(DeniedUpgrade, ())
    }

    fn on_behaviour_event(&mut self, protocol: &'static str) {
        self.wanted.push_back(protocol);
    }

    fn connection_keep_alive(&self) -> bool {
        true
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<ReadyUpgrade<StreamProtocol>, (), Opened>> {
        if let Some(protocol) = self.wanted.pop_front() {
            let protocol = SubstreamProtocol::new(ReadyUpgrade::new(StreamProtocol::new(protocol)), ());
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        self.opened.pop_front().map_or(Poll::Pending, |opened| Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(opened)))
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, DeniedUpgrade, ReadyUpgrade<StreamProtocol>, (), ()>) {
        match event {
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol, .. }) => {
                self.opened.push_back(Opened(Some(protocol)));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { error, .. }) => {
                assert!(matches!(error, StreamUpgradeError::NegotiationFailed), "{error}");
                self.opened.push_back(Opened(None));
            }
            _ => {}
        }
    }
}
