//! The units of `docs/systemd`: they parse, are hardened, and start what the binary has.
//!
//! By hand, where systemd is there: `systemd-analyze security --offline=yes FILE`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use groundswell_agent::helper::desk::STOPS_WITHIN;

use super::tidy::workspace;

/// Section and key to all values, in order.
type Unit = BTreeMap<(String, String), Vec<String>>;

fn parse(text: &str) -> Result<Unit, String> {
    let mut unit = Unit::new();
    let mut section = None;
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| Err(format!("line {}: {what}: {line}", number + 1));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            if !["Unit", "Service", "Socket", "Install"].contains(&name) {
                return wrong("no section of a unit");
            }
            section = Some(name.to_owned());
            continue;
        }
        let Some(section) = &section else { return wrong("before any section") };
        let Some((key, value)) = line.split_once('=') else { return wrong("no assignment") };
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric()) || value.trim() != value {
            return wrong("no plain assignment");
        }
        unit.entry((section.clone(), key.to_owned())).or_default().push(value.to_owned());
    }
    Ok(unit)
}

fn units() -> Vec<(String, Unit)> {
    let folder = workspace().join("docs/systemd");
    let mut units = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".service") {
            let text = fs::read_to_string(entry.path()).expect("it can be read");
            units.push((name.clone(), parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))));
        }
    }
    units
}

fn get<'a>(unit: &'a Unit, section: &str, key: &str) -> &'a [String] {
    unit.get(&(section.to_owned(), key.to_owned())).map_or(&[], Vec::as_slice)
}

/// What systemd itself finds wrong with the units and the drop-in, after `change`; `None` where its program is not there. Lines
/// about other units of this machine are left out.
fn verified(change: impl Fn(&str) -> String) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).env("LC_ALL", "C");
    for (from, to) in [
        ("groundswell.service", "groundswell.service"),
        ("groundswell-helper.service", "groundswell-helper.service"),
        ("groundswell-unprivileged.conf", "groundswell.service.d/unprivileged.conf"),
    ] {
        let (text, to) =
            (fs::read_to_string(workspace().join("docs/systemd").join(from)).expect("a unit"), folder.path().join(to));
        fs::create_dir_all(to.parent().expect("a folder")).expect("it can be made");
        // What they start has to be there.
        let text = text.replace("/usr/local/bin/swell", env!("CARGO_BIN_EXE_swell"));
        fs::write(&to, change(&text)).expect("it can be written");
        if to.extension().is_some_and(|extension| extension == "service") {
            verify.arg(&to);
        }
    }
    let verified = match verify.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        verified => verified.expect("it runs"),
    };
    let told = String::from_utf8_lossy(&verified.stderr).into_owned() + &String::from_utf8_lossy(&verified.stdout);
    Some(told.lines().filter(|line| line.contains("groundswell")).map(str::to_owned).collect())
}

#[test]
fn systemd_itself_finds_nothing_wrong_with_the_units() {
    let Some(found) = verified(str::to_owned) else {
        // Past the harness that keeps what passing tests print.
        let _ = writeln!(std::io::stderr(), "NOT TESTED: systemd_itself_finds_nothing_wrong_with_the_units: no systemd-analyze");
        return;
    };
    assert_eq!(found, Vec::<String>::new());
    // It reads the drop-in too, and would say so.
    for key in ["ProtectSystem=", "Group="] {
        let found = verified(|text| text.replacen(&format!("\n{key}"), "\nNoSuchKey=", 1)).expect("it was there");
        assert!(found.iter().any(|line| line.contains("NoSuchKey")), "{key}: {found:?}");
    }
}

