//! Plays a setting: an ordered list of events, and each node's exchange driven by them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use groundswell_core::blob::exchange::{Exchange, Message, PartFate, Terms};
use groundswell_core::blob::{Layout, PieceSet};
use groundswell_core::limits::BLOB_NEIGHBOURS;
use groundswell_core::node_id::NodeId;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use super::setting::{Outcome, Setting};
use super::uplink::Uplink;

/// What verifying and storing a piece takes.
const STORE: Duration = Duration::from_millis(1);
/// No swarm takes so many times its limit; whoever is not done by then never is.
const PATIENCE: u32 = 6;

#[derive(Debug)]
enum Event {
    /// Words and parts reach a node.
    Words {
        to: usize,
        from: usize,
        words: Vec<Message>,
    },
    Part {
        to: usize,
        from: usize,
        piece: u32,
        offset: usize,
        length: usize,
        last_is_bad: bool,
    },
    /// A piece is verified.
    Verified {
        at: usize,
        from: usize,
        piece: u32,
        good: bool,
    },
    /// The link between two nodes is closed at this end.
    Closed {
        at: usize,
        other: usize,
    },
    Wake {
        at: usize,
    },
}

struct Queued {
    at: Duration,
    number: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Honest,
    Liar,
    Stalled,
}

struct Node {
    exchange: Exchange,
    uplink: Uplink,
    manner: Manner,
    linked: BTreeSet<usize>,
    wake_at: Duration,
    done: Option<Duration>,
    /// Pieces that come spoiled.
    spoiled: BTreeSet<(usize, u32)>,
}

struct World<'a> {
    setting: &'a Setting,
    nodes: Vec<Node>,
    queue: BinaryHeap<Reverse<Queued>>,
    number: u64,
    now: Duration,
    outcome: Outcome,
    open: usize,
    random: ChaCha8Rng,
}

/// Plays `setting` to its end.
///
/// # Panics
/// When its size is no size of a blob, or an honest node breaks the protocol.
#[must_use]
pub fn run(setting: &Setting) -> Outcome {
    let mut world = World::new(setting);
    world.link();
    let patience = setting.limit() * PATIENCE;
    while world.open > 0 {
        let Some(Reverse(next)) = world.queue.pop() else { break };
        world.now = next.at;
        if world.now > patience {
            break;
        }
        world.outcome.events += 1;
        world.play(next.event);
    }
    let mut outcome = world.outcome;
    outcome.incomplete = world.open;
    outcome.done.sort_unstable();
    outcome
}

fn id(node: usize) -> NodeId {
    let mut bytes = [0; 32];
    for (to, byte) in bytes.iter_mut().zip(node.to_be_bytes()) {
        *to = byte;
    }
    NodeId(bytes)
}

