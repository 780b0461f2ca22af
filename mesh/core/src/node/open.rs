//! Opening a node from what it kept. Everything is verified again; what does not read back is told, never guessed.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::duty::Duty;
use super::keys::{SMALL, StoreKey, decode, encode_in};
use super::life::{Kept, Life};
use super::publish::Own;
use super::stale::Stale;
use super::turn::Pacing;
use super::visiting::Visiting;
use super::writers::Writers;
use super::{Node, NodeConfig};
use crate::crypto::Crypto;
use crate::lease::claims::Claims;
use crate::lease::presence::{Part, Presence};
use crate::lease::synced::Synced;
use crate::record::ledger::{Entry, Ledger};
use crate::record::signed::SignedRecord;
use crate::record::{RecordKey, RecordKind, Stamp};
use crate::rollout::progress::Passed;
use crate::spread::Spread;
use crate::spread::neighbours::Neighbours;
use crate::spread::packed::Packed;
use crate::text::RolloutId;
use crate::time::{Now, Timestamp};
use crate::trust::shelf::Shelf;

/// What keeps a node from starting on its store: each needs a person, for a guess could break a promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// What this node promised cannot be read.
    #[error("the store's {what} cannot be read: restore it, or give the node a new identity with an empty store")]
    Damaged {
        /// What.
        what: &'static str,
    },
    /// The store belongs to another identity.
    #[error("the store belongs to another node or fleet: {what}; point the configuration at its own folder")]
    Foreign {
        /// What does not fit.
        what: &'static str,
    },
}

/// What was read from the store, by kind.
#[derive(Default)]
struct Stored {
    documents: Vec<Vec<u8>>,
    records: Vec<(RecordKey, Vec<u8>)>,
    own: Option<Own>,
    lives: BTreeMap<crate::text::Product, Kept>,
    duty: Option<Duty>,
    presence: Vec<(Part, Vec<u8>)>,
    passed: BTreeMap<RolloutId, Vec<Passed>>,
    floor_time: Timestamp,
    remembered: Vec<(crate::node_id::NodeId, String)>,
    departed: BTreeMap<crate::node_id::NodeId, u64>,
    lacking_ms: u64,
}

impl Node {
    /// Opens a node on what it kept (`stored`: every key and value that it persisted). `seed` seeds all its randomness.
    ///
    /// # Errors
    /// When promises, own numbers or a life cannot be read: starting without them could break S1.
    pub fn open(
        config: NodeConfig,
        crypto: Box<dyn Crypto>,
        seed: [u8; 32],
        stored: Vec<(Vec<u8>, Vec<u8>)>,
        now: Now,
    ) -> Result<Self, OpenError> {
        let shelf = Shelf::new(config.fleet, config.local_trust.clone());
        Self::open_on(config, crypto, seed, stored, shelf, now)
    }

    /// The same on documents that were verified already: what `shelf` holds need not stand in `stored`. For many nodes of one
    /// fleet in one process, which share what is equal.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open_on(
        config: NodeConfig,
        crypto: Box<dyn Crypto>,
        seed: [u8; 32],
        stored: Vec<(Vec<u8>, Vec<u8>)>,
        mut shelf: Shelf,
        now: Now,
    ) -> Result<Self, OpenError> {
        let me = crypto.node();
        let mut rng = ChaCha8Rng::from_seed(seed);
        let mut fork = || {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            seed
        };
        let (spread_seed, neighbours_seed) = (fork(), fork());
        let stored = Stored::read(stored)?;

        let floor_time = stored.floor_time.max(shelf.floor_time());
        let refused = shelf.restore(stored.documents, crypto.as_ref());
        let fallen = shelf.drop_fallen();
        shelf.restore_floor_time(floor_time);

        let mut ledger = Ledger::new();
        for (key, bytes) in stored.records {
            let entry = read_entry(&config, &bytes, crypto.as_ref());
            match entry {
                Some(entry) if entry.key() == key => {
                    ledger.merge_entry(entry);
                }
                // A member's record comes back by sync; an own one cannot.
                _ if key.node == me => return Err(OpenError::Damaged { what: "own record" }),
                _ => {}
            }
        }
        let mut own = stored.own.unwrap_or_default();
        own.begin(now);
        let mut presence = Presence::restore(now.awake_ms, stored.presence);
        // Marks follow status records; a holder whose record did not survive is counted from its mark or from now.
        let statuses = ledger.entries().filter(|(key, _)| key.kind == RecordKind::Status);
        let known: Vec<_> = statuses.map(|(key, _)| (key.node, ledger.stamp(key).unwrap_or_default())).collect();
        for (node, stamp) in known {
            presence.known(node, stamp);
        }
        let promised = stored.duty.iter().flat_map(|duty| duty.warden.promises()).map(|promise| promise.holder);
        for holder in promised.filter(|holder| ledger.status(holder).is_none()) {
            presence.known(holder, Stamp::default());
        }
        let spread = if config.lean { Spread::lean(me, spread_seed) } else { Spread::new(me, spread_seed) };
        let mut neighbours = Neighbours::new(me, neighbours_seed, config.bootstrap.clone());
        for (peer, address) in stored.remembered {
            neighbours.remember(peer, address);
        }
        let mut lives: BTreeMap<_, _> =
            config.products.iter().map(|product| (product.clone(), Life::open(Kept::default(), now))).collect();
        for (product, kept) in stored.lives {
            if let Some(life) = lives.get_mut(&product) {
                *life = Life::open(kept, now);
            }
        }
        let mut node = Self {
            me,
            config,
            crypto,
            rng,
            shelf,
            ledger,
            spread,
            neighbours,
            connected: BTreeSet::new(),
            presence,
            synced: Synced::default(),
            own,
            lives,
            duty: stored.duty.unwrap_or_default(),
            pacing: Pacing::default(),
            visiting: Visiting::default(),
            maps: BTreeMap::new(),
            following: BTreeMap::new(),
            claims: Claims::default(),
            written_off: BTreeMap::new(),
            writers: Writers::default(),
            departed: stored.departed,
            asked_rosters: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            saved_records_at: now.boot,
            documents_changed: true,
            stale: Stale::default(),
            reach_stale: true,
            addresses: Vec::new(),
            serves: BTreeSet::new(),
            effects: Vec::new(),
            wakeup: None,
        };
        node.restore_lack(stored.lacking_ms);
        // Kept and not said when the last run ended: others wait for it, above all for a declaration (rule 8).
        let said = node.ledger.grants(&me).cloned().unwrap_or_default();
        node.duty.word_owed = said != node.duty.warden.record();
        for (_, rejection) in refused {
            node.tell_refusal(rejection);
        }
        for digest in fallen {
            node.forget_document(&digest);
        }
        let nodes: BTreeSet<_> = node.ledger.entries().map(|(key, _)| key.node).collect();
        for holder in &nodes {
            node.reread_claims(holder);
        }
        node.reread_documents(stored.passed);
        node.settle(now);
        Ok(node)
    }
}

