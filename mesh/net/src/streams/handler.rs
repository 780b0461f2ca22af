//! One connection's streams: asks for outbound ones, accepts inbound ones.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use groundswell_core::node_id::NodeId;
use libp2p::swarm::handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedOutbound};
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, StreamUpgradeError, SubstreamProtocol};
use tokio::sync::Semaphore;

use super::upgrade::{Accepting, NotTaken, Opening, Places};
use super::{Acceptors, OpenError, PROTOCOLS, REQUESTS, Request};
use crate::config::STREAMS_PER_CONNECTION;

pub(crate) struct Handler {
    peer: NodeId,
    acceptors: Arc<Acceptors>,
    places: Places,
    /// At most [`REQUESTS`].
    asked: VecDeque<Request>,
    waker: Option<Waker>,
}

impl Handler {
    pub(super) fn new(peer: NodeId, acceptors: Arc<Acceptors>) -> Self {
        let places = PROTOCOLS.map(|protocol| (protocol, Arc::new(Semaphore::new(STREAMS_PER_CONNECTION))));
        Self { peer, acceptors, places: Arc::new(places.into()), asked: VecDeque::new(), waker: None }
    }
}

/// Nobody may wait for the answer any more; then there is nothing to tell.
fn answer(request: Request, result: Result<super::PeerStream, OpenError>) {
    drop(request.reply.send(result));
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Request;
    type ToBehaviour = Infallible;
    type InboundProtocol = Accepting;
    type OutboundProtocol = Opening;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Request;

    fn listen_protocol(&self) -> SubstreamProtocol<Accepting, ()> {
        let accepting = Accepting { peer: self.peer, acceptors: Arc::clone(&self.acceptors), places: Arc::clone(&self.places) };
        SubstreamProtocol::new(accepting, ())
    }

    fn on_behaviour_event(&mut self, request: Request) {
        if self.asked.len() >= REQUESTS {
            return answer(request, Err(OpenError::Full));
        }
        self.asked.push_back(request);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<Opening, Request, Infallible>> {
        while let Some(request) = self.asked.pop_front() {
            if request.reply.is_closed() {
                continue;
            }
            let protocol = SubstreamProtocol::new(Opening { protocol: request.protocol }, request);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, Accepting, Opening, (), Request>) {
        match event {
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol, info }) => answer(info, Ok(protocol)),
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let (peer, protocol) = (info.peer, info.protocol);
                let error = match error {
                    StreamUpgradeError::Apply(NotTaken::Busy) => OpenError::Busy(peer, protocol),
                    StreamUpgradeError::Apply(NotTaken::Io(error)) | StreamUpgradeError::Io(error) => {
                        OpenError::Failed(peer, error.to_string())
                    }
                    StreamUpgradeError::NegotiationFailed => OpenError::Unsupported(peer, protocol),
                    StreamUpgradeError::Timeout => OpenError::Failed(peer, format!("no answer to {protocol}")),
                };
                answer(info, Err(error));
            }
            // Inbound streams were handed over, or refused, while they were negotiated.
            _ => {}
        }
    }
}
