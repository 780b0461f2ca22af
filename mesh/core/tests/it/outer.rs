//! The outer door, its decisions: who was a member once, what a visitor may read and hand over, when a node goes visiting
//! and what it may do meanwhile.

use std::collections::BTreeSet;

use groundswell_core::crypto::{Crypto as _, SoftwareCrypto};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::certificate::Certificate;
use groundswell_core::documents::fleet::Fleet;
use groundswell_core::documents::rejection::{Reason, Rejection};
use groundswell_core::limits::{OUTER_AFTER_MS, VISIT_LONGEST_MS};
use groundswell_core::node::effect::{Accepted, Effect, Event};
use groundswell_core::node::input::{Input, Source, VisitEnd};
use groundswell_core::node::visiting::Why;
use groundswell_core::node::{AgentProduct, Node, NodeConfig};
use groundswell_core::node_id::NodeId;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::signed::{RecordBody, SignedRecord};
use groundswell_core::record::status::Status;
use groundswell_core::record::{RecordKey, RecordKind, Stamp};
use groundswell_core::text::{Platform, Pool};
use groundswell_core::time::{Now, Time};
use groundswell_core::trust::local::LocalTrust;
use groundswell_core::trust::shelf::{Shelf, Shown};

use crate::fixture::{Fixture, at, crypto, digest, node, offer, product, role, secret, sign};

/// To whom, where, and the record that goes along.
type Visit = (Option<NodeId>, Vec<String>, Option<Vec<u8>>);

/// The node whose certificate has the seed 31, at `ms` since it was switched on, an hour after everything was signed.
pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) ms: u64,
    pub(crate) wall: u64,
    kept: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) effects: Vec<Effect>,
}

impl Bench {
    fn new(fixture: &Fixture, stored: Vec<(Vec<u8>, Vec<u8>)>, bootstrap: &[&str]) -> Self {
        Self::with(fixture, stored, bootstrap, None)
    }

    /// Its one product is the agent itself, which a supervisor runs.
    pub(crate) fn of_the_agent(fixture: &Fixture) -> Self {
        let agent = AgentProduct { product: product(), supervised: true };
        Self::with(fixture, Vec::new(), &["/ip4/192.0.2.1/tcp/7070"], Some(agent))
    }

    fn with(fixture: &Fixture, stored: Vec<(Vec<u8>, Vec<u8>)>, bootstrap: &[&str], agent: Option<AgentProduct>) -> Self {
        let config = NodeConfig {
            fleet: fixture.id(),
            platform: Platform::new("linux-amd64").unwrap(),
            products: BTreeSet::from([product()]),
            lean: false,
            local_trust: LocalTrust::default(),
            bootstrap: bootstrap.iter().map(|address| (*address).to_owned()).collect(),
            silent: false,
            agent,
        };
        let now = Now { awake_ms: 0, boot: Time(0), wall: at(3600) };
        let crypto = Box::new(SoftwareCrypto::from_secret(&[31; 32]));
        let node = Node::open(config, crypto, [5; 32], stored, now).unwrap();
        let mut bench = Self { node, ms: 0, wall: 3600, kept: Vec::new(), effects: Vec::new() };
        bench.drain();
        bench
    }

    /// With the fleet document and the certificates of 31, 32, 33 and 34.
    fn member(fixture: &Fixture) -> Self {
        let mut bench = Self::new(fixture, Vec::new(), &["/ip4/192.0.2.1/tcp/7070"]);
        bench.document(fixture.fleet_bytes());
        for seed in [31, 32, 33, 34] {
            bench.document(fixture.certificate_bytes(&fixture.certificate(seed, 1)));
        }
        bench.come_home();
        bench
    }

    /// The visit of a node that knew no certificate of its own yet ends.
    pub(crate) fn come_home(&mut self) {
        self.feed(Input::Visited { keeper: None, end: VisitEnd::Failed });
        self.effects.clear();
    }

