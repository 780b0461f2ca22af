//! The supervisor with real processes: it, and agents that behave well, crash, hang, or decide nothing.
//!
//! Both are this very program, started again: a slot holds a script that starts it as an agent of one kind.

mod check;
mod faults;
mod machine;
mod program;
mod stops;
mod strays;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use groundswell_agent::install::files::OnDisk;
use groundswell_agent::supervise::marks::{Marks, Run, TrialMark};
use groundswell_agent::supervise::notify::{ALIVE, Heard, Notifier, READY, STOPPING, heard};
use groundswell_agent::supervise::own::Parent;
use groundswell_agent::supervise::settings::Settings;
use groundswell_agent::supervise::{RESTART, keeper};
use groundswell_core::digest::Digest;
use groundswell_core::install::Slot;
use groundswell_core::install::supervision::{Boots, Named, Reading};
use groundswell_core::time::{Now, Time, Timestamp};
use proptest::prelude::*;
use rustix::process::{Signal, getpgid, getpid, getppid, kill_process, set_child_subreaper, setpgid};
use sha2::Digest as _;
use tokio::signal::unix::{SignalKind, signal};

use self::machine::{ADOPTS, CONFIG, DATA, KIND, Machine, OWN, PRODUCT, SERVICE, confirm, note, trial_of};
use crate::workshop::PATIENCE;

/// What a build says on standard output, and on the other.
const SPOKEN: [&[u8]; 2] = [b"said \xff\x00 as it is\n\n\tto the last\x1b byte\n", b"also \xfe what it \r complains of\n"];

/// Not a test: the process of a supervisor, when it is started as one.
#[test]
fn supervisor_process() {
    let (Some(config), Some(own)) = (std::env::var_os(CONFIG), std::env::var_os(OWN)) else { return };
    let settings = Settings::load(Path::new(&config)).unwrap();
    if std::env::var_os(ADOPTS).is_some() {
        set_child_subreaper(Some(getpid())).unwrap();
    }
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_target(false).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let service = std::env::var(SERVICE).ok().map(|name| Notifier::connect(&name).unwrap());
    let code = runtime.block_on(keeper::run(&settings, Path::new(&own), service));
    std::process::exit(code.map_or_else(
        |error| {
            eprintln!("{error}");
            1
        },
        i32::from,
    ));
}

