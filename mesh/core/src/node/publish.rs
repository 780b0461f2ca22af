//! This node's own records: numbered, signed, made durable, then sent. Nobody else writes them.
//!
//! A node that knows any peer publishes nothing after a start before it has synced with one: so it notices in time
//! when its store was set back (rule 7).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::Node;
use super::effect::Event;
use super::hold::Hold;
use super::keys::{StoreKey, encode};
use crate::digest::Digest;
use crate::lease::claim::stands;
use crate::lease::presence::{Part, Save};
use crate::limits::SERVES;
use crate::node_id::NodeId;
use crate::record::fit::{Oversize, fit};
use crate::record::signed::{RecordBody, SignedRecord};
use crate::record::status::{Phase, Status};
use crate::record::verdicts;
use crate::record::{RecordKey, RecordKind, Stamp};
use crate::rollout::tally::Renewal;
use crate::text::RolloutId;
use crate::time::{Now, Time};

/// The version of the mesh's protocol.
const PROTOCOL: u16 = 1;
/// A record is renewed at least this often, in milliseconds.
const DAILY_MS: u64 = 86_400_000;
/// More set-backs than this in one run are a second machine with this identity (case M1).
const SET_BACKS: u32 = 2;

/// This node's own numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Own {
    incarnation: u64,
    counter: u64,
    /// In this run.
    #[serde(skip)]
    set_backs: u32,
    /// When the last status was published in this run; before that, when the run began.
    #[serde(skip)]
    published_ms: u64,
    /// Publish though nothing changed.
    #[serde(skip)]
    owed: bool,
    /// The last status was too large to publish, and that was told.
    #[serde(skip)]
    oversize: bool,
}

impl Default for Own {
    fn default() -> Self {
        Self { incarnation: 1, counter: 0, set_backs: 0, published_ms: 0, owed: false, oversize: false }
    }
}

impl Own {
    /// A run begins: renewals are counted from here, for a record that still holds is not published anew.
    pub(super) fn begin(&mut self, now: Now) {
        self.published_ms = now.boot.0;
    }

    pub(super) fn stamp(&self) -> Stamp {
        Stamp { incarnation: self.incarnation, counter: self.counter }
    }

    pub(super) fn next_stamp(&self) -> Stamp {
        Stamp { counter: self.counter.saturating_add(1), ..self.stamp() }
    }

    pub(super) fn is_cloned(&self) -> bool {
        self.set_backs > SET_BACKS
    }
}

impl Node {
    fn own_key(&self, kind: RecordKind) -> RecordKey {
        RecordKey { node: self.me, kind }
    }

    /// Whether this node may sign records now.
    pub(super) fn may_publish(&self) -> bool {
        let alone = self.connected.is_empty() && !self.knows_others();
        let listed = self.pool().is_some();
        listed
            && !self.config.silent
            && !self.own.is_cloned()
            && !self.ledger.is_convicted(&self.me)
            && (self.synced.any() || alone)
    }

    fn knows_others(&self) -> bool {
        let records = self.ledger.entries().any(|(key, _)| key.node != self.me);
        let rosters = self.shelf.rosters().any(|(_, roster)| roster.nodes.iter().any(|listed| listed.id != self.me));
        let remembered = self.neighbours.remembered().next().is_some();
        records || rosters || remembered || !self.config.bootstrap.is_empty()
    }

    /// Signs and sends the status when it says something new or is due. Whether it did.
    pub(super) fn publish_status(&mut self, now: Now) -> bool {
        // In a trial that this store knows nothing of: a record without its claim would give the slot back.
        let lost = self.lives.values().any(|life| life.now.orphan.is_some() && life.kept.claim.is_none());
        if !self.may_publish() || lost {
            return false;
        }
        let mut status = self.status();
        let key = self.own_key(RecordKind::Status);
        let due = self.renewal_due() <= now.boot || self.own.owed;
        // What was said fits, so what is equal to it does.
        let says_so = |status: &Status| self.ledger.record(&key).and_then(SignedRecord::status) == Some(status);
        if !due && says_so(&status) {
            self.own.oversize = false;
            return false;
        }
        if let Err(oversize) = self.fit(&mut status) {
            // Nothing is claimed that was not published, so nothing is disrupted either.
            if !self.own.oversize {
                self.own.oversize = true;
                self.tell(Event::StatusTooLarge { size_bytes: oversize.bytes });
            }
            return false;
        }
        self.own.oversize = false;
        if !due && says_so(&status) {
            return false;
        }
        let stamp = self.own.next_stamp();
        self.sign_and_send(now, stamp, RecordBody::Status(status));
        self.own.published_ms = now.boot.0;
        self.own.owed = false;
        self.visit_soon(now.boot);
        true
    }

