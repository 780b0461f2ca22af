//! What comes in from others: documents, rosters, frames with records, links coming and going.
//!
//! Everything is verified before it is stored or passed on. Nothing from outside the membership has an effect (S7):
//! the driver admits peers, this file checks that a record's *writer* is a member.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::effect::{Accepted, Effect, Event};
use super::input::{Report, Source};
use super::keys::{StoreKey, encode};
use super::{Node, open};
use crate::digest::Digest;
use crate::documents::Kind;
use crate::documents::envelope::Envelope;
use crate::documents::rejection::{Reason as Code, Rejection};
use crate::lease::claim::SeenClaim;
use crate::node_id::NodeId;
use crate::record::ledger::Merged;
use crate::record::signed::SignedRecord;
use crate::record::{ClaimName, RecordKey, RecordKind, Stamp};
use crate::spread::Heard;
use crate::text::{Product, Reason};
use crate::time::Now;

impl Node {
    /// Offers a document to the shelf; keeps, passes on and answers.
    pub(super) fn take_document(&mut self, now: Now, bytes: &[u8], source: Source) {
        let floor_time = self.shelf.floor_time();
        let roster = Envelope::parse(bytes).ok().filter(|envelope| envelope.kind == Kind::Roster).map(|it| it.digest());
        let is_roster = roster.is_some();
        let offered = if is_roster {
            self.shelf.offer_roster(bytes, self.crypto.as_ref())
        } else {
            self.shelf.offer(bytes, source == Source::Store, now.wall, self.crypto.as_ref())
        };
        let outcome = match offered {
            Ok(offered) => {
                let digest = offered.digest;
                let news = offered.fresh || offered.changed;
                if news {
                    self.writers.forget();
                    let key = if is_roster { StoreKey::Roster(digest) } else { StoreKey::Document(digest) };
                    self.persist(&key, Some(offered.envelope.clone()));
                    self.asked_rosters.remove(&digest);
                    self.documents_changed = true;
                }
                for dropped in &offered.dropped {
                    self.forget_document(dropped);
                }
                if news && !is_roster {
                    self.spread.note_document(now.boot, source.peer());
                }
                if self.shelf.floor_time() != floor_time {
                    self.persist(&StoreKey::FloorTime, Some(encode(&self.shelf.floor_time())));
                }
                if offered.fresh {
                    self.tell(Event::DocumentAccepted { kind: offered.kind, digest });
                }
                if let Some(digests) = offered.conflict.filter(|_| offered.fresh) {
                    self.tell(Event::DocumentConflict { kind: offered.kind, digests });
                }
                // Gossip that is accepted is passed on by the answer itself; rosters are fetched, never pushed.
                if news && !is_roster && !matches!(source, Source::Gossip { .. } | Source::Store) {
                    self.effects.push(Effect::Gossip { bytes: offered.envelope });
                }
                Ok(if offered.fresh { Accepted::New(digest) } else { Accepted::Known(digest) })
            }
            Err(rejection) => {
                // A liar's signatures, or a fleet document that is not here yet: the roster is still needed.
                if roster.is_some_and(|digest| self.asked_rosters.remove(&digest)) {
                    self.ask_for_rosters();
                }
                if let Source::Gossip { peer, .. } = source
                    && may_be_early(&rejection)
                {
                    self.spread.note_early(now.boot, peer);
                }
                self.tell(Event::DocumentRejected { peer: source.peer(), rejection: rejection.clone() });
                Err(rejection)
            }
        };
        if let Source::Gossip { ticket, .. } | Source::Visit { ticket, .. } | Source::Local { ticket } = source {
            self.effects.push(Effect::Answer { ticket, outcome });
        }
    }

    /// Takes a document that has left the shelf out of the store.
    pub(super) fn forget_document(&mut self, digest: &Digest) {
        self.persist(&StoreKey::Document(*digest), None);
        self.persist(&StoreKey::Roster(*digest), None);
    }

