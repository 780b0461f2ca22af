//! A visit at another node's outer door, from the dial to the stream.

use groundswell_core::node_id::NodeId;
use libp2p::Stream;
use tokio::sync::oneshot;

use crate::held::Held;
use crate::outer::visit::VisitFailed;

/// Where the stream of a visit goes, once the peer's outer door is open.
pub(crate) type Knock = oneshot::Sender<Result<(NodeId, VisitStream), VisitFailed>>;

/// The stream of a visit. Dropping it closes the connection, which is there for nothing else.
pub(crate) type VisitStream = Held<Stream>;
