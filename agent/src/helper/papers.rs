//! Which of an agent's documents the helper must see to judge one product: what the agent itself decides by, no more.

use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::node_id::NodeId;
use groundswell_core::text::Product;
use groundswell_core::trust::shelf::Shelf;

/// The published forms, in an order in which each can be verified ([`Body::order`]): the fleet's versions, rosters, this node's
/// certificates, the product's releases, its rollouts.
#[must_use]
pub fn papers(shelf: &Shelf, node: &NodeId, product: &Product) -> Vec<Vec<u8>> {
    let mut wanted: Vec<Digest> = Vec::new();
    for (digest, _) in shelf.inventory() {
        let is_wanted = match shelf.body(&digest) {
            Some(Body::Fleet(_)) => true,
            Some(Body::Node(certificate)) => certificate.node == *node,
            Some(Body::Release(release)) => release.product == *product,
            Some(Body::Rollout(rollout)) => rollout.release.product == *product,
            _ => false,
        };
        if is_wanted {
            wanted.push(digest);
        }
    }
    let of_product = shelf.rollouts().filter(|in_force| in_force.rollout.release.product == *product);
    let named: Vec<Digest> = of_product.flat_map(|in_force| in_force.bodies().map(|rollout| rollout.roster.digest)).collect();
    let newest: Vec<Digest> = shelf.newest_rosters().map(|(digest, _)| digest).collect();
    let anchor = shelf.fleet().and_then(|fleet| fleet.anchor);
    let rosters = shelf.rosters().map(|(digest, _)| digest);
    wanted.extend(rosters.filter(|digest| named.contains(digest) || newest.contains(digest) || anchor == Some(*digest)));
    wanted.sort_by_key(|digest| (shelf.order(digest), *digest));
    wanted.into_iter().filter_map(|digest| shelf.envelope(&digest)).map(<[u8]>::to_vec).collect()
}
