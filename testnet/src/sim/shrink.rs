//! Makes a script that breaks a guarantee small: fewer acts, calmer rates, fewer machines, an earlier end, as long as
//! the same guarantee still breaks. Delta debugging (Zeller and Hildebrandt, 2002) over data; bounded by a number of runs.

use groundswell_core::number::Ppm;

use super::act::{Act, Terms};
use super::director::play;
use super::script::{Scheduled, Script};
use super::world::Faults;

/// What is left of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The smallest script found that still breaks the guarantee.
    pub script: Script,
    /// How it does.
    pub failure: String,
    /// How many scripts were tried.
    pub runs: u32,
}

/// The guarantee that a failure names: its first word.
#[must_use]
pub fn guarantee(failure: &str) -> &str {
    failure.split([' ', ':']).next().unwrap_or_default()
}

/// Shrinks a script that fails with `failure`, trying at most `most_runs` others.
#[must_use]
pub fn shrink(script: &Script, failure: &str, most_runs: u32) -> Shrunk {
    shrink_by(script, failure, most_runs, |script| {
        let outcome = play(script);
        outcome.failure.map(|failure| (failure, outcome.virtual_ms))
    })
}

/// The same where `run` says how a script fails, and when.
fn shrink_by(script: &Script, failure: &str, most_runs: u32, run: impl Fn(&Script) -> Option<(String, u64)>) -> Shrunk {
    let best = Shrunk { script: script.clone(), failure: failure.to_string(), runs: 0 };
    let mut shrinking = Shrinking { best, most_runs, run };
    loop {
        let before = shrinking.best.script.clone();
        shrinking.end_early();
        shrinking.drop_acts();
        shrinking.calm();
        shrinking.simplify_acts();
        shrinking.drop_machines();
        if shrinking.best.script == before || shrinking.best.runs >= most_runs {
            return shrinking.best;
        }
    }
}

struct Shrinking<F> {
    best: Shrunk,
    most_runs: u32,
    run: F,
}

impl<F: Fn(&Script) -> Option<(String, u64)>> Shrinking<F> {
    /// Takes a candidate as the best one if it breaks the same guarantee. When it broke.
    fn attempt(&mut self, candidate: Script) -> Option<u64> {
        if candidate == self.best.script || self.best.runs >= self.most_runs {
            return None;
        }
        self.best.runs += 1;
        let (failure, at_ms) = (self.run)(&candidate)?;
        if guarantee(&failure) != guarantee(&self.best.failure) {
            return None;
        }
        self.best = Shrunk { script: candidate, failure, runs: self.best.runs };
        Some(at_ms)
    }

    fn changed(&self, change: impl FnOnce(&mut Script)) -> Script {
        let mut candidate = self.best.script.clone();
        change(&mut candidate);
        candidate
    }

    /// What breaks while acts happen needs no healing, and nothing after that instant.
    fn end_early(&mut self) {
        let Some(at_ms) = self.attempt(self.changed(|script| script.progress = None)) else { return };
        let cut = self.changed(|script| {
            script.lasts_ms = at_ms.min(script.lasts_ms);
            script.acts.retain(|scheduled| scheduled.at_ms <= at_ms);
        });
        self.attempt(cut);
    }

    /// Takes acts away: halves, then quarters, down to one by one.
    fn drop_acts(&mut self) {
        let mut size = self.best.script.acts.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < self.best.script.acts.len() {
                let without = self.changed(|script| {
                    let end = (from + size).min(script.acts.len());
                    script.acts.drain(from..end);
                });
                if self.attempt(without).is_none() {
                    from += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    /// Nothing goes wrong by itself.
    fn calm(&mut self) {
        let calmer: [fn(&mut Script); 8] = [
            |script| (script.loss_ppm, script.faults) = (Ppm::ZERO, Faults::default()),
            |script| script.loss_ppm = Ppm::ZERO,
            |script| script.faults.repeated = Ppm::ZERO,
            |script| script.faults.power_in_effects = Ppm::ZERO,
            |script| script.faults.power_in_steps = Ppm::ZERO,
            |script| script.faults.power_in_words = Ppm::ZERO,
            |script| script.faults.power_in_claims = Ppm::ZERO,
            |script| script.faults.staging = Ppm::ZERO,
        ];
        for calm in calmer {
            self.attempt(self.changed(calm));
        }
        self.attempt(self.changed(|script| script.faults.delay_ms = Faults::default().delay_ms));
    }

    /// Rollouts on plain terms, at machines that are all alike.
    fn simplify_acts(&mut self) {
        for place in 0..self.best.script.acts.len() {
            for simpler in [plain_terms as fn(&mut Act), nobody_odd] {
                let candidate = self.changed(|script| {
                    if let Some(Scheduled { act, .. }) = script.acts.get_mut(place) {
                        simpler(act);
                    }
                });
                self.attempt(candidate);
            }
        }
    }

    /// Whole pools from the last one on, then machines of each. The others keep their numbers only behind the last pool,
    /// so what is left may mean other machines; it counts when it still breaks.
    fn drop_machines(&mut self) {
        while self.best.script.pools.len() > 1 {
            let fewer = self.changed(|script| drop(script.pools.pop()));
            if self.attempt(fewer).is_none() {
                break;
            }
        }
        for place in (0..self.best.script.pools.len()).rev() {
            loop {
                let fewer = self.changed(|script| {
                    if let Some(pool) = script.pools.get_mut(place) {
                        pool.machines = pool.machines.saturating_sub(1).max(1);
                    }
                });
                if self.attempt(fewer).is_none() {
                    break;
                }
            }
        }
    }
}

fn plain_terms(act: &mut Act) {
    if let Act::Publish { terms, .. } = act {
        *terms = Terms::default();
    }
}

fn nobody_odd(act: &mut Act) {
    if let Act::Publish { odd, .. } = act {
        odd.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::draw::draw;
    use super::{Act, Script, guarantee, shrink_by};

    /// Breaks when some machine sleeps after a partition.
    fn fails(script: &Script) -> Option<(String, u64)> {
        let parted = script.acts.iter().position(|scheduled| matches!(scheduled.act, Act::PartPools))?;
        let asleep = script.acts.iter().skip(parted).find(|scheduled| matches!(scheduled.act, Act::Suspend { .. }))?;
        Some((format!("S1 at {} ms: for a test", asleep.at_ms), asleep.at_ms))
    }

    #[test]
    fn what_is_left_is_what_it_takes() {
        let (script, failure) = (0..)
            .map(draw)
            .find_map(|script| Some((script.clone(), fails(&script)?.0)).filter(|_| script.acts.len() > 30))
            .expect("some seed has both");
        let shrunk = shrink_by(&script, &failure, 2_000, fails);
        assert_eq!(shrunk.script.acts.len(), 2, "{}", shrunk.script.tell());
        assert_eq!(shrunk.script.machines(), 1);
        assert_eq!(shrunk.script.progress, None);
        assert!(fails(&shrunk.script).is_some());
    }

    #[test]
    fn it_never_tries_more_often_than_allowed() {
        let (script, failure) =
            (0..).map(draw).find_map(|script| Some((script.clone(), fails(&script)?.0))).expect("some seed has both");
        assert_eq!(shrink_by(&script, &failure, 3, fails).runs, 3);
    }

    #[test]
    fn a_failure_begins_with_its_guarantee() {
        assert_eq!(guarantee("S1 at 17 ms: who"), "S1");
        assert_eq!(guarantee("L3: who"), "L3");
    }
}
