//! What the viewer sees: one table that is redrawn on a terminal, a line per change elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Notes that stay on the screen.
const NOTES: usize = 7;
/// Columns before a row's detail.
const BEFORE_DETAIL: usize = 32;
/// The table is redrawn at most this often.
const REDRAW_EVERY: Duration = Duration::from_millis(150);

/// The state of everything, as lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// What happens now.
    pub(crate) headline: String,
    /// One row per node.
    pub(crate) rows: Vec<Row>,
    /// One line per wave.
    pub(crate) waves: Vec<String>,
    /// One line per pool: who holds its slots.
    pub(crate) leases: Vec<String>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Its name.
    pub(crate) node: String,
    /// The version that it runs.
    pub(crate) version: String,
    /// Its phase.
    pub(crate) phase: String,
    /// What it waits for, or how far it is.
    pub(crate) detail: String,
}

/// The screen.
#[derive(Debug)]
pub(crate) struct Screen {
    redraws: bool,
    began: Instant,
    drawn: Option<Instant>,
    notes: Vec<String>,
    shown: BTreeMap<String, (String, String)>,
    lines: Vec<String>,
}

impl Screen {
    /// Redraws when it may and standard output is a terminal.
    pub(crate) fn new(plain: bool) -> Self {
        let redraws = !plain && std::io::stdout().is_terminal();
        Self { redraws, began: Instant::now(), drawn: None, notes: Vec::new(), shown: BTreeMap::new(), lines: Vec::new() }
    }

    /// Since when it shows.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Says something that stays for a while.
    pub(crate) fn note(&mut self, text: &str) {
        let line = format!("[{:5.1} s] {text}", self.elapsed().as_secs_f64());
        if !self.redraws {
            println!("{line}");
        }
        self.notes.push(line);
        if self.notes.len() > NOTES {
            self.notes.remove(0);
        }
        self.drawn = None;
    }

    /// Shows the state of everything.
    pub(crate) fn show(&mut self, frame: &Frame) {
        if self.redraws {
            self.redraw(frame);
        } else {
            self.tell_changes(frame);
        }
    }

    fn redraw(&mut self, frame: &Frame) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let (width, height) = size();
        let cut = |text: &str| text.chars().take(width).collect::<String>();
        let mut lines =
            vec![cut(&format!("Groundswell, {:.0} s: {}", self.elapsed().as_secs_f64(), frame.headline)), String::new()];
        lines.push(format!("{:<9} {:<8} phase", "node", "runs"));
        for Row { node, version, phase, detail } in &frame.rows {
            let detail: String = detail.chars().take(width.saturating_sub(BEFORE_DETAIL)).collect();
            lines.push(format!("{node:<9} {version:<8} {}{phase:<12}\x1b[0m {detail}", colour(phase)));
        }
        lines.push(String::new());
        lines.extend(frame.waves.iter().chain(&frame.leases).map(|line| cut(line)));
        lines.push(String::new());
        // On a low screen the notes give way first.
        let room = height.saturating_sub(lines.len() + 1);
        lines.extend(self.notes.iter().skip(self.notes.len().saturating_sub(room)).map(|line| cut(line)));
        lines.truncate(height.saturating_sub(1));
        // Home, each line over the old one and cleared to its end, then nothing below: no flicker.
        let text: String = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect();
        let mut out = std::io::stdout().lock();
        let clear = if self.lines.is_empty() { "\x1b[2J" } else { "" };
        // A terminal that has gone ends the demo by its signal.
        let _ = write!(out, "{clear}\x1b[H{text}\x1b[J").and_then(|()| out.flush());
        self.lines = lines;
    }

    fn tell_changes(&mut self, frame: &Frame) {
        for row in &frame.rows {
            let now = (row.version.clone(), row.phase.clone());
            if self.shown.get(&row.node) != Some(&now) {
                let (at, detail) = (self.elapsed().as_secs_f64(), &row.detail);
                println!("[{at:5.1} s]   {:<9} {:<8} {:<12} {detail}", row.node, row.version, row.phase);
                self.shown.insert(row.node.clone(), now);
            }
        }
        for (index, line) in frame.waves.iter().enumerate() {
            let key = format!("wave {index}");
            if self.shown.get(&key).map(|(shown, _)| shown) != Some(line) {
                println!("[{:5.1} s]   {line}", self.elapsed().as_secs_f64());
                self.shown.insert(key, (line.clone(), String::new()));
            }
        }
    }
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((100, 40), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

fn colour(phase: &str) -> &'static str {
    match phase {
        "soaked" => "\x1b[32m",
        "confirmed" => "\x1b[36m",
        "claiming" | "activating" | "fetching" | "staged" => "\x1b[33m",
        "rolled-back" | "failed" => "\x1b[31m",
        _ => "",
    }
}