    /// Why this node could not say now what stands in its lives.
    pub(super) fn unspeakable(&self) -> Option<Hold> {
        if !self.may_publish() {
            return Some(Hold::Syncing { have: 0, need: 1 });
        }
        let oversize = self.fit(&mut self.status()).err()?;
        Some(Hold::StatusTooLarge { size_bytes: oversize.bytes })
    }

    fn fit(&self, status: &mut Status) -> Result<(), Oversize> {
        fit(status, |id: &RolloutId| self.shelf.rollout(id).is_none_or(|in_force| self.is_over(&in_force.rollout)))
    }

    /// Signs and sends what this warden has promised. The promises are durable already.
    pub(super) fn publish_grants(&mut self, now: Now) {
        if self.may_publish() {
            let grants = self.duty.warden.record();
            self.sign_and_send(now, self.own.next_stamp(), RecordBody::Grants(grants));
        }
    }

    fn sign_and_send(&mut self, now: Now, stamp: Stamp, body: RecordBody) {
        let Some(record) = SignedRecord::sign(&self.config.fleet, stamp, body, self.crypto.as_ref()) else {
            // `fit` and the bound on promises keep records within their size.
            panic!("own record under {stamp:?} is larger than its kind allows");
        };
        let key = record.key();
        self.own.counter = stamp.counter;
        let own = encode(&self.own);
        self.persist(&StoreKey::Own, Some(own));
        // Also those of the claim that this very record ends: to them it matters most (case L4).
        let mut directly = self.counterparts(key.kind);
        self.ledger.merge(record);
        self.persist_record(key);
        self.unsaved.remove(&key);
        self.record_changed(now, key, stamp, None);
        self.unsaved.remove(&key);
        directly.extend(self.counterparts(key.kind));
        directly.sort_unstable();
        directly.dedup();
        // Those that are not peers yet are dialled, and told when they are.
        self.reach_stale |= key.kind == RecordKind::Status && directly.iter().any(|node| !self.connected.contains(node));
        directly.retain(|node| self.connected.contains(node));
        self.spread.push_to(now.boot, key, &directly);
    }

    /// Tells a peer that has just come what it needs at once, as a warden of this node's slot or as a holder of its promise.
    pub(super) fn say_to_counterpart(&mut self, now: Now, peer: NodeId) {
        for kind in [RecordKind::Status, RecordKind::Grants] {
            let key = self.own_key(kind);
            if self.ledger.record(&key).is_some() && self.counterparts(kind).contains(&peer) {
                self.spread.push_to(now.boot, key, &[peer]);
            }
        }
    }

    /// Sends the newest records of this node to every connected peer, without waiting for a batch or a turn.
    pub(super) fn say_last_words(&mut self, now: Now) {
        let peers: Vec<NodeId> = self.connected.iter().copied().collect();
        for kind in [RecordKind::Status, RecordKind::Grants] {
            let key = self.own_key(kind);
            if self.ledger.record(&key).is_some() {
                self.spread.push_to(now.boot, key, &peers);
            }
        }
    }

    /// Holders and wardens of a slot tell each other directly.
    pub(super) fn counterparts(&self, kind: RecordKind) -> Vec<NodeId> {
        match kind {
            RecordKind::Grants => self.duty.warden.promises().map(|promise| promise.holder).collect(),
            RecordKind::Status => {
                let claims = self.claims.of(&self.me);
                let wardens = claims.filter_map(|claim| self.maps.get(&claim.roster)?.wardens(&claim.slot));
                wardens.flat_map(|wardens| wardens.nodes.iter().copied()).filter(|node| *node != self.me).collect()
            }
        }
    }

