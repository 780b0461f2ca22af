//! Runs as data: what a seed draws can be written, read, cut and played again.

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