    pub(crate) fn now(&self) -> Now {
        Now { awake_ms: self.ms, boot: Time(self.ms), wall: at(self.wall + self.ms / 1_000) }
    }

    fn drain(&mut self) {
        for effect in self.node.take_effects() {
            if let Effect::Persist { key, value } = &effect {
                self.kept.retain(|(known, _)| known != key);
                self.kept.extend(value.clone().map(|value| (key.clone(), value)));
            }
            self.effects.push(effect);
        }
    }

    pub(crate) fn feed(&mut self, input: Input) {
        self.node.handle(self.now(), input);
        self.drain();
    }

    fn document(&mut self, bytes: Vec<u8>) {
        self.feed(Input::Document { bytes, source: Source::Peer(node(32)) });
    }

    /// Lets time pass in steps of ten minutes.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.ms + ms;
        while self.ms < end {
            self.ms = end.min(self.ms + 600_000);
            self.feed(Input::Wake);
        }
    }

    /// The visits asked for since the last call.
    fn visits(&mut self) -> Vec<Visit> {
        let visits = self.effects.drain(..).filter_map(|effect| match effect {
            Effect::Visit { peer, addresses, push } => Some((peer, addresses, push)),
            _ => None,
        });
        visits.collect()
    }

    fn up(&mut self, seed: u8) {
        self.feed(Input::PeerUp { peer: node(seed), dialled: false, address: None });
    }
}

fn status_of(fixture: &Fixture, seed: u8, counter: u64) -> SignedRecord {
    record_of(fixture, seed, counter, RecordBody::Status(Status::default()))
}

fn record_of(fixture: &Fixture, seed: u8, counter: u64, body: RecordBody) -> SignedRecord {
    let crypto = SoftwareCrypto::from_secret(&[seed; 32]);
    SignedRecord::sign(&fixture.id(), Stamp { incarnation: 1, counter }, body, &crypto).unwrap()
}

fn second_fleet(fixture: &Fixture, change: impl FnOnce(&mut Fleet)) -> Vec<u8> {
    let mut fleet = fixture.fleet.clone();
    fleet.fleet = Some(fixture.id());
    fleet.version = 2;
    fleet.previous = Some(digest(&Body::Fleet(fixture.fleet.clone())));
    fleet.issued_at = at(60);
    change(&mut fleet);
    sign(&Body::Fleet(fleet), &[&fixture.root])
}

fn judge_former(shelf: &Shelf, peer: &NodeId, published: &[u8]) -> Result<(), Rejection> {
    let shown = Shown::look(published, &shelf.fleet_id(), &shelf.enrolling_keys(), &crypto())?;
    shelf.would_be_former(peer, &shown)
}

#[test]
fn who_was_a_member_once_is_told_by_the_signature_under_some_fleet_version() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let expired = Certificate { expires_at: Some(at(10)), ..fixture.certificate(31, 1) };
    let published = fixture.certificate_bytes(&expired);
    assert_eq!(judge_former(&shelf, &node(31), &published), Ok(()));
    assert!(!shelf.was_member(&node(31)), "it is not here");
    offer(&mut shelf, &published).unwrap();
    assert!(shelf.was_member(&node(31)) && shelf.member(&node(31), at(3600)).is_err());

    // Its key is removed; nobody can come with one that the removed key signed for another fleet, node or nobody.
    let other = secret(77);
    offer(&mut shelf, &second_fleet(&fixture, |fleet| fleet.roles.enroll = role(&[&other], 1))).unwrap();
    assert!(!shelf.was_member(&node(31)), "a new version takes off the shelf what it does not vouch for");
    assert_eq!(judge_former(&shelf, &node(31), &published), Ok(()));
    let why = |shelf: &Shelf, peer: u8, bytes: &[u8]| judge_former(shelf, &node(peer), bytes).unwrap_err().reason;
    assert_eq!(why(&shelf, 32, &published), Reason::Malformed, "another's");
    let forged = sign(&Body::Node(expired.clone()), &[&secret(99)]);
    assert_eq!(why(&shelf, 31, &forged), Reason::UnknownKey);
    let foreign = Certificate { fleet: Digest::of(b"another fleet"), ..expired.clone() };
    assert_eq!(why(&shelf, 31, &fixture.certificate_bytes(&foreign)), Reason::Fleet);
    let retired = Certificate { retired: true, ..expired.clone() };
    assert_eq!(why(&shelf, 31, &fixture.certificate_bytes(&retired)), Reason::Revoked);
    assert_eq!(why(&shelf, 31, b"{}"), Reason::Malformed);
    assert_eq!(why(&shelf, 31, &fixture.fleet_bytes()), Reason::Malformed, "no certificate");
    assert_eq!(why(&shelf, 31, &vec![b' '; 300 * 1024]), Reason::TooLarge);
}

