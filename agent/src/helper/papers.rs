//! Which of an agent's documents the helper must see to judge one product: what the agent itself decides by, no more.

use groundswell_core::digest::Digest;
use groundswell_core::documents::{Body, Kind};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::Product;
use groundswell_core::trust::shelf::Shelf;

/// The published forms, in an order in which each can be verified: the fleet's versions, rosters, this node's
/// certificates, the product's releases, its rollouts by generation.
#[must_use]
pub fn papers(shelf: &Shelf, node: &NodeId, product: &Product) -> Vec<Vec<u8>> {
    let mut wanted: Vec<((u8, u64), Digest)> = Vec::new();
    for (digest, kind) in shelf.inventory() {
        let place = match (kind, shelf.body(&digest)) {
            (Kind::Fleet, Some(Body::Fleet(fleet))) => (0, fleet.version),
            (Kind::Node, Some(Body::Node(certificate))) if certificate.node == *node => (2, certificate.serial),
            (Kind::Release, Some(Body::Release(release))) if release.product == *product => (3, release.sequence.get()),
            (Kind::Rollout, Some(Body::Rollout(rollout))) if rollout.release.product == *product => (4, rollout.generation.get()),
            _ => continue,
        };
        wanted.push((place, digest));
    }
    let of_product = shelf.rollouts().filter(|in_force| in_force.rollout.release.product == *product);
    let named: Vec<Digest> = of_product.flat_map(|in_force| in_force.bodies().map(|rollout| rollout.roster.digest)).collect();
    let newest: Vec<Digest> = shelf.newest_rosters().map(|(digest, _)| digest).collect();
    let anchor = shelf.fleet().and_then(|fleet| fleet.anchor);
    for (digest, roster) in shelf.rosters() {
        if named.contains(&digest) || newest.contains(&digest) || anchor == Some(digest) {
            wanted.push(((1, roster.version), digest));
        }
    }
    wanted.sort();
    wanted.into_iter().filter_map(|(_, digest)| shelf.envelope(&digest)).map(<[u8]>::to_vec).collect()
}
