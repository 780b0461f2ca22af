//! `docs/` says what the code says: its tables against the enums, its names against the sources, its reference against
//! the binary.
//!
//! `UPDATE_DOCS=1 cargo test -p swell pages` writes docs/CLI.md anew from what the binary prints.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use groundswell_core::documents::rejection::Reason;
use groundswell_core::record::status::HoldCode;

use super::tidy::{files, rust_files, workspace};

const CLI: &str = "docs/CLI.md";

fn page(name: &str) -> String {
    fs::read_to_string(workspace().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The part of `text` under `## title`.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("there is no section {title}"));
    rest.split("\n## ").next().unwrap_or_default()
}

/// Everything in backquotes in the first column of the tables of `text`.
fn first_column(text: &str) -> Vec<String> {
    let cells = text.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    cells.flat_map(quoted).collect()
}

fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_hold_is_explained_with_its_way_out() {
    let codes: Vec<_> = HoldCode::ALL.iter().map(|code| code.code()).collect();
    assert_eq!(first_column(section(&page("docs/OPERATIONS.md"), "Holds")), codes);
}

#[test]
fn every_reason_of_a_refusal_is_explained_with_its_way_out() {
    let codes: Vec<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    assert_eq!(first_column(section(&page("docs/OPERATIONS.md"), "Refusals")), codes);
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let manifest: toml::Table = page("Cargo.toml").parse().expect("the manifest is TOML");
    let named = manifest["workspace"]["dependencies"].as_table().expect("a table").keys();
    let foreign: BTreeSet<String> = named.filter(|name| !name.starts_with("groundswell") && *name != "swell").cloned().collect();
    let said: BTreeSet<String> = first_column(section(&page("docs/ARCHITECTURE.md"), "Dependencies")).into_iter().collect();
    assert_eq!(said, foreign);
}

#[test]
fn files_and_tests_that_the_documents_name_are_there() {
    let mut pages = Vec::new();
    files(&workspace().join("docs"), "md", &mut pages);
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| workspace().join(name)));
    let sources: String = rust_files().into_iter().map(|(_, text)| text).collect();
    let mut missing = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page is UTF-8");
        // What stands in a block of its own is an example, not a name.
        let prose: String = text.split("```").step_by(2).collect();
        for name in quoted(&prose) {
            let path = ["mesh/", "agent/", "tools/", "testnet/", "docs/"].iter().any(|room| name.starts_with(room));
            let is_path = path && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
            let is_test = name.matches('_').count() >= 4 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let there = match (is_path, is_test) {
                (true, _) => workspace().join(&name).exists(),
                (_, true) => sources.contains(&format!("fn {name}(")),
                _ => true,
            };
            if !there {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "named and not there: {missing:#?}");
}

#[test]
fn the_default_configuration_is_what_the_binary_prints() {
    assert_eq!(page("docs/agent.toml"), swell(&["agent", "--print-config"]));
    assert_eq!(page("docs/helper.toml"), swell(&["helper", "--print-config"]));
}

#[test]
fn the_reference_of_commands_is_what_the_binary_prints() {
    let printed = reference();
    let path = workspace().join(CLI);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &printed).expect("docs can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == printed,
        "{CLI} is not what the binary prints: run UPDATE_DOCS=1 cargo test -p swell pages, and read the diff"
    );
}

fn reference() -> String {
    let mut text = String::from(
        "# Commands\n\nWhat `swell --help` and `--help` of each command print. A test compares this page with the binary;\n\
         `UPDATE_DOCS=1 cargo test -p swell pages` writes it.\n",
    );
    write_command(&mut Vec::new(), &mut text);
    text
}

fn write_command(names: &mut Vec<String>, text: &mut String) {
    let line: Vec<&str> = names.iter().map(String::as_str).chain(["--help"]).collect();
    let help = swell(&line);
    let title = [&["swell".to_owned()], names.as_slice()].concat().join(" ");
    write!(text, "\n## {title}\n\n```text\n{}\n```\n", help.trim_end()).expect("a string takes everything");
    for command in commands(&help) {
        names.push(command);
        write_command(names, text);
        names.pop();
    }
}

/// The names under `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let list = help.split_once("\nCommands:\n").map(|(_, rest)| rest.split("\n\n").next().unwrap_or_default());
    let lines = list.unwrap_or_default().lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

fn swell(line: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_swell"))
        .args(line)
        .env("COLUMNS", "100")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("what is printed is UTF-8")
}
