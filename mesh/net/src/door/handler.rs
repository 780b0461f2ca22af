//! One connection at the door: runs the exchange, then steps aside for the inner handler.
//!
//! Stages only go forward: `Start → Proving → Installing → Finishing → Open`, or from any but the last
//! `Lingering → Closed`. The inner handler is made by the behaviour once the proofs are in, so before that there is nothing
//! to reach. A connection of the outer door never gets there: the keeper's goes `Start → Greeting → Serving → Closed`, the
//! visitor's `Knocking → Visiting → Closed`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use either::Either;
use futures::future::{BoxFuture, Either as Upgraded};
use futures::{FutureExt, ready};
use libp2p::core::upgrade::ReadyUpgrade;
use libp2p::swarm::handler::{
    ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound, ListenUpgradeError, SendWrapper,
};
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, Stream, StreamProtocol, StreamUpgradeError, SubstreamProtocol};
use tokio::time::{Instant, Sleep, sleep_until};

use super::crowded::Tenure;
use super::exchange::{self, Refusal, SESSION_BYTES};
use super::knock::{Knock, VisitStream};
use super::outside::Outside;
use super::{Keeper, PROTOCOL};
use crate::blobs::blocking;
use crate::origin::Origin;
use crate::outer::serve::{VisitError, Visitor};
use crate::outer::{self, visit::VisitFailed};
use groundswell_core::node_id::NodeId;
use tokio::sync::oneshot;

type Greeting = BoxFuture<'static, (Stream, Result<Visitor, VisitError>)>;
type Proving = BoxFuture<'static, (Stream, Result<[u8; SESSION_BYTES], Refusal>)>;
type Finishing = BoxFuture<'static, Result<(), Refusal>>;

enum Stage {
    /// No stream yet. The dialler opens it, the acceptor waits for it.
    Start { asked: bool },
    /// Both proofs travel.
    Proving(Proving),
    /// The proofs are in; the behaviour makes the inner handler.
    Installing(Stream),
    /// The inner handler listens; it may open streams when this is done.
    Finishing(Finishing),
    /// Admitted on both sides.
    Open,
    /// This node visits the peer's outer door, and opens the stream.
    Knocking { asked: bool, knock: Option<Knock> },
    /// The visitor has the stream; resolves when it drops it.
    Visiting(oneshot::Receiver<()>),
    /// The peer visits the outer door here and says who it is.
    Greeting(Greeting),
    /// Its requests are answered.
    Serving(BoxFuture<'static, ()>),
    /// Refused; the peer still reads why.
    Lingering(BoxFuture<'static, ()>),
    /// The connection is about to close.
    Closed,
}

/// Who came to the door here.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) peer: NodeId,
    pub(super) origin: Origin,
    pub(super) tenure: Tenure,
}

impl Caller {
    /// One that this side dialled, and that plays the dialler all the same.
    pub(super) fn chosen(peer: NodeId) -> Self {
        Self { peer, origin: Origin::Elsewhere, tenure: Tenure::default() }
    }
}

/// See the module.
pub(crate) struct DoorHandler<H: ConnectionHandler> {
    peer: NodeId,
    /// `None` where this side dialled.
    caller: Option<Caller>,
    /// Looks whether the caller is known here, as soon as it comes.
    knowing: Option<BoxFuture<'static, ()>>,
    keeper: Arc<Keeper>,
    stage: Stage,
    deadline: Pin<Box<Sleep>>,
    inner: Option<H>,
}

/// What the exchange wants next.
enum Progress<E> {
    /// Open the one stream, of this protocol.
    Ask(&'static str),
    /// Tell the behaviour.
    Tell(FromDoor<E>),
    /// Nothing any more: the door is open.
    Open,
}

/// From the behaviour to a connection.
pub(crate) enum ToDoor<H: ConnectionHandler> {
    /// The inner handler, once the proofs are in.
    Open(Box<H>),
    /// For the inner handler.
    Inner(H::FromBehaviour),
}

/// From a connection to the behaviour.
#[derive(Debug)]
pub(crate) enum FromDoor<E> {
    /// The proofs are in: make the inner handler.
    Proven([u8; SESSION_BYTES]),
    /// Both sides listen and may speak.
    Opened,
    /// It will not be admitted; it is still open for a moment.
    Refused {
        /// Why.
        reason: String,
        /// The other side wants it to come again.
        later: bool,
    },
    /// A visitor was let in at the outer door; the connection will never be admitted.
    Outer,
    /// Close this connection.
    Close,
    /// From the inner handler.
    Inner(E),
}

impl<H: ConnectionHandler> fmt::Debug for ToDoor<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(_) => f.write_str("Open"),
            Self::Inner(event) => f.debug_tuple("Inner").field(event).finish(),
        }
    }
}

