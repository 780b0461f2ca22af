//! The configuration file: what is read, and what is said when it cannot be.

use std::path::Path;
use std::time::Duration;

use groundswell_agent::config::{Activator, Config, ConfigError, HealthCheck, HelperConfig, LogFormat, TellSignal, UnitAction};
use groundswell_core::install::{Counted, Hook};
use groundswell_core::text::Product;

const FLEET: &str = "sha256/0000000000000000000000000000000000000000000000000000000000000000";

fn least() -> String {
    format!("data-dir = \"data\"\nfleet = \"{FLEET}\"\nkey-file = \"node.key\"\n")
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("/etc/groundswell/agent.toml"), text)
}

fn refusal(text: &str) -> String {
    parse(text).expect_err("this must not be taken").to_string()
}

#[test]
fn the_documented_default_is_valid_and_says_the_defaults() {
    let documented = parse(Config::documented_default()).unwrap();
    let implied = parse(&format!("{}[product.bcd]\nactivator = {{ type = \"supervise\" }}\n", least())).unwrap();
    assert_eq!(documented.listen, implied.listen);
    assert_eq!(documented.bootstrap, implied.bootstrap);
    assert_eq!((documented.mdns, documented.lean), (implied.mdns, implied.lean));
    assert_eq!((documented.log_format, &documented.log_filter), (implied.log_format, &implied.log_filter));
    assert_eq!(documented.limits, implied.limits);
    let product = Product::new("bcd").unwrap();
    let (documented, implied) = (&documented.products[&product], &implied.products[&product]);
    assert_eq!(documented.activator, implied.activator);
    assert_eq!(documented.trial_starts, implied.trial_starts);
    assert_eq!((&documented.inhibit, documented.observe_only), (&implied.inhibit, implied.observe_only));
    let numbers = |health: &groundswell_agent::config::HealthConfig| {
        (health.interval, health.timeout, health.healthy_after, health.unhealthy_after)
    };
    assert_eq!(numbers(&documented.health), numbers(&implied.health));
    assert!(matches!(&documented.health.check, HealthCheck::Http(target) if target.port == 8080 && target.path == "/health"));
    assert_eq!(implied.health.check, HealthCheck::Process);
}

#[test]
fn relative_paths_lead_from_the_folder_of_the_file() {
    let config = parse(&format!("documents = [\"fleet.json\", \"/srv/fleet.json\"]\n{}", least())).unwrap();
    assert_eq!(config.data_dir, Path::new("/etc/groundswell/data"));
    assert_eq!(config.documents, [Path::new("/etc/groundswell/fleet.json"), Path::new("/srv/fleet.json")]);
    assert_eq!(config.socket, Path::new("/etc/groundswell/data/agent.sock"));
    assert_eq!(config.log_format, LogFormat::Text);
}

#[test]
fn s6_a_supervised_agent_passes_over_the_keys_of_newer_builds_and_moves_nothing_that_they_may_hold_back() {
    let lenient = |more: &str| {
        let text = format!(
            "{}new = [1,\n 2]\n{more}\n[log]\nformat = \"json\"\nport = 1\n[product.bcd]\n\
             activator = {{ type = \"supervise\", run = [\"{{binary}}\"] }}\n[product.swell]\nactivator = {{ type = \"agent\" }}\n",
            least()
        );
        assert!(parse(&text).is_err(), "nobody else passes over anything");
        Config::parse_leniently(Path::new("/etc/groundswell/agent.toml"), &text)
    };
    let observed = |config: &Config| config.products.values().map(|product| product.observe_only).collect::<Vec<_>>();

    let (config, unknown) = lenient("").unwrap();
    assert_eq!(unknown, ["log.port", "new"]);
    assert_eq!((config.log_format, observed(&config)), (LogFormat::Json, vec![false, false]));

    let (config, unknown) = lenient("[trust]\nwitnesses = 3\n").unwrap();
    assert_eq!(unknown, ["log.port", "new", "trust.witnesses"]);
    assert_eq!(observed(&config), [true, true]);

    // It may be `trust` or a product's table under a mistyped name.
    for table in
        ["[turst]\nrollout = 2\n", "[[turst]]\nrollout = 2\n", "turst.rollout = 2\n", "[prodcut.bcd]\nobserve-only = true\n"]
    {
        let (config, unknown) = lenient(table).unwrap();
        assert!(unknown.len() == 3, "{unknown:?}");
        assert_eq!(observed(&config), [true, true], "{table}");
    }

    for table in ["[product.bcd.windows]\ndays = 1\n", "[product.bcd.hooks]\nbefore-lunch = [\"x\"]\n"] {
        let (config, unknown) = lenient(table).unwrap();
        assert!(unknown.len() == 3 && unknown.iter().any(|key| key.starts_with("product.bcd.")), "{unknown:?}");
        assert_eq!(observed(&config), [true, false], "{table}");
    }
    // Anything else that is wrong is still refused, by its line.
    let refused = lenient("listen = 7\n").unwrap_err().to_string();
    assert!(refused.contains("agent.toml:6: "), "{refused}");
}

