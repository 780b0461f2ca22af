//! What a visit brings to the driver: documents that are not here, a handful at a time, each judged and on disk before more
//! is asked for.
//!
//! The core judges; what it said is remembered in [`super::seen`], and only then: a visit that is cut off loses nothing.

use std::sync::{Arc, Mutex, PoisonError};

use groundswell_core::documents::rejection::Rejection;
use groundswell_core::limits::DOCUMENT_BYTES;
use groundswell_core::node::effect::Accepted;
use groundswell_core::node::input::VisitEnd;
use groundswell_core::node_id::NodeId;
use groundswell_core::trust::verify;
use groundswell_net::outer::limits::WINDOW;
use groundswell_net::outer::visit::{Visit, VisitFailed};
use groundswell_net::outer::wire::Listed;
use tokio::sync::{mpsc, oneshot};

use super::seen::{Seen, Verdict};
use crate::admission::SharedNode;

/// How often one list is gone through: what was refused may be taken once something behind it was. More comes with the next
/// visit.
const PASSES: usize = 4;

/// What a visit brings.
#[derive(Debug)]
pub(crate) enum Brought {
    /// A document's published form.
    Document {
        /// Whose door it came through.
        keeper: NodeId,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Where the core's answer goes, once what it took is on disk; dropped when the disk fails.
        verdict: oneshot::Sender<Result<Accepted, Rejection>>,
    },
    /// Records: each alone, or the two of a proof.
    Records(NodeId, Vec<Vec<Vec<u8>>>),
    /// It has ended.
    Ended {
        /// Whose door it was, if anybody was there.
        keeper: Option<NodeId>,
        /// Where.
        addresses: Vec<String>,
        /// How.
        end: VisitEnd,
        /// Why, in words, unless it is complete.
        reason: Option<String>,
    },
}

/// The way from a visit to the driver.
#[derive(Clone)]
pub(crate) struct Delivery {
    node: SharedNode,
    brought: mpsc::Sender<Brought>,
    seen: Arc<Mutex<Seen>>,
}

/// A document that was handed over: its published form, whether it can be read at all, and what comes of it.
struct Waiting {
    listed: Listed,
    readable: bool,
    judged: oneshot::Receiver<Result<Accepted, Rejection>>,
}

impl Delivery {
    pub(super) fn new(node: SharedNode, brought: mpsc::Sender<Brought>) -> Self {
        Self { node, brought, seen: Arc::default() }
    }

    /// An error of the channel means that the driver has ended.
    pub(super) async fn bring(&self, brought: Brought) {
        drop(self.brought.send(brought).await);
    }

    /// Brings those that are not here in this published form, and waits for what becomes of them.
    ///
    /// # Errors
    /// When the visit cannot go on.
    pub(super) async fn documents(&self, visit: &mut Visit, keeper: NodeId, listed: &[Listed]) -> Result<(), VisitFailed> {
        for _ in 0..PASSES {
            let began = self.revision();
            let mut rest = listed.iter();
            loop {
                let (batch, before) = self.lacking(&mut rest);
                if batch.is_empty() {
                    break;
                }
                let waiting = self.hand_over(visit, keeper, &batch).await?;
                self.remember(waiting, before).await;
            }
            if self.revision() == began {
                break;
            }
        }
        Ok(())
    }

    fn revision(&self) -> u64 {
        self.node.lock().shelf().revision()
    }

    /// The next few that are not here in this published form and are worth bringing, and the revision of the documents here.
    fn lacking(&self, listed: &mut std::slice::Iter<'_, Listed>) -> (Vec<Listed>, u64) {
        let (node, mut seen) = (self.node.lock(), self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let revision = node.shelf().revision();
        let lacks = |listed: &&Listed| {
            node.shelf().published(&listed.digest) != Some(listed.published) && !seen.has(&listed.published, revision)
        };
        (listed.filter(lacks).take(WINDOW).copied().collect(), revision)
    }

    async fn hand_over(&self, visit: &mut Visit, keeper: NodeId, batch: &[Listed]) -> Result<Vec<Waiting>, VisitFailed> {
        let published = visit.small_documents(batch, DOCUMENT_BYTES).await?;
        let mut waiting = Vec::new();
        for (listed, bytes) in batch.iter().zip(published) {
            let Some(bytes) = bytes else { continue };
            let readable = match verify::read(&bytes) {
                Ok((envelope, _)) if (envelope.kind, envelope.digest()) != (listed.kind, listed.digest) => {
                    return Err(VisitFailed::Breach("another document than it listed"));
                }
                read => read.is_ok(),
            };
            let (verdict, judged) = oneshot::channel();
            self.bring(Brought::Document { keeper, bytes, verdict }).await;
            waiting.push(Waiting { listed: *listed, readable, judged });
        }
        Ok(waiting)
    }

    /// Waits for the verdicts on what was handed over at revision `before`.
    async fn remember(&self, waiting: Vec<Waiting>, before: u64) {
        let mut verdicts = Vec::new();
        for Waiting { listed, readable, judged } in waiting {
            let verdict = match judged.await {
                Ok(Ok(_)) => Verdict::Taken,
                Ok(Err(_)) if !readable => Verdict::Unreadable,
                Ok(Err(rejection)) => Verdict::Refused(rejection.reason),
                // The disk failed, or the agent ends: it is brought again.
                Err(_) => continue,
            };
            verdicts.push((listed.published, verdict));
        }
        let after = self.revision();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (published, verdict) in verdicts {
            // A verdict that was given while documents came and went may be another now.
            if before == after || verdict == Verdict::Unreadable {
                seen.note(published, after, verdict);
            }
        }
    }
}

#[cfg(test)]
mod tests;
