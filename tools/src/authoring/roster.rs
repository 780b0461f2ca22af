//! Cutting a roster: from the certificates in the folder, only when membership or policy changed.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::roster::{Listed, Roster};
use groundswell_core::documents::tag::{RosterType, Spec1};
use groundswell_core::node_id::NodeId;
use groundswell_core::text::Pool;

use super::clock::now;
use super::folder::FleetFolder;
use super::roster_file::RosterFile;
use crate::failure::Failure;

/// A roster to roll out over, and how it differs from the one before.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// The roster.
    pub(crate) roster: Roster,
    /// Its body digest.
    pub(crate) digest: Digest,
    /// It is new and must be signed.
    pub(crate) fresh: bool,
    /// Names of nodes that the roster before did not list.
    pub(crate) joined: Vec<String>,
    /// Names or ids of nodes that it listed and this one does not.
    pub(crate) left: Vec<String>,
    /// Names of nodes with another certificate.
    pub(crate) moved: Vec<String>,
}

/// The roster for the next rollout: the newest one, or a new version when something changed.
pub(crate) fn cut(folder: &FleetFolder) -> Result<Cut, Failure> {
    let shelf = folder.shelf();
    let mut newest: Vec<(Digest, &Roster)> = Vec::new();
    for (digest, roster) in shelf.rosters() {
        newest.retain(|(_, other)| other.version == roster.version);
        newest.push((digest, roster));
    }
    let half = folder.half_signed().filter_map(|half| match &half.body {
        Body::Roster(roster) => Some((half, roster)),
        _ => None,
    });
    let pending = half.filter(|(_, roster)| newest.first().is_none_or(|(_, newest)| newest.version < roster.version));
    let pending = pending.max_by_key(|(_, roster)| roster.version);
    if let Some((half, roster)) = pending {
        newest = vec![(half.envelope.digest(), roster)];
    }
    let before = newest.first().map(|(_, roster)| *roster);

    let nodes = listed(folder, before)?;
    let file = RosterFile::read(folder.dir(), before)?;
    let pools: BTreeSet<&Pool> = nodes
        .iter()
        .filter_map(|node| shelf.certificate_by_digest(&node.certificate))
        .filter_map(|node| node.pool.as_ref())
        .collect();
    let pools: BTreeMap<Pool, _> = pools.into_iter().map(|pool| (pool.clone(), file.policy(pool))).collect();
    let mut removed: BTreeSet<NodeId> = before.into_iter().flat_map(|roster| roster.removed.iter().copied()).collect();
    let gone = |listed: &&Listed| nodes.binary_search_by(|node| node.id.cmp(&listed.id)).is_err();
    removed.extend(before.into_iter().flat_map(|roster| &roster.nodes).filter(gone).map(|listed| listed.id));

    let (joined, left, moved) = differences(folder, before, &nodes);
    if let [(digest, roster)] = newest.as_slice()
        && roster.nodes == nodes
        && roster.pools == pools
        && roster.meet == file.meet
    {
        return Ok(Cut { roster: (*roster).clone(), digest: *digest, fresh: false, joined, left, moved });
    }
    if let Some((half, _)) = pending {
        let what = format!(
            "{} is half-signed and membership has changed since: complete it by `swell rollout sign`, or remove it",
            half.path.display()
        );
        return Err(Failure::invalid(what));
    }
    let roles = &folder.fleet().roles;
    let roster = Roster {
        kind: RosterType,
        spec: Spec1,
        fleet: folder.id(),
        version: before.map_or(1, |roster| roster.version + 1),
        previous: newest.iter().map(|(digest, _)| *digest).collect::<BTreeSet<_>>().into_iter().collect(),
        // Nothing is known to have ended beyond what was; only the tools that see the mesh raise it.
        settled: before.map_or(1, |roster| roster.settled),
        issued_at: now(),
        keys: super::rollout::listed_keys(&roles.rollout),
        pools,
        nodes,
        removed: removed.into_iter().collect(),
        written_off: before.map(|roster| roster.written_off.clone()).unwrap_or_default(),
        meet: file.meet,
    };
    let digest = Digest::of(&Body::Roster(roster.clone()).encode());
    Ok(Cut { roster, digest, fresh: true, joined, left, moved })
}

/// Every node in a pool with a certificate that counts, in order of ids.
fn listed(folder: &FleetFolder, before: Option<&Roster>) -> Result<Vec<Listed>, Failure> {
    let shelf = folder.shelf();
    let mut nodes = Vec::new();
    for (digest, certificate) in shelf.certificates() {
        if certificate.pool.is_none() || shelf.member(&certificate.node, now()).is_err() {
            continue;
        }
        let dormant = before.and_then(|roster| roster.listed(&certificate.node)).is_some_and(|listed| listed.dormant);
        nodes.push(Listed { id: certificate.node, certificate: digest, dormant });
    }
    for listed in before.into_iter().flat_map(|roster| &roster.nodes) {
        if shelf.certificate_by_digest(&listed.certificate).is_none() && shelf.certificate(&listed.id).is_none() {
            let what = format!(
                "the newest roster lists node {}, whose certificate {} is not in {}: get it back, or retire the node",
                listed.id,
                listed.certificate,
                folder.dir().join("certificates").display()
            );
            return Err(Failure::invalid(what));
        }
    }
    let removed = before.map(|roster| roster.removed.as_slice()).unwrap_or_default();
    if let Some(back) = nodes.iter().find(|node| removed.binary_search(&node.id).is_ok()) {
        return Err(Failure::invalid(format!(
            "node {} was removed, and what left never returns: give it a new identity",
            back.id
        )));
    }
    Ok(nodes)
}

fn differences(folder: &FleetFolder, before: Option<&Roster>, nodes: &[Listed]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let shelf = folder.shelf();
    let name = |listed: &Listed| {
        let certificate = shelf.certificate_by_digest(&listed.certificate).or_else(|| shelf.certificate(&listed.id));
        certificate.map_or_else(|| listed.id.to_string(), |certificate| certificate.name.to_string())
    };
    let (mut joined, mut moved) = (Vec::new(), Vec::new());
    for node in nodes {
        match before.and_then(|roster| roster.listed(&node.id)) {
            None => joined.push(name(node)),
            Some(old) if old.certificate != node.certificate => moved.push(name(node)),
            Some(_) => {}
        }
    }
    let gone = |listed: &&Listed| !nodes.iter().any(|node| node.id == listed.id);
    let mut left: Vec<String> = before.into_iter().flat_map(|roster| &roster.nodes).filter(gone).map(name).collect();
    for names in [&mut joined, &mut left, &mut moved] {
        names.sort();
    }
    (joined, left, moved)
}
