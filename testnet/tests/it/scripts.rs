//! Runs as data: what a seed draws can be written, read, cut and played again.

use groundswell_core::number::Ppm;
use groundswell_testnet::sim::act::Act;
use groundswell_testnet::sim::director::{Outcome, play, play_out};
use groundswell_testnet::sim::draw::draw;
use groundswell_testnet::sim::script::Script;
use groundswell_testnet::sim::world::World;

#[test]
fn a_script_that_is_written_reads_as_it_was() {
    for seed in 0..200 {
        let script = draw(seed);
        let text = script.to_toml();
        assert_eq!(Script::parse(&text).expect("it was just written"), script, "{text}");
    }
}

#[test]
fn a_script_from_a_file_does_what_its_seed_does() {
    let script = draw(7);
    assert_eq!(play(&Script::parse(&script.to_toml()).expect("it was just written")), play(&script));
}

#[test]
fn every_act_means_something_without_the_others() {
    let whole = draw(12);
    for place in (0..whole.acts.len()).step_by(7) {
        let mut script = whole.clone();
        script.acts.remove(place);
        assert_eq!(play(&script).failure, None, "without {}", whole.acts[place].act);
        script.acts.drain(..place);
        assert_eq!(play(&script).failure, None, "from {} on", whole.acts[place].act);
    }
}

#[test]
fn what_nobody_understands_is_refused_by_name() {
    let refused = |acts: &str| {
        let text = format!("pools = [{{ name = \"north\", machines = 3 }}]\nlasts = \"1m\"\nacts = [{acts}]");
        Script::parse(&text).expect_err("it makes no sense").to_string()
    };
    assert!(refused(r#"{ at = "5s", do = "power-of", machine = 1 }"#).contains("power-of"));
    assert!(refused(r#"{ at = "5s", do = "power-off", machine = 1, fro = "1m" }"#).contains("fro"));
    assert!(refused(r#"{ at = "5 minutes", do = "mend" }"#).contains("5 minutes"));
    assert!(refused(r#"{ at = "5s", do = "power-off" }"#).contains("machine"));
}

#[test]
fn an_act_is_told_in_one_line() {
    let act = Act::PowerOff { machine: 3, for_ms: Some(90_000) };
    assert_eq!(act.to_string(), "power-off for=1m30s machine=3");
}

/// These acts, played; the world as it was in the end.
fn played(pools: &str, lasts: &str, more: &str, acts: &str) -> (World, Outcome) {
    let text = format!("seed = 3\npools = [{pools}]\nlasts = \"{lasts}\"\n{more}\nacts = [{acts}]");
    play_out(&Script::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

const FOUR: &str = r#"{ name = "north", machines = 4 }"#;
/// Everybody may begin at once, and each trial takes a while.
const AT_ONCE: &str =
    r#"{ at = "10s", do = "publish", at-machine = 0, terms = { waves-ppm = [1000000], confirm-after = "20s" } }"#;

#[test]
fn the_power_of_a_holder_fails_whoever_it_is() {
    let acts = format!(r#"{AT_ONCE}, {{ at = "25s", do = "power-off-holder", from = 2, for = "3m" }}"#);
    let (world, outcome) = played(FOUR, "1m", "", &acts);
    assert_eq!(outcome.failure, None);
    let off: Vec<_> = world.machines.iter().filter(|machine| machine.node.is_none()).collect();
    assert!(off.len() == 1 && off.iter().all(|machine| machine.device.trial().is_some()), "{}", off.len());
    // Nobody holds anything: nothing to do.
    let (world, _) = played(FOUR, "1m", "", r#"{ at = "25s", do = "power-off-holder", from = 2, for = "3m" }"#);
    assert!(world.machines.iter().all(|machine| machine.node.is_some()));
}

#[test]
fn the_disk_of_a_holder_is_lost_whoever_it_is() {
    let acts = format!(r#"{AT_ONCE}, {{ at = "25s", do = "lose-holder", from = 2 }}"#);
    let (world, outcome) = played(FOUR, "1m", "", &acts);
    assert_eq!((outcome.failure, world.truth.lost.len()), (None, 1));
    let lost = world.machines.iter().find(|machine| machine.node.is_none()).expect("one is lost");
    assert!(lost.device.trial().is_some(), "{:?}", lost.device);
}

#[test]
fn power_that_fails_with_every_claim_lets_nobody_start() {
    let (world, outcome) = played(FOUR, "10m", "faults = { power-in-claims-ppm = 1000000 }", AT_ONCE);
    assert_eq!((outcome.failure, outcome.starts), (None, 0));
    let claimed: Vec<u32> =
        world.machines.iter().filter(|machine| machine.claimed.is_some()).map(|machine| machine.life).collect();
    assert!(!claimed.is_empty() && claimed.iter().all(|life| *life > 1), "{claimed:?}");
}

#[test]
fn power_that_fails_whenever_a_record_is_signed_has_nobody_say_what_it_does_not_know_afterwards() {
    let (world, outcome) = played(FOUR, "5m", "faults = { power-in-words-ppm = 1000000 }", AT_ONCE);
    assert_eq!(outcome.failure, None);
    assert!(world.machines.iter().all(|machine| machine.life > 2), "{:?}", world.events);
}

#[test]
fn of_two_operators_that_disagree_one_may_let_it_go_on() {
    let disagree = |how: &str| {
        let acts = format!(r#"{AT_ONCE}, {{ at = "15s", do = "disagree", at-machine = 0, and-machine = 3{how} }}"#);
        let (world, _) = played(FOUR, "25s", "", &acts);
        let known = world.machine(1).node.as_ref().and_then(|node| node.shelf().rollouts().next()).expect("one is known");
        let mut states: Vec<String> = known.bodies().map(|body| format!("{:?}", body.state)).collect();
        states.sort();
        states
    };
    assert_eq!(disagree(""), ["Paused", "Paused"]);
    assert_eq!(disagree(", goes-on = true"), ["Paused", "Running"]);
}

/// Such a machine was due again and again at one instant, and time stood still.
#[test]
fn a_copy_of_a_lost_machine_that_loses_power_stays_off() {
    let five = r#"{ name = "north", machines = 5 }"#;
    let acts = r#"{ at = "10s", do = "lose", machine = 2 }, { at = "20s", do = "clone", machine = 2 },
        { at = "30s", do = "power-off", machine = 5, for = "5s" }"#;
    let acts = acts.replace('\n', " ");
    let (world, outcome) = played(five, "2m", "", &acts);
    assert_eq!((outcome.failure, world.count(), world.now_ms), (None, 6, 120_000));
    assert!(world.machine(5).node.is_none());
}

#[test]
fn what_must_meet_to_matter_is_drawn_in_some_seeds() {
    let scripts: Vec<Script> = (0..200).map(draw).collect();
    let with = |is: fn(&Act) -> bool| scripts.iter().filter(|script| script.acts.iter().any(|it| is(&it.act))).count();
    let met = [
        with(|act| matches!(act, Act::LoseHolder { .. })),
        with(|act| matches!(act, Act::PowerOffHolder { .. })),
        with(|act| matches!(act, Act::Disagree { goes_on: true, .. })),
        with(|act| matches!(act, Act::Rebudget { budget_ppm, .. } if budget_ppm.parts() == 750_000)),
        scripts.iter().filter(|script| script.faults.power_in_claims > Ppm::ZERO).count(),
        scripts.iter().filter(|script| script.faults.power_in_words > Ppm::ZERO).count(),
    ];
    assert!(met.iter().all(|seeds| *seeds >= 30), "{met:?}");
}