    pub(super) fn tell_refusal(&mut self, rejection: Rejection) {
        self.tell(Event::DocumentRejected { peer: None, rejection });
    }

    pub(super) fn peer_up(&mut self, now: Now, peer: NodeId, address: Option<String>) {
        self.connected.insert(peer);
        self.reach_stale = true;
        self.neighbours.peer_up(now.boot, peer, address.clone());
        self.spread.peer_up(now.boot, peer);
        if self.neighbours.is_sought(&peer) {
            self.spread.keep_lazy(&peer);
        }
        self.say_to_counterpart(now, peer);
        self.tell(Event::Peer { peer, up: true });
        if address.is_some() {
            self.keep_remembered();
        }
    }

    pub(super) fn peer_reached(&mut self, peer: NodeId, address: String) {
        self.neighbours.reached(peer, address);
        self.keep_remembered();
    }

    fn keep_remembered(&mut self) {
        let remembered: Vec<_> = self.neighbours.remembered().collect();
        let value = encode(&remembered);
        self.persist(&StoreKey::Remembered, Some(value));
    }

    pub(super) fn peer_down(&mut self, now: Now, peer: NodeId) {
        if self.connected.remove(&peer) {
            self.reach_stale = true;
            self.neighbours.peer_down(now.boot, &peer);
            self.spread.peer_down(&peer);
            self.tell(Event::Peer { peer, up: false });
        }
    }

    /// One frame of the neighbour protocol.
    pub(super) fn take_frame(&mut self, now: Now, peer: NodeId, bytes: &[u8]) {
        if !self.connected.contains(&peer) {
            return;
        }
        let heard = match self.spread.handle(now.boot, peer, bytes, &self.ledger, &self.shelf) {
            Ok(heard) => heard,
            Err(error) => return self.refuse_frame(peer, &format!("{error}")),
        };
        for heard in heard {
            match heard {
                Heard::Document(bytes) => self.take_document(now, &bytes, Source::Peer(peer)),
                Heard::Record(bytes) => self.take_record(now, peer, &bytes),
                Heard::Proof(one, other) => self.take_proof(now, peer, &one, &other),
                Heard::Synced(peer) => {
                    self.synced.note(peer);
                    // Whoever still lacks a sync asks for it again.
                    self.pacing.seek.clear();
                    self.duty.stale = true;
                    self.stale.lives = true;
                }
            }
        }
    }

    fn refuse_frame(&mut self, peer: NodeId, why: &str) {
        self.tell(Event::FrameRejected { peer, reason: Reason::lossy(why) });
    }

    /// A status record from its own writer, who is a member and speaks no protocol of the mesh. Anything else that is
    /// handed over at the outer door has no effect (S7).
    pub(super) fn take_pushed(&mut self, now: Now, peer: NodeId, bytes: &[u8]) {
        let own = SignedRecord::peek(bytes).is_ok_and(|(key, _)| key == RecordKey { node: peer, kind: RecordKind::Status });
        if !own || peer == self.me || self.shelf.member(&peer, now.wall).is_err() {
            return self.refuse_frame(peer, "only a member may hand over a record at the outer door, and only its own status");
        }
        self.take_record(now, peer, bytes);
    }

    /// A record from a neighbour, perhaps not its writer.
    pub(super) fn take_record(&mut self, now: Now, peer: NodeId, bytes: &[u8]) {
        let record = match self.crypto.open_record(&self.config.fleet, bytes) {
            Ok(record) => record,
            Err(error) => return self.refuse_frame(peer, &format!("{error}")),
        };
        let key = record.key();
        if !self.writes_records(&key) {
            return;
        }
        if key.node == self.me {
            self.own_record_came_back(&record);
        }
        let stamp = record.stamp();
        // Whom to dial depends on who is known, and where.
        let addresses = record.status().map(|status| &status.addresses);
        let moved = addresses.is_some() && addresses != self.ledger.status(&key.node).map(|status| &status.addresses);
        self.reach_stale |= moved;
        match self.ledger.merge(record) {
            Merged::New => self.record_changed(now, key, stamp, Some(peer)),
            Merged::Convicted => {
                self.tell(Event::Convicted { node: key.node, stamp });
                self.record_changed(now, key, stamp, Some(peer));
            }
            Merged::Full => self.refuse_frame(peer, "too many records are kept already"),
            Merged::Old | Merged::Same => {}
        }
    }

