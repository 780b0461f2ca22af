//! Runs side by side: one row per run, a table for people, and the difference of two tables.

use serde::{Deserialize, Serialize};

use super::director::Outcome;
use super::measure::Measured;

/// What one run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Row {
    /// Which run: a seed, a scenario, a measured rollout.
    pub run: String,
    /// The guarantee that did not hold, and how; null when all held.
    pub failure: Option<String>,
    /// Machines.
    pub machines: u32,
    /// Upgrades started.
    pub starts: Option<u64>,
    /// The most machines of one pool that were disrupted at once.
    pub most_disrupted: Option<u64>,
    /// Records that a machine signed, in the mean.
    pub records: f64,
    /// By the one that signed most.
    pub published_most: u64,
    /// Records that a machine received ÷ those that were new to it, in the mean: the copies of each.
    pub copies: f64,
    /// Frames per machine, in the mean.
    pub frames: f64,
    /// Their bytes, in the mean.
    pub bytes: f64,
    /// Virtual time that passed, in minutes.
    pub minutes: f64,
    /// That time beside the ideal, where there is one.
    pub times_ideal: Option<f64>,
    /// Inputs handled by all machines.
    pub steps: u64,
}

fn float(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

impl Row {
    /// What became of a script.
    #[must_use]
    pub fn of(run: &str, outcome: &Outcome) -> Self {
        let each = |sum: u64| float(sum) / f64::from(outcome.machines.max(1));
        Self {
            run: run.to_string(),
            failure: outcome.failure.clone(),
            machines: outcome.machines,
            starts: Some(outcome.starts),
            most_disrupted: Some(outcome.most_disrupted.values().max().map_or(0, |most| *most as u64)),
            records: each(outcome.records),
            published_most: outcome.published_most,
            copies: outcome.copies,
            frames: each(outcome.frames),
            bytes: each(outcome.frame_bytes),
            minutes: float(outcome.virtual_ms / 1_000) / 60.0,
            times_ideal: None,
            steps: outcome.steps,
        }
    }

    /// What a rollout without faults cost.
    #[must_use]
    pub fn measured(measured: &Measured) -> Self {
        Self {
            run: format!("measure {}", measured.nodes),
            failure: (!measured.missed.is_empty()).then(|| measured.missed.join("; ")),
            machines: measured.nodes,
            starts: None,
            most_disrupted: None,
            records: measured.published_mean,
            published_most: measured.published_most,
            copies: measured.copies,
            frames: measured.frames_mean,
            bytes: measured.frame_bytes_mean,
            minutes: float(measured.took_ms / 1_000) / 60.0,
            times_ideal: Some(float(measured.took_ms) / float(measured.ideal_ms.max(1))),
            steps: measured.steps,
        }
    }

    fn figures(&self) -> [(&'static str, Option<f64>); 11] {
        [
            ("machines", Some(f64::from(self.machines))),
            ("starts", self.starts.map(float)),
            ("disrupted", self.most_disrupted.map(float)),
            ("records", Some(self.records)),
            ("most", Some(float(self.published_most))),
            ("copies", Some(self.copies)),
            ("frames", Some(self.frames)),
            ("bytes", Some(self.bytes)),
            ("minutes", Some(self.minutes)),
            ("÷ ideal", self.times_ideal),
            ("steps", Some(float(self.steps))),
        ]
    }

    fn guarantees(&self) -> &str {
        self.failure.as_deref().unwrap_or("all held")
    }
}

fn figure(figure: Option<f64>) -> String {
    match figure {
        None => "–".to_string(),
        Some(number) if number.fract() == 0.0 => format!("{number:.0}"),
        Some(number) if number < 100.0 => format!("{number:.2}"),
        Some(number) => format!("{number:.0}"),
    }
}

/// Cells in columns as wide as their widest cell; the last one runs free.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// One line per run.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let head = std::iter::once("run".to_string()).chain(first.figures().map(|(name, _)| name.to_string()));
    let mut lines: Vec<Vec<String>> = vec![head.chain(["guarantees".to_string()]).collect()];
    for row in rows {
        let cells = std::iter::once(row.run.clone()).chain(row.figures().map(|(_, number)| figure(number)));
        lines.push(cells.chain([row.guarantees().to_string()]).collect());
    }
    aligned(&lines)
}

/// What is otherwise in `head` than in `base`, one line per figure; empty when nothing is.
#[must_use]
pub fn diff(base: &[Row], head: &[Row]) -> String {
    let mut lines = Vec::new();
    for before in base {
        let Some(after) = head.iter().find(|row| row.run == before.run) else {
            lines.push(vec![before.run.clone(), "only in the first".to_string()]);
            continue;
        };
        for ((name, was), (_, is)) in before.figures().into_iter().zip(after.figures()) {
            if figure(was) != figure(is) {
                let percent =
                    was.zip(is).filter(|(was, _)| *was > 0.0).map(|(was, is)| format!("{:+.1} %", (is / was - 1.0) * 100.0));
                let change = format!("{} → {}", figure(was), figure(is));
                lines.push(vec![before.run.clone(), name.to_string(), change, percent.unwrap_or_default()]);
            }
        }
        if before.guarantees() != after.guarantees() {
            let change = format!("{} → {}", before.guarantees(), after.guarantees());
            lines.push(vec![before.run.clone(), "guarantees".to_string(), change]);
        }
    }
    let new = head.iter().filter(|row| base.iter().all(|other| other.run != row.run));
    lines.extend(new.map(|row| vec![row.run.clone(), "only in the second".to_string()]));
    aligned(&lines)
}

#[cfg(test)]
mod tests {
    use super::super::director::play;
    use super::super::draw::draw;
    use super::{Row, diff, float, table};

    fn row(run: &str) -> Row {
        Row {
            run: run.to_string(),
            failure: None,
            machines: 8,
            starts: Some(8),
            most_disrupted: Some(1),
            records: 12.5,
            published_most: 20,
            copies: 1.25,
            frames: 400.0,
            bytes: 52_000.0,
            minutes: 9.0,
            times_ideal: None,
            steps: 5_000,
        }
    }

    #[test]
    fn equal_tables_differ_in_nothing() {
        assert_eq!(diff(&[row("seed 1")], &[row("seed 1")]), "");
    }

    #[test]
    fn each_figure_that_changed_is_named_with_its_share() {
        let slower = Row { minutes: 18.0, failure: Some("L1: late".to_string()), ..row("seed 1") };
        let told = diff(&[row("seed 1"), row("seed 2")], &[slower, row("seed 3")]);
        let lines: Vec<Vec<&str>> =
            told.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
        assert_eq!(
            lines,
            [
                vec!["seed 1", "minutes", "9 → 18", "+100.0 %"],
                vec!["seed 1", "guarantees", "all held → L1: late"],
                vec!["seed 2", "only in the first"],
                vec!["seed 3", "only in the second"],
            ]
        );
    }

    #[test]
    fn what_one_machine_signed_and_how_often_a_record_came_are_figures_like_others() {
        let louder = Row { published_most: 30, copies: 2.5, ..row("seed 1") };
        let told = diff(&[row("seed 1")], &[louder]);
        let lines: Vec<Vec<&str>> =
            told.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
        assert_eq!(lines, [vec!["seed 1", "most", "20 → 30", "+50.0 %"], vec!["seed 1", "copies", "1.25 → 2.50", "+100.0 %"]]);
    }

    #[test]
    fn a_seed_is_told_with_both_as_a_measured_rollout_is() {
        let outcome = play(&draw(2).beginning(60_000));
        let row = Row::of("seed 2", &outcome);
        assert!(row.copies >= 1.0 && row.copies < 10.0, "{row:?}");
        assert!(float(row.published_most) >= row.records && row.records > 0.0, "{row:?}");
    }

    #[test]
    fn a_table_names_its_columns_and_says_what_held() {
        let text = table(&[row("seed 1")]);
        assert!(text.starts_with("run"), "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("seed 1") && line.ends_with("all held")), "{text}");
    }
}
