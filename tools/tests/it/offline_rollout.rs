//! `rollout create`, `plan`, `sign`, `pause`, `resume`, `abort`.

use serde_json::Value;

use crate::desk::Desk;

const CREATE: [&str; 7] = ["rollout", "create", "next.toml", "--fleet", "fleet", "--key", "keys/rollout.pem"];
const FILE: &str = "id = \"next\"\nproduct = \"bcd\"\nversion = \"1.0.0\"\n";
const STEER: [&str; 5] = ["next", "--fleet", "fleet", "--key", "keys/rollout.pem"];

/// A desk with five nodes in two pools and release 1.0.0.
fn desk(extra: &[&str]) -> Desk {
    let desk = Desk::with_fleet(extra);
    desk.admit(&[("a1", "edge"), ("a2", "edge"), ("a3", "edge"), ("b1", "core"), ("b2", "core")]);
    desk.release("1.0.0", "1");
    desk.write("next.toml", FILE);
    desk
}

fn steer(desk: &Desk, step: &str, more: &[&str]) -> Value {
    desk.json(&[&["rollout", step], &STEER[..], more].concat())
}

#[test]
fn a_rollout_is_made_with_its_roster_and_the_next_reuses_it() {
    let desk = desk(&[]);
    let made = desk.json(&CREATE);
    assert_eq!(made["waves"], serde_json::json!([1, 1, 1, 2]));
    assert_eq!((&made["rosterVersion"], &made["roster"]["complete"]), (&1.into(), &true.into()));
    assert_eq!(desk.files("fleet/rollouts"), ["next-1.json"]);
    assert_eq!(desk.files("fleet/rosters"), ["1.json"]);
    desk.release("1.1.0", "2");
    desk.write("next.toml", "id = \"after\"\nproduct = \"bcd\"\nversion = \"1.1.0\"\n");
    let made = desk.json(&CREATE);
    assert_eq!((&made["rosterVersion"], &made["roster"]), (&1.into(), &Value::Null));
    desk.admit(&[("a4", "edge")]);
    desk.write("next.toml", "id = \"third\"\nproduct = \"bcd\"\nversion = \"1.1.0\"\n");
    let text = desk.done(&CREATE);
    assert!(text.contains("roster 2, 6 nodes") && text.contains("joined: a4"), "{text}");
    assert_eq!(desk.files("fleet/rosters"), ["1.json", "2.json"]);
    assert!(desk.done(&["fleet", "show", "fleet"]).contains("6 nodes, roster 2"));
}

#[test]
fn a_folder_without_its_roster_file_keeps_the_policies_that_were_signed() {
    let desk = desk(&[]);
    desk.write("fleet/roster.toml", "meet = [\"/dns4/mesh.example.com/tcp/7490\"]\n[pool.edge]\nbudget = \"50%\"\n");
    desk.done(&CREATE);
    std::fs::remove_file(desk.path("fleet/roster.toml")).unwrap();
    desk.write("next.toml", "id = \"after\"\nproduct = \"bcd\"\nversion = \"1.0.0\"\n");
    assert_eq!(desk.json(&CREATE)["roster"], Value::Null);
}

#[test]
fn w5_a_list_of_waves_that_cannot_be_meant_writes_nothing() {
    let desk = desk(&[]);
    for (percents, field) in [
        (&["50%", "50%", "100%"][..], "waves[1].percentPpm"),
        (&["10%", "90%"], "waves[1].percentPpm"),
        (&["0%", "100%"], "waves[0].percentPpm"),
        (&["60%", "50%", "100%"], "waves[1].percentPpm"),
    ] {
        let waves: String = percents.iter().map(|percent| format!("[[wave]]\npercent = \"{percent}\"\n")).collect();
        desk.write("next.toml", &format!("{FILE}{waves}"));
        let error = desk.fails(2, &CREATE);
        assert!(error.contains("next.toml") && error.contains(field), "{error}");
    }
    desk.write("next.toml", &format!("{FILE}[[wave]]\npercent = \"101%\"\n"));
    assert!(desk.fails(2, &CREATE).contains("next.toml:5"));
    assert_eq!((desk.files("fleet/rollouts").len(), desk.files("fleet/rosters").len()), (0, 0));
}

