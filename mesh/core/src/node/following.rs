//! Each rollout in force as this node follows it, and what is derived when documents change.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use super::Node;
use super::effect::{Effect, Event};
use super::hold::Hold;
use super::keys::{StoreKey, encode};
use super::show::count;
use crate::digest::Digest;
use crate::documents::certificate::Certificate;
use crate::documents::rollout::Rollout;
use crate::lease::sight::{Gone, Sight as _};
use crate::node_id::NodeId;
use crate::record::ledger::Entry;
use crate::record::{ClaimName, RecordKey, RecordKind};
use crate::rollout::PoolTerms;
use crate::rollout::applies::Skip;
use crate::rollout::member::{Member, in_scope};
use crate::rollout::progress::{Change, Clock, Outlook, Passed, Progress};
use crate::rollout::report::MemberReport;
use crate::text::{Pool, Reason, RolloutId};
use crate::time::Now;

/// One rollout as this node follows it.
#[derive(Debug)]
pub(super) struct Following {
    /// The generation that was taken into account.
    pub(super) digest: Digest,
    /// `None` until the roster and its certificates are here.
    pub(super) progress: Option<Progress>,
    /// This node's certificate by the rollout's roster.
    pub(super) listed: Option<Certificate>,
    /// Waves seen to pass, as kept on disk.
    passed: Vec<Passed>,
    /// A `settle` is owed.
    stale: bool,
    /// What this node's own move goes by, as of the last one.
    outlook: Option<Outlook>,
}

/// The wave of `node`, the implicit last one included.
pub(super) fn wave_of(progress: &Progress, node: &NodeId) -> Option<u32> {
    progress.tally().place_of(node).map(|place| place.wave)
}

impl Node {
    /// Whether the rollout's first wave is larger than root allows: the guard rail that needs the roster (capability A12).
    pub(super) fn beyond_limits(&self, progress: &Progress) -> Option<Hold> {
        let (holds, most) = progress.waves().first_wave_exceeds(self.shelf.fleet()?.limits.max_first_wave_ppm)?;
        Some(Hold::FirstWaveTooLarge { holds: count(holds), most: count(most) })
    }

    pub(super) fn clock(&self, now: Now) -> Clock {
        Clock { up_ms: self.presence.up_ms(), wall: now.wall }
    }

    /// Derives everything that documents alone decide. `remembered`: waves seen to pass, read from the store at the start.
    pub(super) fn reread_documents(&mut self, mut remembered: BTreeMap<RolloutId, Vec<Passed>>) {
        self.documents_changed = false;
        self.writers.forget();
        self.keep_needed_rosters();
        self.reread_rosters();
        self.reread_departed();
        self.reread_write_offs();
        let in_force: Vec<RolloutId> = self.shelf.rollouts().map(|rollout| rollout.rollout.id.clone()).collect();
        let gone: Vec<RolloutId> = self.following.keys().filter(|id| !in_force.contains(id)).cloned().collect();
        for id in gone {
            self.following.remove(&id);
            self.persist(&StoreKey::Passed(id), None);
        }
        for id in in_force {
            let passed = remembered.remove(&id).unwrap_or_default();
            self.follow(&id, passed);
        }
        self.ask_for_rosters();
        // Retired, revoked and removed nodes change no record: the documents speak for them, also where no record is here.
        let known = self.ledger.statuses().map(|(node, _)| *node).filter(|node| self.sight().gone(node).is_some());
        let gone: BTreeSet<NodeId> = known.chain(self.departed.keys().copied()).collect();
        for node in gone {
            self.hear(&node);
        }
        self.part_from_the_gone();
        self.ledger.forget_verdicts({
            let following = &self.following;
            |id: &RolloutId| following.contains_key(id)
        });
    }

    /// Peers are admitted once per connection: who was revoked or retired since is shown the door.
    fn part_from_the_gone(&mut self) {
        let gone: Vec<(NodeId, Gone)> =
            self.connected.iter().filter_map(|peer| Some((*peer, self.sight().gone(peer)?))).collect();
        for (peer, why) in gone.into_iter().filter(|(_, why)| *why != Gone::Removed) {
            self.effects.push(Effect::Hangup { peer, reason: Reason::lossy(&format!("the node is {why}")) });
        }
    }

    fn reread_rosters(&mut self) {
        let digests: Vec<Digest> = self.shelf.rosters().map(|(digest, _)| digest).collect();
        self.maps.retain(|digest, _| digests.contains(digest));
        for digest in digests {
            if self.maps.contains_key(&digest) {
                continue;
            }
            if let Some(map) = self.shelf.pool_map(&digest) {
                self.maps.insert(digest, map);
            }
        }
        let newest = self.maps.values().max_by_key(|map| map.version()).map(|map| map.roster());
        if let Some(roster) = newest.and_then(|digest| self.shelf.roster(&digest)) {
            self.neighbours.set_meet(&roster.meet);
        }
    }