#[test]
fn whom_root_revoked_who_retired_and_whose_certificate_is_void_was_never_a_member() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let first = fixture.certificate(31, 1);
    offer(&mut shelf, &fixture.certificate_bytes(&first)).unwrap();
    let twin = Certificate { name: "twin".parse().unwrap(), ..first.clone() };
    offer(&mut shelf, &fixture.certificate_bytes(&twin)).unwrap();
    assert!(!shelf.was_member(&node(31)));
    assert_eq!(shelf.newest_bodies(&node(31)).len(), 2, "the visitor may see why");
    let judged = judge_former(&shelf, &node(31), &fixture.certificate_bytes(&first));
    assert_eq!(judged.unwrap_err().reason, Reason::Conflict);

    let second = fixture.certificate(32, 1);
    offer(&mut shelf, &fixture.certificate_bytes(&second)).unwrap();
    assert!(shelf.was_member(&node(32)));
    offer(&mut shelf, &second_fleet(&fixture, |fleet| fleet.revoked = vec![node(32)])).unwrap();
    assert!(!shelf.was_member(&node(32)));
    let judged = judge_former(&shelf, &node(32), &fixture.certificate_bytes(&second));
    assert_eq!(judged.unwrap_err().reason, Reason::Revoked);
}

#[test]
fn the_chain_of_fleet_documents_is_given_from_any_version_on_and_the_one_gone_by_comes_first() {
    let fixture = Fixture::new();
    let mut shelf = fixture.shelf();
    let two = second_fleet(&fixture, |_| {});
    let rival = second_fleet(&fixture, |fleet| fleet.revoked = vec![node(9)]);
    let second = offer(&mut shelf, &two).unwrap().digest;
    let other = offer(&mut shelf, &rival).unwrap().digest;
    assert_eq!(shelf.fleets_after(0).collect::<Vec<_>>(), [fixture.id(), second, other]);
    assert_eq!(shelf.fleets_after(1).collect::<Vec<_>>(), [second, other]);
    assert_eq!(shelf.fleets_after(2).count() + shelf.fleets_after(u64::MAX).count(), 0);
    // A stranger walks them as they come.
    let mut stranger = fixture.empty_shelf();
    for digest in shelf.fleets_after(0) {
        offer(&mut stranger, shelf.envelope(&digest).unwrap()).unwrap();
    }
    assert_eq!(stranger.fleet_digest(), Some(second));
    assert!(stranger.fleet_conflicted());
}

