//! The one byte by which an acceptor says whether it takes a stream up, on both sides.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{AsyncReadExt, AsyncWriteExt, FutureExt};
use groundswell_core::node_id::NodeId;
use libp2p::Stream;
use libp2p::core::upgrade::{InboundUpgrade, OutboundUpgrade, UpgradeInfo};
use libp2p::swarm::StreamProtocol;
use tokio::sync::Semaphore;

use super::{Acceptors, PROTOCOLS, PeerStream};
use crate::counters::Tally;

const BUSY: u8 = 0;
const TAKEN: u8 = 1;

/// Why a stream was not taken up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("too many streams")]
    Busy,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens a stream: waits for the acceptor's byte.
pub(crate) struct Opening {
    pub(super) protocol: &'static str,
}

/// Accepts a stream: finds it a place or says that there is none.
pub(crate) struct Accepting {
    pub(super) peer: NodeId,
    pub(super) acceptors: Arc<Acceptors>,
    pub(super) places: Places,
}

/// The places for inbound streams of one connection, by protocol.
pub(super) type Places = Arc<Vec<(&'static str, Arc<Semaphore>)>>;

impl UpgradeInfo for Opening {
    type Info = StreamProtocol;
    type InfoIter = std::iter::Once<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        std::iter::once(StreamProtocol::new(self.protocol))
    }
}

impl OutboundUpgrade<Stream> for Opening {
    type Output = PeerStream;
    type Error = NotTaken;
    type Future = BoxFuture<'static, Result<PeerStream, NotTaken>>;

    fn upgrade_outbound(self, mut stream: Stream, _: StreamProtocol) -> Self::Future {
        async move {
            let mut answer = [BUSY];
            stream.read_exact(&mut answer).await?;
            if answer == [TAKEN] { Ok(PeerStream::with(stream, None)) } else { Err(NotTaken::Busy) }
        }
        .boxed()
    }
}

impl UpgradeInfo for Accepting {
    type Info = StreamProtocol;
    type InfoIter = std::vec::IntoIter<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        PROTOCOLS.map(StreamProtocol::new).to_vec().into_iter()
    }
}

impl InboundUpgrade<Stream> for Accepting {
    type Output = ();
    type Error = NotTaken;
    type Future = BoxFuture<'static, Result<(), NotTaken>>;

    fn upgrade_inbound(self, mut stream: Stream, protocol: StreamProtocol) -> Self::Future {
        async move {
            let places = self.places.iter().find(|(name, _)| *name == protocol.as_ref());
            let place = places.and_then(|(_, places)| Arc::clone(places).try_acquire_owned().ok());
            let slot = self.acceptors.queue(protocol.as_ref()).and_then(|queue| queue.clone().try_reserve_owned().ok());
            let (Some(place), Some(slot)) = (place, slot) else {
                Tally::add(&self.acceptors.tally.streams_refused, 1);
                stream.write_all(&[BUSY]).await?;
                stream.close().await?;
                return Err(NotTaken::Busy);
            };
            stream.write_all(&[TAKEN]).await?;
            stream.flush().await?;
            slot.send((self.peer, PeerStream::with(stream, Some(place))));
            Ok(())
        }
        .boxed()
    }
}
