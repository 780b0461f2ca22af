//! This node as a visitor: when it goes to other nodes' outer doors, to whose, and what it may do with what it gets there
//! (design, section 10).
//!
//! It goes when its own certificate does not count, or when for [`OUTER_AFTER_MS`] it had fewer than three members as peers
//! (all others, where there are fewer): with a member that is a peer it has a protocol in common. What it gets is verified
//! like everything else. Without any member as a peer it starts nothing but the agent's own product, and grants nothing,
//! for nobody would hear of it.
//! Pure: [`Effect::Visit`] asks the driver to go, [`Input::Visited`](super::input::Input::Visited) says how it ended.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use rand_chacha::rand_core::Rng as _;

use super::Node;
use super::effect::{Effect, Event};
use super::input::VisitEnd;
use super::keys::{StoreKey, encode};
use super::sight::NodeSight;
use crate::documents::rejection::Reason as Code;
use crate::lease::sight::Sight as _;
use crate::limits::{OUTER_AFTER_MS, OUTER_MEMBERS, VISIT_LONGEST_MS};
use crate::node_id::NodeId;
use crate::record::signed::SignedRecord;
use crate::record::status::Phase;
use crate::record::{RecordKey, RecordKind, Stamp};
use crate::spread::neighbours::{Dial, Member};
use crate::text::Product;
use crate::time::{Now, Time};

/// What was counted is kept on disk this often: a restart forgets no more of it.
const SAVE_EVERY_MS: u64 = 600_000;
/// Between visits while the agent's own upgrade claims, starts or is watched: the claim must be seen, granted and the grants
/// read within `startWithin`.
const PAUSE_BUSY_MS: u64 = 3_000;
/// Before a visit that takes news of this node along.
const PAUSE_NEWS_MS: u64 = 200;
/// Between visits while something is on its way.
const PAUSE_MOVING_MS: u64 = 15_000;
/// Between visits otherwise: a new generation is seen within this.
const PAUSE_IDLE_MS: u64 = 300_000;
/// The first pause after a visit that brought nothing; doubled by each further one up to [`PAUSE_IDLE_MS`].
const PAUSE_FIRST_MS: u64 = 2_000;

/// Why this node lives through outer doors. Display is what `status` and `explain` say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its own certificate does not count here: what is wrong with it.
    NotMember(String),
    /// Too few members with a protocol in common.
    FewMembers {
        /// Members that are peers now.
        have: usize,
        /// Enough.
        need: usize,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMember(what) => {
                write!(f, "this node is no member now: {what}; it asks at other nodes' outer doors for a newer certificate")
            }
            Self::FewMembers { have, need } => write!(
                f,
                "{have} of {need} members with a protocol in common for a day; this node lives through outer doors and upgrades only itself"
            ),
        }
    }
}

/// What this node knows of its need and its visits. But for the count, in memory only.
#[derive(Debug, Default)]
pub(super) struct Visiting {
    /// For how long it has had too few members, counted while it runs or sleeps.
    pub(super) lacking_ms: u64,
    /// When that was counted last.
    counted_at: Option<Time>,
    saved_ms: u64,
    why: Option<Why>,
    next_at: Time,
    under_way: Option<Time>,
    /// The record that the visit under way took along.
    taken_along: Stamp,
    /// Visits in a row that brought nothing.
    in_vain: u32,
    /// Whose doors gave nothing last time, or were not there: others are tried first.
    avoid: BTreeSet<NodeId>,
    /// The same of addresses that were given without a name: whoever is there may be nobody's keeper, and slow.
    avoid_at: BTreeSet<String>,
    /// The address without a name that the visit under way went to.
    went_to: Option<String>,
}

impl Node {
    /// Why this node goes to outer doors now; `None` while it lives in the mesh.
    #[must_use]
    pub fn outer_door(&self) -> Option<&Why> {
        self.visiting.why.as_ref()
    }

    /// Whether all that this node knows comes through outer doors: then it upgrades only itself.
    pub(super) fn lives_outside(&self) -> bool {
        self.visiting.why.is_some() && self.connected.is_empty()
    }

    /// Whether `product` may not be started now, because only the agent itself is upgraded through outer doors.
    pub(super) fn must_wait_outside(&self, product: &Product) -> bool {
        self.lives_outside() && self.config.agent.as_ref().is_none_or(|agent| agent.product != *product)
    }

