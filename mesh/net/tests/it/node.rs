//! A node under test: starts on ephemeral ports, remembers what it heard, and waits for events, never for time.

use std::sync::Arc;
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_net::{Admission, Config, Network, NetworkEvent};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

/// An event that has not come by then never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Which transport a node listens on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Over {
    Tcp,
    Quic,
}

/// Admits whoever brings the right word.
pub(crate) struct Password {
    pub(crate) fleet: u8,
    pub(crate) own: &'static str,
}

impl Admission for Password {
    fn fleet(&self) -> Digest {
        Digest([self.fleet; 32])
    }
    fn own_proof(&self) -> Vec<u8> {
        self.own.as_bytes().to_vec()
    }
    fn admit(&self, peer: NodeId, proof: &[u8]) -> Result<(), String> {
        if proof == b"member" { Ok(()) } else { Err(format!("revoked: {peer}")) }
    }
}

pub(crate) struct TestNode {
    pub(crate) network: Network,
    pub(crate) events: Receiver<NetworkEvent>,
    pub(crate) address: String,
}

/// How to listen on an ephemeral port.
pub(crate) fn listen(over: Over) -> Config {
    let address = match over {
        Over::Tcp => "/ip4/127.0.0.1/tcp/0",
        Over::Quic => "/ip4/127.0.0.1/udp/0/quic-v1",
    };
    Config { listen: vec![address.into()], ..Config::default() }
}

impl TestNode {
    pub(crate) async fn member(seed: u8, over: Over) -> Self {
        Self::start(seed, listen(over), Password { fleet: 1, own: "member" }).await
    }

    pub(crate) async fn start(seed: u8, config: Config, password: Password) -> Self {
        let (network, events) = Network::start(config, [seed; 32], Arc::new(password)).await.expect("a free port");
        let mut node = Self { network, events, address: String::new() };
        node.address = node
            .hear(|event| match event {
                NetworkEvent::Addresses(addresses) => addresses.first().cloned(),
                _ => None,
            })
            .await;
        node
    }

    pub(crate) fn id(&self) -> NodeId {
        self.network.local_id()
    }

    pub(crate) fn dial(&self, other: &TestNode) {
        self.network.dial(Some(other.id()), vec![other.address.clone()]).expect("a free command queue");
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> NetworkEvent {
        timeout(PATIENCE, self.events.recv()).await.expect("an event in time").expect("a running mesh")
    }

    /// Passes over events until `wanted` finds what it looks for.
    pub(crate) async fn hear<T>(&mut self, mut wanted: impl FnMut(NetworkEvent) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.next().await) {
                return found;
            }
        }
    }

    pub(crate) async fn up(&mut self, other: NodeId) {
        self.hear(|event| matches!(event, NetworkEvent::PeerUp { peer, .. } if peer == other).then_some(())).await;
    }

    pub(crate) async fn down(&mut self, other: NodeId) {
        self.hear(|event| matches!(event, NetworkEvent::PeerDown { peer } if peer == other).then_some(())).await;
    }

    pub(crate) async fn frame(&mut self) -> (NodeId, Vec<u8>) {
        self.hear(|event| match event {
            NetworkEvent::Frame { peer, bytes } => Some((peer, bytes)),
            _ => None,
        })
        .await
    }

    pub(crate) async fn refused(&mut self) -> (NodeId, String) {
        self.hear(|event| match event {
            NetworkEvent::Refused { peer, reason, .. } => Some((peer, reason)),
            _ => None,
        })
        .await
    }

    pub(crate) async fn refused_by(&mut self, other: NodeId) -> (NodeId, String) {
        self.hear(|event| match event {
            NetworkEvent::Refused { peer, reason, .. } if peer == other => Some((peer, reason)),
            _ => None,
        })
        .await
    }

    /// Drains what is queued now and says whether anything of it came from `peer`'s protocols.
    pub(crate) fn heard_of(&mut self, other: NodeId) -> bool {
        let mut heard = false;
        while let Ok(event) = self.events.try_recv() {
            heard |= match event {
                NetworkEvent::PeerUp { peer, .. } | NetworkEvent::Frame { peer, .. } | NetworkEvent::Gossip { peer, .. } => {
                    peer == other
                }
                _ => false,
            };
        }
        heard
    }
}

/// Two members with a connection, `left` having dialled.
pub(crate) async fn pair(over: Over) -> (TestNode, TestNode) {
    let (mut left, mut right) = (TestNode::member(1, over).await, TestNode::member(2, over).await);
    left.dial(&right);
    left.up(right.id()).await;
    right.up(left.id()).await;
    (left, right)
}
