//! Which blobs are not needed any more, so that old releases do not fill the quota for ever.
//!
//! Of each product, releases from the newest completed rollout on are kept (late joiners and others who fetch need them),
//! and what runs here. A blob that no known release names is kept for a while: it may have come before its documents.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::documents::release::Release;
use groundswell_core::node::Node;
use groundswell_core::node::view::RolloutView;

/// How often it is looked; a blob that nothing names is kept for one to two of these.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(3_600);

/// Which blobs stay whatever else needs their room: those of rollouts that go on, those of the newest completed release of
/// each product, for late joiners, and those of what `running` names.
pub(crate) fn needed(releases: &[(Digest, &Release)], rollouts: &[RolloutView], running: &BTreeSet<Digest>) -> BTreeSet<Digest> {
    let mut kept: BTreeSet<Digest> = running.clone();
    kept.extend(rollouts.iter().filter(|it| !it.superseded && it.state != "aborted").map(|it| it.release));
    let mut newest: BTreeMap<&str, &RolloutView> = BTreeMap::new();
    for rollout in rollouts.iter().filter(|rollout| rollout.complete) {
        let last = newest.entry(&rollout.product).or_insert(rollout);
        if rollout.sequence > last.sequence {
            *last = rollout;
        }
    }
    kept.extend(newest.values().map(|rollout| rollout.release));
    let kept = releases.iter().filter(|(digest, _)| kept.contains(digest));
    kept.flat_map(|(_, release)| release.artifacts.iter().map(|artifact| Digest::from(artifact.sha256))).collect()
}

/// The releases of what runs on this node, and of what ran before: it may come back.
pub(crate) fn running(node: &Node) -> BTreeSet<Digest> {
    let own = node.ledger().status(&node.id()).into_iter().flat_map(|status| status.products.values());
    own.flat_map(|section| section.running.iter().chain(&section.from)).map(|it| it.release).collect()
}

/// What to remove, and which of the rest nothing names: hand these in as `unnamed_before` the next time.
pub(super) fn unneeded(
    blobs: &BTreeSet<Digest>,
    releases: &[(Digest, &Release)],
    rollouts: &[RolloutView],
    running: &BTreeSet<Digest>,
    unnamed_before: &BTreeSet<Digest>,
) -> (Vec<Digest>, BTreeSet<Digest>) {
    // Below these sequences of their products nobody needs anything.
    let mut needed_from: BTreeMap<&str, u64> = BTreeMap::new();
    for rollout in rollouts.iter().filter(|rollout| rollout.complete) {
        let newest = needed_from.entry(&rollout.product).or_default();
        *newest = rollout.sequence.max(*newest);
    }
    let (mut named, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for (digest, release) in releases {
        let old = needed_from.get(release.product.as_str()).is_some_and(|from| release.sequence.get() < *from);
        for artifact in &release.artifacts {
            let sha256 = Digest::from(artifact.sha256);
            named.insert(sha256);
            if !old || running.contains(digest) {
                needed.insert(sha256);
            }
        }
    }
    let unnamed: BTreeSet<Digest> = blobs.difference(&named).copied().collect();
    let mut remove: Vec<Digest> = blobs.iter().filter(|blob| named.contains(*blob) && !needed.contains(*blob)).copied().collect();
    remove.extend(unnamed.intersection(unnamed_before));
    let unnamed = unnamed.difference(unnamed_before).copied().collect();
    (remove, unnamed)
}

#[cfg(test)]
mod tests {
    use groundswell_core::documents::release::Artifact;
    use groundswell_core::documents::tag::{ReleaseType, Spec1};
    use groundswell_core::number::Sequence;
    use groundswell_core::text::{ArtifactName, Product, Version};
    use groundswell_core::time::Timestamp;

    use super::*;

    fn blob(sequence: u64) -> Digest {
        Digest::of(&sequence.to_be_bytes())
    }

    fn release(sequence: u64) -> Release {
        let artifact = Artifact {
            name: ArtifactName::new("x").unwrap(),
            platform: None,
            sha256: blob(sequence).hex(),
            size: 1,
            blake3: blob(0).hex(),
        };
        Release {
            kind: ReleaseType,
            spec: Spec1,
            product: Product::new("bcd").unwrap(),
            version: Version::new(format!("{sequence}")).unwrap(),
            sequence: Sequence::new(sequence).unwrap(),
            issued_at: Timestamp::default(),
            expires_at: Timestamp::default(),
            keys: Vec::new(),
            artifacts: vec![artifact],
            upgrade_from: None,
            dead_end: None,
            blocks: Vec::new(),
            notes: None,
        }
    }

    fn rollout(sequence: u64, complete: bool) -> RolloutView {
        RolloutView {
            id: format!("r{sequence}"),
            generation: 1,
            state: "running".to_owned(),
            reason: String::new(),
            product: "bcd".to_owned(),
            version: sequence.to_string(),
            sequence,
            release: blob(100 + sequence),
            roster_version: 1,
            superseded: false,
            complete,
            halted: None,
            waves: Vec::new(),
            nodes: Vec::new(),
        }
    }

    #[test]
    fn releases_older_than_the_newest_completed_one_go_unless_they_run_here() {
        let bodies: Vec<Release> = (1..=4).map(release).collect();
        let releases: Vec<_> = (1..=4).map(|sequence| blob(100 + sequence)).zip(&bodies).collect();
        let blobs: BTreeSet<Digest> = (1..=4).map(blob).collect();
        let rollouts = [rollout(1, true), rollout(2, true), rollout(3, true), rollout(4, false)];
        let running = BTreeSet::from([blob(102)]);
        let (remove, unnamed) = unneeded(&blobs, &releases, &rollouts, &running, &BTreeSet::new());
        assert_eq!((remove, unnamed.len()), (vec![blob(1)], 0));
        let (remove, _) = unneeded(&blobs, &releases, &[rollout(4, false)], &running, &BTreeSet::new());
        assert_eq!(remove, [], "nothing is complete yet");
    }

    #[test]
    fn what_rollouts_still_need_stays_whatever_else_needs_its_room() {
        let bodies: Vec<Release> = (1..=6).map(release).collect();
        let releases: Vec<_> = (1..=6).map(|sequence| blob(100 + sequence)).zip(&bodies).collect();
        let aborted = RolloutView { state: "aborted".to_owned(), ..rollout(6, false) };
        let rollouts = [RolloutView { superseded: true, ..rollout(2, true) }, rollout(3, false), rollout(4, true), aborted];
        let keeps = needed(&releases, &rollouts, &BTreeSet::from([blob(101)]));
        // 1 runs here, 3 goes on, 4 is the newest complete one; 2 was that, 5 was never rolled out, 6 was aborted.
        assert_eq!(keeps, BTreeSet::from([blob(1), blob(3), blob(4)]));
        let over = [RolloutView { superseded: true, ..rollout(2, true) }];
        assert_eq!(needed(&releases, &over, &BTreeSet::new()), BTreeSet::from([blob(2)]), "late joiners still need it");
    }

    #[test]
    fn a_blob_that_came_before_its_documents_stays_for_a_while() {
        let blobs = BTreeSet::from([blob(9)]);
        let (remove, unnamed) = unneeded(&blobs, &[], &[], &BTreeSet::new(), &BTreeSet::new());
        assert_eq!((remove, &unnamed), (Vec::new(), &blobs));
        let (remove, _) = unneeded(&blobs, &[], &[], &BTreeSet::new(), &unnamed);
        assert_eq!(remove, [blob(9)]);
    }
}
