//! How a neighbour is had: a stream of pieces, or requests where it does not speak of pieces.

use groundswell_core::blob::Layout;
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;

use super::bridge::Bridge;
use super::frames::{self, Opening, Refusal};
use crate::blobs::wire::WireError;
use crate::blobs::{Charge, Connect, Duplex};

/// A neighbour that takes part.
pub(super) struct Opened {
    pub(super) via: Via,
    /// The hash list's bytes, not verified, when they were wanted and are there.
    pub(super) list: Option<Vec<u8>>,
}

/// How it is spoken with.
pub(super) enum Via {
    /// Over its stream of pieces.
    Stream(Box<dyn Duplex>),
    /// By requests.
    Bridge(Box<Bridge>),
}

/// Why a peer takes no part now.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// It said so.
    Refused(Refusal),
    /// It lost its standing.
    Charged(Charge),
    /// No stream, or it broke or stalled, or there is nothing there: perhaps another time.
    Broken(String),
}

/// Opens a stream to `peer` about a blob.
pub(super) async fn open(
    connect: &dyn Connect,
    peer: NodeId,
    sha256: Digest,
    layout: Layout,
    wants_list: bool,
) -> Result<Opened, NotOpened> {
    let broken = |error: crate::blobs::ConnectError| NotOpened::Broken(error.to_string());
    let Some(mut stream) = connect.pieces(peer).await.map_err(broken)? else {
        let stream = connect.connect(peer).await.map_err(broken)?;
        let (bridge, list) = Bridge::begin(stream, peer, sha256, layout, wants_list).await?;
        return Ok(Opened { via: Via::Bridge(Box::new(bridge)), list });
    };
    let opening = Opening { sha256, size_bytes: layout.size_bytes(), wants_list };
    frames::write_opening(&mut stream, &opening).await?;
    match frames::read_answer(&mut stream, layout, wants_list).await? {
        Ok(list) => Ok(Opened { via: Via::Stream(stream), list }),
        Err(Refusal::Size) => Err(NotOpened::Charged(Charge::BadDescription)),
        Err(refusal) => Err(NotOpened::Refused(refusal)),
    }
}

impl From<WireError> for NotOpened {
    fn from(error: WireError) -> Self {
        if error.is_breach() { Self::Charged(Charge::Breach) } else { Self::Broken(error.to_string()) }
    }
}