    /// What this node says of itself now.
    fn status(&self) -> Status {
        let products: BTreeMap<_, _> = self.lives.iter().map(|(product, life)| (product.clone(), life.section())).collect();
        Status {
            addresses: self.addresses.clone(),
            protocols: alloc::vec![PROTOCOL],
            lean: self.config.lean,
            products,
            serves: if self.config.lean { Vec::new() } else { self.served() },
            log: String::new(),
        }
    }

    /// Artifacts that it can serve whole: those of the newest releases first, for these are asked for.
    fn served(&self) -> Vec<Digest> {
        let mut releases: Vec<_> = self.shelf.releases().map(|(_, release)| release).collect();
        releases.sort_by_key(|release| Reverse(release.sequence));
        let artifacts = releases.into_iter().flat_map(|release| &release.artifacts).map(|artifact| artifact.sha256.into());
        let mut served: Vec<Digest> = artifacts.filter(|sha256| self.serves.contains(sha256)).collect();
        served.dedup();
        served.truncate(SERVES);
        served
    }

    /// When the status is due though nothing changed.
    pub(super) fn renewal_due(&self) -> Time {
        let published = Time(self.own.published_ms);
        let every = self.lives.values().filter_map(|life| {
            let progress = self.following.get(&life.kept.rollout.as_ref()?.id)?.progress.as_ref()?;
            let holds = matches!(life.kept.phase, Phase::Claiming | Phase::Activating);
            let often = holds || progress.tally().renewal(&self.me) == Renewal::EveryThird;
            often.then(|| progress.rollout().offline_after_seconds.saturating_mul(1_000) / 3)
        });
        published.after_ms(every.min().unwrap_or(DAILY_MS).clamp(1_000, DAILY_MS))
    }

    /// A record of this node came from a peer; it is merged like any other afterwards.
    ///
    /// Newer than anything this node remembers to have signed: its store was set back, or a second machine has its key.
    pub(super) fn own_record_came_back(&mut self, record: &SignedRecord) {
        if self.ledger.stamp(&record.key()).is_some_and(|known| record.stamp() <= known) {
            return;
        }
        if record.stamp() > self.own.stamp() {
            self.own.set_backs = self.own.set_backs.saturating_add(1);
            self.own.incarnation = record.stamp().incarnation.max(self.own.incarnation).saturating_add(1);
            self.own.counter = 0;
            self.own.owed = true;
            let own = encode(&self.own);
            self.persist(&StoreKey::Own, Some(own));
            self.tell(Event::SetBack { incarnation: self.own.incarnation });
        }
        self.take_back(record);
    }

    /// Takes back what this node had signed: verdicts and floors, the claim of an upgrade that the device may be in, and
    /// every promise; then waits (amnesia).
    fn take_back(&mut self, record: &SignedRecord) {
        if let Some(status) = record.status() {
            let mut changed = Vec::new();
            for (product, section) in &status.products {
                let Some(life) = self.lives.get_mut(product) else { continue };
                for verdict in &section.verdicts {
                    verdicts::merge(&mut life.kept.verdicts, verdict.clone());
                }
                life.kept.floor = life.kept.floor.max(section.floor);
                if let Some(claim) = section.claim.as_ref().filter(|claim| stands(section, claim)) {
                    life.take_back(claim);
                }
                changed.push((product.clone(), life.kept.encode()));
            }
            for (product, kept) in changed {
                self.persist(&StoreKey::Life(product), Some(kept));
            }
        }
        let longest = self.maps.values().flat_map(|map| map.pools()).map(|(_, seats)| seats.presume_lost_after_ms());
        let longest = longest.map(|after| after.unwrap_or(DAILY_MS)).max();
        let up_ms = self.presence.up_ms();
        self.duty.warden.set_back(record.grants(), up_ms, longest);
        self.duty.stale = true;
        self.duty.word_owed = true;
        let durable = self.duty.warden.to_bytes();
        self.persist(&StoreKey::Warden, Some(durable));
    }

    pub(super) fn persist_presence(&mut self, saves: Vec<Save>) {
        for Save { part, value } in saves {
            let key = match part {
                Part::UpTime => StoreKey::UpTime,
                Part::Marks(chunk) => StoreKey::Marks(chunk),
            };
            self.persist(&key, value);
        }
    }
}