#[test]
fn s7_only_a_members_own_status_is_taken_at_the_door() {
    let fixture = Fixture::new();
    let mut bench = Bench::member(&fixture);
    let known = |bench: &Bench, seed: u8| bench.node.ledger().stamp(&RecordKey { node: node(seed), kind: RecordKind::Status });
    let push = |bench: &mut Bench, by: u8, record: &SignedRecord| {
        bench.feed(Input::Pushed { peer: node(by), bytes: record.bytes().to_vec() });
    };
    push(&mut bench, 32, &status_of(&fixture, 33, 1));
    assert_eq!(known(&bench, 33), None, "another's");
    push(&mut bench, 90, &status_of(&fixture, 90, 1));
    assert_eq!(known(&bench, 90), None, "no member's");
    let grants = record_of(&fixture, 32, 1, RecordBody::Grants(Grants::default()));
    push(&mut bench, 32, &grants);
    assert_eq!(bench.node.ledger().len(), 0, "grants are not pushed");
    let mut forged = status_of(&fixture, 32, 1).bytes().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    bench.feed(Input::Pushed { peer: node(32), bytes: forged });
    assert_eq!(known(&bench, 32), None, "forged");
    push(&mut bench, 32, &status_of(&fixture, 32, 1));
    assert_eq!(known(&bench, 32), Some(Stamp { incarnation: 1, counter: 1 }));
    // An expired certificate keeps its node from handing anything over.
    let expired = Certificate { expires_at: Some(at(10)), ..fixture.certificate(33, 2) };
    bench.document(fixture.certificate_bytes(&expired));
    push(&mut bench, 33, &status_of(&fixture, 33, 1));
    assert_eq!(known(&bench, 33), None);
}

#[test]
fn a_visitor_reads_the_records_of_its_pool_and_its_rollouts_and_nobody_elses() {
    let fixture = Fixture::new();
    let mut bench = Bench::member(&fixture);
    let elsewhere = Certificate { pool: Some(Pool::new("core").unwrap()), ..fixture.certificate(40, 1) };
    bench.document(fixture.certificate_bytes(&elsewhere));
    for seed in [32, 33, 40] {
        bench.feed(Input::Pushed { peer: node(seed), bytes: status_of(&fixture, seed, 7).bytes().to_vec() });
    }
    let stamps = |bench: &Bench, visitor: u8, kind| -> Vec<NodeId> {
        let reads = bench.node.reads(node(visitor), kind);
        let all = bench.node.stamps_for(&reads, NodeId([0; 32]));
        all.filter_map(|(node, stamp)| stamp.map(|_| node)).collect()
    };
    let mut pool = vec![node(32), node(33)];
    pool.sort_unstable();
    assert_eq!(stamps(&bench, 34, RecordKind::Status), pool);
    assert_eq!(stamps(&bench, 40, RecordKind::Status), [node(40)], "another pool, and its own");
    assert_eq!(stamps(&bench, 90, RecordKind::Status), [], "no certificate");
    assert_eq!(stamps(&bench, 34, RecordKind::Grants), []);
    let records = |visitor| {
        let reads = bench.node.reads(node(visitor), RecordKind::Status);
        bench.node.record_for(&reads, node(32)).len()
    };
    assert_eq!((records(34), records(40), records(90)), (1, 0, 0));
    let reads = bench.node.reads(node(34), RecordKind::Status);
    let after = bench.node.stamps_for(&reads, pool[0]).filter(|(_, stamp)| stamp.is_some()).count();
    assert_eq!(after, 1, "from any entry on");

    // A rollout that has the visitor in its scope shows it everybody in its roster.
    let release = fixture.release("1.0.0", 1);
    let roster = fixture.roster(1, &[fixture.certificate(31, 1), fixture.certificate(32, 1), elsewhere]);
    bench.document(fixture.release_bytes(&release));
    bench.feed(Input::Roster { bytes: fixture.roster_bytes(&roster), source: Source::Peer(node(32)) });
    bench.document(fixture.signed(&fixture.rollout("rollout_a", &release, &roster)));
    if bench.node.shelf().rollouts().next().is_some() {
        assert!(stamps(&bench, 34, RecordKind::Status).contains(&node(40)));
    } else {
        panic!("the rollout is not in force: {:?}", bench.effects);
    }
}