fn place(id: NodeId) -> usize {
    id.0.first_chunk().map_or(0, |bytes| usize::from_be_bytes(*bytes))
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting) -> Self {
        let layout = Layout::of(setting.size_bytes).expect("a setting has the size of a blob");
        let node = |place: usize, rate: u64, held: PieceSet, manner: Manner| Node {
            exchange: Exchange::new(
                layout,
                held,
                Terms::default(),
                setting.seed ^ (u64::try_from(place).unwrap_or(0) << 20),
                Duration::ZERO,
            ),
            uplink: Uplink::new(rate),
            manner,
            linked: BTreeSet::new(),
            wake_at: Duration::MAX,
            done: None,
            spoiled: BTreeSet::new(),
        };
        let honest = |nth: usize| nth >= setting.liars + setting.stalled;
        let mut nodes = vec![node(0, setting.seed_rate, PieceSet::full(layout), Manner::Honest)];
        for (nth, rate) in setting.peer_rates.iter().enumerate() {
            let manner = match nth {
                nth if honest(nth) => Manner::Honest,
                nth if nth < setting.liars => Manner::Liar,
                _ => Manner::Stalled,
            };
            nodes.push(node(nth + 1, *rate, PieceSet::empty(layout), manner));
        }
        Self {
            setting,
            open: (0..setting.peer_rates.len()).filter(|nth| honest(*nth)).count(),
            nodes,
            queue: BinaryHeap::new(),
            number: 0,
            now: Duration::ZERO,
            outcome: Outcome { limit: setting.limit(), ..Outcome::default() },
            random: ChaCha8Rng::seed_from_u64(setting.seed),
        }
    }

    fn node(&mut self, at: usize) -> &mut Node {
        self.nodes.get_mut(at).expect("events name only nodes of this world")
    }

    fn push(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.queue.push(Reverse(Queued { at, number: self.number, event }));
    }

    /// Draws the graph and begins every link.
    fn link(&mut self) {
        let count = self.nodes.len();
        let links = self.drawn_links();
        let now = self.now;
        for (a, b) in links {
            if self.node(a).exchange.join(now, id(b)).is_ok() {
                if self.node(b).exchange.join(now, id(a)).is_ok() {
                    self.node(a).linked.insert(b);
                    self.node(b).linked.insert(a);
                } else {
                    self.node(a).exchange.leave(id(b));
                }
            }
        }
        (0..count).for_each(|node| self.settle(node));
    }

    /// Who is linked with whom: each node draws others until it has as many links as it wants, those counted that drew it.
    fn drawn_links(&mut self) -> BTreeSet<(usize, usize)> {
        let (count, wanted) = (self.nodes.len(), self.setting.links);
        if count <= wanted + 1 {
            return (0..count).flat_map(|a| (0..a).map(move |b| (b, a))).collect();
        }
        let mut links = BTreeSet::new();
        let mut degrees = vec![0; count];
        for a in 0..count {
            let mut others: Vec<usize> = (0..count).filter(|b| *b != a).collect();
            while degrees.get(a).is_some_and(|degree| *degree < wanted) && !others.is_empty() {
                let left = u64::try_from(others.len()).unwrap_or(1);
                let b = others.swap_remove(usize::try_from(self.random.next_u64() % left).unwrap_or(0));
                let has_room = degrees.get(b).is_some_and(|degree| *degree < BLOB_NEIGHBOURS);
                if has_room && links.insert((a.min(b), a.max(b))) {
                    for node in [a, b] {
                        degrees.get_mut(node).into_iter().for_each(|degree| *degree += 1);
                    }
                }
            }
        }
        links
    }

    fn play(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Words { to, from, words } => {
                if !self.node(to).linked.contains(&from) {
                    return;
                }
                for word in &words {
                    let heard = self.node(to).exchange.heard(now, id(from), word);
                    heard.expect("nodes of this world keep the protocol");
                }
                self.settle(to);
            }
            Event::Part { to, from, piece, offset, length, last_is_bad } => {
                if !self.node(to).linked.contains(&from) {
                    self.outcome.wasted_bytes += u64::try_from(length).unwrap_or(0);
                    return;
                }
                let fate = self.node(to).exchange.part(now, id(from), piece, offset, length);
                match fate.expect("nodes of this world keep the protocol") {
                    PartFate::Keep => {}
                    PartFate::Whole => self.push(now + STORE, Event::Verified { at: to, from, piece, good: !last_is_bad }),
                    PartFate::Drop => self.outcome.wasted_bytes += u64::try_from(length).unwrap_or(0),
                }
                self.settle(to);
            }
            Event::Verified { at, from, piece, good } => {
                if good {
                    self.node(at).exchange.stored(now, piece);
                } else if self.node(at).linked.contains(&from) {
                    self.outcome.wasted_bytes += self.setting.size_bytes.min(self.piece_bytes(piece));
                    self.close(at, from);
                }
                if self.node(at).done.is_none() && self.node(at).exchange.is_complete() && at != 0 {
                    self.node(at).done = Some(now);
                    if self.node(at).manner == Manner::Honest {
                        self.outcome.done.push(now);
                        self.open -= 1;
                    }
                }
                self.settle(at);
            }
            Event::Closed { at, other } => {
                self.node(at).linked.remove(&other);
                self.node(at).exchange.leave(id(other));
                self.settle(at);
            }
            Event::Wake { at } => {
                self.node(at).wake_at = Duration::MAX;
                self.node(at).exchange.tick(now);
                for silent in self.node(at).exchange.take_silent() {
                    self.close(at, place(silent));
                }
                self.settle(at);
            }
        }
    }

    fn piece_bytes(&self, piece: u32) -> u64 {
        let layout = Layout::of(self.setting.size_bytes).expect("a setting has the size of a blob");
        layout.length(piece).and_then(|length| u64::try_from(length).ok()).unwrap_or(0)
    }

    /// Closes a link at this end; the other hears of it.
    fn close(&mut self, at: usize, other: usize) {
        self.node(at).linked.remove(&other);
        self.node(at).exchange.leave(id(other));
        self.push(self.now + self.setting.delay, Event::Closed { at: other, other: at });
    }

    /// Sends what a node has to say and to give, and notes when it wants to be woken.
    fn settle(&mut self, at: usize) {
        let now = self.now;
        let delay = self.setting.delay;
        let mut words: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
        for (to, message) in self.node(at).exchange.take_messages(now) {
            words.entry(place(to)).or_default().push(message);
        }
        for (to, words) in words {
            let bytes = words.iter().map(|word| u64::try_from(word.frame_bytes()).unwrap_or(0)).sum();
            self.outcome.word_bytes += bytes;
            let left = self.node(at).uplink.send(now, bytes);
            self.push(left + delay, Event::Words { to, from: at, words });
        }
        if self.node(at).manner != Manner::Stalled {
            while let Some(part) = self.node(at).exchange.next_part(now) {
                let bytes = u64::try_from(part.length).unwrap_or(0);
                self.outcome.total_bytes += bytes;
                if at == 0 {
                    self.outcome.seed_bytes += bytes;
                }
                let to = place(part.peer);
                if self.node(at).manner == Manner::Liar && part.offset == 0 && self.random.next_u32().is_multiple_of(10) {
                    self.node(at).spoiled.insert((to, part.piece));
                }
                let last_is_bad = part.last && self.node(at).spoiled.remove(&(to, part.piece));
                let left = self.node(at).uplink.send(now, bytes);
                let (piece, offset, length) = (part.piece, part.offset, part.length);
                self.push(left + delay, Event::Part { to, from: at, piece, offset, length, last_is_bad });
            }
        }
        if at == 0 && self.setting.seed_leaves_after_ppm.is_some_and(|ppm| self.seed_copies_ppm() >= ppm) {
            let others: Vec<usize> = self.node(0).linked.iter().copied().collect();
            others.into_iter().for_each(|other| self.close(0, other));
        }
        let wake = self.node(at).exchange.next_wakeup().max(now);
        if wake < self.node(at).wake_at {
            self.node(at).wake_at = wake;
            self.push(wake, Event::Wake { at });
        }
    }

    fn seed_copies_ppm(&self) -> u64 {
        self.outcome.seed_bytes.saturating_mul(1_000_000) / self.setting.size_bytes
    }
}

#[cfg(test)]
mod tests {
    use groundswell_core::limits::BLOB_COMPANY;

    use super::*;

    #[test]
    fn a_node_has_as_many_links_as_an_agent_that_fetches_makes_and_those_that_others_make_with_it() {
        let setting = Setting::equal(199, 40_000_000, 1024 * 1024);
        let links = World::new(&setting).drawn_links();
        let degree = |node: usize| links.iter().filter(|(a, b)| *a == node || *b == node).count();
        assert!((0..200).all(|node| (BLOB_COMPANY..=BLOB_NEIGHBOURS).contains(&degree(node))));
        // Whoever was drawn often enough draws nobody.
        assert!(links.len() < 200 * BLOB_COMPANY * 3 / 4, "{}", links.len());
        let few = World::new(&Setting::equal(16, 40_000_000, 1024 * 1024)).drawn_links();
        assert_eq!(few.len(), 17 * 16 / 2, "all with all");
    }
}
