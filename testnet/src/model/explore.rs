//! A breadth-first search over every state of a small world, with the shortest way to a state that must not be.
//!
//! What is the same but for names is visited once: a [`World`] says so with its key. Only keys are kept of the states
//! that were visited, and for each its parent and which of the parent's moves led to it; so a way is told by walking
//! it again from the beginning. Nothing is known of leases here.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Something that moves.
pub trait World {
    /// One state of it, with everything that decides what can follow.
    type State: Clone;

    /// Where it begins.
    fn beginning(&mut self) -> Self::State;
    /// Everything that can happen next, always in the same order.
    fn moves(&mut self, state: &Self::State, moves: &mut Vec<Move<Self::State>>);
    /// Equal for states that differ in names only; a digest, so that unequal states have unequal keys.
    fn key(&mut self, state: &Self::State) -> u128;
    /// What is wrong with a state; `None`: nothing.
    fn broken(&self, state: &Self::State) -> Option<String>;
    /// Whether everything that was wanted has come about.
    fn is_fulfilled(&self, state: &Self::State) -> bool;
    /// Whether [`Self::is_fulfilled`] must be within reach, without a further fault.
    fn must_be_fulfilled(&self, state: &Self::State) -> bool;
    /// What happened between two states, in one line.
    fn tell(&self, before: &Self::State, after: &Self::State) -> String;
}

/// One thing that can happen.
#[derive(Clone, Debug)]
pub struct Move<S> {
    /// What it leads to.
    pub to: S,
    /// Whether it is a fault: what is wanted must be within reach without any.
    pub fault: bool,
}

/// How far to search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Stop after so many states.
    pub states: usize,
    /// Look also for states from which what is wanted is out of reach. Costs memory for every move.
    pub traps: bool,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// States visited, those that differ in names only counted once.
    pub states: usize,
    /// The most moves from the beginning to any of them, along the shortest way.
    pub depth: usize,
    /// Moves tried.
    pub moves: usize,
    /// Nothing was left to visit.
    pub complete: bool,
    /// The shortest way to a broken state.
    pub broken: Option<Way>,
    /// The shortest way to a state from which what is wanted is out of reach. Looked for in complete searches only.
    pub trap: Option<Way>,
}

/// A way from the beginning to a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// What is wrong at its end.
    pub why: String,
    /// What happened, one line a move.
    pub steps: Vec<String>,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", at + 1)?;
        }
        write!(f, "     {}", self.why)
    }
}

/// How a state was reached first.
#[derive(Clone, Copy)]
struct Reached {
    from: u32,
    by: u16,
}

struct Search<'a, W: World> {
    world: &'a mut W,
    numbers: KeyMap,
    reached: Vec<Reached>,
    /// Moves without a fault, for traps: (from, to).
    edges: Vec<(u32, u32)>,
    fulfilled: Vec<u32>,
    owed: Vec<u32>,
}

/// Visits every state of `world` within `bounds`, nearest first; stops at the first broken one.
pub fn explore<W: World>(world: &mut W, bounds: Bounds) -> Found {
    let mut search = Search {
        world,
        numbers: KeyMap::default(),
        reached: Vec::new(),
        edges: Vec::new(),
        fulfilled: Vec::new(),
        owed: Vec::new(),
    };
    search.run(bounds)
}

impl<W: World> Search<'_, W> {
    fn run(&mut self, bounds: Bounds) -> Found {
        let mut found = Found { states: 0, depth: 0, moves: 0, complete: false, broken: None, trap: None };
        let beginning = self.world.beginning();
        let mut queue: VecDeque<(u32, W::State)> = VecDeque::new();
        self.number(&beginning, Reached { from: 0, by: 0 }, bounds);
        queue.push_back((0, beginning));
        let (mut level_ends, mut moves) = (1, Vec::new());
        while let Some((from, state)) = queue.pop_front() {
            if usize_of(from) == level_ends {
                found.depth += 1;
                level_ends = self.reached.len();
            }
            moves.clear();
            self.world.moves(&state, &mut moves);
            found.moves += moves.len();
            for (by, next) in moves.drain(..).enumerate() {
                let by = u16::try_from(by).expect("no state has 65,536 moves");
                let (number, new) = self.number(&next.to, Reached { from, by }, bounds);
                if bounds.traps && !next.fault && number != from {
                    self.edges.push((from, number));
                }
                if !new {
                    continue;
                }
                if let Some(why) = self.world.broken(&next.to) {
                    found.states = self.reached.len();
                    found.broken = Some(self.way_to(number, why));
                    return found;
                }
                queue.push_back((number, next.to));
            }
            if self.reached.len() >= bounds.states && !queue.is_empty() {
                found.states = self.reached.len();
                return found;
            }
        }
        found.states = self.reached.len();
        found.complete = true;
        if bounds.traps {
            let trap = self.first_trap();
            found.trap = trap.map(|trap| self.way_to(trap, "what is wanted is out of reach from here".to_owned()));
        }
        found
    }

    /// The number of a state, and whether it is new.
    fn number(&mut self, state: &W::State, reached: Reached, bounds: Bounds) -> (u32, bool) {
        let key = self.world.key(state);
        let next = u32::try_from(self.reached.len()).expect("fewer than four thousand million states");
        let number = *self.numbers.entry(key).or_insert(next);
        let new = number == next;
        if new {
            self.reached.push(reached);
            if bounds.traps && self.world.is_fulfilled(state) {
                self.fulfilled.push(number);
            } else if bounds.traps && self.world.must_be_fulfilled(state) {
                self.owed.push(number);
            }
        }
        (number, new)
    }

    /// The first state that owes what is out of its reach.
    fn first_trap(&mut self) -> Option<u32> {
        // Backwards from what is fulfilled, over moves without a fault.
        self.edges.sort_unstable_by_key(|(from, to)| (*to, *from));
        let mut can: Vec<bool> = vec![false; self.reached.len()];
        let mut open: Vec<u32> = self.fulfilled.clone();
        while let Some(to) = open.pop() {
            let can = can.get_mut(usize_of(to)).expect("a number of a state");
            if std::mem::replace(can, true) {
                continue;
            }
            let first = self.edges.partition_point(|edge| edge.1 < to);
            let into = self.edges.iter().skip(first).take_while(|edge| edge.1 == to);
            open.extend(into.map(|edge| edge.0));
        }
        self.owed.iter().copied().find(|number| !can.get(usize_of(*number)).copied().unwrap_or_default())
    }

    fn way_to(&mut self, end: u32, why: String) -> Way {
        let mut choices = Vec::new();
        let mut at = end;
        while at != 0 {
            let reached = *self.reached.get(usize_of(at)).expect("a number of a state");
            choices.push(reached.by);
            at = reached.from;
        }
        let mut state = self.world.beginning();
        let (mut steps, mut moves) = (Vec::new(), Vec::new());
        for by in choices.into_iter().rev() {
            moves.clear();
            self.world.moves(&state, &mut moves);
            let next = moves.swap_remove(usize::from(by)).to;
            steps.push(self.world.tell(&state, &next));
            state = next;
        }
        Way { why, steps }
    }
}

/// Numbers of states by key. A key is a digest already: nothing is gained by hashing it again.
type KeyMap = HashMap<u128, u32, BuildHasherDefault<Digested>>;

#[derive(Default)]
struct Digested(u64);

impl Hasher for Digested {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers of 128 bits");
    }
    fn write_u128(&mut self, key: u128) {
        let [a, b, c, d, e, f, g, h, ..] = key.to_le_bytes();
        self.0 = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    }
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).expect("32 bits fit")
}
