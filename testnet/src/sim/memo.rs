//! Signatures of a virtual world: real ones, each checked once however many machines check it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use groundswell_core::crypto::{Crypto, SoftwareCrypto};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::signed::{RecordError, SignedRecord};
use groundswell_core::trust::key::PublicKey;

/// Answers kept before all are forgotten: some hundred megabytes at most.
const REMEMBERED: usize = 1_000_000;

/// What a world's machines have found out about signatures, and the records that they have read: all of them share one.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    answers: Arc<Mutex<HashMap<[u8; 32], bool>>>,
    records: Arc<RwLock<HashMap<u64, (Digest, SignedRecord)>>>,
}

/// One machine's key, and the world's memory.
#[derive(Debug)]
pub struct MemoCrypto {
    inner: SoftwareCrypto,
    memory: Memory,
}

impl MemoCrypto {
    /// The key with these secret bytes.
    #[must_use]
    pub fn new(secret: &[u8; 32], memory: Memory) -> Self {
        Self { inner: SoftwareCrypto::from_secret(secret), memory }
    }

    fn remember(&self, who: &[u8], message: &[u8], signature: &[u8; 64], check: impl FnOnce() -> bool) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher.update(signature).update(&(who.len() as u64).to_le_bytes()).update(who).update(message);
        let question = *hasher.finalize().as_bytes();
        let mut memory = self.memory.answers.lock().expect("nothing panics while it holds this lock");
        if let Some(known) = memory.get(&question) {
            return *known;
        }
        if memory.len() >= REMEMBERED {
            memory.clear();
        }
        let answer = check();
        memory.insert(question, answer);
        answer
    }
}

impl Crypto for MemoCrypto {
    fn node(&self) -> NodeId {
        self.inner.node()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.inner.sign(message)
    }

    fn verify_node(&self, node: &NodeId, message: &[u8], signature: &[u8; 64]) -> bool {
        self.remember(&node.0, message, signature, || self.inner.verify_node(node, message, signature))
    }

    fn open_record(&self, fleet: &Digest, bytes: &[u8]) -> Result<SignedRecord, RecordError> {
        // The last bytes are of the signature: different for different records, unless somebody means it.
        let name = bytes.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
        let read = self.memory.records.read().expect("nothing panics while it holds this lock");
        let known = read.get(&name).filter(|(of, known)| of == fleet && known.bytes() == bytes).map(|(_, known)| known.clone());
        drop(read);
        if let Some(known) = known {
            return Ok(known);
        }
        let record = SignedRecord::verify(fleet, bytes, &self.inner)?;
        let mut records = self.memory.records.write().expect("nothing panics while it holds this lock");
        if records.len() >= REMEMBERED {
            records.clear();
        }
        records.insert(name, (*fleet, record.clone()));
        Ok(record)
    }

    fn verify_es256(&self, key: &PublicKey, hash: &Digest, signature: &[u8; 64]) -> bool {
        self.remember(key.pin().to_string().as_bytes(), &hash.0, signature, || self.inner.verify_es256(key, hash, signature))
    }
}
