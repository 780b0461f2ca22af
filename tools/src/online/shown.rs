//! The progress of a publication on standard error: how many copies there are, who takes what, how long it will take.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use groundswell_agent::handle::{Copies, Rate};
use groundswell_agent::observer::publish::Held;

/// How often a line is printed of something whose count of whole copies stays the same.
const EVERY: Duration = Duration::from_secs(2);
/// The time left is told from what happened within this time.
const LOOKED_BACK: Duration = Duration::from_secs(15);
/// Members named on one line.
const NAMED: usize = 8;

/// See the module. Says nothing with `--json`.
pub(crate) struct Shown {
    quiet: bool,
    items: BTreeMap<String, Item>,
    /// The agent was said not to answer.
    waiting: bool,
}

#[derive(Default)]
struct Item {
    printed: Option<(Instant, u64, bool)>,
    pace: Pace,
}

impl Shown {
    /// `quiet` prints nothing.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, items: BTreeMap::new(), waiting: false }
    }

    /// Prints a line.
    pub(crate) fn line(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Prints once that the agent does not answer any more.
    pub(crate) fn waits(&mut self) {
        if !std::mem::replace(&mut self.waiting, true) {
            self.line("the agent does not answer: waiting for it");
        }
    }

    /// Prints what is news.
    pub(crate) fn show(&mut self, held: &[Held]) {
        self.waiting = false;
        let now = Instant::now();
        let mut lines = Vec::new();
        for held in held {
            let item = self.items.entry(held.name.clone()).or_default();
            let left =
                item.pace.left(now, held.copies_ppm, u64::try_from(held.need).unwrap_or(u64::MAX).saturating_mul(1_000_000));
            let (whole, done) = (held.copies_ppm / 1_000_000, held.done());
            let news = item.printed.is_none_or(|(at, before, was_done)| {
                before != whole || was_done != done || (!done && now.saturating_duration_since(at) >= EVERY)
            });
            if news {
                item.printed = Some((now, whole, done));
                lines.push(line(held, left));
            }
        }
        lines.iter().for_each(|line| self.line(line));
    }
}

/// `bcd: 1.42 of 2 copies; to a2 120/160 at 2.1 MB/s, a3 7/160; 12 s left`
fn line(held: &Held, left: Option<Duration>) -> String {
    let noun = if held.need == 1 { "copy" } else { "copies" };
    let mut text = format!("{}: {} of {} {noun}", held.name, Copies(held.copies_ppm), held.need);
    for (nth, taker) in held.takers.iter().take(NAMED).enumerate() {
        let (before, rate) = (if nth == 0 { "; to " } else { ", " }, taker.bytes_per_second);
        let _ = write!(text, "{before}{} {}/{}", taker.name, taker.held, taker.pieces);
        if rate > 0 {
            let _ = write!(text, " at {}", Rate(rate));
        }
    }
    if let Some(more) = held.takers.len().checked_sub(NAMED).filter(|more| *more > 0) {
        let _ = write!(text, " and {more} more");
    }
    if held.done() {
        text.push_str("; enough");
    } else if let Some(left) = left {
        let _ = write!(text, "; {} s left", left.as_secs().max(1));
    }
    text
}

/// How fast copies come.
#[derive(Default)]
struct Pace {
    seen: VecDeque<(Instant, u64)>,
}

impl Pace {
    /// Takes in how many copies there are, and says how long it will take to `need` if it goes on like this.
    fn left(&mut self, now: Instant, copies_ppm: u64, need_ppm: u64) -> Option<Duration> {
        self.seen.push_back((now, copies_ppm));
        while self.seen.len() > 2 && self.seen.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > LOOKED_BACK) {
            self.seen.pop_front();
        }
        let (since, before) = *self.seen.front()?;
        let gained = copies_ppm.checked_sub(before).filter(|gained| *gained > 0)?;
        let took_ms = u64::try_from(now.saturating_duration_since(since).as_millis()).ok()?;
        let left_ms = u128::from(need_ppm.saturating_sub(copies_ppm)) * u128::from(took_ms) / u128::from(gained);
        u64::try_from(left_ms).ok().map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use groundswell_agent::observer::publish::Taker;

    use super::*;

    #[test]
    fn the_time_left_is_told_from_what_happened_lately() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(pace.left(at(0), 0, 2_000_000), None, "nothing happened yet");
        assert_eq!(pace.left(at(10), 500_000, 2_000_000), Some(Duration::from_secs(30)));
        assert_eq!(pace.left(at(20), 500_000, 2_000_000), None, "nothing happened lately");
        assert_eq!(pace.left(at(25), 1_500_000, 2_000_000), Some(Duration::from_millis(7_500)));
        assert_eq!(pace.left(at(30), 2_500_000, 2_000_000), Some(Duration::ZERO));
        assert_eq!(pace.left(at(31), 500_000, 2_000_000), None, "who left took copies along");
    }

    #[test]
    fn a_line_says_how_many_copies_who_takes_them_and_how_long() {
        let taker = |name: &str, held, bytes_per_second| Taker { name: name.to_owned(), held, pieces: 160, bytes_per_second };
        let takers = vec![taker("a2", 120, 2_150_000), taker("a3", 7, 0)];
        let held = Held { name: "bcd".to_owned(), copies_ppm: 1_425_000, need: 2, takers };
        let text = line(&held, Some(Duration::from_secs(12)));
        assert_eq!(text, "bcd: 1.42 of 2 copies; to a2 120/160 at 2.1 MB/s, a3 7/160; 12 s left");
        let many = (0..10).map(|_| taker("x", 1, 0)).collect();
        assert!(line(&Held { takers: many, ..held.clone() }, None).ends_with(", x 1/160 and 2 more"));
        let done = Held { copies_ppm: 1_000_000, need: 1, takers: Vec::new(), ..held };
        assert_eq!(line(&done, None), "bcd: 1.00 of 1 copy; enough");
    }
}