    /// Two records under one stamp.
    pub(super) fn take_proof(&mut self, now: Now, peer: NodeId, one: &[u8], other: &[u8]) {
        let verify = |bytes: &[u8]| self.crypto.open_record(&self.config.fleet, bytes);
        let (Ok(one), Ok(other)) = (verify(one), verify(other)) else {
            return self.refuse_frame(peer, "a proof with a record that does not verify");
        };
        let (key, stamp) = (one.key(), one.stamp());
        if !self.writes_records(&key) {
            return;
        }
        match self.ledger.convict(one, other) {
            Ok(Merged::Convicted) => {
                self.tell(Event::Convicted { node: key.node, stamp });
                self.record_changed(now, key, stamp, Some(peer));
            }
            Ok(_) => {}
            Err(error) => self.refuse_frame(peer, &format!("{error}")),
        }
    }

    /// Everything that follows from a changed entry of the ledger; `stamp` is of the record that changed it.
    pub(super) fn record_changed(&mut self, now: Now, key: RecordKey, stamp: Stamp, from: Option<NodeId>) {
        if key.kind == RecordKind::Status {
            self.presence.heard(key.node, stamp);
            // Its silence decides a slot: a crash must not bring an older mark back.
            if self.duty.warden.has_promised(&key.node) {
                let saves = self.presence.save_now(&key.node);
                self.persist_presence(saves);
            }
        }
        self.unsaved.insert(key);
        let before = if key.kind == RecordKind::Status { self.reread_claims(&key.node) } else { Vec::new() };
        self.note_lease_change(key, &before);
        self.spread.note_new(now.boot, key, from);
        // What a node promises as a warden is no word on its own move.
        if key.kind == RecordKind::Status || self.ledger.is_convicted(&key.node) {
            self.hear(&key.node);
        }
    }

    /// The standing claims of one node. A convict's stay: its slot is taken until it is written off.
    /// Returns those that it had.
    pub(super) fn reread_claims(&mut self, node: &NodeId) -> Vec<SeenClaim> {
        let mut claims: Vec<SeenClaim> =
            self.ledger.statuses_kept(node).flat_map(|status| SeenClaim::standing(*node, status)).collect();
        claims.dedup();
        self.claims.set(*node, claims)
    }

    /// A fact from the device.
    pub(super) fn take_report(&mut self, now: Now, product: &Product, report: Report) {
        let Some(mut life) = self.lives.remove(product) else { return };
        let (before, hold) = (life.kept.clone(), life.now.hold.clone());
        life.now.next_name = ClaimName(self.own.next_stamp());
        let acts = life.report(now, report);
        self.lives.insert(product.clone(), life);
        self.carry_out(now, product, &before, hold.as_ref(), acts);
    }

    pub(super) fn persist(&mut self, key: &StoreKey, value: Option<Vec<u8>>) {
        self.effects.push(Effect::Persist { key: key.encode(), value });
    }

    pub(super) fn persist_record(&mut self, key: RecordKey) {
        let value = self.ledger.entry(&key).map(open::write_entry);
        self.persist(&StoreKey::record(key), value);
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.effects.push(Effect::Event(event));
    }
}

/// Whether a document that is refused so may be taken once another one is here: a fleet document.
fn may_be_early(rejection: &Rejection) -> bool {
    matches!(rejection.reason, Code::Fleet | Code::UnknownKey | Code::Threshold | Code::Product)
}