    /// Drops rosters that nothing needs any more.
    fn keep_needed_rosters(&mut self) {
        self.pin_rosters();
        for gone in self.shelf.drop_superseded_rosters() {
            self.persist(&StoreKey::Roster(gone), None);
        }
    }

    /// The rosters that this node's own promises need.
    pub(super) fn pin_rosters(&mut self) {
        let warden = &self.duty.warden;
        self.shelf.pin_rosters(warden.declared().into_iter().chain(warden.promises().map(|promise| promise.roster)).collect());
    }

    /// Since when listed nodes are known to be gone for good: durable, because a day of it ends the wait for their word.
    fn reread_departed(&mut self) {
        let up_ms = self.presence.up_ms();
        let gone = self.shelf.departed().into_iter().filter(|node| self.shelf.is_listed(node));
        // A mark beyond the up time is from before that was lost.
        let since = |node: &NodeId| self.departed.get(node).copied().filter(|since| *since <= up_ms).unwrap_or(up_ms);
        let departed: BTreeMap<NodeId, u64> = gone.map(|node| (node, since(&node))).collect();
        if departed != self.departed {
            self.departed = departed;
            let value = encode(&self.departed);
            self.persist(&StoreKey::Departed, Some(value));
        }
    }

    fn reread_write_offs(&mut self) {
        let mut written_off: BTreeMap<NodeId, ClaimName> = BTreeMap::new();
        let mut note = |node: NodeId, claim: ClaimName| {
            let highest = written_off.entry(node).or_insert(claim);
            *highest = (*highest).max(claim);
        };
        for in_force in self.shelf.rollouts() {
            for entry in &in_force.rollout.forgiven {
                if let Some(claim) = entry.claim {
                    note(entry.node, claim);
                }
            }
        }
        for (_, roster) in self.shelf.rosters() {
            for entry in &roster.written_off {
                note(entry.node, entry.claim);
            }
        }
        self.written_off = written_off;
    }

    /// Takes the current generation of one rollout into account.
    fn follow(&mut self, id: &RolloutId, passed: Vec<Passed>) {
        let Some(in_force) = self.shelf.rollout(id) else { return };
        let known = self.following.get(id);
        let current = known.is_some_and(|following| following.digest == in_force.digest && following.progress.is_some());
        if current {
            return;
        }
        let rollout = in_force.rollout.clone();
        let digest = in_force.digest;
        let mut following = self.following.remove(id).unwrap_or(Following {
            digest,
            progress: None,
            listed: None,
            passed,
            stale: true,
            outlook: None,
        });
        let up_ms = self.presence.up_ms();
        let mut fresh = false;
        if let Some(members) = self.shelf.roster_members(&rollout.roster.digest) {
            let members: Vec<Member<'_>> = members
                .into_iter()
                .map(|(listed, certificate)| Member { id: listed.id, certificate, dormant: listed.dormant })
                .collect();
            let terms = self.pool_terms(&rollout.roster.digest, rollout.urgent);
            following.listed = members.iter().find(|member| member.id == self.me).map(|member| member.certificate.clone());
            match &mut following.progress {
                Some(progress) => progress.follow(&rollout, &members, &terms, up_ms),
                none => {
                    *none = Some(Progress::new(&rollout, &members, &terms, following.passed.clone(), up_ms));
                    fresh = true;
                }
            }
        }
        following.digest = digest;
        following.stale = true;
        if fresh {
            for (key, _) in self.ledger.entries().filter(|(key, _)| key.kind == RecordKind::Status) {
                self.hear_about(&mut following, &key.node);
            }
        }
        self.following.insert(id.clone(), following);
    }

    fn pool_terms(&self, roster: &Digest, urgent: bool) -> BTreeMap<Pool, PoolTerms> {
        let Some(map) = self.maps.get(roster) else { return BTreeMap::new() };
        map.pools()
            .map(|(pool, seats)| {
                let terms = PoolTerms {
                    slots: u32::from(seats.slots(urgent)),
                    start_within_seconds: seats.policy().start_within_seconds,
                };
                (pool.clone(), terms)
            })
            .collect()
    }

    pub(super) fn ask_for_rosters(&mut self) {
        for wanted in self.shelf.wanted_rosters().into_iter().chain(self.shelf.missing_forerunners()) {
            if self.asked_rosters.insert(wanted.digest) {
                self.effects.push(Effect::FetchRoster { digest: wanted.digest, size_bytes: wanted.size });
            }
        }
    }

    /// A node's record changed: every rollout hears of it.
    pub(super) fn hear(&mut self, node: &NodeId) {
        let mut all = core::mem::take(&mut self.following);
        for following in all.values_mut() {
            self.hear_about(following, node);
        }
        self.following = all;
    }

