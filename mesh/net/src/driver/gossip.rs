//! Gossip messages between their arrival and their answer, and the rates of those who send them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use groundswell_core::digest::Digest;
use libp2p::PeerId;
use libp2p::gossipsub::{self, IdentTopic, MessageAcceptance, MessageId, PublishError};
use tokio::time::Instant;

use crate::behaviour::topic;
use crate::config::TICKETS;
use crate::counters::Tally;
use crate::door::node_id;
use crate::event::{Forward, NetworkEvent};
use crate::rate::Rates;

/// An author publishes documents by hand: this many at once (a whole fleet folder's certificates travel by sync), then
/// one every five seconds.
const AUTHOR_BURST: u32 = 64;
const AUTHOR_EVERY: Duration = Duration::from_secs(5);
/// A deliverer passes on what several authors say.
const DELIVERER_BURST: u32 = 256;
const DELIVERER_EVERY: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Gossip {
    topic: IdentTopic,
    next_ticket: u64,
    /// At most [`TICKETS`].
    awaited: BTreeMap<u64, (MessageId, PeerId)>,
    authors: Rates,
    deliverers: Rates,
    tally: Arc<Tally>,
}

impl Gossip {
    pub(super) fn new(fleet: Digest, tally: Arc<Tally>) -> Self {
        Self {
            topic: topic(fleet),
            next_ticket: 1,
            awaited: BTreeMap::new(),
            authors: Rates::new(AUTHOR_BURST, AUTHOR_EVERY),
            deliverers: Rates::new(DELIVERER_BURST, DELIVERER_EVERY),
            tally,
        }
    }

    pub(super) fn publish(&self, gossip: &mut gossipsub::Behaviour, bytes: Vec<u8>) {
        match gossip.publish(self.topic.clone(), bytes) {
            Ok(_) => Tally::add(&self.tally.gossip_published, 1),
            // It goes round already.
            Err(PublishError::Duplicate) => {}
            Err(error) => {
                Tally::add(&self.tally.gossip_unpublished, 1);
                tracing::debug!(%error, "a document was not published by gossip; sync carries it");
            }
        }
    }

    /// A message came. Returns the event for it, unless its author or deliverer sends too many.
    pub(super) fn heard(
        &mut self,
        gossip: &mut gossipsub::Behaviour,
        from: PeerId,
        id: MessageId,
        message: gossipsub::Message,
    ) -> Option<NetworkEvent> {
        Tally::add(&self.tally.gossip_received, 1);
        let now = Instant::now();
        // The author's bucket first: one who floods does not use up what the deliverer may bring of others.
        let author = message.source.unwrap_or(from);
        if !self.authors.take(author, now) || !self.deliverers.take(from, now) {
            Tally::add(&self.tally.gossip_rate_limited, 1);
            gossip.report_message_validation_result(&id, &from, MessageAcceptance::Ignore);
            return None;
        }
        let peer = node_id(from)?;
        if self.awaited.len() >= TICKETS
            && let Some((_, (id, from))) = self.awaited.pop_first()
        {
            Tally::add(&self.tally.gossip_unanswered, 1);
            gossip.report_message_validation_result(&id, &from, MessageAcceptance::Ignore);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.awaited.insert(ticket, (id, from));
        Some(NetworkEvent::Gossip { peer, ticket, bytes: message.data })
    }

    pub(super) fn answer(&mut self, gossip: &mut gossipsub::Behaviour, ticket: u64, forward: Forward) {
        let Some((id, from)) = self.awaited.remove(&ticket) else { return };
        let acceptance = match forward {
            Forward::Accept => MessageAcceptance::Accept,
            Forward::Ignore => MessageAcceptance::Ignore,
            Forward::Reject => MessageAcceptance::Reject,
        };
        gossip.report_message_validation_result(&id, &from, acceptance);
    }
}
