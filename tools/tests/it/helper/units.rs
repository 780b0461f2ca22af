//! The units in `docs/systemd`: what keeps helper and agent small is there, and nothing takes it back.

use std::collections::BTreeMap;
use std::fs;

use crate::tidy::workspace;

/// The keys of `[Service]`, each with its last value.
fn service(name: &str) -> BTreeMap<String, String> {
    let path = workspace().join("docs/systemd").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (_, section) = text.split_once("[Service]\n").expect("a unit of a service");
    let section = section.split("\n[").next().unwrap();
    let lines = section.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// What both have in common.
const HARDENED: [(&str, &str); 17] = [
    ("NoNewPrivileges", "yes"),
    ("AmbientCapabilities", ""),
    ("ProtectSystem", "strict"),
    ("ProtectHome", "yes"),
    ("PrivateTmp", "yes"),
    ("PrivateDevices", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("RestrictNamespaces", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("LockPersonality", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallFilter", "@system-service"),
];

fn holds(name: &str, wanted: &[(&str, &str)]) {
    let service = service(name);
    for (key, value) in wanted {
        assert_eq!(service.get(*key).map(String::as_str), Some(*value), "{name}: {key}");
    }
}

#[test]
fn the_helpers_unit_has_no_network_and_few_rights() {
    holds("groundswell-helper.service", &HARDENED);
    holds(
        "groundswell-helper.service",
        &[
            ("PrivateNetwork", "yes"),
            ("RestrictAddressFamilies", "AF_UNIX"),
            ("IPAddressDeny", "any"),
            ("CapabilityBoundingSet", "CAP_CHOWN CAP_KILL"),
            ("ExecStart", "/usr/local/bin/swell helper --config /etc/groundswell/helper.toml"),
            ("StateDirectory", "groundswell-helper"),
            ("RuntimeDirectory", "groundswell-helper"),
            ("NotifyAccess", "main"),
        ],
    );
    let service = service("groundswell-helper.service");
    assert!(!service.contains_key("User"), "it is root's");
    // What would end it in the middle of somebody's command, and blame a good release for that.
    for limit in ["MemoryMax", "TasksMax", "WatchdogSec", "RuntimeMaxSec"] {
        assert!(!service.contains_key(limit), "{limit}");
    }
    // Without the machine's boot id an install could not tell one run of the machine from the next.
    assert!(!service.contains_key("ProcSubset"));
}

#[test]
fn the_agents_unit_beside_a_helper_has_no_rights_at_all() {
    holds("groundswell-unprivileged.conf", &HARDENED);
    holds("groundswell-unprivileged.conf", &[("User", "groundswell"), ("Group", "groundswell"), ("CapabilityBoundingSet", "")]);
}