#[test]
fn every_service_is_hardened() {
    let units = units();
    assert!(units.iter().any(|(name, _)| name == "groundswell.service"));
    for (name, unit) in &units {
        let all = [
            ("NoNewPrivileges", "yes"),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "yes"),
            ("PrivateTmp", "yes"),
            ("PrivateDevices", "yes"),
            ("ProtectKernelModules", "yes"),
            ("ProtectKernelTunables", "yes"),
            ("ProtectControlGroups", "yes"),
            ("RestrictSUIDSGID", "yes"),
            ("LockPersonality", "yes"),
            ("MemoryDenyWriteExecute", "yes"),
            ("SystemCallArchitectures", "native"),
        ];
        for (key, value) in all {
            assert_eq!(get(unit, "Service", key), [value], "{name}: {key}");
        }
        for key in ["RestrictAddressFamilies", "SystemCallFilter", "CapabilityBoundingSet", "UMask"] {
            assert!(!get(unit, "Service", key).is_empty(), "{name}: {key} is missing");
        }
        assert!(!get(unit, "Install", "WantedBy").is_empty(), "{name}: it is never started");
    }
}

#[test]
fn every_service_starts_a_command_that_the_binary_has_with_options_that_it_takes() {
    for (name, unit) in units() {
        let [start] = get(&unit, "Service", "ExecStart") else { panic!("{name}: one ExecStart") };
        let words: Vec<&str> = start.split(' ').collect();
        let [program, command, options @ ..] = words.as_slice() else { panic!("{name}: {start}") };
        assert!(program.starts_with("/usr/") && program.ends_with("/bin/swell"), "{name}: {start}");
        let help = Command::new(env!("CARGO_BIN_EXE_swell")).args([command, "--help"]).output().expect("it runs");
        assert!(help.status.success(), "{name}: there is no command {command}");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        for option in options.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{name}: {command} takes no {option}");
        }
    }
}

/// A length of time of a unit or a configuration.
fn seconds(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.strip_prefix(digits).unwrap_or_default() {
        "" | "s" => 1,
        "m" | "min" => 60,
        other => panic!("{other}"),
    };
    digits.parse::<u64>().expect("a number") * unit
}

#[test]
fn the_helpers_service_leaves_it_the_time_by_which_it_lets_commands_end() {
    let units = units();
    let unit = units.iter().find(|(name, _)| name == "groundswell-helper.service").map(|(_, unit)| unit).expect("it is there");
    let stops: Vec<u64> = get(unit, "Service", "TimeoutStopSec").iter().map(|text| seconds(text)).collect();
    assert_eq!(stops, [STOPS_WITHIN.as_secs()]);
    // The end of the helper is the end of all that it runs.
    assert_eq!(get(unit, "Service", "KillMode"), ["mixed"]);
}

#[test]
fn the_agents_service_gives_its_supervisor_the_time_that_it_takes() {
    let text = fs::read_to_string(workspace().join("docs/agent.toml")).expect("it can be read");
    let config: toml::Table = text.parse().expect("it is TOML");
    let term = |key: &str| seconds(config["supervise"][key].as_str().expect("a text"));
    let units = units();
    let unit = units.iter().find(|(name, _)| name == "groundswell.service").map(|(_, unit)| unit).expect("it is there");
    let time = |key: &str| get(unit, "Service", key).first().map(|text| seconds(text)).expect("it is there");
    assert_eq!(get(unit, "Service", "Type"), ["notify"]);
    assert_eq!(get(unit, "Service", "Restart"), ["always"]);
    assert_eq!(get(unit, "Service", "KillMode"), ["mixed"]);
    assert_eq!(get(unit, "Unit", "StartLimitIntervalSec"), ["0"]);
    assert!(time("WatchdogSec") > term("ready-within") + term("backoff-max") + term("silence"));
    // An agent of a killed supervisor ends; a build on trial fails each start late, and the last confirmed one comes up.
    let product = config["product"].as_table().expect("a table").values().find_map(|product| product.get("trial-starts"));
    let starts = product.and_then(toml::Value::as_integer).map_or(3, i64::unsigned_abs);
    assert!(time("TimeoutStartSec") > 3 * term("stop-timeout") + (starts + 1) * term("ready-within"));
    assert!(time("TimeoutStopSec") > 2 * term("stop-timeout") + 10);
}

#[test]
fn what_is_no_unit_is_refused() {
    for text in ["Key=1\n", "[Odd]\n", "[Unit]\nno assignment\n", "[Unit]\n=1\n", "[Service]\nKey = 1\n"] {
        assert!(parse(text).is_err(), "{text}");
    }
}