#[test]
fn m5_an_unknown_key_is_told_with_file_line_and_nearest_key() {
    assert_eq!(
        refusal(&format!("{}bootstraps = []\n", least())),
        "/etc/groundswell/agent.toml:4: unknown key `bootstraps`; did you mean `bootstrap`?"
    );
    let nested = format!(
        "{}[product.bcd]\n[product.bcd.activator]\ntype = \"supervise\"\n[product.bcd.health]\ntype = \"http\"\nurl = \"http://127.0.0.1/\"\nintervall = \"5s\"\n",
        least()
    );
    assert_eq!(refusal(&nested), "/etc/groundswell/agent.toml:10: unknown key `intervall`; did you mean `interval`?");
    let inline = format!("{}[product.bcd]\nactivator = {{ type = \"supervise\", enviroment = {{}} }}\n", least());
    assert!(refusal(&inline).starts_with("/etc/groundswell/agent.toml:5: unknown key `enviroment`"), "{}", refusal(&inline));
    let log = format!("{}[log]\nformatt = \"json\"\n", least());
    assert_eq!(refusal(&log), "/etc/groundswell/agent.toml:5: unknown key `formatt`; did you mean `format`?");
}

#[test]
fn missing_keys_bad_values_and_bad_toml_name_the_line() {
    assert!(refusal("data-dir = \"x\"\n").contains("missing field `fleet`"));
    assert!(refusal(&least().replace("sha256/", "md5/")).contains("/etc/groundswell/agent.toml:2: "));
    assert!(refusal(&format!("{}mdns = maybe\n", least())).contains("/etc/groundswell/agent.toml:4: "));
    let period = format!("{}[product.bcd]\nactivator = {{ type = \"supervise\", stop-timeout = \"soon\" }}\n", least());
    let told = refusal(&period);
    assert!(told.contains("agent.toml:5: ") && told.contains("is not a length of time"), "{told}");
}

#[test]
fn keys_that_contradict_each_other_are_told_by_name() {
    let product =
        |activator: &str, health: &str| refusal(&format!("{}[product.bcd]\nactivator = {{ {activator} }}\n{health}", least()));
    let told = product("type = \"command\", run = [\"x\"]", "");
    assert!(told.contains("product.bcd.health: is missing"), "{told}");
    let told = product("type = \"command\", run = [\"x\"], restart = {}", "");
    assert!(told.contains("product.bcd.activator.restart: belongs to type = \"supervise\""), "{told}");
    let told = product("type = \"command\"", "health = { type = \"command\", run = [\"true\"] }");
    assert!(told.contains("product.bcd.activator.run: is missing"), "{told}");
    let told = product("type = \"supervise\"", "health = { type = \"http\", url = \"https://127.0.0.1/\" }");
    assert!(told.contains("product.bcd.health.url: ") && told.contains("plain http only"), "{told}");
    let told = product("type = \"supervise\"", "health = { type = \"process\", healthy-after = 0 }");
    assert!(told.contains("product.bcd.health.healthy-after: must be at least 1"), "{told}");
}