#[test]
fn a_node_visits_after_a_day_with_too_few_peers_and_not_before_and_a_restart_forgets_little_of_it() {
    let fixture = Fixture::new();
    let mut bench = Bench::member(&fixture);
    bench.up(32);
    bench.up(33);
    bench.pass(OUTER_AFTER_MS - 600_000);
    assert_eq!(bench.node.outer_door(), None);
    assert_eq!(bench.visits().len(), 0);
    // A restart just before: at most ten minutes of the count are lost.
    let mut again = Bench::new(&fixture, bench.kept.clone(), &["/ip4/192.0.2.1/tcp/7070"]);
    again.up(32);
    again.up(33);
    again.pass(1_300_000);
    assert_eq!(again.node.outer_door(), Some(&Why::FewMembers { have: 2, need: 3 }));
    let told = again.effects.iter().any(|effect| matches!(effect, Effect::Event(Event::OuterDoor { why: Some(_) })));
    assert!(told);
    assert_eq!(again.visits().len(), 1, "one visit at a time");
    again.pass(600_000);
    assert_eq!(again.visits().len(), 0);
    // Enough peers end it at once, and the count begins anew.
    again.up(34);
    assert_eq!(again.node.outer_door(), None);
    again.feed(Input::PeerDown { peer: node(34) });
    again.pass(OUTER_AFTER_MS - 600_000);
    assert_eq!(again.node.outer_door(), None);
    again.pass(600_000);
    assert!(again.node.outer_door().is_some());
}

#[test]
fn three_peers_or_all_others_where_there_are_fewer_are_enough() {
    let fixture = Fixture::new();
    let mut bench = Bench::new(&fixture, Vec::new(), &[]);
    bench.document(fixture.fleet_bytes());
    bench.document(fixture.certificate_bytes(&fixture.certificate(31, 1)));
    bench.pass(2 * OUTER_AFTER_MS);
    assert_eq!(bench.node.outer_door(), None, "a fleet of one, and nobody to ask");
    bench.document(fixture.certificate_bytes(&fixture.certificate(32, 1)));
    bench.up(32);
    bench.pass(2 * OUTER_AFTER_MS);
    assert_eq!(bench.node.outer_door(), None, "a fleet of two");
    bench.feed(Input::PeerDown { peer: node(32) });
    bench.pass(OUTER_AFTER_MS);
    assert_eq!(bench.node.outer_door(), Some(&Why::FewMembers { have: 0, need: 1 }));
}

#[test]
fn an_expired_certificate_sends_a_node_visiting_at_once_and_a_newer_one_ends_it() {
    let fixture = Fixture::new();
    let mut bench = Bench::new(&fixture, Vec::new(), &["/ip4/192.0.2.1/tcp/7070"]);
    bench.document(fixture.fleet_bytes());
    let short = Certificate { expires_at: Some(at(3600 + 60)), ..fixture.certificate(31, 1) };
    bench.document(fixture.certificate_bytes(&short));
    assert!(bench.node.outer_door().is_none());
    bench.come_home();
    bench.pass(61_000);
    assert!(matches!(bench.node.outer_door(), Some(Why::NotMember(why)) if why.contains("expired")));
    let visits = bench.visits();
    assert_eq!(visits, [(None, vec!["/ip4/192.0.2.1/tcp/7070".to_owned()], None)]);
    bench.document(fixture.certificate_bytes(&fixture.certificate(31, 2)));
    assert_eq!(bench.node.outer_door(), None);
    bench.feed(Input::Visited { keeper: Some(node(32)), end: VisitEnd::Complete });
    assert!(bench.visits().is_empty());
}

#[test]
fn l2_whoever_is_a_member_again_dials_at_once_whoever_refused_it_before() {
    let fixture = Fixture::new();
    let mut bench = Bench::new(&fixture, Vec::new(), &["/ip4/192.0.2.1/tcp/7070"]);
    bench.document(fixture.fleet_bytes());
    let short = Certificate { expires_at: Some(at(3600 + 60)), ..fixture.certificate(31, 1) };
    bench.document(fixture.certificate_bytes(&short));
    bench.pass(3_600_000);
    let dials =
        |bench: &mut Bench| std::mem::take(&mut bench.effects).iter().filter(|it| matches!(it, Effect::Dial { .. })).count();
    dials(&mut bench);
    // A dial at whose end it was refused is no failed one: it takes its whole time.
    bench.feed(Input::Wake);
    assert_eq!(dials(&mut bench), 0, "after an hour in vain the next one is minutes away");
    bench.document(fixture.certificate_bytes(&fixture.certificate(31, 2)));
    bench.feed(Input::Wake);
    assert_eq!(dials(&mut bench), 1);
}

