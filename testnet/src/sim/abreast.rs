//! Measured worlds, many machines at once: what reaches a machine within the least delay of a message cannot come from what
//! another one does meanwhile, so all of that is played machine by machine, on several threads.
//!
//! A window begins with the earliest event and ends before anything sent in it can arrive. Cores take their inputs in it, each
//! in the order of time; what they ask for is done afterwards, by one thread, in the order of time and machine, and arrives
//! after the window. So the result does not depend on the number of threads. What touches two machines at once (a link that
//! comes, a roster or a blob that is fetched) is played alone, as in [`super::world`].

use std::collections::BTreeSet;
use std::thread;

use groundswell_core::node::Node;
use groundswell_core::node::effect::Effect;
use groundswell_core::node::input::Input;
use groundswell_core::record::status::Phase;

use super::machine::Machine;
use super::queue::Coming;
use super::world::{Due, World};

/// Fewer events than that in a window are not worth another thread.
const WORTH_A_THREAD: usize = 24;

/// One input that a core took, and what it asked for.
struct Played {
    at: u64,
    index: u32,
    effects: Vec<Effect>,
    /// What the machine says of itself then, while it counts as disrupted.
    says: Option<Phase>,
}

/// A machine, its tasks in a window, and when it is to be woken.
struct Share<'a> {
    machine: &'a mut Machine,
    tasks: Vec<Coming>,
    wake: Option<u64>,
}

/// What came of a share.
struct Outcome {
    index: u32,
    played: Vec<Played>,
    wake: Option<u64>,
    /// Wake-ups to be scheduled beyond the window.
    later: Vec<u64>,
    woken: u64,
}

impl Share<'_> {
    fn play(self, until: u64) -> Outcome {
        let Self { machine, tasks, mut wake } = self;
        let index = machine.index;
        let mut outcome = Outcome { index, played: Vec::new(), wake: None, later: Vec::new(), woken: 0 };
        let mut own: BTreeSet<u64> = BTreeSet::new();
        let mut tasks = tasks.into_iter().peekable();
        loop {
            let woken_at = own.first().copied().filter(|at| tasks.peek().is_none_or(|task| *at < task.at));
            let (at, due) = match woken_at {
                Some(at) => {
                    own.pop_first();
                    (at, Due::Wake)
                }
                None => {
                    let Some(task) = tasks.next() else { break };
                    if machine.life != task.life {
                        continue;
                    }
                    (task.at, task.due)
                }
            };
            let input = match due {
                Due::Wake if wake.is_some_and(|due| due <= at) => {
                    wake = None;
                    outcome.woken += 1;
                    machine.watch_for_spinning(at);
                    Input::Wake
                }
                Due::Message { from, connection, input } if machine.links.get(&from) == Some(&connection) => *input,
                Due::Input(input) => *input,
                _ => continue,
            };
            if !machine.take(at, input) {
                break;
            }
            let effects = machine.node.as_mut().map(Node::take_effects).unwrap_or_default();
            if let Some(next) = machine.wakes_at_ms(at).filter(|next| wake.is_none_or(|known| *next < known)) {
                wake = Some(next);
                if next < until {
                    own.insert(next);
                } else {
                    outcome.later.push(next);
                }
            }
            let says = machine.says_while_disrupted();
            outcome.played.push(Played { at, index, effects, says });
        }
        outcome.wake = wake;
        outcome
    }
}

impl Due {
    /// Whether it concerns its machine alone.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::Wake | Self::Input(_) | Self::Message { .. })
    }
}

impl World {
    /// Plays what happens to single machines from `from` on, the earliest event, at most to `end`, on so many threads.
    pub(super) fn play_window(&mut self, from: u64, end: u64, threads: usize) {
        let mut until = (from + self.faults.delay_ms.0.max(1)).min(end + 1);
        let mut tasks = Vec::new();
        while let Some(coming) = self.queue.first().filter(|coming| coming.at < until) {
            if !coming.due.is_own() {
                until = coming.at;
                break;
            }
            tasks.extend(self.queue.take_first());
        }
        let count = tasks.len();
        // Stable: of one machine they stay in the order of time.
        tasks.sort_by_key(|task| task.index);
        let mut tasks = tasks.into_iter().peekable();
        let mut shares = Vec::new();
        let (mut machines, mut passed) = (self.machines.iter_mut(), 0);
        while let Some(first) = tasks.next() {
            let index = first.index;
            let mut of_it = vec![first];
            while let Some(task) = tasks.next_if(|task| task.index == index) {
                of_it.push(task);
            }
            let skip = usize::try_from(index - passed).expect("few machines");
            let machine = machines.nth(skip).expect("an index of this world");
            passed = index + 1;
            let wake = self.wakes.get(&index).copied();
            shares.push(Share { machine, tasks: of_it, wake });
        }
        let outcomes = play_all(shares, count, until, threads);
        self.settle_window(outcomes, until);
    }

    /// Does what cores asked for within a window. Nothing of it happens before `until`.
    fn settle_window(&mut self, outcomes: Vec<Outcome>, until: u64) {
        self.not_before_ms = until;
        let mut played = Vec::new();
        for outcome in outcomes {
            match outcome.wake {
                Some(at) => self.wakes.insert(outcome.index, at),
                None => self.wakes.remove(&outcome.index),
            };
            self.woken += outcome.woken;
            for at in outcome.later {
                self.schedule(at, outcome.index, Due::Wake);
            }
            self.steps += outcome.played.len() as u64;
            played.extend(outcome.played);
        }
        played.sort_by_key(|one| (one.at, one.index));
        for Played { at, index, effects, says } in played {
            self.now_ms = self.now_ms.max(at);
            for effect in effects {
                self.run_effect(index, effect);
            }
            self.note_words(index, says);
        }
    }
}

/// Plays all shares, about as many tasks on each thread.
fn play_all(shares: Vec<Share<'_>>, count: usize, until: u64, threads: usize) -> Vec<Outcome> {
    let threads = threads.min(count / WORTH_A_THREAD).max(1);
    let mut parts: Vec<Vec<Share<'_>>> = (0..threads).map(|_| Vec::new()).collect();
    let (mut part, mut taken) = (0, 0);
    for share in shares {
        if taken * threads >= count * (part + 1) && part + 1 < threads {
            part += 1;
        }
        taken += share.tasks.len();
        parts.get_mut(part).expect("a part for each thread").push(share);
    }
    let play = |part: Vec<Share<'_>>| part.into_iter().map(|share| share.play(until)).collect::<Vec<Outcome>>();
    let mut parts = parts.into_iter();
    let first = parts.next().expect("one thread at least");
    thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(|| play(part))).collect();
        let mut outcomes = play(first);
        for other in others {
            outcomes.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        outcomes
    })
}
