//! A libp2p peer that is no member: it speaks every protocol of the mesh but does not pass the door.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::StreamExt;
use groundswell_core::node_id::NodeId;
use groundswell_net::{Config, NetworkEvent};
use libp2p::core::transport::PortUse;
use libp2p::core::upgrade::{DeniedUpgrade, ReadyUpgrade};
use libp2p::core::{Endpoint, Multiaddr};
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity};
use libp2p::swarm::handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedOutbound};
use libp2p::swarm::{
    ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour, StreamProtocol,
    StreamUpgradeError, SubstreamProtocol, SwarmEvent, THandlerInEvent, ToSwarm,
};
use libp2p::{PeerId, Swarm, SwarmBuilder, identify, noise, ping, tcp, yamux};
use tokio::time::timeout;

use crate::node::{Over, PATIENCE, Password, TestNode, listen};

/// What members have behind the door, and the door's own protocol last.
const PROTOCOLS: [&str; 8] = [
    "/groundswell/link/1",
    "/groundswell/blob/1",
    "/meshsub/1.2.0",
    "/meshsub/1.1.0",
    "/meshsub/1.0.0",
    "/ipfs/id/1.0.0",
    "/ipfs/ping/1.0.0",
    "/groundswell/admit/1",
];

/// Everything that members speak, as libp2p brings it, and probes for each protocol by name.
#[derive(NetworkBehaviour)]
pub(crate) struct Everything {
    gossip: gossipsub::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    probe: Probe,
}

pub(crate) struct Stranger {
    swarm: Swarm<Everything>,
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
                probe: Probe::default(),
            })
            .expect("infallible")
            .build();
        Self { swarm }
    }

    pub(crate) fn id(&self) -> NodeId {
        NodeId::from_peer_id_bytes(&self.swarm.local_peer_id().to_bytes()).expect("an Ed25519 key")
    }

    pub(crate) fn dial(&mut self, address: &str) {
        self.swarm.dial(address.parse::<Multiaddr>().expect("a multiaddress")).expect("a dial");
    }

    async fn next(&mut self) -> SwarmEvent<EverythingEvent> {
        timeout(PATIENCE, self.swarm.select_next_some()).await.expect("an event in time")
    }

    /// Waits until its connection is closed. Returns everything else that its behaviours heard.
    pub(crate) async fn closed(&mut self) -> Vec<EverythingEvent> {
        let mut heard = Vec::new();
        loop {
            match self.next().await {
                SwarmEvent::ConnectionClosed { .. } => return heard,
                SwarmEvent::Behaviour(event) => heard.push(event),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn s7_an_unadmitted_peer_negotiates_no_protocol_but_the_door_and_hears_nothing() {
    let config = Config { admit_within: std::time::Duration::from_secs(3), ..listen(Over::Tcp) };
    let mut member = TestNode::start(1, config, Password { fleet: 1, own: "member" }).await;
    let mut friend = TestNode::member(2, Over::Tcp).await;
    friend.dial(&member);
    member.up(friend.id()).await;

    let mut stranger = Stranger::start();
    let topic = IdentTopic::new(format!("groundswell/1/{}", "01".repeat(32)));
    stranger.swarm.behaviour_mut().gossip.subscribe(&topic).expect("a subscription");
    stranger.dial(&member.address);
    let mut answers = Vec::new();
    while answers.len() < PROTOCOLS.len() {
        if let SwarmEvent::Behaviour(EverythingEvent::Probe(answer)) = stranger.next().await {
            answers.push(answer);
        }
    }
    for (protocol, opened) in answers {
        assert_eq!(opened, protocol == "/groundswell/admit/1", "{protocol}");
    }
    // Both try to reach the other by gossip, and the member tries to send it a frame.
    let published = stranger.swarm.behaviour_mut().gossip.publish(topic, b"from a stranger".to_vec());
    assert!(published.is_err(), "the member never told it a subscription: {published:?}");
    member.network.gossip(b"for members".to_vec()).expect("a free command queue");
    assert!(!member.network.send(stranger.id(), b"for members".to_vec()));
    friend.hear(|event| matches!(event, NetworkEvent::PeerUp { .. }).then_some(())).await;

    let heard = stranger.closed().await;
    assert!(
        heard.iter().all(|event| matches!(
            event,
            EverythingEvent::Gossip(gossipsub::Event::GossipsubNotSupported { .. })
                | EverythingEvent::Ping(ping::Event { result: Err(_), .. })
                | EverythingEvent::Identify(identify::Event::Error { .. })
        )),
        "{heard:?}"
    );
    assert_eq!(member.refused().await, (stranger.id(), "it did not prove its certificate within 3000 ms".into()));
    assert!(!member.heard_of(stranger.id()));
}

/// Opens one stream of each of [`PROTOCOLS`] on every connection and tells which were negotiated.
#[derive(Default)]
pub(crate) struct Probe {
    answers: VecDeque<(&'static str, bool)>,
}

pub(crate) struct ProbeHandler {
    asked: VecDeque<&'static str>,
    answers: VecDeque<(&'static str, bool)>,
    /// Kept, so that the door waits for its proof.
    open: Vec<libp2p::Stream>,
}

impl NetworkBehaviour for Probe {
    type ConnectionHandler = ProbeHandler;
    type ToSwarm = (&'static str, bool);

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<ProbeHandler, ConnectionDenied> {
        Ok(ProbeHandler { asked: PROTOCOLS.into(), answers: VecDeque::new(), open: Vec::new() })
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<ProbeHandler, ConnectionDenied> {
        Ok(ProbeHandler { asked: PROTOCOLS.into(), answers: VecDeque::new(), open: Vec::new() })
    }

    fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: (&'static str, bool)) {
        self.answers.push_back(event);
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.answers.pop_front().map_or(Poll::Pending, |answer| Poll::Ready(ToSwarm::GenerateEvent(answer)))
    }
}

impl ConnectionHandler for ProbeHandler {
    type FromBehaviour = Infallible;
    type ToBehaviour = (&'static str, bool);
    type InboundProtocol = DeniedUpgrade;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = &'static str;

    fn listen_protocol(&self) -> SubstreamProtocol<DeniedUpgrade, ()> {
        SubstreamProtocol::new(DeniedUpgrade, ())
    }

    fn on_behaviour_event(&mut self, event: Infallible) {
        match event {}
    }

    fn connection_keep_alive(&self) -> bool {
        true
    }

    fn poll(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<ReadyUpgrade<StreamProtocol>, &'static str, Self::ToBehaviour>> {
        if let Some(protocol) = self.asked.pop_front() {
            let upgrade = ReadyUpgrade::new(StreamProtocol::new(protocol));
            let protocol = SubstreamProtocol::new(upgrade, protocol);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        self.answers.pop_front().map_or(Poll::Pending, |answer| Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(answer)))
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, DeniedUpgrade, ReadyUpgrade<StreamProtocol>, (), &'static str>) {
        match event {
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol, info }) => {
                self.open.push(protocol);
                self.answers.push_back((info, true));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                assert!(matches!(error, StreamUpgradeError::NegotiationFailed), "{info}: {error}");
                self.answers.push_back((info, false));
            }
            _ => {}
        }
    }
}
