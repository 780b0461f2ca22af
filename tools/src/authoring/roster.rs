//! Cutting a roster: from the certificates in the folder, only when membership or policy changed.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::roster::{Listed, Roster, WrittenOff};
use groundswell_core::documents::tag::{RosterType, Spec1};
use groundswell_core::limits::ROSTER_CHAIN;
use groundswell_core::node::view::RosterView;
use groundswell_core::node_id::NodeId;
use groundswell_core::record::ClaimName;
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

/// What an operator and an agent add to what the folder knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes<'a> {
    /// How far leases have moved to the newest roster, as an agent of this fleet sees it.
    pub(crate) seen: Option<&'a RosterView>,
    /// Claims to write off, each neither live nor heard of.
    pub(crate) write_off: &'a [WrittenOff],
}

/// The roster for the next rollout: the newest one, or a new version when something changed.
pub(crate) fn cut(folder: &FleetFolder, wishes: &Wishes<'_>) -> Result<Cut, Failure> {
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
    // Of rivals both: what the one removed or wrote off is so.
    let rivals = || newest.iter().map(|(_, roster)| *roster);
    let mut removed: BTreeSet<NodeId> = rivals().flat_map(|roster| roster.removed.iter().copied()).collect();
    let gone = |listed: &&Listed| nodes.binary_search_by(|node| node.id.cmp(&listed.id)).is_err();
    // A certificate that has only expired can be renewed: its node may be in an upgrade, and it may return.
    let for_good = |id: &NodeId| shelf.is_retired(id) || folder.fleet().revoked.contains(id);
    removed.extend(rivals().flat_map(|roster| &roster.nodes).filter(gone).map(|listed| listed.id).filter(for_good));

    let written_off = written_off(rivals(), wishes.write_off);
    let (joined, left, moved) = differences(folder, before, &nodes);
    if let [(digest, roster)] = newest.as_slice()
        && roster.nodes == nodes
        && roster.pools == pools
        && roster.meet == file.meet
        && roster.written_off == written_off
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
    let version = before.map_or(1, |roster| roster.version + 1);
    let previous: Vec<Digest> = newest.iter().map(|(digest, _)| *digest).collect::<BTreeSet<_>>().into_iter().collect();
    check_first(folder, version, &previous, wishes.seen)?;
    let settled = settled(&newest, &previous, wishes.seen);
    if version - settled > ROSTER_CHAIN {
        let what = format!(
            "roster {version} would be {} versions beyond the last settled one, {settled}, and agents keep {ROSTER_CHAIN}: ask an \
             agent by --socket what is settled, and retire the machines that are off for good",
            version - settled
        );
        return Err(Failure::invalid(what));
    }
    let roles = &folder.fleet().roles;
    let roster = Roster {
        kind: RosterType,
        spec: Spec1,
        fleet: folder.id(),
        version,
        previous,
        settled,
        issued_at: now(),
        keys: super::rollout::listed_keys(&roles.rollout),
        pools,
        nodes,
        removed: removed.into_iter().collect(),
        written_off,
        meet: file.meet,
    };
    let digest = Digest::of(&Body::Roster(roster.clone()).encode());
    Ok(Cut { roster, digest, fresh: true, joined, left, moved })
}

/// What an agent has seen to be settled, when what it has seen is what the new roster follows; else what was signed before.
/// Of rivals the lower: what the one settled the other may not have.
fn settled(newest: &[(Digest, &Roster)], previous: &[Digest], seen: Option<&RosterView>) -> u64 {
    let signed = newest.iter().map(|(_, roster)| roster.settled).min().unwrap_or(1);
    let same = |seen: &&RosterView| seen.digests.iter().copied().collect::<BTreeSet<_>>().iter().eq(previous);
    seen.filter(same).map_or(signed, |seen| seen.settled.max(signed))
}

/// The mesh, or a rollout in this folder, knows of no roster that the new one would pass over: it would be that one's rival,
/// and a pool that begins with two rivals has no old wardens to protect it (design, section 7, rule 8).
fn check_first(folder: &FleetFolder, version: u64, previous: &[Digest], seen: Option<&RosterView>) -> Result<(), Failure> {
    let dir = folder.dir().join("rosters");
    let passed_over = |seen: &&RosterView| {
        let unknown = seen.digests.iter().any(|digest| previous.binary_search(digest).is_err());
        seen.version >= version || seen.version + 1 == version && unknown
    };
    if let Some(seen) = seen.filter(passed_over) {
        let digests: Vec<String> = seen.digests.iter().map(ToString::to_string).collect();
        let what = format!(
            "the agent knows roster {} as {}, and {} does not hold it: a roster cut without it would be its rival: `swell fleet pull` first",
            seen.version,
            digests.join(" and "),
            dir.display()
        );
        return Err(Failure::invalid(what));
    }
    let named = folder.shelf().rollouts().map(|stands| &stands.rollout);
    match named.filter(|rollout| folder.shelf().roster(&rollout.roster.digest).is_none()).find(|it| it.roster.version >= version)
    {
        Some(rollout) => Err(Failure::invalid(format!(
            "rollout {} is over roster {} ({}), which is not in {}: get it back; another one would be its rival",
            rollout.id,
            rollout.roster.version,
            rollout.roster.digest,
            dir.display()
        ))),
        None => Ok(()),
    }
}

/// Of each node the highest claim that was ever written off: it ends every earlier one too, and for good.
fn written_off<'a>(before: impl Iterator<Item = &'a Roster>, more: &[WrittenOff]) -> Vec<WrittenOff> {
    let mut highest: BTreeMap<NodeId, ClaimName> = BTreeMap::new();
    for entry in before.flat_map(|roster| &roster.written_off).chain(more) {
        let claim = highest.entry(entry.node).or_insert(entry.claim);
        *claim = entry.claim.max(*claim);
    }
    highest.into_iter().map(|(node, claim)| WrittenOff { node, claim }).collect()
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
