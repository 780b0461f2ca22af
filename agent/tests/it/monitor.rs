//! Health through the task that watches a version: probes of every kind, and what a command is told.

use std::fs;
use std::time::Duration;

use groundswell_agent::config::{Activator, HealthCheck, HealthConfig, TcpTarget};
use groundswell_agent::health::{Changed, Monitor, Target};
use groundswell_agent::install::activate::Launch;
use groundswell_core::install::{Contents, Slot};
use groundswell_core::node::effect::Install;
use groundswell_core::node::input::{Health, Report};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::workshop::{PATIENCE, TOO_LONG, Workshop, claim, content};

/// A monitor of a version in slot a, and what it tells.
struct Watched {
    monitor: Monitor,
    changes: mpsc::Receiver<Changed>,
}

impl Watched {
    fn by(workshop: &Workshop, install: &Install, check: HealthCheck, limit: Duration) -> Self {
        let (sender, changes) = mpsc::channel(1);
        let config = HealthConfig { interval: Duration::from_millis(20), timeout: limit, ..HealthConfig::every(check) };
        let monitor = Monitor::start(config, Duration::ZERO, None, sender);
        let disk = workshop.disk();
        let launch = Launch::new(disk.slots(), Slot::A, Contents::of(install), None);
        monitor.watch(Target { start: 1, launch: Some(launch) });
        Self { monitor, changes }
    }

    async fn next(&mut self) -> Health {
        timeout(PATIENCE, self.changes.recv()).await.expect("it is told").expect("the monitor runs").health
    }
}

#[tokio::test]
async fn a_tcp_probe_passes_while_somebody_listens_and_fails_after_that() {
    let workshop = Workshop::noting_starts();
    let one = workshop.release(1, "echo one");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let check = HealthCheck::Tcp(TcpTarget::parse(&address.to_string()).unwrap());
    let mut watched = Watched::by(&workshop, &one, check, PATIENCE);
    assert_eq!(watched.next().await, Health::Healthy);
    // The port stays this test's own: nobody listens there, and nobody else can.
    let held = listener.into_std().unwrap();
    rustix::net::shutdown(&held, rustix::net::Shutdown::Both).unwrap();
    let health = watched.next().await;
    assert!(matches!(&health, Health::Failing(why) if why.contains("cannot connect")), "{health:?}");
    watched.monitor.shutdown().await;
}

#[tokio::test]
async fn a_health_command_that_takes_too_long_has_failed_and_is_ended_with_what_it_started() {
    let workshop = Workshop::noting_starts();
    let one = workshop.release(1, "echo one");
    let hangs = workshop.shell("test -e quick || { sleep 1000 & echo $! > child; echo looking; wait; }");
    let mut watched = Watched::by(&workshop, &one, HealthCheck::Command(hangs), TOO_LONG);
    let health = watched.next().await;
    assert!(matches!(&health, Health::Failing(why) if why.contains("timed out: looking")), "{health:?}");
    workshop.touch("quick");
    assert_eq!(watched.next().await, Health::Healthy);
    let child = content(&workshop.path("child")).await;
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    watched.monitor.shutdown().await;
}

/// The `GROUNDSWELL_…` variables that a script wrote down, without those of the tests themselves.
fn told(workshop: &Workshop, file: &str) -> Vec<String> {
    let inherited = |line: &String| line.split_once('=').is_some_and(|(name, _)| std::env::var_os(name).is_some());
    workshop.lines(file).into_iter().filter(|line| !inherited(line)).collect()
}

fn expected(workshop: &Workshop, install: &Install, slot: &str, on_trial: bool) -> Vec<String> {
    let slot = workshop.product_folder().join("slots").join(slot);
    let mut all = vec![format!("GROUNDSWELL_BINARY={}", slot.join("bcd").display())];
    all.extend(on_trial.then(|| format!("GROUNDSWELL_CLAIM={}", claim())));
    all.push("GROUNDSWELL_PRODUCT=bcd".to_owned());
    all.push(format!("GROUNDSWELL_RELEASE={}", install.release));
    all.push(format!("GROUNDSWELL_SEQUENCE={}", install.sequence));
    all.push(format!("GROUNDSWELL_SLOT={}", slot.display()));
    all.push(format!("GROUNDSWELL_VERSION={}", install.version));
    all
}

/// What a health command gets beside that.
fn probing(workshop: &Workshop, install: &Install, slot: &str, trial: bool) -> Vec<String> {
    let mut expected = expected(workshop, install, slot, trial);
    expected.push(format!("GROUNDSWELL_HEALTH={}", workshop.product_folder().display()));
    expected.sort();
    expected
}

#[tokio::test]
async fn activators_and_health_commands_get_the_documented_environment_and_nothing_else() {
    let dump = |name: &str| format!("env | grep ^GROUNDSWELL_ | sort > {name}.new; mv {name}.new {name}");
    let mut workshop = Workshop::with_command(&dump("run"));
    let Activator::Command(command) = &mut workshop.config.activator else { unreachable!() };
    (command.back, command.stop) = (None, None);
    workshop.config.health.check = HealthCheck::Command(workshop.shell(&dump("health-$GROUNDSWELL_VERSION")));
    let (one, two) = (workshop.release(1, "echo one"), workshop.release(2, "echo two"));
    let (mut bench, _) = workshop.device().await;
    bench.stage(&one).await;
    bench.activate(&one).await;
    bench.until_health(|health| *health == Health::Healthy).await;
    assert_eq!(told(&workshop, "run"), expected(&workshop, &one, "a", true));
    assert_eq!(told(&workshop, "health-1.0"), probing(&workshop, &one, "a", true));
    bench.confirm(&one).await;
    bench.stage(&two).await;
    bench.activate(&two).await;
    bench.until_health(|health| *health == Health::Healthy).await;
    assert_eq!(told(&workshop, "run"), expected(&workshop, &two, "b", true));
    assert_eq!(told(&workshop, "health-2.0"), probing(&workshop, &two, "b", true));
    fs::remove_file(workshop.path("health-1.0")).unwrap();
    assert!(matches!(bench.revert(&two).await, Report::Reverted { .. }));
    bench.until_health(|health| *health == Health::Healthy).await;
    assert_eq!(told(&workshop, "run"), expected(&workshop, &one, "a", false), "a confirmed version has no claim");
    assert_eq!(told(&workshop, "health-1.0"), probing(&workshop, &one, "a", false));
    bench.shutdown().await;
}
