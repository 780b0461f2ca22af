//! What is shown of blobs: how far downloads are, what goes out, how far the others have each.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use groundswell_core::text::Product;
use groundswell_net::pieces::glimpse::{Glimpse, Neighbour};

use super::Driver;
use crate::events::Told;
use crate::handle::{BlobPeerView, BlobView, DownloadView, UploadView};
use crate::spread::Spread;

/// What members say of these blobs in their records, and what the swarms look like: read once for everything that is shown
/// together.
pub(super) struct Neighbourhood {
    serves: BTreeMap<Digest, Vec<NodeId>>,
    lean: BTreeSet<NodeId>,
    glimpses: BTreeMap<Digest, Glimpse>,
}

impl Neighbourhood {
    fn spread(&self, sha256: &Digest) -> Spread {
        let serves = self.serves.get(sha256).into_iter().flatten().copied();
        Spread::of(self.glimpses.get(sha256), serves, &self.lean)
    }

    fn neighbours(&self, sha256: &Digest) -> &[Neighbour] {
        self.glimpses.get(sha256).map(|glimpse| glimpse.neighbours.as_slice()).unwrap_or_default()
    }

    fn received(&self, sha256: &Digest) -> u64 {
        self.neighbours(sha256).iter().map(|neighbour| neighbour.received.bytes_per_second()).sum()
    }

    fn sent(&self, sha256: &Digest) -> u64 {
        self.neighbours(sha256).iter().map(|neighbour| neighbour.sent.bytes_per_second()).sum()
    }
}

impl Driver {
    /// The neighbourhood of what is being exchanged, and of `others`.
    pub(super) fn neighbourhood(&self, others: &BTreeSet<Digest>) -> Neighbourhood {
        let glimpses = self.swarms.glimpses();
        let downloads = self.hands.fetches.views().map(|(_, view)| view.sha256);
        let mut serves: BTreeMap<Digest, Vec<NodeId>> =
            downloads.chain(glimpses.keys().copied()).chain(others.iter().copied()).map(|sha256| (sha256, Vec::new())).collect();
        let mut lean = BTreeSet::new();
        if serves.is_empty() {
            return Neighbourhood { serves, lean, glimpses };
        }
        let node = self.node.lock();
        let me = node.id();
        for (who, status) in node.ledger().statuses().filter(|(who, _)| **who != me && !node.ledger().is_convicted(who)) {
            if status.lean {
                lean.insert(*who);
            }
            for sha256 in &status.serves {
                if let Some(serves) = serves.get_mut(sha256) {
                    serves.push(*who);
                }
            }
        }
        Neighbourhood { serves, lean, glimpses }
    }

    /// Downloads under way, each with the products that wait for it.
    pub(super) fn downloads(&self, seen: &Neighbourhood) -> Vec<(BTreeSet<Product>, DownloadView)> {
        let views = self.hands.fetches.views().map(|(products, view)| (products.clone(), self.completed(view, seen)));
        views.collect()
    }

    /// A download, with what only the swarm and the records know.
    fn completed(&self, view: DownloadView, seen: &Neighbourhood) -> DownloadView {
        let bytes_per_second = seen.received(&view.sha256);
        let missing = view.pieces.saturating_sub(view.held);
        let left_bytes = view.size_bytes.saturating_mul(missing.into()).checked_div(view.pieces.into());
        DownloadView {
            near_peers: self.hands.fetches.count_near(seen.neighbours(&view.sha256).iter().map(|neighbour| neighbour.peer)),
            bytes_per_second,
            copies_ppm: seen.spread(&view.sha256).copies_ppm,
            seconds_left: left_bytes.and_then(|left_bytes| left_bytes.checked_div(bytes_per_second)),
            ..view
        }
    }

    /// Members that take part in some swarm here and lack something of it.
    pub(super) fn takers_here(&self) -> BTreeSet<NodeId> {
        let glimpses = self.swarms.glimpses();
        let neighbours = glimpses.values().flat_map(|glimpse| &glimpse.neighbours);
        let lack = neighbours.filter(|it| it.holds.as_ref().is_some_and(|holds| !holds.is_full()));
        lack.map(|neighbour| neighbour.peer).collect()
    }