    /// Counts, decides whether it needs outer doors, and goes when it is time.
    pub(super) fn visit(&mut self, now: Now) {
        if self.config.silent {
            return;
        }
        self.count_lack(now.boot);
        let why = self.needs_doors(now);
        if why.is_some() != self.visiting.why.is_some() {
            self.visiting.next_at = now.boot;
            self.visiting.in_vain = 0;
            self.tell(Event::OuterDoor { why: why.clone() });
        }
        let refused = matches!(self.visiting.why, Some(Why::NotMember(_)));
        if refused && self.shelf.member(&self.me, now.wall).is_ok() {
            self.neighbours.hurry(now.boot);
        }
        self.visiting.why = why;
        if self.visiting.why.is_none() || now.boot < self.visiting.next_at {
            return;
        }
        if let Some(since) = self.visiting.under_way {
            if now.boot.since_ms(since) < VISIT_LONGEST_MS {
                return;
            }
            self.visit_ended(now, None, &VisitEnd::Failed);
            return;
        }
        let Some(Dial { peer, addresses }) = self.keeper() else {
            self.visiting.next_at = now.boot.after_ms(PAUSE_MOVING_MS);
            return;
        };
        self.visiting.under_way = Some(now.boot);
        self.visiting.went_to = addresses.first().filter(|_| peer.is_none()).cloned();
        let own = RecordKey { node: self.me, kind: RecordKind::Status };
        let record = self.ledger.record(&own);
        self.visiting.taken_along = record.map(SignedRecord::stamp).unwrap_or_default();
        let push = record.map(|record| record.bytes().to_vec());
        self.effects.push(Effect::Visit { peer, addresses, push });
    }

    /// When [`Node::visit`] has something to do, or to count.
    pub(super) fn next_visit(&self) -> Option<Time> {
        if self.config.silent {
            return None;
        }
        if self.visiting.why.is_some() {
            return Some(match self.visiting.under_way {
                Some(since) => since.after_ms(VISIT_LONGEST_MS),
                None => self.visiting.next_at,
            });
        }
        let counted = self.visiting.counted_at?;
        Some(counted.after_ms(OUTER_AFTER_MS.saturating_sub(self.visiting.lacking_ms).clamp(1_000, SAVE_EVERY_MS)))
    }

    /// A record of this node is new: whoever reads it by its visits should have it soon.
    pub(super) fn visit_soon(&mut self, now: Time) {
        if self.visiting.why.is_some() && self.visiting.in_vain == 0 {
            self.visiting.next_at = self.visiting.next_at.min(now.after_ms(PAUSE_NEWS_MS));
        }
    }

    /// A visit has ended, or never came back.
    pub(super) fn visit_ended(&mut self, now: Now, keeper: Option<NodeId>, end: &VisitEnd) {
        self.visiting.under_way = None;
        let went_to = self.visiting.went_to.take();
        match (end, keeper) {
            // Everything that leases need of what it knows is here: as good as a sync, from a member. A keeper that is none
            // may have kept anything back, and what it says of itself counts for nothing.
            (VisitEnd::Complete, Some(keeper)) if self.shelf.member(&keeper, now.wall).is_ok() => {
                self.visiting.in_vain = 0;
                self.visiting.avoid.clear();
                self.visiting.avoid_at.clear();
                self.synced.note(keeper);
                self.pacing.seek.remove(&keeper);
                self.duty.stale = true;
            }
            (VisitEnd::Complete | VisitEnd::Partial | VisitEnd::Failed, _) => {
                self.visiting.in_vain = self.visiting.in_vain.saturating_add(1);
                if let Some(keeper) = keeper.filter(|_| self.visiting.avoid.len() < crate::limits::REMEMBERED_PEERS) {
                    self.visiting.avoid.insert(keeper);
                }
                if self.visiting.avoid_at.len() < crate::limits::REMEMBERED_PEERS {
                    self.visiting.avoid_at.extend(went_to);
                }
            }
        }
        let own = RecordKey { node: self.me, kind: RecordKind::Status };
        let said_more = self.ledger.stamp(&own).is_some_and(|stamp| stamp > self.visiting.taken_along);
        let pause = match self.visiting.in_vain {
            0 if said_more => PAUSE_NEWS_MS,
            0 => self.pause(),
            failures => PAUSE_FIRST_MS.saturating_mul(1 << (failures - 1).min(16)).min(PAUSE_IDLE_MS),
        };
        let jitter = self.rng.next_u64() % (pause / 4 + 1);
        self.visiting.next_at = now.boot.after_ms(pause + jitter);
    }

    /// How soon to come again after a visit that brought everything.
    fn pause(&self) -> u64 {
        if !self.pacing.seek.is_empty() {
            return PAUSE_BUSY_MS;
        }
        let own = self.config.agent.as_ref().and_then(|agent| self.lives.get(&agent.product));
        match own.map(|life| life.kept.phase) {
            Some(Phase::Claiming | Phase::Activating) => PAUSE_BUSY_MS,
            Some(Phase::Staged | Phase::Fetching | Phase::Confirmed) => PAUSE_MOVING_MS,
            _ => PAUSE_IDLE_MS,
        }
    }

