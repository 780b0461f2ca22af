//! Rules of the core broken on purpose, as data: how strong the swarm is shows in how soon it finds each.
//!
//! A mutant is a file in `testnet/mutants`: what it breaks, which guarantee should notice, and texts of the core with what
//! stands in their place. All of them are built into one copy of the core, each behind a number that the process is given
//! at its start, so that the core is built once however many mutants there are. `mutants_command` runs them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The package that the mutated copy of this crate is called, so that it takes no other program's place.
pub const PACKAGE: &str = "groundswell-testnet-mutants";
/// The variable that tells a mutated program which mutant it is; none, or 0: the core as it is.
pub const VARIABLE: &str = "GROUNDSWELL_MUTANT";

const GUARANTEES: [&str; 11] = ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "L1", "L2", "L3", "L4"];
const MAIN: &str = "fn main() -> ExitCode {\n";

/// One rule broken on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The name of its file.
    pub name: String,
    /// By which a mutated program knows it, from 1.
    pub number: u32,
    /// What is broken, in a sentence.
    pub about: String,
    /// The guarantee that should break.
    pub guarantee: String,
    /// A seed of the swarm that has found it: tried first.
    pub seed: Option<u64>,
    edits: Vec<Edit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    about: String,
    guarantee: String,
    seed: Option<u64>,
    edits: Vec<Edit>,
}

/// A text of the core and what stands in its place: an expression, or a statement with its semicolon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// From the workspace's root.
    file: String,
    /// Stands there exactly once.
    original: String,
    broken: String,
}

/// Why mutants cannot be read or applied.
#[derive(Debug, thiserror::Error)]
pub enum MutantError {
    /// A file or folder.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What.
        error: io::Error,
    },
    /// A mutant's file, or a manifest.
    #[error("{}: {error}", .path.display())]
    Toml {
        /// Which.
        path: PathBuf,
        /// What.
        error: toml::de::Error,
    },
    /// A mutant names a guarantee that there is not.
    #[error("mutant {0} names no guarantee of S1 to S7 and L1 to L4")]
    Guarantee(String),
    /// The sources have changed under a mutant.
    #[error("mutant {name}: its text stands {times} times in {file}, not once:\n{original}")]
    Text {
        /// The mutant.
        name: String,
        /// The file of the core.
        file: String,
        /// How often.
        times: usize,
        /// What.
        original: String,
    },
    /// Two mutants break the same place in part.
    #[error("two mutants overlap in {0}")]
    Overlap(String),
}

fn read(path: &Path) -> Result<String, MutantError> {
    fs::read_to_string(path).map_err(|error| MutantError::Io { path: path.to_path_buf(), error })
}

fn write(path: &Path, text: &str) -> Result<(), MutantError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text)).map_err(|error| MutantError::Io { path: path.to_path_buf(), error })
}

impl Mutant {
    /// All mutants of the workspace at `root`, by name.
    ///
    /// # Errors
    /// Which file cannot be read, and why.
    pub fn all(root: &Path) -> Result<Vec<Self>, MutantError> {
        let folder = root.join("testnet/mutants");
        let entries = fs::read_dir(&folder).map_err(|error| MutantError::Io { path: folder.clone(), error })?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        files.iter().zip(1..).map(|(path, number)| Self::of(path, number)).collect()
    }

    fn of(path: &Path, number: u32) -> Result<Self, MutantError> {
        let written: Written =
            toml::from_str(&read(path)?).map_err(|error| MutantError::Toml { path: path.to_path_buf(), error })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !GUARANTEES.contains(&written.guarantee.as_str()) {
            return Err(MutantError::Guarantee(name));
        }
        let Written { about, guarantee, seed, edits } = written;
        Ok(Self { name, number, about, guarantee, seed, edits })
    }

    /// Whether what it breaks is safety: that is looked for until a world would be healed, and no longer.
    #[must_use]
    pub fn breaks_safety(&self) -> bool {
        self.guarantee.starts_with('S')
    }
}

/// The files of the core with every mutant in them, by their paths from `root`.
///
/// # Errors
/// Which mutant's text does not stand in its file exactly once.
pub fn apply(root: &Path, mutants: &[Mutant]) -> Result<BTreeMap<String, String>, MutantError> {
    let mut by_file: BTreeMap<&str, Vec<(&Mutant, &Edit)>> = BTreeMap::new();
    for mutant in mutants {
        for edit in &mutant.edits {
            by_file.entry(&edit.file).or_default().push((mutant, edit));
        }
    }
    let mut changed = BTreeMap::new();
    for (file, edits) in by_file {
        changed.insert(file.to_string(), mutate(file, &read(&root.join(file))?, &edits)?);
    }
    Ok(changed)
}