#[test]
fn a_missing_file_says_how_to_get_one() {
    let told = Config::load(Path::new("/nowhere/agent.toml")).expect_err("no such file").to_string();
    assert!(told.contains("/nowhere/agent.toml") && told.contains("swell agent --print-config"), "{told}");
}

#[test]
fn a_command_product_is_read() {
    let text = format!(
        "{}[product.bcd]\ninhibit = [\"hold\"]\nversion-lock = \"1.4\"\nactivator = {{ type = \"command\", run = [\"systemctl\", \"restart\", \"bcd\"], timeout = \"2m\" }}\nhealth = {{ type = \"command\", run = [\"systemctl\", \"is-active\", \"bcd\"], interval = \"1s\" }}\n",
        least()
    );
    let config = parse(&text).unwrap();
    let product = config.products.values().next().unwrap();
    assert!(matches!(&product.activator, Activator::Command(command) if command.timeout == Duration::from_secs(120)));
    assert_eq!(product.health.interval, Duration::from_secs(1));
    assert_eq!(product.inhibit, [Path::new("/etc/groundswell/hold")]);
    assert_eq!(product.version_lock.as_deref(), Some("1.4"));
}

fn product(tables: &str) -> Result<groundswell_agent::config::ProductConfig, ConfigError> {
    let text = format!("{}[product.bcd]\n{tables}\n", least());
    parse(&text).map(|config| config.products.into_values().next().unwrap())
}

#[test]
fn a_unit_is_its_own_health_check_unless_another_is_given() {
    let systemd = product("activator = { type = \"systemd\", unit = \"bcd@1.service\", action = \"reload\" }").unwrap();
    assert!(matches!(&systemd.activator, Activator::Systemd(activator) if activator.action == UnitAction::Reload));
    assert!(matches!(&systemd.health.check, HealthCheck::Unit(target) if target.unit == "bcd@1.service"));
    let health = "health = { type = \"tcp\", address = \"[::1]:5432\" }";
    let systemd = product(&format!("activator = {{ type = \"systemd\", unit = \"bcd\" }}\n{health}")).unwrap();
    assert!(matches!(&systemd.health.check, HealthCheck::Tcp(target) if target.host == "::1" && target.port == 5432));
    for bad in ["--now", "", "a b", "bcd;reboot"] {
        let told = product(&format!("activator = {{ type = \"systemd\", unit = \"{bad}\" }}")).expect_err(bad).to_string();
        assert!(told.contains("product.bcd.activator.unit: ") && told.contains("is not the name of a unit"), "{told}");
    }
}

#[test]
fn signals_hooks_and_restarts_of_the_machine_are_read() {
    let health = "health = { type = \"command\", run = [\"true\"] }";
    let told =
        product(&format!("activator = {{ type = \"signal\", pid-file = \"bcd.pid\", signal = \"USR2\" }}\n{health}")).unwrap();
    let Activator::Signal(signal) = &told.activator else { panic!("a signal") };
    assert_eq!((signal.pid_file.as_path(), signal.signal), (Path::new("/etc/groundswell/bcd.pid"), TellSignal::Usr2));
    let os = "activator = { type = \"command\", run = [\"rauc\"], reboot = [\"reboot\"], booted = [\"booted\"], back = [\"back\"], stop = [\"stop\"] }";
    let hooks = "hooks = { after-confirm = [\"rauc\", \"mark-good\"], timeout = \"5s\" }";
    let os = product(&format!("{os}\n{health}\n{hooks}")).unwrap();
    assert!(os.manner().restarts_machine && !told.manner().restarts_machine);
    assert_eq!([os.manner().counted, told.manner().counted], [Counted::Boots; 2], "they run on without the agent");
    assert_eq!(os.hooks.commands[&Hook::AfterConfirm], ["rauc", "mark-good"]);
    assert_eq!(os.hooks.timeout, Duration::from_secs(5));
}