#[test]
fn visits_in_vain_are_paced_ever_more_slowly_and_one_that_never_ends_is_given_up() {
    let fixture = Fixture::new();
    let mut bench = Bench::new(&fixture, Vec::new(), &["/ip4/192.0.2.1/tcp/7070"]);
    bench.document(fixture.fleet_bytes());
    let mut times = Vec::new();
    for _ in 0..600 {
        if !bench.visits().is_empty() {
            times.push(bench.ms);
            bench.feed(Input::Visited { keeper: None, end: VisitEnd::Failed });
        }
        bench.ms += 1_000;
        bench.feed(Input::Wake);
    }
    assert!((6..=10).contains(&times.len()), "{times:?}");
    // One that is never heard of again.
    while bench.visits().is_empty() {
        bench.ms += 1_000;
        bench.feed(Input::Wake);
    }
    bench.pass(VISIT_LONGEST_MS - 1_000);
    assert!(bench.visits().is_empty());
    bench.pass(1_200_000);
    assert_eq!(bench.visits().len(), 1);
}

#[test]
fn nobody_is_visited_again_in_vain_before_all_others_were_tried() {
    let fixture = Fixture::new();
    let given: Vec<String> = (1..=8).map(|n| format!("/ip4/192.0.2.{n}/tcp/7070")).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let mut bench = Bench::new(&fixture, Vec::new(), &given);
    bench.document(fixture.fleet_bytes());
    let mut tried = Vec::new();
    while tried.len() < 16 {
        for (_, addresses, _) in bench.visits() {
            tried.extend(addresses);
            // Somebody is there who takes all the time that there is.
            bench.feed(Input::Visited { keeper: Some(node(90)), end: VisitEnd::Failed });
        }
        bench.ms += 10_000;
        bench.feed(Input::Wake);
    }
    for round in tried.chunks(8) {
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 8, "{tried:?}");
    }
}

#[test]
fn a_complete_visit_at_a_members_door_is_as_good_as_a_sync_and_one_at_a_strangers_is_not() {
    let fixture = Fixture::new();
    let mut bench = Bench::member(&fixture);
    bench.pass(OUTER_AFTER_MS);
    assert_eq!(bench.visits().len(), 1);
    bench.feed(Input::Visited { keeper: Some(node(90)), end: VisitEnd::Complete });
    assert!(!bench.node.has_synced(), "it may have kept back what this node had signed");
    bench.feed(Input::Visited { keeper: Some(node(32)), end: VisitEnd::Partial });
    assert!(!bench.node.has_synced());
    bench.feed(Input::Visited { keeper: Some(node(32)), end: VisitEnd::Complete });
    assert!(bench.node.has_synced());
    // Now it says something of itself, and takes that along soon.
    let own = bench.node.ledger().stamp(&RecordKey { node: bench.node.id(), kind: RecordKind::Status });
    assert!(own.is_some());
    bench.ms += 1_000;
    bench.feed(Input::Wake);
    let visits = bench.visits();
    assert_eq!(visits.len(), 1);
    let record = SignedRecord::verify(&fixture.id(), visits[0].2.as_ref().unwrap(), &crypto()).unwrap();
    assert_eq!((record.key().node, Some(record.stamp())), (bench.node.id(), own));
    assert_eq!(SoftwareCrypto::from_secret(&[31; 32]).node(), bench.node.id());
}