/// What breaks one place, and for which mutant.
type Here<'a> = Vec<(&'a Mutant, &'a Edit)>;

fn mutate(file: &str, source: &str, edits: &[(&Mutant, &Edit)]) -> Result<String, MutantError> {
    let mut places: BTreeMap<usize, (&str, Here<'_>)> = BTreeMap::new();
    for (mutant, edit) in edits {
        let mut found = source.match_indices(&edit.original);
        let (Some((at, original)), None) = (found.next(), found.next()) else {
            let times = source.matches(&edit.original).count();
            let (name, original) = (mutant.name.clone(), edit.original.clone());
            return Err(MutantError::Text { name, file: file.to_string(), times, original });
        };
        let place = places.entry(at).or_insert((original, Vec::new()));
        if place.0 != original {
            return Err(MutantError::Overlap(file.to_string()));
        }
        place.1.push((mutant, edit));
    }
    let (mut text, mut end) = (String::new(), 0);
    for (at, (original, here)) in places {
        let between = source.get(end..at).ok_or_else(|| MutantError::Overlap(file.to_string()))?;
        text += between;
        text += &switch(original, &here);
        end = at + original.len();
    }
    text += source.get(end..).unwrap_or_default();
    Ok(text)
}

/// What stands in place of `original`: the broken form for the mutant that is switched on.
fn switch(original: &str, here: &[(&Mutant, &Edit)]) -> String {
    let mut text = String::new();
    for (mutant, edit) in here {
        text += &format!("if crate::mutant({}) {{ {} }} else ", mutant.number, edit.broken);
    }
    text += &format!("{{ {original} }}");
    if original.ends_with(';') { text } else { format!("({text})") }
}

/// Lays out what a mutated simulator needs of the workspace at `root` in the folder `into`, with all `mutants` in it. What
/// lies there already as it should is left alone, so that it need not be built again.
///
/// # Errors
/// What cannot be read, written or applied.
pub fn lay_out(root: &Path, mutants: &[Mutant], into: &Path) -> Result<(), MutantError> {
    let mut files = BTreeMap::new();
    // `bench` holds programs that the sources include.
    for part in ["mesh/core/src", "testnet/src", "testnet/bench"] {
        gather(root, part, &mut files)?;
    }
    files.extend(apply(root, mutants)?);
    let switch = "
/// The rule that is broken on purpose, by its number; 0: none.
pub static MUTANT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

pub(crate) fn mutant(number: u32) -> bool {
    MUTANT.load(core::sync::atomic::Ordering::Relaxed) == number
}
";
    let set = format!(
        "{MAIN}    let mutant = std::env::var({VARIABLE:?}).ok().and_then(|number| number.parse().ok()).unwrap_or(0);
    groundswell_core::MUTANT.store(mutant, std::sync::atomic::Ordering::Relaxed);\n"
    );
    files.entry("mesh/core/src/lib.rs".to_string()).and_modify(|text| *text += switch);
    files.entry("testnet/src/main.rs".to_string()).and_modify(|text| *text = text.replacen(MAIN, &set, 1));
    for part in ["mesh/core/Cargo.toml", "testnet/Cargo.toml"] {
        files.insert(part.to_string(), package(&root.join(part))?);
    }
    files.insert("Cargo.lock".to_string(), read(&root.join("Cargo.lock"))?);
    files.insert("Cargo.toml".to_string(), workspace(&root.join("Cargo.toml"))?);
    let mut there = BTreeMap::new();
    for part in ["mesh", "testnet"].into_iter().filter(|part| into.join(part).is_dir()) {
        gather(into, part, &mut there)?;
    }
    for file in there.keys().filter(|file| !files.contains_key(*file)) {
        let path = into.join(file);
        fs::remove_file(&path).map_err(|error| MutantError::Io { path, error })?;
    }
    for (file, text) in files {
        let path = into.join(file);
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            write(&path, &text)?;
        }
    }
    Ok(())
}

/// Whether a mutated program can be told which mutant it is: the beginning of `main` is where it is looked for.
///
/// # Errors
/// What cannot be read.
pub fn can_be_switched(root: &Path) -> Result<bool, MutantError> {
    Ok(read(&root.join("testnet/src/main.rs"))?.matches(MAIN).count() == 1)
}

