//! Answers to local questions: the core's views, with what only the agent knows beside them.

use std::collections::BTreeSet;

use groundswell_core::node::view::Explanation;
use groundswell_core::text::Product;

use super::Driver;
use crate::handle::{AgentView, DocumentView, FaultView, Request, StatusView};

impl Driver {
    /// Answers one question. Whoever asked and has gone needs no answer.
    pub(super) fn answer(&mut self, request: Request) {
        let now = self.clock.now();
        match request {
            Request::Status(reply) => {
                let node = self.node.lock().view(now);
                let _ = reply.send(StatusView { node, agent: self.agent() });
            }
            Request::Rollouts(reply) => {
                let _ = reply.send(self.node.lock().rollouts(now));
            }
            Request::Leases(reply) => {
                let _ = reply.send(self.node.lock().leases(now));
            }
            Request::Roster(reply) => {
                let _ = reply.send(self.node.lock().roster());
            }
            Request::Peers(reply) => {
                let _ = reply.send(self.node.lock().peers(now));
            }
            Request::Blobs(reply) => {
                let _ = reply.send(self.blob_views());
            }
            Request::Explain { product, reply } => {
                let _ = reply.send(self.explain(product));
            }
            Request::Documents(reply) => {
                let node = self.node.lock();
                let documents = node.documents().map(|(digest, kind, envelope)| DocumentView {
                    digest,
                    kind: kind.name().to_owned(),
                    bytes: u64::try_from(envelope.len()).unwrap_or(u64::MAX),
                });
                let _ = reply.send(documents.collect());
            }
            Request::Document { digest, reply } => {
                let _ = reply.send(self.node.lock().shelf().envelope(&digest).map(<[u8]>::to_vec));
            }
            Request::Publish { bytes, reply } => self.publish(bytes, reply),
        }
    }

    fn explain(&self, product: Option<Product>) -> Vec<Explanation> {
        let now = self.clock.now();
        let mut explanations: Vec<Explanation> = {
            let node = self.node.lock();
            let products = match product {
                Some(product) => vec![product],
                None => node.view(now).products.iter().filter_map(|view| Product::new(view.product.clone()).ok()).collect(),
            };
            products.iter().filter_map(|product| node.explain(now, product)).collect()
        };
        for (products, download) in self.downloads(&self.neighbourhood(&BTreeSet::new())) {
            let of_it = |it: &&mut Explanation| products.iter().any(|product| product.as_str() == it.product);
            explanations.iter_mut().filter(of_it).for_each(|it| it.facts.insert(0, download.to_string()));
        }
        explanations
    }

    fn agent(&self) -> AgentView {
        let seen = self.neighbourhood(&BTreeSet::new());
        let fault = self.fault.as_ref().map(|fault| FaultView {
            what: "store".to_owned(),
            detail: fault.detail.clone(),
            since: fault.since,
        });
        AgentView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            addresses: self.addresses.clone(),
            blobs: self.blobs.borrow().iter().copied().collect(),
            downloads: self.downloads(&seen).into_iter().map(|(_, download)| download).collect(),
            uploads: self.uploads(&seen),
            last_dial_failure: self.last_dial_failure.clone(),
            last_visit_failure: self.last_visit_failure.clone(),
            faults: fault.into_iter().collect(),
            counters: self.counters(),
        }
    }

    fn counters(&self) -> std::collections::BTreeMap<String, u64> {
        let pieces = self.swarms.counters();
        let pieces = [
            ("pieces_sent_bytes", pieces.sent_bytes),
            ("pieces_received_bytes", pieces.received_bytes),
            ("pieces_wasted_bytes", pieces.wasted_bytes),
        ];
        self.hands.network.counters().list().into_iter().chain(pieces).map(|(name, count)| (name.to_owned(), count)).collect()
    }
}
