//! An agent's device beside a helper that answers what a test says: refusals, silence, broken connections.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use groundswell_agent::config::{Activator, HelperActivator, ProductConfig};
use groundswell_agent::helper::channel;
use groundswell_agent::helper::wire::{
    GoingBack, Kind, LastFailure, Order, Outcome, Reply, State, TakenBack, Why, decode_order, encode_reply,
};
use groundswell_agent::install::ending::Grace;
use groundswell_agent::install::slots::Room;
use groundswell_agent::install::{ArtifactSource, Device, Settings};
use groundswell_core::digest::Digest;
use groundswell_core::install::Boot;
use groundswell_core::node::effect::{Install, Step};
use groundswell_core::node::input::{Fault, Report, WentBack};
use groundswell_core::number::Sequence;
use groundswell_core::record::status::HoldCode;
use groundswell_core::text::{Product, Reason};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::workshop::{PATIENCE, Workshop, claim, product};

/// What the helper does about the next order that is not about its state.
#[derive(Clone)]
enum Answer {
    Outcome(Outcome),
    Refuse(Why, &'static str),
    /// Then it ends the connection, as one that idled.
    Last(Outcome),
    HangUp,
}

/// What the helper has got so far.
#[derive(Default)]
struct Seen {
    documents: Vec<Vec<u8>>,
    orders: Vec<Order>,
    files: Vec<Vec<u8>>,
}

struct Source {
    files: Arc<dyn ArtifactSource>,
    papers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl ArtifactSource for Source {
    fn open(&self, sha256: &Digest) -> io::Result<File> {
        self.files.open(sha256)
    }

    fn papers(&self, _: &Product) -> Vec<Vec<u8>> {
        self.papers.lock().unwrap().clone()
    }
}

fn state() -> State {
    State {
        running: None,
        floor: Sequence::default(),
        trial: None,
        reverted: None,
        staged: None,
        denied: Vec::new(),
        launch: None,
    }
}

/// Answers on `socket`, first these answers and then none any more.
fn helper(socket: PathBuf, answers: Vec<Answer>) -> (Arc<Mutex<Seen>>, JoinHandle<()>) {
    helper_with(socket, state(), answers)
}

/// The same, where this is what slots and journal say.
fn helper_with(socket: PathBuf, found: State, answers: Vec<Answer>) -> (Arc<Mutex<Seen>>, JoinHandle<()>) {
    helper_that_says(socket, Reply::Failed(None), Reply::State(found), answers)
}

/// The same, which says this of what failed last.
fn helper_that_says(socket: PathBuf, failed: Reply, found: Reply, answers: Vec<Answer>) -> (Arc<Mutex<Seen>>, JoinHandle<()>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let told = Arc::clone(&seen);
    let listener = UnixListener::bind(socket).unwrap();
    let task = tokio::spawn(async move {
        let mut answers = VecDeque::from(answers);
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            while let Ok(Some(frame)) = channel::read(&mut stream, &[Kind::Document, Kind::Order]).await {
                let mut last = false;
                let reply = if frame.kind == Kind::Document {
                    told.lock().unwrap().documents.push(frame.body.clone());
                    Reply::Taken { digest: Digest::of(&frame.body), fresh: true }
                } else {
                    let order = decode_order(&frame.body).unwrap();
                    if matches!(order, Order::State { .. }) {
                        found.clone()
                    } else if matches!(order, Order::Failed { .. }) {
                        // A helper that takes it for no frame ends the connection.
                        last = matches!(failed, Reply::Refused { .. });
                        failed.clone()
                    } else {
                        let mut seen = told.lock().unwrap();
                        seen.orders.push(order);
                        if let Some(mut file) = frame.file {
                            let mut bytes = Vec::new();
                            file.rewind().unwrap();
                            file.read_to_end(&mut bytes).unwrap();
                            seen.files.push(bytes);
                        }
                        match answers.pop_front().expect("one more order than this test has answers for") {
                            Answer::Outcome(outcome) => Reply::Done { outcome, state: state() },
                            Answer::Refuse(why, text) => Reply::Refused { why, text: Reason::lossy(text) },
                            Answer::Last(outcome) => {
                                last = true;
                                Reply::Done { outcome, state: state() }
                            }
                            Answer::HangUp => break,
                        }
                    }
                };
                channel::write(&mut stream, Kind::Reply, &encode_reply(&reply), None).await.unwrap();
                if last {
                    break;
                }
            }
        }
    });
    (seen, task)
}

struct Bench {
    workshop: Workshop,
    device: Device,
    reports: mpsc::Receiver<(Product, Report)>,
    papers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Bench {
    fn start() -> Self {
        let workshop = Workshop::noting_starts();
        let socket = workshop.path("helper.sock");
        let config = ProductConfig { activator: Activator::Helper(HelperActivator { socket }), ..workshop.config.clone() };
        let settings = Settings {
            product: product(),
            folder: workshop.home().to_owned(),
            config,
            room: Room::ENDLESS,
            boot: Boot("first".to_owned()),
            own: None,
            block_interval: Duration::from_millis(20),
            grace: Grace::default(),
        };
        let papers = Arc::new(Mutex::new(vec![b"one".to_vec(), b"two".to_vec()]));
        let source = Source { files: workshop.shelf(), papers: Arc::clone(&papers) };
        let (sender, reports) = mpsc::channel(64);
        let device = Device::start(settings, Arc::new(source), sender).unwrap();
        Self { workshop, device, reports, papers }
    }

    fn socket(&self) -> PathBuf {
        self.workshop.path("helper.sock")
    }

    /// The next report that is wanted.
    async fn until<T>(&mut self, want: impl Fn(Report) -> Option<T>) -> T {
        let look = async {
            loop {
                let (_, report) = self.reports.recv().await.expect("the device runs");
                if let Some(wanted) = want(report) {
                    return wanted;
                }
            }
        };
        timeout(PATIENCE, look).await.expect("such a report")
    }

    async fn stage(&mut self, install: &Install) -> Report {
        self.device.step(Step::Stage { install: install.clone() }).unwrap();
        self.until(|report| matches!(report, Report::Staged { .. } | Report::StageFailed { .. }).then_some(report)).await
    }

    async fn activate(&mut self, install: &Install) -> Report {
        self.device.step(Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).unwrap();
        self.until(|report| matches!(report, Report::Activated { .. } | Report::ActivateFailed { .. }).then_some(report)).await
    }
}

#[tokio::test]
async fn documents_are_shown_once_and_the_open_artifact_is_handed_over() {
    let mut bench = Bench::start();
    let (seen, _helper) = helper(bench.socket(), vec![Answer::Outcome(Outcome::Staged), Answer::Outcome(Outcome::Activated)]);
    let install = bench.workshop.release(1, "echo one");
    assert_eq!(bench.stage(&install).await, Report::Staged { release: install.release });
    assert_eq!(bench.activate(&install).await, Report::Activated { release: install.release });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.documents, [b"one", b"two"]);
    assert_eq!(seen.files, [b"#!/bin/sh\n# release 1\necho one\n"]);
    let (product, release) = (product(), install.release);
    let activate = Order::Activate { product: product.clone(), release, claim: claim() };
    assert_eq!(seen.orders, [Order::Stage { product, release }, activate]);
    assert!(!bench.workshop.product_folder().exists(), "the agent has no slots of its own");
}

#[tokio::test]
async fn a_switch_is_asked_for_by_the_documents_of_the_moment_it_was_decided() {
    let mut bench = Bench::start();
    let install = bench.workshop.release(1, "echo one");
    // The step waits for a helper; meanwhile the mesh brings more.
    bench.device.step(Step::Activate { install: install.clone(), claim: claim(), within_ms: 900_000 }).unwrap();
    bench.papers.lock().unwrap().push(b"three".to_vec());
    let (seen, _helper) = helper(bench.socket(), vec![Answer::Outcome(Outcome::Activated)]);
    bench.until(|report| matches!(report, Report::Activated { .. }).then_some(())).await;
    assert_eq!(seen.lock().unwrap().documents, [b"one", b"two"]);
}

#[tokio::test]
async fn what_is_held_is_asked_for_again_and_what_is_refused_is_told_in_the_helpers_words() {
    let mut bench = Bench::start();
    let held = Answer::Refuse(Why::Held, "paused");
    let answers = vec![held.clone(), held, Answer::Outcome(Outcome::Staged), Answer::Refuse(Why::Warrant, "not for this node")];
    let (seen, _helper) = helper(bench.socket(), answers);
    let install = bench.workshop.release(1, "echo one");
    assert_eq!(bench.stage(&install).await, Report::Staged { release: install.release });
    assert_eq!(seen.lock().unwrap().orders.len(), 3);
    match bench.stage(&install).await {
        Report::StageFailed { fault: Fault::Broken, reason, .. } => {
            assert_eq!(reason.as_str(), "the helper refuses: not for this node");
        }
        report => panic!("{report:?}"),
    }
}

#[tokio::test]
async fn a_full_disk_of_the_helpers_is_a_full_disk() {
    let mut bench = Bench::start();
    let reason = Reason::lossy("disk-full: no space");
    let answers = vec![
        Answer::Outcome(Outcome::StageFailed { disk_full: true, reason: reason.clone() }),
        Answer::Refuse(Why::Disk, "no space for documents"),
    ];
    let (_seen, _helper) = helper(bench.socket(), answers);
    let install = bench.workshop.release(1, "echo one");
    for _ in 0..2 {
        assert!(matches!(bench.stage(&install).await, Report::StageFailed { fault: Fault::DiskFull, .. }));
    }
}

#[tokio::test]
async fn a_helper_that_breaks_off_in_the_middle_is_asked_again() {
    let mut bench = Bench::start();
    let answers = vec![
        Answer::HangUp,
        Answer::Outcome(Outcome::Activated),
        Answer::HangUp,
        Answer::Outcome(Outcome::Again),
        Answer::Outcome(Outcome::Confirmed),
    ];
    let (seen, _helper) = helper(bench.socket(), answers);
    let install = bench.workshop.release(1, "echo one");
    assert_eq!(bench.activate(&install).await, Report::Activated { release: install.release });
    bench.device.step(Step::Confirm { release: install.release }).unwrap();
    bench.until(|report| matches!(report, Report::Confirmed { .. }).then_some(())).await;
    assert_eq!(seen.lock().unwrap().orders.len(), 5);
}

#[tokio::test]
async fn a_connection_that_was_ended_between_two_orders_is_made_anew_without_a_word() {
    let mut bench = Bench::start();
    let answers = vec![Answer::Last(Outcome::Staged), Answer::Last(Outcome::Activated), Answer::Outcome(Outcome::Confirmed)];
    let (seen, _helper) = helper(bench.socket(), answers);
    bench.until(|report| matches!(report, Report::Blocked(_)).then_some(())).await;
    let install = bench.workshop.release(1, "echo one");
    let release = install.release;
    let claim = claim();
    for step in [
        Step::Stage { install: install.clone() },
        Step::Activate { install, claim, within_ms: 900_000 },
        Step::Confirm { release },
    ] {
        bench.device.step(step).unwrap();
        let report = bench.until(|report| (!matches!(report, Report::Health(_) | Report::Policy(_))).then_some(report)).await;
        let answers = matches!(report, Report::Staged { .. } | Report::Activated { .. } | Report::Confirmed { .. });
        assert!(answers, "{report:?}");
    }
    assert_eq!(seen.lock().unwrap().orders.len(), 3);
}

#[tokio::test]
async fn a_refused_switch_goes_back_and_the_way_back_is_asked_for() {
    let mut bench = Bench::start();
    let reverted = Outcome::Reverted { running: None, output: Reason::lossy("gone") };
    let (seen, _helper) =
        helper(bench.socket(), vec![Answer::Refuse(Why::Denied, "failed here before"), Answer::Outcome(reverted)]);
    let install = bench.workshop.release(1, "echo one");
    let Report::ActivateFailed { reason, .. } = bench.activate(&install).await else { panic!("it was refused") };
    assert!(reason.contains("failed here before"), "{}", reason.as_str());
    let reason = Reason::lossy("refused");
    bench.device.step(Step::Revert { release: install.release, reason: reason.clone(), at_fault: false }).unwrap();
    bench.until(|report| matches!(report, Report::Reverted { running: None, .. }).then_some(())).await;
    let revert = Order::Revert { product: product(), release: install.release, reason, at_fault: false };
    assert_eq!(seen.lock().unwrap().orders.last(), Some(&revert));
}

#[tokio::test]
async fn b2_who_is_to_blame_for_a_switch_that_failed_is_what_the_helper_says_and_no_release_for_one_that_was_not_tried() {
    let mut bench = Bench::start();
    let failed = |at_fault| Answer::Outcome(Outcome::ActivateFailed { reason: Reason::lossy("it says why"), at_fault });
    let cases = [
        (failed(false), false),
        (failed(true), true),
        (Answer::Refuse(Why::Held, "it says why: paused"), false),
        (Answer::Refuse(Why::Warrant, "it says why: aborted"), false),
        (Answer::Refuse(Why::Denied, "it says why: failed here before"), true),
    ];
    let (_seen, _helper) = helper(bench.socket(), cases.iter().map(|(answer, _)| answer.clone()).collect());
    let install = bench.workshop.release(1, "echo one");
    for (number, (_, blamed)) in cases.iter().enumerate() {
        let Report::ActivateFailed { reason, at_fault, .. } = bench.activate(&install).await else { panic!("it failed") };
        assert!(reason.contains("it says why"), "{reason}");
        assert_eq!(at_fault, *blamed, "{number}: {reason}");
    }
}

#[tokio::test]
async fn b2_who_is_to_blame_for_a_trial_that_the_helpers_start_took_back_is_what_the_helper_says() {
    for at_fault in [false, true] {
        let mut bench = Bench::start();
        let release = Digest::of(b"release");
        let reverted = Some(TakenBack { release, reason: Reason::lossy("no"), at_fault });
        let (_seen, _helper) = helper_with(bench.socket(), State { reverted, ..state() }, Vec::new());
        let recovered =
            bench.until(|report| if let Report::Recovered(recovered) = report { Some(recovered) } else { None }).await;
        assert_eq!((recovered.reverted, recovered.at_fault), (Some((release, Reason::lossy("no"))), at_fault));
    }
}

#[tokio::test]
async fn s6_a_way_back_of_the_helpers_that_does_not_end_is_told_as_one_and_not_as_what_is_at_rest() {
    let mut bench = Bench::start();
    let (release, reason) = (Digest::of(b"release"), Reason::lossy("unhealthy"));
    let going_back = GoingBack { release, reason: reason.clone(), at_fault: true, claim: Some(claim()) };
    let staged = Some(Digest::of(b"newer"));
    let told = Reply::GoesBack(going_back, State { staged, ..state() });
    let (_seen, _helper) = helper_that_says(bench.socket(), Reply::Failed(None), told, Vec::new());
    let recovered = bench.until(|report| if let Report::Recovered(recovered) = report { Some(recovered) } else { None }).await;
    assert_eq!(recovered.going_back.as_deref(), Some(&(release, reason, true)));
    assert_eq!((recovered.claim, recovered.staged, recovered.reverted, recovered.trial), (Some(claim()), staged, None, None));
}

#[tokio::test]
async fn what_failed_last_is_heard_of_a_helper_that_tells_and_an_older_one_is_none_the_worse() {
    let (reason, claim) = (Reason::lossy("exit status 1"), claim());
    let refused = Reply::Refused { why: Why::Frame, text: Reason::lossy("a body that cannot be read") };
    let went_back = WentBack { claim, release: Digest::of(b"release"), reason };
    let failed = Reply::Failed(Some(LastFailure::from(went_back.clone())));
    for (told, expected) in [(failed, Some(went_back)), (Reply::Failed(None), None), (refused, None)] {
        let mut bench = Bench::start();
        let (_seen, _helper) = helper_that_says(bench.socket(), told, Reply::State(state()), Vec::new());
        let recovered =
            bench.until(|report| if let Report::Recovered(recovered) = report { Some(recovered) } else { None }).await;
        assert_eq!(recovered.failed.map(|failed| *failed), expected);
    }
}

#[tokio::test]
async fn b2_a_switch_that_a_silent_helper_never_heard_of_is_given_up_and_no_release_is_to_blame() {
    let mut bench = Bench::start();
    let (_seen, first) = helper(bench.socket(), Vec::new());
    bench.until(|report| matches!(report, Report::Blocked(_)).then_some(())).await;
    first.abort();
    let _ = first.await;
    fs::remove_file(bench.socket()).unwrap();
    let install = bench.workshop.release(1, "echo one");
    tokio::time::pause();
    let Report::ActivateFailed { reason, at_fault, .. } = bench.activate(&install).await else { panic!("nobody heard of it") };
    assert_eq!((reason.as_str(), at_fault), ("the helper does not answer", false));
}

#[tokio::test]
async fn a_helper_that_is_not_there_holds_the_node_until_it_answers() {
    let mut bench = Bench::start();
    let (_seen, first) = helper(bench.socket(), Vec::new());
    bench.until(|report| matches!(report, Report::Recovered(_)).then_some(())).await;
    first.abort();
    let _ = first.await;
    fs::remove_file(bench.socket()).unwrap();
    let faulty =
        |report: &Report| matches!(report, Report::Blocked(holds) if holds.iter().any(|it| it.code == HoldCode::DeviceFault));
    let install = bench.workshop.release(1, "echo one");
    bench.device.step(Step::Stage { install }).unwrap();
    bench.until(|report| faulty(&report).then_some(())).await;
    let (_seen, _helper) = helper(bench.socket(), vec![Answer::Outcome(Outcome::Staged)]);
    bench.until(|report| matches!(report, Report::Staged { .. }).then_some(())).await;
    bench.until(|report| matches!(report, Report::Blocked(holds) if holds.is_empty()).then_some(())).await;
}

#[tokio::test]
async fn a_device_that_stops_does_not_wait_for_its_helper() {
    let bench = Bench::start();
    // Nobody listens: not even its first report can be given.
    timeout(PATIENCE, bench.device.shutdown()).await.expect("it stops");
}