impl<H: ConnectionHandler> DoorHandler<H> {
    /// With a `knock` the connection is there to visit the peer's outer door, and for nothing else.
    pub(super) fn dialled(peer: NodeId, keeper: Arc<Keeper>, knock: Option<Knock>) -> Self {
        let stage = match knock {
            Some(knock) => Stage::Knocking { asked: false, knock: Some(knock) },
            None => Stage::Start { asked: false },
        };
        Self::new(peer, None, keeper, stage)
    }

    /// The other side opens the stream.
    pub(super) fn called(caller: Caller, keeper: Arc<Keeper>) -> Self {
        Self::new(caller.peer, Some(caller), keeper, Stage::Start { asked: false })
    }

    fn new(peer: NodeId, caller: Option<Caller>, keeper: Arc<Keeper>, stage: Stage) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now() + keeper.within));
        let knowing = caller.clone().map(|caller| {
            let admission = Arc::clone(&keeper.admission);
            async move {
                if blocking(move || admission.knows(caller.peer)).await {
                    caller.tenure.grant();
                }
            }
            .boxed()
        });
        Self { peer, caller, knowing, keeper, stage, deadline, inner: None }
    }

    /// A peer visits the outer door here.
    fn greet(&mut self, mut stream: Stream) {
        let outer = self.keeper.outer.clone().filter(|_| matches!(self.stage, Stage::Start { .. }));
        let (Some(outer), Some(Caller { peer, origin, .. })) = (outer, self.caller.clone()) else { return };
        self.stage = Stage::Greeting(
            async move {
                let greeted = outer.greet(peer, origin, &mut stream).await;
                (stream, greeted)
            }
            .boxed(),
        );
    }

    /// The stream to the peer's outer door is open: whoever knocked has it from now on.
    fn enter(&mut self, stream: Stream) {
        let Stage::Knocking { knock, .. } = &mut self.stage else { return };
        let (stream, gone) = VisitStream::new(stream);
        if let Some(knock) = knock.take() {
            // A visitor that has gone meanwhile drops the stream, which closes the connection.
            drop(knock.send(Ok((self.peer, stream))));
        }
        self.stage = Stage::Visiting(gone);
    }

    fn not_let_in(&mut self, reason: VisitFailed) {
        if let Stage::Knocking { knock, .. } = &mut self.stage {
            if let Some(knock) = knock.take() {
                drop(knock.send(Err(reason)));
            }
            self.stage = Stage::Lingering(std::future::ready(()).boxed());
        }
    }

    /// The one stream of the exchange arrived. A second one is dropped: the exchange runs once.
    fn prove(&mut self, mut stream: Stream) {
        if !matches!(self.stage, Stage::Start { .. }) {
            return;
        }
        let (peer, caller, keeper) = (self.peer, self.caller.clone(), Arc::clone(&self.keeper));
        self.stage = Stage::Proving(
            async move {
                let proven = match caller {
                    None => exchange::dialler_proves(&mut stream, peer, &keeper).await,
                    Some(caller) => exchange::acceptor_proves(&mut stream, &caller, &keeper).await,
                };
                (stream, proven)
            }
            .boxed(),
        );
    }

    /// The inner handler listens from now on.
    fn finish(&mut self, inner: H) {
        match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Installing(mut stream) => {
                self.inner = Some(inner);
                let dialler = self.caller.is_none();
                self.stage = Stage::Finishing(
                    async move {
                        if dialler {
                            exchange::dialler_finishes(&mut stream).await
                        } else {
                            exchange::acceptor_finishes(&mut stream).await
                        }
                    }
                    .boxed(),
                );
            }
            // The deadline passed in between.
            other => self.stage = other,
        }
    }

    fn refuse(&mut self, refusal: &Refusal, stream: Option<Stream>) -> FromDoor<H::ToBehaviour> {
        let told = matches!(refusal, Refusal::Here(_) | Refusal::Fleet(_) | Refusal::Later(_));
        self.stage = Stage::Lingering(match stream {
            Some(mut stream) if told => async move { exchange::linger(&mut stream).await }.boxed(),
            _ => std::future::ready(()).boxed(),
        });
        FromDoor::Refused { reason: refusal.to_string(), later: refusal.comes_again() }
    }

    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Progress<H::ToBehaviour>> {
        if self.knowing.as_mut().is_some_and(|knowing| knowing.poll_unpin(cx).is_ready()) {
            self.knowing = None;
        }
        match &mut self.stage {
            Stage::Open => return Poll::Ready(Progress::Open),
            Stage::Closed => return Poll::Pending,
            Stage::Start { .. } if self.caller.is_none() && self.keeper.only_outer => {
                let refused = self.refuse(&Refusal::OnlyOuter, None);
                return Poll::Ready(Progress::Tell(refused));
            }
            Stage::Start { asked } if self.caller.is_none() && !*asked => {
                *asked = true;
                return Poll::Ready(Progress::Ask(PROTOCOL));
            }
            Stage::Knocking { asked, .. } if !*asked => {
                *asked = true;
                return Poll::Ready(Progress::Ask(outer::PROTOCOL));
            }
            Stage::Visiting(gone) => {
                // Sent or dropped: either way the visitor is done.
                let _ = ready!(gone.poll_unpin(cx));
                self.stage = Stage::Closed;
                return Poll::Ready(Progress::Tell(FromDoor::Close));
            }
            Stage::Serving(serving) => {
                ready!(serving.poll_unpin(cx));
                self.stage = Stage::Closed;
                return Poll::Ready(Progress::Tell(FromDoor::Close));
            }
            _ => {}
        }
        if self.deadline.as_mut().poll(cx).is_ready() && !matches!(self.stage, Stage::Lingering(_)) {
            self.not_let_in(VisitFailed::Late);
            let late = Refusal::Late(self.keeper.within.as_millis());
            return Poll::Ready(Progress::Tell(self.refuse(&late, None)));
        }
        match &mut self.stage {
            Stage::Proving(proving) => {
                let (stream, proven) = ready!(proving.poll_unpin(cx));
                Poll::Ready(Progress::Tell(match proven {
                    Ok(session) => {
                        self.stage = Stage::Installing(stream);
                        FromDoor::Proven(session)
                    }
                    Err(refusal) => self.refuse(&refusal, Some(stream)),
                }))
            }
            Stage::Finishing(finishing) => Poll::Ready(Progress::Tell(match ready!(finishing.poll_unpin(cx)) {
                Ok(()) => {
                    self.stage = Stage::Open;
                    FromDoor::Opened
                }
                Err(refusal) => self.refuse(&refusal, None),
            })),
            Stage::Greeting(greeting) => {
                let (stream, greeted) = ready!(greeting.poll_unpin(cx));
                Poll::Ready(Progress::Tell(match greeted {
                    Ok(visitor) => {
                        let peer = self.peer;
                        self.stage = Stage::Serving(
                            async move {
                                match visitor.serve(stream).await {
                                    Ok(()) => tracing::debug!(%peer, "a visit at the outer door ended"),
                                    Err(error) => tracing::debug!(%peer, %error, "a visitor at the outer door was shown out"),
                                }
                            }
                            .boxed(),
                        );
                        FromDoor::Outer
                    }
                    Err(error) => self.refuse(&Refusal::Here(format!("outer door: {error}")), Some(stream)),
                }))
            }
            Stage::Lingering(lingering) => {
                if !self.deadline.is_elapsed() {
                    ready!(lingering.poll_unpin(cx));
                }
                self.stage = Stage::Closed;
                Poll::Ready(Progress::Tell(FromDoor::Close))
            }
            Stage::Start { .. } | Stage::Installing(_) | Stage::Open | Stage::Closed => Poll::Pending,
            Stage::Knocking { .. } | Stage::Visiting(_) | Stage::Serving(_) => Poll::Pending,
        }
    }
}