    /// What others lack and take part in here.
    pub(super) fn uploads(&self, seen: &Neighbourhood) -> Vec<UploadView> {
        let lacks = |neighbour: &&Neighbour| neighbour.holds.as_ref().is_some_and(|holds| !holds.is_full());
        let upload = |sha256: &Digest| {
            let peers = u32::try_from(seen.neighbours(sha256).iter().filter(lacks).count()).unwrap_or(u32::MAX);
            let spread = seen.spread(sha256);
            UploadView { sha256: *sha256, peers, bytes_per_second: seen.sent(sha256), copies_ppm: spread.copies_ppm }
        };
        let serves = !self.lean;
        seen.glimpses.keys().filter(|_| serves).map(upload).filter(|upload| upload.peers > 0).collect()
    }

    /// Everything that is here, whole or on its way, or that is being exchanged.
    pub(super) fn blob_views(&self) -> Vec<BlobView> {
        let whole = self.blobs.borrow().clone();
        let (seen, takers) = (self.neighbourhood(&whole), self.takers());
        seen.serves.keys().map(|sha256| self.blob_view(sha256, takers.get(sha256).copied(), &seen)).collect()
    }

    /// How many other nodes rollouts in force ask to fetch each artifact.
    fn takers(&self) -> BTreeMap<Digest, u32> {
        let node = self.node.lock();
        let (shelf, me) = (node.shelf(), node.id());
        let mut takers: BTreeMap<Digest, BTreeSet<NodeId>> = BTreeMap::new();
        for in_force in shelf.rollouts() {
            let Some(release) = shelf.release(&in_force.rollout.release.digest) else { continue };
            let listed: Vec<_> = shelf.roster_members(&in_force.rollout.roster.digest).into_iter().flatten().collect();
            for artifact in &release.artifacts {
                let of_platform = listed.iter().filter(|(_, it)| artifact.platform.as_ref() == Some(&it.platform));
                let others = of_platform.map(|(listed, _)| listed.id).filter(|node| *node != me);
                takers.entry(artifact.sha256.into()).or_default().extend(others);
            }
        }
        takers.into_iter().map(|(sha256, nodes)| (sha256, u32::try_from(nodes.len()).unwrap_or(u32::MAX))).collect()
    }

    fn blob_view(&self, sha256: &Digest, takers: Option<u32>, seen: &Neighbourhood) -> BlobView {
        let (glimpse, here) = (seen.glimpses.get(sha256), self.blob_store.held(sha256));
        let Spread { holders, copies_ppm } = seen.spread(sha256);
        let node = self.node.lock();
        let name_of = |peer: &NodeId| node.shelf().certificate(peer).map(|certificate| certificate.name.to_string());
        let peer = |neighbour: &Neighbour| BlobPeerView {
            node: neighbour.peer,
            name: name_of(&neighbour.peer),
            held: neighbour.holds.as_ref().map_or(0, groundswell_core::blob::PieceSet::held),
            sent_bytes_per_second: neighbour.sent.bytes_per_second(),
            received_bytes_per_second: neighbour.received.bytes_per_second(),
        };
        BlobView {
            sha256: *sha256,
            size_bytes: here.as_ref().map_or(0, |here| here.name.size_bytes),
            held: here.as_ref().map(|here| here.held).or(glimpse.map(|it| it.held)).unwrap_or(0),
            pieces: here.as_ref().map(|here| here.pieces).or(glimpse.map(|it| it.pieces)).unwrap_or(0),
            holders: u32::try_from(holders).unwrap_or(u32::MAX),
            copies_ppm,
            takers,
            peers: seen.neighbours(sha256).iter().map(peer).collect(),
        }
    }

    /// Tells how far downloads are, a tenth at a time.
    pub(super) fn tell_progress(&mut self) {
        let news = self.hands.fetches.news();
        if news.is_empty() {
            return;
        }
        let seen = self.neighbourhood(&BTreeSet::new());
        for view in news {
            let DownloadView { sha256, held, pieces, peers, bytes_per_second, copies_ppm, .. } = self.completed(view, &seen);
            let told = Told::BlobFetching { sha256, held, pieces, peers, bytes_per_second, copies_ppm };
            self.hands.events.tell(self.clock.wall(), told);
        }
    }
}
