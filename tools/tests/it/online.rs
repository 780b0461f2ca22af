//! The commands that talk to agents, against real agent processes.

#[path = "../../../testnet/src/fleet/ports.rs"]
#[expect(unreachable_pub, reason = "it is public where it lies")]
mod ports;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use groundswell_core::digest::Digest;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::fleet::Fleet;
use groundswell_core::documents::{Body, Kind};
use groundswell_core::trust::signing::SecretKey;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::desk::Desk;
use crate::helper::{PATIENCE, not_tested};

/// An agent process. Told to stop when the test is over, so that what it supervises ends with it.
struct Agent {
    child: Child,
    socket: String,
    port: u16,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Waited for, its number may be another's.
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let told = Command::new("kill").arg(self.child.id().to_string()).status();
        if !told.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A port that nothing listens on now, and that no other test is given.
pub(crate) fn free_port() -> u16 {
    ports::free(1).unwrap().remove(0)
}

/// Starts the agent of an admitted node.
fn start(desk: &Desk, name: &str, bootstrap: &[u16]) -> Agent {
    start_as("agent", desk, name, bootstrap).0
}

/// Starts it by a command, `agent` or `supervise`; what it logs from when it runs.
fn start_as(command: &str, desk: &Desk, name: &str, bootstrap: &[u16]) -> (Agent, Receiver<String>) {
    let fleet = desk.json(&["fleet", "show", "fleet"]).get("fleet").unwrap().as_str().unwrap().to_owned();
    let port = free_port();
    let peers: Vec<String> = bootstrap.iter().map(|port| format!("\"/ip4/127.0.0.1/tcp/{port}\"")).collect();
    let socket = desk.path(&format!("nodes/{name}/agent.sock")).display().to_string();
    let text = format!(
        r#"
data-dir = "data"
fleet = "{fleet}"
documents = ["../../fleet/fleet-1.json"]
key-file = "node.key"
certificate-file = "../../fleet/certificates/{name}.json"
listen = ["/ip4/127.0.0.1/tcp/{port}"]
bootstrap = [{}]
socket = "agent.sock"
[limits]
keep-free = "1MiB"
[product.bcd]
activator = {{ type = "supervise", run = ["{{binary}}"], stop-timeout = "1s" }}
health = {{ type = "process", interval = "200ms", timeout = "1s" }}
"#,
        peers.join(", ")
    );
    let config = format!("nodes/{name}/agent.toml");
    if !desk.path(&config).exists() {
        desk.write(&config, &text);
    }
    // Whoever runs the tests may have SIGHUP ignored.
    let mut child = Command::new("env")
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_swell"), command, "--config"])
        .arg(desk.path(&config))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (told, log) = channel();
    // Whoever writes a log must not wait for a reader.
    std::thread::spawn(move || lines.for_each(|line| drop(told.send(line))));
    until_logged(&log, "is running");
    (Agent { child, socket, port }, log)
}

/// Reads a log until a line has this; all lines up to it.
fn until_logged(log: &Receiver<String>, what: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains(what)) {
        let line = log.recv_timeout(PATIENCE);
        lines.push(line.unwrap_or_else(|_| panic!("`{what}` is not logged: {lines:#?}")));
    }
    lines
}

