//! What a connection offers before it is admitted: the exchange of proofs, and the outer door.

use std::convert::Infallible;
use std::future::{Ready, ready};

use libp2p::Stream;
use libp2p::core::upgrade::{InboundUpgrade, UpgradeInfo};
use libp2p::swarm::StreamProtocol;

use super::{Keeper, PROTOCOL};
use crate::outer;

/// Takes a stream of either protocol up and says of which.
pub(crate) struct Outside(Vec<&'static str>);

impl Outside {
    pub(super) fn of(keeper: &Keeper) -> Self {
        let admit = (!keeper.only_outer).then_some(PROTOCOL);
        let door = keeper.outer.as_ref().map(|_| outer::PROTOCOL);
        Self(admit.into_iter().chain(door).collect())
    }
}

impl UpgradeInfo for Outside {
    type Info = StreamProtocol;
    type InfoIter = std::vec::IntoIter<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        self.0.iter().copied().map(StreamProtocol::new).collect::<Vec<_>>().into_iter()
    }
}

impl InboundUpgrade<Stream> for Outside {
    type Output = (Stream, StreamProtocol);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, name: StreamProtocol) -> Self::Future {
        ready(Ok((stream, name)))
    }
}