#[test]
fn m5_w9_bad_input_is_told_by_file_line_and_key_and_writes_nothing() {
    let desk = desk(&[]);
    for (text, says) in [
        (format!("{FILE}min-soakd = \"5%\"\n"), "next.toml:4: unknown key `min-soakd`; did you mean `min-soaked`?"),
        (format!("{FILE}[halt]\nmax-failures = \"some\"\n"), "next.toml:5"),
        ("id = \"next\"\nproduct = \"bcd\"\nversion = \"9.9.9\"\n".to_string(), "9.9.9"),
        (format!("{FILE}[scope]\npools = [\"nowhere\"]\n"), "scope"),
        (format!("{FILE}open-waves = 9\n"), "openWaves"),
        (format!("{FILE}upgrade-timeout = \"13h\"\n"), "presumes a holder lost"),
        (format!("{FILE}reason = \"{}\"\n", "x".repeat(501)), "500"),
    ] {
        desk.write("next.toml", &text);
        let error = desk.fails(2, &CREATE);
        assert!(error.contains(says), "{says}: {error}");
    }
    desk.write("next.toml", FILE);
    desk.write("fleet/roster.toml", "[pool.edge]\nbudgett = \"5%\"\n");
    assert!(desk.fails(2, &CREATE).contains("roster.toml:2: unknown key `budgett`; did you mean `budget`?"));
    assert_eq!((desk.files("fleet/rollouts").len(), desk.files("fleet/rosters").len()), (0, 0));
}

#[test]
fn a12_guard_rails_of_root_are_not_exceeded() {
    let desk = desk(&["--min-soak", "5m", "--max-first-wave", "20%", "--max-budget", "34%"]);
    desk.write("next.toml", &format!("{FILE}[[wave]]\npercent = \"100%\"\nsoak = \"4m\"\n"));
    assert!(desk.fails(2, &CREATE).contains("limits: waves[0].soakSeconds"));
    desk.write("next.toml", &format!("{FILE}[[wave]]\npercent = \"100%\"\n"));
    assert!(desk.fails(2, &CREATE).contains("waves[0]: limits: holds 5 of 5 nodes"));
    desk.write("next.toml", FILE);
    desk.write("fleet/roster.toml", "[pool.edge]\nbudget = \"50%\"\n");
    assert!(desk.fails(2, &CREATE).contains("pools.edge.budgetPpm"));
    desk.write("fleet/roster.toml", "[pool.edge]\nbudget = \"34%\"\n");
    desk.done(&CREATE);
}

#[test]
fn two_keys_sign_one_after_the_other() {
    let desk = desk(&["--rollout-keys", "2", "--rollout-threshold", "2"]);
    let create = [&CREATE[..6], &["keys/rollout-1.pem"]].concat();
    let made = desk.json(&create);
    assert_eq!((&made["rollout"]["complete"], &made["roster"]["complete"]), (&false.into(), &false.into()));
    assert!(desk.done(&["fleet", "show", "fleet"]).contains("half-signed"));
    let sign = ["rollout", "sign", "fleet/rollouts/next-1.json", "--fleet", "fleet", "--key"];
    assert!(desk.fails(2, &[&sign[..], &["keys/root.pem"]].concat()).contains("no key of the fleet's rollout role"));
    let signed = desk.json(&[&sign[..], &["keys/rollout-2.pem"]].concat());
    let complete: Vec<bool> =
        signed["documents"].as_array().unwrap().iter().map(|one| one["complete"].as_bool().unwrap()).collect();
    assert_eq!(complete, [true, true]);
    // One key brakes, the threshold goes on.
    let one = ["next", "--fleet", "fleet", "--key", "keys/rollout-1.pem"];
    let paused = desk.json(&[&["rollout", "pause"], &one[..]].concat());
    assert_eq!((&paused["state"], &paused["rollout"]["complete"]), (&"paused".into(), &true.into()));
    let resumed = desk.json(&[&["rollout", "resume"], &one[..]].concat());
    assert_eq!((&resumed["generation"], &resumed["rollout"]["complete"]), (&3.into(), &false.into()));
    let both = [&["rollout", "abort"], &one[..], &["--key", "keys/rollout-2.pem", "--rollback"]].concat();
    std::fs::remove_file(desk.path("fleet/rollouts/next-3.json")).unwrap();
    assert_eq!(desk.json(&both)["state"], "aborted");
}