#[test]
fn a_stranger_that_says_it_gave_everything_is_a_visit_in_vain() {
    let fixture = Fixture::new();
    let mut bench = Bench::new(&fixture, Vec::new(), &["/ip4/192.0.2.1/tcp/7070"]);
    bench.document(fixture.fleet_bytes());
    let mut visits = 0;
    // At five minutes each, complete visits would be three; in vain, the pauses begin with two seconds.
    for _ in 0..600 {
        if !bench.visits().is_empty() {
            visits += 1;
            bench.feed(Input::Visited { keeper: Some(node(90)), end: VisitEnd::Complete });
        }
        bench.ms += 1_000;
        bench.feed(Input::Wake);
    }
    assert!(visits >= 6, "{visits}");
}

#[test]
fn a_visit_hears_what_became_of_each_document_once_it_is_on_disk() {
    let fixture = Fixture::new();
    let mut bench = Bench::new(&fixture, Vec::new(), &[]);
    let certificate = fixture.certificate_bytes(&fixture.certificate(31, 1));
    let brought = |bench: &mut Bench, ticket: u64, bytes: Vec<u8>| {
        bench.effects.clear();
        bench.feed(Input::Document { bytes, source: Source::Visit { keeper: node(32), ticket } });
        let at = bench.effects.iter().position(|effect| matches!(effect, Effect::Answer { .. })).expect("an answer");
        let kept = bench.effects.iter().take(at).any(|effect| matches!(effect, Effect::Persist { value: Some(_), .. }));
        let Effect::Answer { ticket: answered, outcome } = bench.effects.swap_remove(at) else { panic!("an answer") };
        assert_eq!(answered, ticket);
        (outcome.map_err(|rejection| rejection.reason), kept)
    };
    // A keeper that withholds the fleet document: the same bytes are taken once that is here.
    assert_eq!(brought(&mut bench, 1, certificate.clone()), (Err(Reason::Fleet), false));
    let revision = bench.node.shelf().revision();
    let fleet = brought(&mut bench, 2, fixture.fleet_bytes());
    assert_eq!(fleet, (Ok(Accepted::New(fixture.id())), true));
    assert!(bench.node.shelf().revision() > revision, "so what was refused before may be asked for again");
    let (outcome, kept) = brought(&mut bench, 3, certificate.clone());
    assert!(matches!(outcome, Ok(Accepted::New(_))) && kept);
    let own = digest(&Body::Node(fixture.certificate(31, 1)));
    assert_eq!(bench.node.shelf().published(&own), Some(Digest::of(&certificate)));
    assert_eq!(brought(&mut bench, 4, certificate), (Ok(Accepted::Known(own)), false));
}

#[test]
fn records_that_a_keeper_shows_are_verified_like_any_other() {
    let fixture = Fixture::new();
    let mut bench = Bench::member(&fixture);
    let good = status_of(&fixture, 32, 1).bytes().to_vec();
    let twin = {
        let status = Status { lean: true, ..Status::default() };
        record_of(&fixture, 33, 4, RecordBody::Status(status)).bytes().to_vec()
    };
    let proof = vec![status_of(&fixture, 33, 4).bytes().to_vec(), twin];
    let mut forged = status_of(&fixture, 34, 1).bytes().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let records = vec![vec![good], proof, vec![forged], vec![b"noise".to_vec()], vec![]];
    bench.feed(Input::Shown { keeper: node(90), records });
    let key = |seed| RecordKey { node: node(seed), kind: RecordKind::Status };
    assert!(bench.node.ledger().record(&key(32)).is_some());
    assert!(bench.node.ledger().is_convicted(&node(33)));
    assert!(bench.node.ledger().entry(&key(34)).is_none());
    let stamp = Stamp { incarnation: 1, counter: 1 };
    assert!(bench.node.has_record(&key(32), stamp) && !bench.node.has_record(&key(32), Stamp { counter: 2, ..stamp }));
    assert!(bench.node.has_record(&key(33), Stamp::PROOF) && !bench.node.has_record(&key(34), stamp));
}
