//! What `swell rollout create` asks an agent when it cuts a roster: how far leases have moved to the newest one, and whether
//! claims that are to be written off are over or silent. Without an agent nothing is raised and nothing is written off.

use groundswell_core::digest::Digest;
use groundswell_core::documents::roster::WrittenOff;
use groundswell_core::node::view::{LeaseView, NodeRow, PeerView, RolloutView, RosterView};
use groundswell_core::node_id::NodeId;
use groundswell_core::record::ClaimName;
use groundswell_core::record::status::Phase;

use super::steer::Forgive;
use crate::authoring::folder::FleetFolder;
use crate::authoring::roster::Cut;
use crate::failure::Failure;
use crate::online::socket::SocketArgs;

/// The newest roster as the agent sees it; `Ok(None)` when it knows none, or is of another fleet.
pub(super) fn ask(socket: &SocketArgs, fleet: Digest) -> Result<Option<RosterView>, Failure> {
    let seen: Option<RosterView> = socket.read("/v1/roster")?;
    Ok(seen.filter(|seen| seen.fleet == fleet))
}

/// One line on what the new roster calls settled; nothing when no roster was cut, or none came before it.
pub(super) fn show(cut: &Cut, seen: &Result<Option<RosterView>, Failure>) -> String {
    let (version, settled) = (cut.roster.version, cut.roster.settled);
    if !cut.fresh || cut.roster.previous.is_empty() {
        return String::new();
    }
    let before = version - 1;
    let why = match seen {
        _ if settled == before => String::new(),
        Ok(Some(RosterView { waits_for: Some(waiting), version, .. })) if *version == before => format!("; {waiting}"),
        Ok(_) => format!("; the agent does not know roster {before} yet"),
        Err(error) => format!("; no agent was asked: {error}"),
    };
    format!("leases: all promises under rosters before {settled} have ended{why}\n")
}

/// The claims to write off, once the agent has said of each that it is over or silent.
pub(super) fn write_off(folder: &FleetFolder, named: Vec<Forgive>, socket: &SocketArgs) -> Result<Vec<WrittenOff>, Failure> {
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let seen =
        Seen { leases: socket.read("/v1/leases")?, rollouts: socket.read("/v1/rollouts")?, peers: socket.read("/v1/peers")? };
    let entries = named.into_iter().map(|Forgive { node, claim }| {
        let node = node.find(folder, "--write-off")?;
        let Some(claim) = claim else {
            return Err(Failure::invalid("--write-off needs the claim, as `swell leases` shows it: NODE:CLAIM"));
        };
        seen.check_silent(folder, node, claim)?;
        Ok(WrittenOff { node, claim })
    });
    entries.collect()
}

/// What the agent sees of holders.
struct Seen {
    leases: Vec<LeaseView>,
    rollouts: Vec<RolloutView>,
    peers: Vec<PeerView>,
}

impl Seen {
    /// A claim may be written off when it stands nowhere, or its holder has said nothing for longer than its upgrade may take.
    fn check_silent(&self, folder: &FleetFolder, node: NodeId, claim: ClaimName) -> Result<(), Failure> {
        let named = |held: Option<ClaimName>| held.is_some_and(|held| held <= claim);
        let leases = self.leases.iter().filter(|lease| lease.holder == Some(node) && named(lease.claim));
        let leases = leases.map(|lease| lease.purpose.as_deref());
        let standing = |row: &&NodeRow| matches!(row.phase, Some(Phase::Claiming | Phase::Activating));
        let rows = self.rollouts.iter().flat_map(|rollout| {
            let mine = rollout.nodes.iter().filter(|row| row.node == node && named(row.claim)).filter(standing);
            mine.map(|_| Some(rollout.id.as_str()))
        });
        let heard = self.peers.iter().find(|peer| peer.node == node).and_then(|peer| peer.heard_seconds).unwrap_or(0);
        for purpose in leases.chain(rows) {
            let wait = match purpose.and_then(|id| silent_after(folder, id)) {
                Some(after) if heard > after => continue,
                Some(after) => format!("it may be written off once it has been silent for {after} s"),
                None => "this folder does not hold what it is for: retire the machine when it is off for good".to_owned(),
            };
            return Err(Failure::invalid(format!(
                "--write-off: {node} stands on claim {claim} or an earlier one and was heard {heard} s ago: {wait}"
            )));
        }
        Ok(())
    }
}

/// From a claim until the gate counts its holder as silent, in seconds.
fn silent_after(folder: &FleetFolder, id: &str) -> Option<u64> {
    let rollout = folder.shelf().rollouts().map(|stands| &stands.rollout).find(|rollout| rollout.id.as_str() == id)?;
    let policies = folder.shelf().rosters().flat_map(|(_, roster)| roster.pools.values());
    let start = policies.map(|policy| policy.start_within_seconds).max().unwrap_or(0);
    Some(start + rollout.upgrade_timeout_seconds + rollout.revert_timeout_seconds + rollout.grace_seconds)
}