/// A crate's manifest without what only its tests and examples need, and this crate's under its other name.
fn package(path: &Path) -> Result<String, MutantError> {
    let mut manifest = table(path)?;
    manifest.remove("dev-dependencies");
    for part in ["test", "example", "bench"] {
        manifest.remove(part);
    }
    if let Some(package) = manifest.get_mut("package").and_then(toml::Value::as_table_mut)
        && package.get("name").and_then(toml::Value::as_str) == Some("groundswell-testnet")
    {
        package.insert("name".to_string(), PACKAGE.into());
        let library = toml::Table::from_iter([("name".to_string(), "groundswell_testnet".into())]);
        manifest.insert("lib".to_string(), library.into());
    }
    Ok(manifest.to_string())
}

fn table(path: &Path) -> Result<toml::Table, MutantError> {
    read(path)?.parse().map_err(|error| MutantError::Toml { path: path.to_path_buf(), error })
}

/// The workspace's manifest without the crates that are not copied.
fn workspace(path: &Path) -> Result<String, MutantError> {
    let mut manifest = table(path)?;
    if let Some(workspace) = manifest.get_mut("workspace").and_then(toml::Value::as_table_mut) {
        workspace.insert("members".to_string(), vec!["mesh/core", "testnet"].into());
        workspace.remove("default-members");
        // What is broken on purpose is also broken as prose: parentheses, names that nothing uses.
        let quiet = toml::Table::from_iter([("warnings".to_string(), "allow".into())]);
        workspace.insert("lints".to_string(), toml::Table::from_iter([("rust".to_string(), quiet.into())]).into());
        if let Some(dependencies) = workspace.get_mut("dependencies").and_then(toml::Value::as_table_mut) {
            dependencies.retain(|name, value| name == "groundswell-core" || value.get("path").is_none());
        }
    }
    // It is run, not read: a build without lines to name is the quicker one.
    if let Some(profile) = manifest.get_mut("profile").and_then(|profile| profile.get_mut("dev")?.as_table_mut()) {
        profile.insert("debug".to_string(), false.into());
    }
    let packages = manifest.get_mut("profile").and_then(|profile| profile.get_mut("dev")?.get_mut("package"));
    if let Some(packages) = packages.and_then(toml::Value::as_table_mut)
        && let Some(own) = packages.remove("groundswell-testnet")
    {
        packages.insert(PACKAGE.to_string(), own);
    }
    Ok(manifest.to_string())
}

/// The texts of all files in the folder `part` of `root` and below, by their paths from `root`.
fn gather(root: &Path, part: &str, files: &mut BTreeMap<String, String>) -> Result<(), MutantError> {
    let folder = root.join(part);
    let failed = |error| MutantError::Io { path: folder.clone(), error };
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = format!("{part}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            gather(root, &name, files)?;
        } else {
            let text = read(&entry.path())?;
            files.insert(name, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(number: u32, original: &str, broken: &str) -> Mutant {
        let edits = vec![Edit { file: "a.rs".into(), original: original.into(), broken: broken.into() }];
        Mutant { name: format!("m{number}"), number, about: String::new(), guarantee: "S1".into(), seed: None, edits }
    }

    fn mutated(source: &str, mutants: &[Mutant]) -> Result<String, MutantError> {
        let edits: Vec<(&Mutant, &Edit)> = mutants.iter().flat_map(|it| it.edits.iter().map(move |edit| (it, edit))).collect();
        mutate("a.rs", source, &edits)
    }

    #[test]
    fn each_stands_behind_its_number_and_several_may_break_one_place() {
        let mutants = [mutant(1, "a >= b", "true"), mutant(2, "a >= b", "a > b"), mutant(3, "keep();", "")];
        let text = mutated("if a >= b { keep(); }", &mutants).unwrap();
        let condition = "(if crate::mutant(1) { true } else if crate::mutant(2) { a > b } else { a >= b })";
        assert_eq!(text, format!("if {condition} {{ if crate::mutant(3) {{  }} else {{ keep(); }} }}"));
    }

    #[test]
    fn a_text_that_is_gone_or_not_alone_or_overlaps_is_refused() {
        assert!(matches!(mutated("b", &[mutant(1, "a", "c")]), Err(MutantError::Text { times: 0, .. })));
        assert!(matches!(mutated("a a", &[mutant(1, "a", "c")]), Err(MutantError::Text { times: 2, .. })));
        let overlap = [mutant(1, "a b", "c"), mutant(2, "b d", "c")];
        assert!(matches!(mutated("a b d", &overlap), Err(MutantError::Overlap(_))));
    }
}