impl Stored {
    fn read(entries: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Self, OpenError> {
        let mut stored = Self::default();
        for (key, value) in entries {
            match StoreKey::decode(&key) {
                Some(StoreKey::Document(_) | StoreKey::Roster(_)) => stored.documents.push(value),
                Some(StoreKey::Record(node, kind)) => stored.records.push((RecordKey { node, kind }, value)),
                Some(StoreKey::Own) => stored.own = Some(decode(&value).ok_or(OpenError::Damaged { what: "own numbers" })?),
                Some(StoreKey::Life(product)) => {
                    let kept = Kept::decode(&value).ok_or(OpenError::Damaged { what: "life of a product" })?;
                    stored.lives.insert(product, kept);
                }
                Some(StoreKey::Warden) => stored.duty = Some(Duty::read(&value).ok_or(OpenError::Damaged { what: "promises" })?),
                Some(StoreKey::UpTime) => stored.presence.push((Part::UpTime, value)),
                Some(StoreKey::Marks(chunk)) => stored.presence.push((Part::Marks(chunk), value)),
                Some(StoreKey::Passed(id)) => {
                    stored.passed.insert(id, decode(&value).unwrap_or_default());
                }
                Some(StoreKey::FloorTime) => {
                    stored.floor_time = decode(&value).ok_or(OpenError::Damaged { what: "floor time" })?;
                }
                Some(StoreKey::Remembered) => stored.remembered = decode(&value).unwrap_or_default(),
                // Not readable: known from now on, so they count as gone later than they might.
                Some(StoreKey::Departed) => stored.departed = decode(&value).unwrap_or_default(),
                // Not readable: counted anew, so it goes to outer doors later than it might.
                Some(StoreKey::Lacking) => stored.lacking_ms = decode(&value).unwrap_or_default(),
                None => {}
            }
        }
        Ok(stored)
    }
}

/// A record, or the two of a proof, one after the other behind a length.
fn read_entry(config: &NodeConfig, bytes: &[u8], crypto: &dyn Crypto) -> Option<Entry> {
    let parts: Vec<Vec<u8>> = decode(bytes)?;
    let mut records = Vec::new();
    for part in parts {
        records.push(crypto.open_record(&config.fleet, &part).ok()?);
    }
    match <[SignedRecord; 2]>::try_from(records) {
        Ok(pair) => Some(Entry::Proof(Box::new(pair))),
        Err(mut single) if single.len() == 1 => single.pop().map(Entry::Record),
        Err(_) => None,
    }
}

/// The kept form of an entry: what [`read_entry`] reads.
pub(super) fn write_entry(entry: &Entry) -> Vec<u8> {
    let parts: Vec<Packed<'_>> = entry.records().iter().map(|record| Packed(record.bytes())).collect();
    encode_in(entry.size() + SMALL, &parts)
}