#[test]
fn a_key_that_the_type_does_not_read_is_an_error() {
    let supervise = "activator = { type = \"supervise\" }";
    for (tables, told) in [
        ("activator = { type = \"supervise\", back = [\"x\"] }".to_owned(), "activator.back: belongs to type = \"command\""),
        (
            "activator = { type = \"signal\", run = [\"x\"] }".to_owned(),
            "activator.run: belongs to type = \"command\" or \"supervise\"",
        ),
        (
            "activator = { type = \"command\", run = [\"x\"], reboot = [\"y\"] }".to_owned(),
            "activator.booted: is missing: with `reboot`",
        ),
        (format!("{supervise}\nhealth = {{ type = \"tcp\", url = \"http://x/\" }}"), "health.url: belongs to type = \"http\""),
        (format!("{supervise}\nhealth = {{ type = \"unit\" }}"), "health.unit: is missing"),
        (
            format!("{supervise}\nhealth = {{ type = \"tcp\", address = \"localhost\" }}"),
            "health.address: `localhost` is not like",
        ),
        (format!("{supervise}\nhooks = {{ before-activate = [] }}"), "hooks.before-activate: must name a program"),
    ] {
        let refused = product(&tables).expect_err(told).to_string();
        assert!(refused.contains(told), "{refused}");
    }
    assert!(
        refusal(&format!("{}[product.bcd]\n{supervise}\nhooks = {{ before-start = [] }}\n", least()))
            .contains("unknown key `before-start`")
    );
}

#[test]
fn a_product_that_a_helper_installs_says_so_and_leaves_the_rest_to_it() {
    let health = "health = { type = \"command\", run = [\"true\"] }";
    let socket = |product: groundswell_agent::config::ProductConfig| match product.activator {
        Activator::Helper(helper) => helper.socket,
        other => panic!("{other:?}"),
    };
    let read = product(&format!("activator = {{ type = \"helper\" }}\n{health}")).unwrap();
    assert_eq!(socket(read), Path::new("/run/groundswell-helper/helper.sock"));
    let read = product(&format!("activator = {{ type = \"helper\", socket = \"h.sock\" }}\n{health}")).unwrap();
    assert_eq!(socket(read), Path::new("/etc/groundswell/h.sock"));
    let helper = "activator = { type = \"helper\" }";
    for (tables, told) in [
        (helper.to_owned(), "health: is missing"),
        ("activator = { type = \"supervise\", socket = \"x\" }".to_owned(), "activator.socket: belongs to type = \"helper\""),
        (format!("{helper}\n{health}\nhooks = {{ after-stage = [\"x\"] }}"), "hooks: belongs into the helper's own file"),
        (format!("{helper}\n{health}\ntrial-starts = 2"), "trial-starts: belongs into the helper's own file"),
    ] {
        let refused = product(&tables).expect_err(told).to_string();
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn the_documented_configuration_of_the_helper_is_valid_and_says_the_defaults() {
    let parse = |text: &str| HelperConfig::parse(Path::new("/etc/groundswell/helper.toml"), text).unwrap();
    let documented = parse(HelperConfig::documented_default());
    let implied = parse(
        "data-dir = \"/var/lib/groundswell-helper\"\nfleet = \"sha256/0000000000000000000000000000000000000000000000000000000000000000\"\n\
         node = \"12D3KooWEKyPsvgm7g8vyRA59466ph3t9VLxEUFzNqTXHJdfY2Wq\"\nsocket = \"/run/groundswell-helper/helper.sock\"\n\
         agent = { user = \"groundswell\", group = \"groundswell\" }\n\
         [product.bcd]\nactivator = { type = \"systemd\", unit = \"bcd.service\" }\n",
    );
    assert_eq!(HelperConfig { trust: implied.trust.clone(), ..documented.clone() }, implied);
    assert!(documented.trust.release.values().all(|raise| raise.pins.is_empty() && raise.threshold == 0));
}