    fn hear_about(&self, following: &mut Following, node: &NodeId) {
        let Some(progress) = &mut following.progress else { return };
        let Some(report) = self.member_report(node, progress) else { return };
        let unlisted = wave_of(progress, node).is_none();
        let late = if unlisted && report.generation.is_some() { self.late_joiner(node, progress) } else { None };
        let heard_at = self.presence.heard_at_up_ms(node).unwrap_or_else(|| self.presence.up_ms());
        if let Some(certificate) = late {
            progress.join(&Member { id: *node, certificate: &certificate, dormant: false });
        }
        progress.hear(node, report, heard_at);
        following.stale = true;
    }

    /// The newest certificate of a node that the rollout's roster does not list, and its scope has.
    fn late_joiner(&self, node: &NodeId, progress: &Progress) -> Option<Certificate> {
        let certificate = self.shelf.certificate(node)?;
        let listed = self.shelf.roster(&progress.rollout().roster.digest)?.listed(node).is_some();
        (!listed && in_scope(&progress.rollout().scope, certificate)).then(|| certificate.clone())
    }

    /// What the mesh knows of `node` in one rollout.
    pub(super) fn member_report(&self, node: &NodeId, progress: &Progress) -> Option<MemberReport> {
        let rollout = progress.rollout();
        let gone = self.shelf.gone(node);
        let entry = self.ledger.entry(&RecordKey { node: *node, kind: RecordKind::Status });
        let mut report = match entry {
            // Who joined after it was gone has no record of it, and still it is no member that anything waits for.
            None => gone.map(|_| MemberReport::default())?,
            Some(entry) => self.report_of(node, entry, rollout)?,
        };
        if let Some(gone) = gone {
            report = report.gone(match gone {
                Gone::Retired => Skip::Retired,
                Gone::Revoked => Skip::Revoked,
                Gone::Removed => Skip::Removed,
            });
        }
        Some(report)
    }

    /// What a node's record says of `rollout`; a convict's two records together.
    fn report_of(&self, node: &NodeId, entry: &Entry, rollout: &Rollout) -> Option<MemberReport> {
        if self.ledger.is_convicted(node) {
            let mut statuses = entry.records().iter().filter_map(|record| record.status());
            let first = statuses.next()?;
            let second = statuses.next().unwrap_or(first);
            return Some(MemberReport::of_convict([first, second], rollout));
        }
        let Entry::Record(record) = entry else { return None };
        let mut report = MemberReport::of(record.status()?, rollout);
        if let Some(outcomes) = self.ledger.withdrawn_outcomes(node, &rollout.release.product, &rollout.id) {
            report.verdicts = outcomes;
        }
        Some(report)
    }

    /// Lets time pass in every rollout; keeps and tells what changed.
    pub(super) fn settle_rollouts(&mut self, now: Now) {
        let clock = self.clock(now);
        let moves = |following: &Following| {
            following.progress.as_ref().is_some_and(|progress| {
                let (up, wall) = progress.wakeup();
                following.stale || up.is_some_and(|up| up <= clock.up_ms) || wall.is_some_and(|wall| wall <= clock.wall)
            })
        };
        let mut told = Vec::new();
        for (id, following) in self.following.iter_mut().filter(|(_, following)| moves(following)) {
            let Some(progress) = &mut following.progress else { continue };
            following.stale = false;
            let changes = progress.settle(clock);
            let outlook = Some(progress.outlook(&self.me));
            self.stale.lives |= outlook != following.outlook || !changes.is_empty();
            following.outlook = outlook;
            told.extend(changes.into_iter().map(|change| (id.clone(), change)));
        }
        for (id, change) in told {
            self.note_change(&id, change);
        }
    }

    fn note_change(&mut self, id: &RolloutId, change: Change) {
        let rollout = id.clone();
        match change {
            Change::Opened(wave) => self.tell(Event::WaveOpened { rollout, wave }),
            Change::Passed(passed) => {
                let wave = passed.wave;
                let Some(following) = self.following.get_mut(id) else { return };
                let again = following.passed.iter().any(|known| known.wave == wave);
                following.passed.retain(|known| known.wave != wave);
                following.passed.push(passed);
                let value = encode(&following.passed);
                self.persist(&StoreKey::Passed(rollout.clone()), Some(value));
                if !again {
                    self.tell(Event::WavePassed { rollout, wave });
                }
            }
            Change::Halted(halted) => {
                self.duty.stale = true;
                self.tell(Event::Halted { rollout, wave: halted.wave, failures: halted.failures, applicable: halted.applicable });
            }
            Change::Unhalted => {
                self.duty.stale = true;
                self.tell(Event::Unhalted { rollout });
            }
        }
    }
}