/// Looks at what a command prints until `done`.
fn until(desk: &Desk, line: &[&str], done: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let value = desk.json(line);
        if done(&value) {
            return value;
        }
        assert!(Instant::now() < deadline, "{line:?}: {value:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn desk_with_release() -> Desk {
    let desk = Desk::with_fleet(&["--min-soak", "1s"]);
    desk.admit(&[("a1", "p"), ("a2", "p"), ("a3", "p")]);
    desk.write("out/1.0.0/linux-amd64", "#!/bin/sh\nexec sleep 1000\n");
    let sign = ["release", "sign", "out/1.0.0", "--product", "bcd", "--version", "1.0.0", "--sequence", "1"];
    desk.done(&[&sign[..], &["--key", "keys/release.pem", "--fleet", "fleet"]].concat());
    desk.write(
        "rollout.toml",
        "manifest = \"out/1.0.0/manifest.json\"\nconfirm-after = \"1s\"\n[[wave]]\npercent = \"10%\"\nsoak = \"1s\"\n\
         [[wave]]\npercent = \"100%\"\nsoak = \"1s\"\n",
    );
    desk.done(&["rollout", "create", "rollout.toml", "--fleet", "fleet", "--key", "keys/rollout.pem", "--id", "r1"]);
    desk
}

/// Three agents, of which each but the first is told the one before it; the last has met its peer.
fn line_of_three(desk: &Desk) -> [Agent; 3] {
    let first = start(desk, "a1", &[]);
    let second = start(desk, "a2", &[first.port]);
    let third = start(desk, "a3", &[second.port]);
    until(desk, &["status", "--socket", &third.socket], |status| status["peers"].as_u64() > Some(0));
    [first, second, third]
}

#[test]
fn what_is_published_to_one_peer_is_seen_from_another_and_pulled_from_a_third() {
    let desk = desk_with_release();
    let [first, second, third] = line_of_three(&desk);
    let status = ["status", "--socket", &third.socket];

    let to = format!("127.0.0.1:{}", first.port);
    let publish = ["publish", "fleet", "out/1.0.0", "--to", &to, "--key", "keys/operator.key", "--within", "170s"];
    let published = desk.json(&publish);
    assert_eq!(published["files"].as_array().unwrap().len(), 1);
    assert_eq!(published["copies"], 2);

    until(&desk, &status, |status| status["products"][0]["phase"] == "soaked");
    let text = desk.done(&status);
    assert!(text.contains("a3 in pool p") && text.contains("1.0.0"), "{text}");
    let rollouts = until(&desk, &["rollouts", "r1", "--socket", &third.socket], |seen| seen[0]["complete"] == true);
    assert_eq!(rollouts[0]["nodes"].as_array().unwrap().len(), 3);
    let text = desk.done(&["rollouts", "r1", "--socket", &third.socket]);
    let (waves, _) = text.split_once("\n\n").unwrap();
    assert!(waves.contains("passed") && waves.lines().count() == 4, "two waves, and none for late joiners: {text}");
    assert_eq!(rollouts[0]["waves"][2]["implicit"], true);
    assert!(desk.done(&["explain", "bcd", "--socket", &third.socket]).starts_with("bcd: "));
    assert!(desk.done(&["peers", "--socket", &third.socket]).contains("bcd 1.0.0"));
    let text = desk.done(&["leases", "--socket", &third.socket]);
    assert!(text.contains("free") && text.contains("CLAIM"), "{text}");
    let events = desk.json(&["events", "--socket", &third.socket]);
    assert!(events.as_array().unwrap().iter().any(|event| event["kind"] == "phase-changed" && event["to"] == "soaked"));

    let from = format!("127.0.0.1:{}", third.port);
    let known = ["--known", "fleet/fleet-1.json", "--known", "fleet/certificates/operator.json"];
    let pull = ["fleet", "pull", "pulled", "--from", &from, "--key", "keys/operator.key"];
    desk.done(&[&pull[..], &known[..]].concat());
    desk.done(&["fleet", "pull", "pulled-here", "--socket", &first.socket]);
    let original = desk.json(&["fleet", "show", "fleet"]);
    assert_eq!(desk.json(&["fleet", "show", "pulled"]), original);
    assert_eq!(desk.json(&["fleet", "show", "pulled-here"]), original);
    let again = desk.json(&["fleet", "pull", "pulled", "--socket", &second.socket]);
    assert_eq!(again["written"].as_array().unwrap().len(), 0);
}

#[test]
fn a_publisher_that_waits_for_copies_may_leave_and_the_others_go_on() {
    let desk = desk_with_release();
    let [first, _second, third] = line_of_three(&desk);
    let status = ["status", "--socket", &third.socket];
    let publish = ["publish", "fleet", "out/1.0.0", "--copies", "2", "--within", "170s", "--socket", &first.socket];
    let published = desk.json(&publish);
    let held = published["held"].as_array().unwrap();
    assert!(held.iter().all(|held| held["copiesPpm"].as_u64() >= held["need"].as_u64().map(|need| need * 1_000_000)), "{held:?}");
    let file = held.iter().find(|held| held["name"].as_str().unwrap().ends_with("linux-amd64")).expect("the file is waited for");
    assert_eq!(file["need"], 2, "the two others take it");
    drop(first);
    until(&desk, &status, |status| status["agent"]["blobs"][0] == published["files"][0]);
    // A second publisher hands in what the mesh has already.
    let again = desk.run(&["publish", "fleet", "out/1.0.0", "--socket", &third.socket]);
    assert!(again.code == 0 && again.err.contains("linux-amd64: known already"), "{}", again.err);
}

#[test]
fn a_publisher_that_waits_for_copies_waits_for_its_agent_too_when_that_is_replaced() {
    let desk = desk_with_release();
    let first = start(&desk, "a1", &[]);
    let (socket, port) = (first.socket.clone(), first.port);
    let line = ["publish", "fleet", "out/1.0.0", "--copies", "1", "--within", "170s", "--socket", &socket];
    let mut publisher = Command::new(env!("CARGO_BIN_EXE_swell"))
        .args(line)
        .current_dir(desk.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(publisher.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (told, log) = channel();
    std::thread::spawn(move || lines.for_each(|line| drop(told.send(line))));
    until_logged(&log, "0.00 of 1");
    drop(first);
    until_logged(&log, "does not answer: waiting for it");
    let _first = start(&desk, "a1", &[]);
    let _second = start(&desk, "a2", &[port]);
    assert!(publisher.wait().unwrap().success());
    // One that never answered is not waited for.
    desk.fails(3, &["publish", "fleet", "out/1.0.0", "--within", "60s", "--socket", "nowhere.sock"]);
}

#[test]
fn publishing_through_the_socket_takes_files_and_documents_and_says_why_not() {
    let desk = desk_with_release();
    let agent = start(&desk, "a1", &[]);
    let socket = ["--socket", agent.socket.as_str()];
    let published = desk.json(&[&["publish", "fleet", "out/1.0.0"], &socket[..]].concat());
    assert_eq!((&published["copies"], &published["held"]), (&0.into(), &serde_json::json!([])));
    let status =
        until(&desk, &[&["status"], &socket[..]].concat(), |status| status["agent"]["blobs"][0] == published["files"][0]);
    assert_eq!(status["name"], "a1");
    let again = desk.run(&[&["publish", "fleet", "out/1.0.0"], &socket[..]].concat());
    assert!(again.code == 0 && again.err.contains("linux-amd64: known already"), "nothing is sent twice: {}", again.err);
    // Alone, with two that do not answer: nobody else can hold it.
    let late = [&["publish", "fleet", "out/1.0.0", "--copies", "2", "--within", "1s"], &socket[..]].concat();
    assert!(desk.fails(1, &late).contains("fewer than 2 copies after 1 s: of out/1.0.0/linux-amd64 members have 0.00 of 2"));

    let other = Desk::with_fleet(&[]);
    fs::copy(other.path("fleet/fleet-1.json"), desk.path("foreign.json")).unwrap();
    let refused = desk.fails(4, &[&["publish", "foreign.json"], &socket[..]].concat());
    assert!(refused.contains("foreign.json is refused: fleet: "), "{refused}");
    desk.write("out/1.0.0/linux-amd64", "something else");
    let differs = desk.fails(2, &[&["publish", "out/1.0.0"], &socket[..]].concat());
    assert!(differs.contains("linux-amd64 is not the file that the manifest names"), "{differs}");
    assert!(desk.fails(2, &[&["publish", "nowhere.json"], &socket[..]].concat()).contains("nowhere.json"));
    assert!(desk.fails(2, &[&["rollouts", "r9"], &socket[..]].concat()).contains("no rollout r9"));
    assert!(desk.fails(2, &[&["explain", "xyz"], &socket[..]].concat()).contains("xyz is not configured"));
}

#[test]
fn l2_a_fleet_folder_of_many_versions_is_published_in_their_order() {
    let desk = desk_with_release();
    let agent = start(&desk, "a1", &[]);
    // As root signs them, one after the other, each in a file of its own.
    let root = SecretKey::from_pem(&desk.read("keys/root.pem")).unwrap();
    let first = Envelope::parse(desk.read("fleet/fleet-1.json").as_bytes()).unwrap();
    let mut previous = first.digest();
    let Body::Fleet(mut fleet) = Body::parse(Kind::Fleet, &first.body).unwrap() else { panic!("a fleet document") };
    for version in 2..=9 {
        fleet = Fleet { fleet: Some(first.digest()), version, previous: Some(previous), ..fleet };
        let body = Body::Fleet(fleet.clone()).encode();
        previous = Digest::of(&body);
        let signatures = vec![root.endorse(&body)];
        let published = Envelope { kind: Kind::Fleet, body, signatures }.to_bytes();
        desk.write(&format!("fleet/fleet-{version}.json"), std::str::from_utf8(&published).unwrap());
    }
    desk.done(&["publish", "fleet", "--socket", agent.socket.as_str()]);
    let status = desk.json(&["status", "--socket", agent.socket.as_str()]);
    assert_eq!(status["fleetVersion"], 9);
}

#[test]
fn a_roster_calls_settled_what_the_agent_says_has_ended_and_is_never_cut_twice() {
    let desk = desk_with_release();
    let agent = start(&desk, "a1", &[]);
    let socket = ["--socket", agent.socket.as_str()];
    let create = |id: &str, more: &[&str]| {
        let line = ["rollout", "create", "rollout.toml", "--fleet", "fleet", "--key", "keys/rollout.pem", "--id", id];
        [&line[..], more].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let made = |id: &str, more: &[&str]| {
        let line = create(id, more);
        desk.json(&line.iter().map(String::as_str).collect::<Vec<_>>())
    };
    desk.done(&[&["publish", "fleet", "out/1.0.0"], &socket[..]].concat());
    let peers = [&["peers"], &socket[..]].concat();
    until(&desk, &peers, |peers| peers.as_array().is_some_and(|peers| peers.len() >= 2));
    // Two of three nodes never run, so nothing that they may have promised is known to have ended.
    desk.admit(&[("a4", "p")]);
    let second = made("r2", &socket);
    assert_eq!((&second["rosterVersion"], &second["settled"]), (&2.into(), &1.into()));
    desk.done(&[&["publish", "fleet"], &socket[..]].concat());
    // Another laptop has the folder of before: what it would cut is a rival of what the mesh has.
    let rosters = desk.path("fleet/rosters/2.json");
    let kept = fs::read(&rosters).unwrap();
    fs::remove_file(&rosters).unwrap();
    let refusal = |more: &[&str]| {
        let line = create("r3", more);
        desk.fails(2, &line.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(refusal(&socket).contains("its rival: `swell fleet pull` first"), "the agent knows roster 2");
    assert!(refusal(&[]).contains("is not in"), "and without it the folder's own rollout names it");
    fs::write(&rosters, kept).unwrap();
    desk.admit(&[("a5", "p")]);
    let line = create("r3", &socket);
    let text = desk.done(&line.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(text.contains("rosters before 1 have ended; ") && text.contains("wardens of slot 0 under roster 1"), "{text}");
    let nobody = create("r4", &["--socket", "nowhere.sock"]);
    desk.admit(&[("a6", "p")]);
    let text = desk.done(&nobody.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(text.contains("no agent was asked"), "{text}");
    let missing = [&socket[..], &["--write-off", "a2"]].concat();
    assert!(refusal(&missing).contains("NODE:CLAIM"));
    let written = made("r5", &[&socket[..], &["--write-off", "a2:1.7"]].concat());
    assert_eq!(written["rosterVersion"], 5, "a write-off is a reason to cut a roster");
    assert!(desk.read("fleet/rosters/5.json").len() > 100);
}

#[test]
fn nobody_there_is_exit_3_with_the_address() {
    let desk = desk_with_release();
    assert!(desk.fails(3, &["status", "--socket", "nowhere.sock"]).contains("nowhere.sock"));
    let to = format!("127.0.0.1:{}", free_port());
    let publish = ["publish", "fleet", "--to", &to, "--key", "keys/operator.key"];
    assert!(desk.fails(3, &publish).contains(&to.replace(':', "/tcp/")));
    assert!(desk.fails(2, &["publish", "fleet", "--to", &to]).contains("--key is missing"));
    assert!(desk.fails(2, &["publish", "fleet", "--to", "nowhere", "--key", "keys/operator.key"]).contains("`nowhere`"));
}

#[test]
fn a_stranger_is_refused_by_trust() {
    let desk = desk_with_release();
    let agent = start(&desk, "a1", &[]);
    let other = Desk::with_fleet(&[]);
    let to = format!("127.0.0.1:{}", agent.port);
    let refused = other.run(&["publish", "fleet", "--to", &to, "--key", "keys/operator.key"]);
    assert!(matches!(refused.code, 3 | 4), "{} {}", refused.code, refused.err);
}

#[test]
fn m5_a_wrong_configuration_ends_the_agent_with_the_key_and_a_missing_key_file_with_its_name() {
    let desk = desk_with_release();
    let agent = start(&desk, "a1", &[]);
    let config = fs::read_to_string(desk.path("nodes/a1/agent.toml")).unwrap();
    desk.write("nodes/a2/agent.toml", &config.replace("bootstrap", "bootstraps"));
    let unknown = desk.fails(2, &["agent", "--config", "nodes/a2/agent.toml"]);
    assert!(unknown.contains("unknown key `bootstraps`"), "{unknown}");
    desk.write("nodes/a2/agent.toml", &config);
    let foreign = desk.fails(2, &["agent", "--config", "nodes/a2/agent.toml"]);
    assert!(foreign.contains("certificates/a1.json is the certificate of"), "{foreign}");
    desk.write("nodes/a2/agent.toml", &config.replace("certificates/a1", "certificates/a2"));
    let taken = desk.fails(1, &["agent", "--config", "nodes/a2/agent.toml"]);
    assert!(taken.contains(&agent.port.to_string()), "{taken}");
    desk.write("nodes/a3/agent.toml", &config.replace("certificates/a1", "certificates/a3").replace("node.key", "no.key"));
    assert!(desk.fails(1, &["agent", "--config", "nodes/a3/agent.toml"]).contains("no.key"));
    let running = desk.fails(1, &["agent", "--config", "nodes/a1/agent.toml"]);
    assert!(running.contains("in use"), "{running}");
    assert!(desk.done(&["agent", "--print-config"]).contains("data-dir"));
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(process).unwrap()).unwrap(), signal).unwrap();
}

/// The agent of a supervisor, as the supervisor has written it down.
fn agent_of(desk: &Desk, name: &str) -> Value {
    serde_json::from_str(&desk.read(&format!("nodes/{name}/data/supervise/run.json"))).unwrap()
}

#[test]
fn an_agent_under_a_supervisor_outlives_every_signal_that_is_passed_on_but_those_to_stop() {
    let desk = Desk::with_fleet(&[]);
    desk.admit(&[("a1", "p")]);
    let (mut agent, log) = start_as("supervise", &desk, "a1", &[]);
    let before = agent_of(&desk, "a1");
    for (passed_on, name) in [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        signal(agent.child.id(), passed_on);
        let lines = until_logged(&log, &format!("{name} is passed over"));
        assert!(!lines.iter().any(|line| line.contains("ended")), "{lines:#?}");
    }
    desk.done(&["status", "--socket", &agent.socket]);
    assert_eq!(agent_of(&desk, "a1"), before, "it is the same process");
    signal(agent.child.id(), Signal::TERM);
    until_logged(&log, "stopped");
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_agent_without_a_supervisor_ends_in_order_when_its_terminal_closes() {
    let desk = Desk::with_fleet(&[]);
    desk.admit(&[("a1", "p")]);
    let (mut agent, log) = start_as("agent", &desk, "a1", &[]);
    for (passed_over, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        signal(agent.child.id(), passed_over);
        until_logged(&log, &format!("{name} is passed over"));
    }
    signal(agent.child.id(), Signal::HUP);
    until_logged(&log, "stopped");
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_agent_that_was_started_to_outlive_its_terminal_does() {
    let desk = Desk::with_fleet(&[]);
    desk.admit(&[("a1", "p")]);
    drop(start(&desk, "a1", &[]));
    let mut child = Command::new("env");
    child.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_swell"), "agent", "--config"]).arg(desk.path("nodes/a1/agent.toml"));
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut was_passed_over = false;
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
        if line.contains("is running") {
            signal(child.id(), Signal::HUP);
        }
        if line.contains("SIGHUP is passed over") {
            was_passed_over = true;
            signal(child.id(), Signal::TERM);
        }
    }
    assert_eq!((child.wait().unwrap().code(), was_passed_over), (Some(0), true));
}

/// Whether the rights of files can be tried: that takes root.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_tested("whose a configuration is matters to root alone");
    }
    is_root
}

#[test]
fn a_configuration_that_others_can_change_is_wrong_for_an_agent_and_a_supervisor_of_roots() {
    if !is_root() {
        return;
    }
    let desk = Desk::with_fleet(&[]);
    desk.admit(&[("a1", "p")]);
    drop(start(&desk, "a1", &[]));
    let config = "nodes/a1/agent.toml";
    let of_agent = ["agent", "--check", "--config", config];
    let of_supervisor = ["supervise", "--check", "--config", config];
    let mode = |name: &str, mode| fs::set_permissions(desk.path(name), fs::Permissions::from_mode(mode)).unwrap();
    let is_wrong = |says: &str| {
        let told = desk.fails(2, &of_agent);
        assert!(told.contains("would run all the same") && told.contains(says), "{told}");
        let checked = desk.run(&of_supervisor);
        assert_eq!(checked.code, 1, "{}", checked.out);
        assert!(checked.out.lines().any(|line| line.starts_with("wrong: ") && line.contains(says)), "{}", checked.out);
    };
    let is_right = || [&of_agent, &of_supervisor].iter().for_each(|line| drop(desk.done(&line[..])));
    is_right();
    mode(config, 0o664);
    is_wrong("agent.toml can be written by others (mode 664)");
    mode(config, 0o644);
    // Whoever may rename in a folder on the way puts another file in its place.
    mode("nodes", 0o775);
    is_wrong("nodes can be written by others (mode 775)");
    mode("nodes", 0o755);
    std::os::unix::fs::chown(desk.path(config), Some(65_534), None).unwrap();
    is_wrong("agent.toml belongs to user 65534");
    std::os::unix::fs::chown(desk.path(config), Some(0), None).unwrap();
    is_right();
}

#[test]
fn an_agent_of_roots_whose_configuration_others_can_change_says_so() {
    if !is_root() {
        return;
    }
    let desk = Desk::with_fleet(&[]);
    desk.admit(&[("a1", "p")]);
    drop(start(&desk, "a1", &[]));
    let config = desk.path("nodes/a1/agent.toml");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o664)).unwrap();
    for command in ["agent", "supervise"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_swell"));
        let child = child.args([command, "--config"]).arg(&config).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut told = Vec::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
            if line.contains("is running") {
                signal(child.id(), Signal::TERM);
            }
            told.push(line);
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "{command} runs all the same: {told:#?}");
        let errors = told.iter().filter(|line| line.contains("ERROR") && line.contains("others may say what this"));
        // The supervisor says it, and so does its agent.
        assert_eq!(errors.count(), if command == "supervise" { 2 } else { 1 }, "{told:#?}");
    }
}