#[test]
fn a_rollout_is_paused_resumed_with_forgiven_failures_and_aborted_for_good() {
    let desk = desk(&[]);
    desk.done(&CREATE);
    assert_eq!(steer(&desk, "pause", &["--reason", "smoke in the lab"])["generation"], 2);
    let node = desk.json(&["node", "admit", "fleet", "--key", "keys/enroll.pem", "nodes/a1/a1.req"])[0]["node"]
        .as_str()
        .unwrap()
        .to_string();
    let seen = serde_json::json!({"id": "next", "nodes": [
        {"node": node, "standing": "failed", "claim": "1.7"},
        {"node": node, "standing": "soaked", "claim": null}]});
    desk.write("seen.json", &serde_json::json!([seen]).to_string());
    let other = [&["rollout", "resume", "other"], &STEER[1..], &["--forgive-failed", "seen.json"]].concat();
    assert!(desk.fails(2, &other).contains("says nothing about rollout other"));
    steer(&desk, "resume", &["--forgive-failed", "seen.json", "--retry"]);
    steer(&desk, "pause", &[]);
    assert_eq!(steer(&desk, "resume", &["--forgive", &node])["generation"], 5);
    let short = format!("{}:1.7", &node[node.len() - 8..]);
    assert_eq!(steer(&desk, "resume", &["--forgive", &short, "--forgive", "a2"])["generation"], 6);
    let unknown = [&["rollout", "resume"], &STEER[..], &["--forgive", "a9"]].concat();
    assert!(desk.fails(2, &unknown).contains("fleet knows no node `a9`"));
    let aborted = steer(&desk, "abort", &["--rollback"]);
    assert_eq!((&aborted["generation"], &aborted["state"]), (&7.into(), &"aborted".into()));
    let error = desk.fails(2, &[&["rollout", "resume"], &STEER[..]].concat());
    assert!(error.contains("final"), "{error}");
    assert!(
        desk.fails(2, &["rollout", "pause", "other", "--fleet", "fleet", "--key", "keys/rollout.pem"]).contains("it has: next")
    );
    assert_eq!(desk.files("fleet/rollouts").len(), 7);
}

#[test]
fn b19_a_plan_names_every_node_and_signs_nothing() {
    let desk = desk(&[]);
    let plan = desk.json(&["rollout", "plan", "next.toml", "--fleet", "fleet"]);
    let waves = plan["waves"].as_array().unwrap();
    let names = |wave: &Value| {
        wave["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = waves.iter().flat_map(names).collect();
    all.sort();
    assert_eq!(all, ["a1", "a2", "a3", "b1", "b2"]);
    assert_eq!((desk.files("fleet/rollouts").len(), desk.files("fleet/rosters").len()), (0, 0));
    desk.done(&CREATE);
    let signed = desk.json(&["rollout", "plan", "fleet/rollouts/next-1.json", "--fleet", "fleet"]);
    let waves_of = |plan: &Value| plan["waves"].as_array().unwrap().iter().map(names).collect::<Vec<_>>();
    assert_eq!(waves_of(&signed), waves_of(&plan), "what was planned is what was signed");
}

#[test]
fn b19_without_an_id_in_the_file_create_makes_what_plan_showed() {
    let desk = desk(&[]);
    desk.write("next.toml", "product = \"bcd\"\nversion = \"1.0.0\"\n");
    let line = ["rollout", "plan", "next.toml", "--fleet", "fleet"];
    let planned = desk.json(&line);
    let id = planned["rollout"].as_str().unwrap();
    assert_eq!(planned["keepBy"], format!("id = \"{id}\""));
    let said = desk.run(&line).err;
    assert!(said.contains(&format!("write id = \"{id}\" into the file")), "{said}");
    assert_eq!(desk.json(&CREATE)["id"], *id);
    // Once more is another rollout, and terms that differ are too.
    let again = desk.json(&line);
    assert_ne!(again["rollout"], *id);
    desk.write("next.toml", "product = \"bcd\"\nversion = \"1.0.0\"\nconfirm-after = \"2m\"\n");
    assert_ne!(desk.json(&line)["rollout"], again["rollout"]);
    desk.write("next.toml", FILE);
    assert_eq!(desk.json(&line)["keepBy"], Value::Null);
    assert_eq!(desk.run(&line).err, "");
}

#[test]
fn a_rollout_names_those_that_it_supersedes() {
    let desk = desk(&[]);
    assert_eq!(desk.json(&CREATE)["supersedes"], serde_json::json!([]));
    for (sequence, version, takes) in [("2", "1.1.0", "next"), ("3", "1.2.0", "r2")] {
        desk.release(version, sequence);
        desk.write("next.toml", &format!("id = \"r{sequence}\"\nproduct = \"bcd\"\nversion = \"{version}\"\n"));
        let planned = desk.done(&["rollout", "plan", "next.toml", "--fleet", "fleet"]);
        assert!(planned.contains(&format!("supersedes {takes}: its remaining nodes go straight to {version}")), "{planned}");
        assert_eq!(desk.json(&CREATE)["supersedes"], serde_json::json!([takes]), "only what nothing else has taken over");
    }
    desk.done(&["rollout", "abort", "r3", "--fleet", "fleet", "--key", "keys/rollout.pem"]);
    desk.release("1.3.0", "4");
    desk.write("next.toml", "id = \"r4\"\nproduct = \"bcd\"\nversion = \"1.3.0\"\n");
    assert_eq!(desk.json(&CREATE)["supersedes"], serde_json::json!([]), "what was aborted moves nobody");
}
