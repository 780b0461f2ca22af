//! What the mesh counts, for metrics. Every bound that drops something has its counter here.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// A reading of all counters since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])+ pub $name: u64),+ }

        /// The live counters.
        #[derive(Debug, Default)]
        pub(crate) struct Tally { $(pub(crate) $name: AtomicU64),+ }

        impl Tally {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed)),+ }
            }
        }

        impl Counters {
            /// Name and value of each, in a fixed order.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    /// Frames written to neighbour links.
    frames_sent,
    /// Bytes of those frames.
    frame_bytes_sent,
    /// Frames read from neighbour links.
    frames_received,
    /// Bytes of those frames.
    frame_bytes_received,
    /// Frames not sent: no such peer, or its queue is full.
    frames_dropped,
    /// Frames announced longer than allowed; the link was closed.
    frames_oversize,
    /// Gossip messages published here.
    gossip_published,
    /// Gossip messages that could not be published: no peers, or a queue was full.
    gossip_unpublished,
    /// Gossip messages received, first copies only.
    gossip_received,
    /// Gossip messages ignored because their author or deliverer sends too many.
    gossip_rate_limited,
    /// Gossip messages ignored because their answer did not come in time.
    gossip_unanswered,
    /// Peers admitted.
    peers_admitted,
    /// Connections refused at the door, by either side.
    peers_refused,
    /// Inbound connections denied because a limit was reached.
    connections_denied,
    /// Inbound streams refused because too many were waiting or open.
    streams_refused,
    /// Commands not taken because the queue was full.
    commands_dropped,
    /// Visitors let in at the outer door.
    door_visits,
    /// Visitors not let in at the outer door: another fleet, no place, too much at once, no hello.
    door_refused,
    /// Bytes given at the outer door.
    door_bytes_sent,
    /// Requests at the outer door that were put off because the visitor, or all of its standing, had their share.
    door_postponed,
    /// Visits ended because the visitor broke the protocol.
    door_breaches,
    /// Status records taken at the outer door.
    door_pushes,
}

impl Tally {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
