//! Links that downloads need beside the node's own: a swarm of nodes with three links each leaves uplinks idle.
//!
//! While something is fetched a node sees to it that it is connected to sixteen members, drawn by chance, each node
//! another set, and others when these do not come. Who stays long without a download hangs up on them, but not on those that
//! it still gives to: links cost traffic. Pure; the driver dials.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::limits::BLOB_COMPANY;
use groundswell_core::node::view::PeerView;
use groundswell_core::node_id::NodeId;
use tokio::time::Instant;

/// A member that was dialled is not dialled again for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Links stay for so long after the last download: others may still need what this node has.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// And no longer than this, though somebody takes from here all the time: whoever needs the link makes it again.
const KEPT_AT_MOST: Duration = Duration::from_secs(10 * 60);

/// Whom this node dialled for its downloads.
#[derive(Debug, Default)]
pub(super) struct Company {
    invited: BTreeMap<NodeId, Instant>,
    /// When the last download ended.
    since: Option<Instant>,
    /// How often members were chosen: each time others come first.
    rounds: u64,
}

impl Company {
    /// Whether somebody is to be hung up on some day.
    pub(super) fn any(&self) -> bool {
        !self.invited.is_empty()
    }

    /// A download is under way at `me`: whom to dial now, and where.
    pub(super) fn invite(
        &mut self,
        now: Instant,
        me: NodeId,
        connected: &BTreeSet<NodeId>,
        members: &[PeerView],
    ) -> Vec<(NodeId, Vec<String>)> {
        self.since = None;
        let room = BLOB_COMPANY.saturating_sub(connected.len());
        if room == 0 {
            return Vec::new();
        }
        let recently = |peer: &NodeId| self.invited.get(peer).is_some_and(|at| now.saturating_duration_since(*at) < AGAIN_AFTER);
        let under_way = self.invited.keys().filter(|peer| recently(peer) && !connected.contains(*peer)).count();
        let open = members.iter().filter(|member| {
            let away = member.node != me && !connected.contains(&member.node) && !recently(&member.node);
            away && !member.convicted && !member.addresses.is_empty()
        });
        let open = in_own_order(me, self.rounds, open);
        let room = room.saturating_sub(under_way);
        let chosen: Vec<_> = open.into_iter().take(room).map(|it| (it.node, it.addresses.clone())).collect();
        self.rounds += u64::from(!chosen.is_empty());
        self.invited.extend(chosen.iter().map(|(peer, _)| (*peer, now)));
        chosen
    }

    /// No download is under way: on whom to hang up now. Not on those that take pieces from here, for a while.
    pub(super) fn part(&mut self, now: Instant, takers: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let since = *self.since.get_or_insert(now);
        let kept = now.saturating_duration_since(since);
        if kept < KEPT_FOR {
            return Vec::new();
        }
        let stays = |peer: &NodeId| kept < KEPT_AT_MOST && takers.contains(peer);
        let (stay, go): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.invited).into_iter().partition(|(peer, _)| stays(peer));
        self.invited = stay;
        if self.invited.is_empty() {
            self.since = None;
        }
        go.into_keys().collect()
    }
}

/// Members in an order of this node's own, another in each round: not everybody turns to the same, and nobody for ever.
pub(super) fn in_own_order<'a>(me: NodeId, round: u64, members: impl Iterator<Item = &'a PeerView>) -> Vec<&'a PeerView> {
    let order = |it: &PeerView| Digest::of(&[&me.0[..], &it.node.0, &round.to_be_bytes()].concat());
    let mut ordered: Vec<(Digest, &PeerView)> = members.map(|it| (order(it), it)).collect();
    ordered.sort_unstable_by_key(|(order, _)| *order);
    ordered.into_iter().map(|(_, it)| it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    fn member(n: u8) -> PeerView {
        PeerView {
            node: node(n),
            name: None,
            pool: None,
            connected: false,
            addresses: vec![format!("/ip4/10.0.0.{n}/tcp/7070")],
            heard_seconds: None,
            convicted: false,
            running: Vec::new(),
            serves: Vec::new(),
            lean: false,
        }
    }

    fn invited(company: &mut Company, now: Instant, me: u8, connected: &[u8], members: &[PeerView]) -> BTreeSet<NodeId> {
        let connected = connected.iter().copied().map(node).collect();
        company.invite(now, node(me), &connected, members).into_iter().map(|(peer, _)| peer).collect()
    }

    #[test]
    fn a_node_that_fetches_dials_until_it_has_sixteen_and_others_dial_others() {
        let (members, now) = ((0..100).map(member).collect::<Vec<_>>(), Instant::now());
        let (mut company, mut other) = (Company::default(), Company::default());
        let first = invited(&mut company, now, 1, &[2, 3, 4], &members);
        assert_eq!(first.len(), 13);
        assert!([1, 2, 3, 4].iter().all(|n| !first.contains(&node(*n))), "neither itself nor who is there");
        assert_ne!(first, invited(&mut other, now, 5, &[2, 3, 4], &members));
        // While these are being dialled nobody else is, and whoever did not come is not dialled again at once.
        assert!(invited(&mut company, now + Duration::from_secs(2), 1, &[2, 3, 4], &members).is_empty());
        assert_eq!(invited(&mut company, now + AGAIN_AFTER, 1, &[2, 3, 4], &members).len(), 13);
    }

    #[test]
    fn who_has_no_address_or_is_convicted_is_not_dialled() {
        let members = [PeerView { addresses: Vec::new(), ..member(2) }, PeerView { convicted: true, ..member(3) }, member(4)];
        assert_eq!(invited(&mut Company::default(), Instant::now(), 1, &[], &members), BTreeSet::from([node(4)]));
    }

    #[test]
    fn a_minute_after_the_last_download_the_links_are_given_up() {
        let (members, now) = ([member(2), member(3)], Instant::now());
        let mut company = Company::default();
        invited(&mut company, now, 1, &[], &members);
        let nobody = BTreeSet::new();
        assert!(company.any() && company.part(now, &nobody).is_empty());
        let later = now + KEPT_FOR / 2;
        invited(&mut company, later, 1, &[2, 3], &members);
        let is_kept = company.part(later, &nobody).is_empty() && company.part(now + KEPT_FOR, &nobody).is_empty();
        assert!(is_kept, "another one began meanwhile");
        assert_eq!(company.part(later + KEPT_FOR, &nobody), [node(2), node(3)]);
        assert!(!company.any());
    }

    #[test]
    fn who_still_takes_pieces_keeps_its_link_for_ten_minutes_at_most() {
        let (members, now) = ([member(2), member(3)], Instant::now());
        let mut company = Company::default();
        invited(&mut company, now, 1, &[], &members);
        let takers = BTreeSet::from([node(3)]);
        assert!(company.part(now, &takers).is_empty());
        assert_eq!(company.part(now + KEPT_FOR, &takers), [node(2)]);
        assert!(company.part(now + KEPT_FOR * 2, &takers).is_empty());
        assert_eq!(company.part(now + KEPT_AT_MOST, &takers), [node(3)]);
    }

    #[test]
    fn in_each_round_others_come_first() {
        let members: Vec<PeerView> = (0..100).map(member).collect();
        let first = |me: u8, round| in_own_order(node(me), round, members.iter()).first().map(|it| it.node);
        let firsts: BTreeSet<_> = (0..20).map(|round| first(1, round)).collect();
        assert!(firsts.len() > 10, "{firsts:?}");
        assert_ne!(
            (0..4).map(|round| first(1, round)).collect::<Vec<_>>(),
            (0..4).map(|round| first(2, round)).collect::<Vec<_>>()
        );
    }
}