/// Not a test: the process of an agent, when it is started as one.
#[test]
fn agent_process() {
    let (Ok(kind), Some(data)) = (std::env::var(KIND), std::env::var_os(DATA)) else { return };
    let data = PathBuf::from(data);
    if kind == "voice" {
        let notifier = Notifier::inherited().unwrap();
        loop {
            notifier.tell(&format!("{READY}\n{ALIVE}"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // It has the end of the pair too.
    let voice = (kind == "ventriloquist").then(strays::other_voice);
    let parent = Parent::from_environment(|name| std::env::var(name).ok()).unwrap();
    let slot = parent.supervisor.expect("it has a supervisor").slot.map_or("own", Slot::name);
    let (notifier, _) = parent.notify.expect("it has somebody to tell");
    note(&data, &format!("start {slot} {kind} {}", std::process::id()));
    match kind.as_str() {
        // What a panic leaves, without the words of the test harness after it.
        "panics" => {
            eprintln!("panicked: this build is broken");
            std::process::exit(101);
        }
        // What is no text is output too.
        "speaks" => {
            io::stdout().write_all(SPOKEN[0]).unwrap();
            io::stderr().write_all(SPOKEN[1]).unwrap();
        }
        "hangs" => std::thread::sleep(Duration::from_secs(3_600)),
        "deserts" => setpgid(None, Some(getpgid(getppid()).unwrap())).unwrap(),
        "orphans" => strays::orphan(&data),
        "litters" => {
            strays::litter(&data);
            std::process::exit(101);
        }
        "ventriloquist" => {
            note(&data, &format!("stray {}", voice.unwrap().id()));
            std::thread::sleep(Duration::from_secs(3_600));
        }
        _ => {}
    }
    let go = data.with_file_name("go");
    while kind == "slow" && !go.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    if kind != "slow" {
        notifier.tell(READY);
    }
    if kind == "silent" {
        std::thread::sleep(Duration::from_secs(3_600));
    }
    if kind == "confirms" {
        let marks = Marks::new(Arc::new(OnDisk), &data, Some(PRODUCT));
        if let Reading::Said(trial) = marks.trial() {
            confirm(&data, &Named { slot: trial.slot, sha256: trial.sha256, size_bytes: trial.size_bytes });
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let code = runtime.block_on(async {
        let mut hangup = signal(SignalKind::hangup()).unwrap();
        let mut user1 = signal(SignalKind::user_defined1()).unwrap();
        let mut user2 = signal(SignalKind::user_defined2()).unwrap();
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        if kind == "slow" {
            notifier.tell(READY);
        }
        note(&data, "up");
        loop {
            notifier.tell(ALIVE);
            tokio::select! {
                _ = hangup.recv() => note(&data, "HUP"),
                _ = user1.recv() => note(&data, "USR1"),
                _ = user2.recv() => return i32::from(RESTART),
                _ = terminate.recv(), if kind != "deaf" && kind != "deserts" => return 7,
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    });
    note(&data, "end");
    std::process::exit(code);
}

#[test]
fn signals_are_passed_on_and_the_exit_code_is_the_agents() {
    let mut machine = Machine::new("");
    machine.start();
    machine.sees("its own build is up", |noted| noted.contains("start own fine") && noted.ends_with("up\n"));
    machine.signal(Signal::HUP);
    machine.sees("SIGHUP reached it", |noted| noted.contains("HUP\n"));
    machine.signal(Signal::USR1);
    machine.sees("SIGUSR1 reached it", |noted| noted.contains("USR1\n"));
    machine.signal(Signal::TERM);
    assert_eq!(machine.ends().code(), Some(7), "{}", machine.told());
    assert!(machine.noted().ends_with("end\n"), "it was waited for");
}

#[test]
fn signals_that_mean_no_end_reach_an_agent_once_it_is_up_and_not_before() {
    let mut machine = Machine::new("");
    machine.script(&machine.folder.path().join("own"), "slow");
    machine.start();
    machine.sees("it is started", |noted| noted.contains("start own slow"));
    for _ in 0..10 {
        machine.signal(Signal::HUP);
        machine.signal(Signal::USR1);
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::write(machine.folder.path().join("go"), "").unwrap();
    machine.sees("they reach it", |noted| noted.contains("up\n") && noted.contains("HUP\n") && noted.contains("USR1\n"));
    assert_eq!(machine.starts("own slow"), 1, "{}", machine.told());
}

#[test]
fn a_service_manager_is_told_that_the_agent_is_up_that_it_lives_and_that_it_ends() {
    let mut machine = Machine::new("silence = \"2s\"\n");
    machine.script(&machine.folder.path().join("own"), "silent");
    machine.start();
    let heard = |machine: &Machine| {
        let mut datagram = [0; 4096];
        // A child of another test that ends interrupts a wait with a time limit.
        let received = loop {
            match machine.service.recv(&mut datagram) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received,
            }
        };
        let length = received.expect("something is told in time");
        String::from_utf8_lossy(&datagram[..length]).into_owned()
    };
    let mut told = Vec::new();
    // An agent that says nothing after its start is not spoken for: one sign for each start.
    while machine.starts("own silent") < 3 {
        told.extend(Some(heard(&machine)).filter(|line| !line.starts_with("STATUS=")));
    }
    assert_eq!(told.iter().filter(|line| *line == READY).count(), 1, "{told:?}");
    assert!(told.iter().filter(|line| *line == ALIVE).count() <= 4, "{told:?}");
    machine.script(&machine.folder.path().join("own"), "fine");
    machine.sees("one that lives is up", |noted| noted.contains("start own fine") && noted.ends_with("up\n"));
    let mut signs = 0;
    while signs < 20 {
        signs += usize::from(heard(&machine) == ALIVE);
    }
    machine.signal(Signal::TERM);
    while heard(&machine) != STOPPING {}
    machine.ends();
}

#[test]
fn an_agent_that_does_not_end_is_killed() {
    let mut machine = Machine::new("");
    let config = machine.folder.path().join("agent.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("20s", "200ms")).unwrap();
    machine.script(&machine.folder.path().join("own"), "deaf");
    machine.start();
    machine.sees("it is up", |noted| noted.ends_with("up\n"));
    machine.signal(Signal::TERM);
    assert_eq!(machine.ends().code(), Some(137), "{}", machine.told());
}

#[test]
fn a_build_on_trial_that_confirms_itself_stays_and_is_started_again_for_ever() {
    let mut machine = Machine::confirmed("");
    machine.tries("confirms", 600);
    machine.sees("the new build is up", |noted| noted.contains("start b confirms") && noted.ends_with("up\n"));
    for crash in 2..=5 {
        kill_process(machine.agent(), Signal::KILL).unwrap();
        machine.sees("it runs again", |noted| noted.matches("start b confirms").count() == crash && noted.ends_with("up\n"));
    }
    assert_eq!(machine.boots(), Boots { trial: "1.1".to_owned(), boots: 1, stops: 0, given_up: None });
    assert_eq!(machine.starts("a fine"), 1);
}

#[test]
fn i7_a_build_that_panics_is_tried_three_times_and_its_last_words_are_kept() {
    let mut machine = Machine::confirmed("");
    machine.tries("panics", 600);
    machine.is_back();
    assert_eq!(machine.starts("b panics"), 3, "{}", machine.told());
    let boots = machine.boots();
    assert_eq!(boots.boots, 3);
    assert!(boots.given_up.as_ref().is_some_and(|why| why.contains("this build is broken")), "{boots:?}");
    let log = machine.told();
    assert!(log.contains("this build is broken"), "its output is passed on: {log}");
}

#[test]
fn what_a_build_on_trial_says_is_passed_on_unchanged() {
    let mut machine = Machine::confirmed("");
    machine.tries("speaks", 600);
    machine.sees("the trial is up", |noted| noted.contains("start b speaks") && noted.ends_with("up\n"));
    let has = |log: &[u8], said: &[u8]| log.windows(said.len()).any(|part| part == said);
    let all = |log: &[u8]| SPOKEN.iter().all(|said| has(log, said));
    let began = std::time::Instant::now();
    while !all(&fs::read(machine.folder.path().join("log")).unwrap()) {
        assert!(began.elapsed() < PATIENCE, "{}", machine.told());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_build_that_hangs_at_its_start_is_killed_and_left_and_one_that_falls_silent_is_after_three_boots() {
    let mut machine = Machine::confirmed("ready-within = \"6s\"\nsilence = \"3s\"\n");
    machine.tries("hangs", 600);
    machine.is_back();
    assert!(machine.boots().given_up.is_some_and(|why| why.contains("not up within 6 s")));
    machine.tries("silent", 600);
    machine.sees("the second one was tried", |noted| noted.matches("start b silent").count() == 3);
    machine.is_back();
    assert!(machine.boots().given_up.is_some_and(|why| why.contains("no sign of life for 3 s")));
    assert_eq!((machine.starts("b hangs"), machine.starts("b silent")), (1, 3));
}

#[test]
fn a_build_that_lives_and_is_never_confirmed_is_left_when_its_time_is_over() {
    let mut machine = Machine::confirmed("");
    // Long enough for a busy machine to start it.
    machine.tries("fine", 6);
    machine.is_back();
    assert!(machine.boots().given_up.is_some_and(|why| why.contains("not confirmed in time")));
}

#[test]
fn a_damaged_build_is_never_started() {
    let mut machine = Machine::confirmed("");
    let mark = TrialMark { sha256: Digest([7; 32]), ..trial_of(machine.fill(Slot::B, "fine")) };
    machine.marks().write_trial(&mark).unwrap();
    machine.signal(Signal::USR2);
    machine.sees("the confirmed build is back", |noted| noted.matches("start a fine").count() == 2);
    assert_eq!(machine.starts("b fine"), 0);
    let boots = machine.boots();
    assert_eq!(boots.boots, 0, "it was never tried: {boots:?}");
    assert!(boots.given_up.is_some_and(|why| why.contains("cannot be started")));
    machine.trials = 1;

    // The confirmed one too: what is left is the supervisor's own.
    fs::write(machine.data().join("products").join(PRODUCT).join("slots/a").join(PRODUCT), "nothing").unwrap();
    kill_process(machine.agent(), Signal::KILL).unwrap();
    machine.sees("its own build runs", |noted| noted.contains("start own fine"));
}

#[test]
fn a_whole_file_that_the_kernel_cannot_run_is_to_blame() {
    let machine = Machine::confirmed("");
    machine.fill(Slot::B, "fine");
    let text = "#!/nowhere/to/be/found\n";
    fs::write(machine.data().join("products").join(PRODUCT).join("slots/b").join(PRODUCT), text).unwrap();
    let named = Named { slot: Slot::B, sha256: Digest(sha2::Sha256::digest(text).into()), size_bytes: text.len() as u64 };
    machine.marks().write_trial(&trial_of(named)).unwrap();
    machine.signal(Signal::USR2);
    machine.sees("the confirmed build is back", |noted| noted.matches("start a fine").count() == 2);
    let boots = machine.boots();
    assert!(boots.boots == 3 && boots.given_up.is_some(), "{boots:?}");
}

#[test]
fn a_kill_of_the_supervisor_ends_its_agent_and_a_trial_goes_on_counted() {
    let mut machine = Machine::confirmed("");
    machine.tries("fine", 600);
    for boot in 1..=3 {
        machine
            .sees("the build on trial is up", |noted| noted.matches("start b fine").count() == boot && noted.ends_with("up\n"));
        assert_eq!(machine.boots().boots, u32::try_from(boot).unwrap());
        machine.signal(Signal::KILL);
        assert_eq!(machine.ends().signal(), Some(9));
        // The next one waits for what the last one left.
        machine.start();
    }
    machine.is_back();
    assert!(machine.boots().given_up.is_some_and(|why| why.contains("started 3 times without being confirmed")));
    let noted = machine.noted();
    let lines: Vec<&str> = noted.lines().collect();
    for pair in lines.windows(2) {
        assert!(!(pair[0] == "up" && pair[1].starts_with("start ")), "two at once: {noted}");
    }
}

#[test]
fn i2_three_quick_kills_of_everything_on_a_confirmed_build_change_nothing() {
    let mut machine = Machine::confirmed("");
    for cycle in 2..=4 {
        machine.signal(Signal::KILL);
        machine.ends();
        machine.start();
        machine.sees("it is up again", |noted| noted.matches("start a fine").count() == cycle && noted.ends_with("up\n"));
    }
    assert_eq!(machine.marks().boots(), Reading::Absent);
}

#[test]
fn two_supervisors_do_not_share_a_folder() {
    let mut machine = Machine::confirmed("");
    let first = machine.supervisor.take();
    machine.start();
    assert_eq!(machine.ends().code(), Some(1));
    assert!(machine.told().contains("another supervisor"), "{}", machine.told());
    machine.supervisor = first;
}

#[test]
fn torn_and_unknown_files_lead_to_the_confirmed_build() {
    for text in ["", "{", "{\"spec\":2,\"trial\":\"1.1\",\"boots\":0,\"givenUp\":null}", "[]"] {
        let mut machine = Machine::new("");
        let named = machine.fill(Slot::A, "fine");
        confirm(&machine.data(), &named);
        let folder = machine.marks().folder().to_owned();
        fs::create_dir_all(&folder).unwrap();
        for file in ["trial.json", "boots.json", "remembered.json"] {
            fs::write(folder.join(file), text).unwrap();
        }
        machine.start();
        machine.sees("the confirmed build is up", |noted| noted.contains("start a fine") && noted.ends_with("up\n"));
        // Seen once, it is known even when the file that names it is torn.
        fs::write(machine.data().join("products").join(PRODUCT).join("confirmed.json"), text).unwrap();
        kill_process(machine.agent(), Signal::KILL).unwrap();
        machine.sees("it is up again", |noted| noted.matches("start a fine").count() == 2);
    }
}

#[test]
fn a_configuration_is_read_leniently() {
    let parse = |text: &str| Settings::parse(Path::new("/etc/groundswell/agent.toml"), text);
    let settings = parse("data-dir = \"d\"\nnew = 1\n[supervise]\nsilence = \"soon\"\nbackoff = \"3s\"\nnewer = 2\n").unwrap();
    assert_eq!(settings.data, Path::new("/etc/groundswell/d"));
    assert_eq!((settings.terms().silence_ms, settings.terms().backoff_ms), (60_000, 3_000));
    assert_eq!(settings.product, None);
    let of = |name: &str| format!("data-dir = \"d\"\n[product.{name}]\nactivator = {{ type = \"agent\", more = 1 }}\n");
    assert_eq!(parse(&of("swell")).unwrap().product.as_deref(), Some("swell"));
    assert_eq!(parse(&of("\"../x\"")).unwrap().product, None);
    assert!(parse("fleet = 1\n").is_err());
    assert!(parse("data-dir\n").is_err());
    let documented = parse(groundswell_agent::config::Config::documented_default()).unwrap();
    let default = parse("data-dir = \"/var/lib/groundswell\"\n").unwrap();
    assert_eq!(documented.terms, default.terms);
}

/// Awake for `awake_ms`, and asleep for `slept_ms` before.
fn at(awake_ms: u64, slept_ms: u64) -> Now {
    Now { awake_ms, boot: Time(awake_ms + slept_ms), wall: Timestamp::default() }
}

#[test]
fn what_a_trial_has_left_is_time_awake_in_this_run_of_its_supervisor() {
    const MINUTE: u64 = 60_000;
    let named = Named { slot: Slot::B, sha256: Digest([7; 32]), size_bytes: 1 };
    let since =
        |since_ms, since_awake_ms| TrialMark { boot: "this".to_owned(), since_ms, since_awake_ms, ..trial_of(named.clone()) };
    let run = |boot: &str, began_ms| Run { boot: boot.to_owned(), began_ms };
    // Ten minutes from minute 5 on, of which three have gone by; an hour's sleep is none of them.
    let (mark, of_old) = (since(5 * MINUTE, Some(5 * MINUTE)), since(5 * MINUTE, None));
    let woken = at(8 * MINUTE, 60 * MINUTE);
    assert_eq!(mark.left_ms(&run("this", 0), at(8 * MINUTE, 0)), 7 * MINUTE);
    assert_eq!(of_old.left_ms(&run("this", 0), at(8 * MINUTE, 0)), 7 * MINUTE);
    assert_eq!(mark.left_ms(&run("this", 0), woken), 7 * MINUTE);
    assert_eq!(mark.left_ms(&run("this", 0), at(15 * MINUTE, 0)), 0);
    // An older agent says nothing of that, and its supervisor has not been awake for longer than this.
    assert_eq!(of_old.left_ms(&run("this", 0), woken), 2 * MINUTE);
    // The service was stopped for an hour: nothing ran, and nobody looked.
    for mark in [&mark, &of_old] {
        assert_eq!(mark.left_ms(&run("this", 68 * MINUTE), at(68 * MINUTE, 0)), 10 * MINUTE);
        assert_eq!(mark.left_ms(&run("this", 68 * MINUTE), at(69 * MINUTE, 0)), 9 * MINUTE);
    }
    // Another run of the machine: no reading can be compared.
    assert_eq!(mark.left_ms(&run("another", MINUTE), at(MINUTE, 0)), 10 * MINUTE);
    assert_eq!(mark.left_ms(&run("another", MINUTE), at(9 * MINUTE, 0)), 2 * MINUTE);
}

#[test]
fn a_trial_of_an_agent_of_before_is_read() {
    let machine = Machine::new("");
    let text = "{\"spec\":1,\"trial\":\"1.1\",\"slot\":\"b\",\"sha256\":\"HEX\",\"sizeBytes\":1,\"mostBoots\":3,\
                \"confirmWithinSeconds\":600,\"boot\":\"this\",\"sinceMs\":5}";
    fs::create_dir_all(machine.marks().folder()).unwrap();
    fs::write(machine.marks().folder().join("trial.json"), text.replace("HEX", &Digest([7; 32]).to_string())).unwrap();
    let Reading::Said(mark) = machine.marks().trial() else { panic!("{:?}", machine.marks().trial()) };
    assert_eq!((mark.since_ms, mark.since_awake_ms), (5, None));
}

proptest! {
    #[test]
    fn whatever_a_file_holds_it_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let folder = tempfile::tempdir().unwrap();
        let marks = Marks::new(Arc::new(OnDisk), folder.path(), Some(PRODUCT));
        fs::create_dir(marks.folder()).unwrap();
        fs::write(marks.folder().join("trial.json"), &bytes).unwrap();
        fs::write(marks.folder().join("boots.json"), &bytes).unwrap();
        let facts = marks.facts(&Run { boot: String::new(), began_ms: 0 }, at(0, 0));
        prop_assert_eq!((facts.trial, facts.boots), (Reading::Unreadable, Reading::Unreadable));
    }

    #[test]
    fn what_is_written_is_read_back(
        trial in "[0-9]{1,9}\\.[0-9]{1,9}", boots in any::<u32>(), stops in any::<u32>(), why in proptest::option::of(".{0,80}"),
        sha256 in any::<[u8; 32]>(), size_bytes in any::<u64>(), seconds in 0u64..1_000_000, since in 0u64..1_000_000_000,
        awake in proptest::option::of(0u64..1_000_000_000),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let marks = Marks::new(Arc::new(OnDisk), folder.path(), None);
        let boots = Boots { trial: trial.clone(), boots, stops, given_up: why };
        marks.write_boots(&boots).unwrap();
        prop_assert_eq!(marks.boots(), Reading::Said(boots));
        let mark = TrialMark {
            trial, slot: Slot::B, sha256: Digest(sha256), size_bytes, most_boots: 3,
            confirm_within_seconds: seconds, boot: "this".to_owned(), since_ms: since, since_awake_ms: awake,
        };
        marks.write_trial(&mark).unwrap();
        prop_assert_eq!(marks.trial(), Reading::Said(mark));
        marks.clear_trial().unwrap();
        prop_assert_eq!(marks.trial(), Reading::Absent);
    }

    #[test]
    fn a_datagram_says_only_what_is_known(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        // Whatever it is, nothing is heard that does not stand there as a line.
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let said = heard(&bytes);
        prop_assert_eq!(said.contains(&Heard::Ready), text.split('\n').any(|line| line == READY));
        prop_assert_eq!(said.contains(&Heard::Alive), text.split('\n').any(|line| line == ALIVE));
    }
}

#[test]
fn a_datagram_of_several_lines_is_heard_in_order() {
    assert_eq!(heard(b"READY=1\nSTATUS=fine\nWATCHDOG=1\nMAINPID=7"), [Heard::Ready, Heard::Alive]);
}