    /// Counts the time in which this node had fewer members as peers than it needs; enough of them end it at once.
    fn count_lack(&mut self, now: Time) {
        let since = self.visiting.counted_at.replace(now).unwrap_or(now);
        if self.connected.len() >= self.members_needed() {
            self.visiting.lacking_ms = 0;
        } else {
            let passed = now.since_ms(since);
            self.visiting.lacking_ms = self.visiting.lacking_ms.saturating_add(passed).min(OUTER_AFTER_MS);
        }
        let (counted, saved) = (self.visiting.lacking_ms, self.visiting.saved_ms);
        if counted.abs_diff(saved) >= SAVE_EVERY_MS
            || (counted == 0) != (saved == 0)
            || (counted == OUTER_AFTER_MS) != (saved == OUTER_AFTER_MS)
        {
            self.visiting.saved_ms = counted;
            self.persist(&StoreKey::Lacking, Some(encode(&counted)));
        }
    }

    /// Goes on from what was counted before a restart, in milliseconds; a rehearsal says so itself.
    pub fn restore_lack(&mut self, lacking_ms: u64) {
        self.visiting.lacking_ms = lacking_ms.min(OUTER_AFTER_MS);
        self.visiting.saved_ms = self.visiting.lacking_ms;
    }

    /// Three, or all others where there are fewer. Somebody at a configured address counts as one even if no certificate
    /// of it is known.
    fn members_needed(&self) -> usize {
        if self.connected.len() >= OUTER_MEMBERS {
            return OUTER_MEMBERS;
        }
        let others = self.shelf.certificates().filter(|(_, it)| it.node != self.me && !it.retired && it.pool.is_some());
        let known = others.take(OUTER_MEMBERS).count();
        known.max(usize::from(self.neighbours.has_addresses()))
    }

    fn needs_doors(&self, now: Now) -> Option<Why> {
        if self.connected.len() >= OUTER_MEMBERS {
            return None;
        }
        let need = self.members_needed();
        let have = self.connected.len();
        match self.shelf.member(&self.me, now.wall) {
            // What a member among its peers has comes by sync.
            Err(rejection) if have < need => {
                let words = match rejection.reason {
                    Code::UnknownKey => String::from("no certificate of it is known here"),
                    _ => rejection.detail,
                };
                Some(Why::NotMember(words))
            }
            Ok(_) if have < need && self.visiting.lacking_ms >= OUTER_AFTER_MS => Some(Why::FewMembers { have, need }),
            _ => None,
        }
    }

    /// Whose door comes next: wardens that it must be in touch with first, then anybody, by chance.
    fn keeper(&mut self) -> Option<Dial> {
        let sight = NodeSight {
            ledger: &self.ledger,
            shelf: &self.shelf,
            presence: &self.presence,
            written_off: &self.written_off,
            departed: &self.departed,
        };
        let heard = self.ledger.statuses().filter(|(node, _)| sight.gone(node).is_none());
        let members = heard.map(|(node, status)| Member { node: *node, addresses: &status.addresses });
        let mut known = self.neighbours.known(members);
        known.retain(|dial| dial.peer.is_none_or(|peer| !self.connected.contains(&peer)));
        let sought: Vec<Dial> =
            known.iter().filter(|dial| dial.peer.is_some_and(|peer| self.pacing.seek.contains(&peer))).cloned().collect();
        let avoided = |dial: &&Dial| match dial.peer {
            Some(peer) => self.visiting.avoid.contains(&peer),
            None => dial.addresses.first().is_some_and(|address| self.visiting.avoid_at.contains(address)),
        };
        let fresh: Vec<Dial> = known.iter().filter(|dial| !avoided(dial)).cloned().collect();
        if fresh.is_empty() {
            self.visiting.avoid.clear();
            self.visiting.avoid_at.clear();
        }
        // Who is sought may be off: every other time somebody else is asked.
        let coin = self.rng.next_u64().is_multiple_of(2);
        let from = if !sought.is_empty() && (coin || known.len() == sought.len()) {
            sought
        } else if fresh.is_empty() {
            known
        } else {
            fresh
        };
        let count = u64::try_from(from.len()).unwrap_or(u64::MAX);
        let at = self.rng.next_u64().checked_rem(count)?;
        from.into_iter().nth(usize::try_from(at).ok()?)
    }

    /// Records that a keeper showed: each alone, or with the one that proves an equivocation.
    pub(super) fn take_shown(&mut self, now: Now, keeper: NodeId, records: &[Vec<Vec<u8>>]) {
        for shown in records {
            match shown.as_slice() {
                [record] => self.take_record(now, keeper, record),
                [one, other] => self.take_proof(now, keeper, one, other),
                _ => {}
            }
        }
    }

    /// The stamps of what is here, so that a visit asks only for what is newer.
    #[must_use]
    pub fn has_record(&self, key: &RecordKey, stamp: Stamp) -> bool {
        let known = self.ledger.entry(key).and_then(|entry| entry.records().first().map(SignedRecord::stamp));
        match known {
            Some(_) if self.ledger.is_convicted(&key.node) => stamp == Stamp::PROOF,
            Some(known) => known >= stamp,
            None => false,
        }
    }
}