impl<H: ConnectionHandler> ConnectionHandler for DoorHandler<H> {
    type FromBehaviour = ToDoor<H>;
    type ToBehaviour = FromDoor<H::ToBehaviour>;
    type InboundProtocol = Either<Outside, SendWrapper<H::InboundProtocol>>;
    type OutboundProtocol = Either<ReadyUpgrade<StreamProtocol>, SendWrapper<H::OutboundProtocol>>;
    type InboundOpenInfo = Either<(), H::InboundOpenInfo>;
    type OutboundOpenInfo = Either<(), H::OutboundOpenInfo>;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol, Self::InboundOpenInfo> {
        match &self.inner {
            Some(inner) => {
                inner.listen_protocol().map_upgrade(|upgrade| Either::Right(SendWrapper(upgrade))).map_info(Either::Right)
            }
            None => SubstreamProtocol::new(Either::Left(Outside::of(&self.keeper)), Either::Left(())),
        }
    }

    fn on_behaviour_event(&mut self, event: Self::FromBehaviour) {
        match event {
            ToDoor::Open(inner) => self.finish(*inner),
            ToDoor::Inner(event) => {
                if let Some(inner) = &mut self.inner {
                    inner.on_behaviour_event(event);
                }
            }
        }
    }

    fn connection_keep_alive(&self) -> bool {
        match (&self.stage, &self.inner) {
            (Stage::Closed, _) => false,
            (Stage::Open, Some(inner)) => inner.connection_keep_alive(),
            _ => true,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Self::OutboundOpenInfo, Self::ToBehaviour>> {
        match ready!(self.poll_exchange(cx)) {
            Progress::Tell(event) => return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(event)),
            Progress::Ask(name) => {
                let upgrade = Either::Left(ReadyUpgrade::new(StreamProtocol::new(name)));
                let protocol = SubstreamProtocol::new(upgrade, Either::Left(())).with_timeout(self.keeper.within);
                return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
            }
            Progress::Open => {}
        }
        match &mut self.inner {
            Some(inner) => inner.poll(cx).map(|event| {
                event
                    .map_custom(FromDoor::Inner)
                    .map_protocol(|protocol| Either::Right(SendWrapper(protocol)))
                    .map_outbound_open_info(Either::Right)
            }),
            None => Poll::Pending,
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Option<Self::ToBehaviour>> {
        match &mut self.inner {
            Some(inner) => inner.poll_close(cx).map(|event| event.map(FromDoor::Inner)),
            None => Poll::Ready(None),
        }
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<Self::InboundProtocol, Self::OutboundProtocol, Self::InboundOpenInfo, Self::OutboundOpenInfo>,
    ) {
        let event = match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol, info }) => match (protocol, info) {
                (Upgraded::Left((stream, name)), _) => {
                    if name.as_ref() == outer::PROTOCOL {
                        self.greet(stream);
                    } else if self.caller.is_some() {
                        self.prove(stream);
                    }
                    return;
                }
                (Upgraded::Right(protocol), Either::Right(info)) => {
                    ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol, info })
                }
                (Upgraded::Right(_), Either::Left(())) => return,
            },
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol, info }) => match (protocol, info) {
                (Upgraded::Left(stream), _) if matches!(self.stage, Stage::Knocking { .. }) => return self.enter(stream),
                (Upgraded::Left(stream), _) => return self.prove(stream),
                (Upgraded::Right(protocol), Either::Right(info)) => {
                    ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol, info })
                }
                (Upgraded::Right(_), Either::Left(())) => return,
            },
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info: Either::Left(()), error }) => {
                let refusal = match error {
                    StreamUpgradeError::Timeout => Refusal::Late(self.keeper.within.as_millis()),
                    StreamUpgradeError::NegotiationFailed => Refusal::Protocol,
                    StreamUpgradeError::Io(error) => Refusal::Broken(error),
                    StreamUpgradeError::Apply(_) => Refusal::Malformed("the stream could not be opened"),
                };
                if matches!(self.stage, Stage::Knocking { .. }) {
                    return self.not_let_in(match refusal {
                        Refusal::Late(_) => VisitFailed::Late,
                        Refusal::Protocol => VisitFailed::Unreachable(format!("it does not speak {}", outer::PROTOCOL)),
                        other => VisitFailed::Unreachable(other.to_string()),
                    });
                }
                let refused = async move { Err(refusal) }.boxed();
                self.stage = Stage::Finishing(refused);
                return;
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info: Either::Right(info), error }) => {
                let error = match error {
                    StreamUpgradeError::Apply(Either::Right(error)) => StreamUpgradeError::Apply(error),
                    StreamUpgradeError::Apply(Either::Left(never)) => match never {},
                    StreamUpgradeError::Timeout => StreamUpgradeError::Timeout,
                    StreamUpgradeError::NegotiationFailed => StreamUpgradeError::NegotiationFailed,
                    StreamUpgradeError::Io(error) => StreamUpgradeError::Io(error),
                };
                ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error })
            }
            ConnectionEvent::ListenUpgradeError(ListenUpgradeError { info, error }) => match (info, error) {
                (Either::Right(info), Either::Right(error)) => {
                    ConnectionEvent::ListenUpgradeError(ListenUpgradeError { info, error })
                }
                _ => return,
            },
            ConnectionEvent::AddressChange(change) => ConnectionEvent::AddressChange(change),
            ConnectionEvent::LocalProtocolsChange(change) => ConnectionEvent::LocalProtocolsChange(change),
            ConnectionEvent::RemoteProtocolsChange(change) => ConnectionEvent::RemoteProtocolsChange(change),
            _ => return,
        };
        if let Some(inner) = &mut self.inner {
            inner.on_connection_event(event);
        }
    }
}
