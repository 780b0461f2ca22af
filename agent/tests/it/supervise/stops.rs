//! Stops that say nothing of a build: of its machine, of its supervisor, and of both together for a while.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use groundswell_agent::supervise::notify::READY;
use groundswell_core::install::Slot;
use groundswell_core::install::supervision::{Boots, Named, Reading};
use rustix::process::{Signal, kill_process};

use super::faults::logs;
use super::machine::{Machine, confirm};

#[test]
fn orderly_restarts_use_up_no_boots_of_a_trial_that_is_well() {
    let mut machine = Machine::confirmed("");
    machine.tries("fine", 600);
    for start in 1..=5 {
        machine
            .sees("the build on trial is up", |noted| noted.matches("start b fine").count() == start && noted.ends_with("up\n"));
        machine.signal(Signal::TERM);
        assert_eq!(machine.ends().code(), Some(7), "{}", machine.told());
        let stops = u32::try_from(start).unwrap();
        assert_eq!(machine.boots(), Boots { trial: "1.1".to_owned(), boots: 0, stops, given_up: None });
        machine.start();
    }
    machine.sees("it is up again", |noted| noted.matches("start b fine").count() == 6 && noted.ends_with("up\n"));
    let Reading::Said(mark) = machine.marks().trial() else { panic!("it is still asked for") };
    confirm(&machine.data(), &Named { slot: Slot::B, sha256: mark.sha256, size_bytes: mark.size_bytes });
    logs(&machine, "the build in slot b is confirmed");
}

#[test]
fn a_supervisor_that_is_told_to_stop_before_it_has_started_anything_starts_nothing() {
    let mut machine = Machine::new("");
    let config = machine.folder.path().join("agent.toml");
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap().replace("20s", "10s")).unwrap();
    machine.script(&machine.folder.path().join("own"), "deaf");
    machine.start();
    machine.sees("it is up", |noted| noted.ends_with("up\n"));
    // What is not written down is found by other means, and not asked to end.
    machine.is_written_down();
    machine.signal(Signal::KILL);
    machine.ends();
    // The agent does not listen: the next supervisor waits for its end.
    machine.start();
    logs(&machine, "a process of an agent that died is stopped");
    machine.signal(Signal::TERM);
    assert_eq!(machine.ends().code(), Some(0), "{}", machine.told());
    assert_eq!(machine.starts("own deaf"), 1, "{}", machine.told());
}

#[test]
fn a_time_in_which_supervisor_and_agent_were_stopped_is_no_silence() {
    let machine = Machine::confirmed("silence = \"4s\"\n");
    for stop in 1..=2 {
        kill_process(machine.agent(), Signal::STOP).unwrap();
        machine.signal(Signal::STOP);
        // Longer than the silence that is allowed: that is what is tried.
        std::thread::sleep(Duration::from_secs(6));
        machine.signal(Signal::CONT);
        kill_process(machine.agent(), Signal::CONT).unwrap();
        machine.signal(Signal::HUP);
        machine.sees("both are at work again", |noted| noted.matches("HUP\n").count() == stop);
    }
    assert_eq!(machine.starts("a fine"), 1, "{}", machine.told());
}

#[test]
fn a_service_manager_that_cannot_be_told_of_readiness_is_told_once_it_can() {
    let mut machine = Machine::new("");
    let other = UnixDatagram::unbound().unwrap();
    other.connect(machine.folder.path().join("service")).unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send(b"STATUS=of another").is_ok() {}
    machine.start();
    machine.sees("it is up", |noted| noted.ends_with("up\n"));
    // Its supervisor has heard that: it does other things meanwhile.
    machine.signal(Signal::HUP);
    machine.sees("SIGHUP reached it", |noted| noted.contains("HUP\n"));
    let mut datagram = [0; 4096];
    loop {
        match machine.service.recv(&mut datagram) {
            Ok(length) if datagram[..length] == *READY.as_bytes() => break,
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{}", machine.told()),
        }
    }
}
