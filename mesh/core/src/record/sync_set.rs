//! What sync compares: one id per thing that a node holds, in order, with the sums of their ranges kept up as they change.
//!
//! The first half of an id names the thing (a record's key, a document's digest), the second half its state (the record's
//! bytes, the document's signatures), so two states of one thing lie side by side. Ranges are those ids that begin with
//! the same half-bytes, as in a trie with 16 children. A range's sum is its ids added half by half; a change of one thing
//! changes it in O(1), and the sums of two sets add up to that of both. What is sent is a hash of the sum and the count.
//!
//! Ids are kept in 256 buckets by their first byte: a whole, a half-byte and a byte have their sums at hand, what is deeper
//! is one bucket's to add up.

use alloc::vec::Vec;

/// 32 bytes that sync compares: 16 of the thing's hash, then 16 of the hash of its state.
pub type SyncId = [u8; 32];

/// Hash over all ids of a range; zeros when it is empty.
pub type Fingerprint = [u8; 16];

/// Depth at which a range holds one thing at most: the half-bytes of half an id.
pub const DEEPEST: usize = 32;

/// Ids added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    things: u128,
    states: u128,
    count: u64,
}

/// Things of one sort by their ids, at most one state of each.
#[derive(Clone, Debug)]
pub struct SyncSet<T> {
    buckets: Vec<Bucket<T>>,
    sum: Sum,
}

#[derive(Clone, Debug)]
struct Bucket<T> {
    sorted: Vec<(SyncId, T)>,
    sum: Sum,
}

impl Sum {
    fn add(&mut self, id: &SyncId) {
        let (thing, state) = numbers(id);
        self.things = self.things.wrapping_add(thing);
        self.states = self.states.wrapping_add(state);
        self.count += 1;
    }

    fn take(&mut self, id: &SyncId) {
        let (thing, state) = numbers(id);
        self.things = self.things.wrapping_sub(thing);
        self.states = self.states.wrapping_sub(state);
        self.count -= 1;
    }

    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            things: self.things.wrapping_add(other.things),
            states: self.states.wrapping_add(other.states),
            count: self.count + other.count,
        }
    }

    /// How many ids were added.
    #[must_use]
    pub fn count(self) -> u64 {
        self.count
    }

    /// What is sent of it.
    #[must_use]
    pub fn fingerprint(self) -> Fingerprint {
        let mut print = [0; 16];
        if self.count > 0 {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&self.things.to_be_bytes()).update(&self.states.to_be_bytes()).update(&self.count.to_be_bytes());
            hasher.finalize_xof().fill(&mut print);
        }
        print
    }
}

impl<T> Default for SyncSet<T> {
    fn default() -> Self {
        Self { buckets: (0..256).map(|_| Bucket { sorted: Vec::new(), sum: Sum::default() }).collect(), sum: Sum::default() }
    }
}

impl<T> SyncSet<T> {
    /// Adds a thing, or puts another state of it in the place of the one that is here.
    pub fn put(&mut self, id: SyncId, thing: T) {
        let Some(bucket) = self.buckets.get_mut(first(&id)) else { return };
        match bucket.sorted.binary_search_by(|(known, _)| half(known).cmp(half(&id))) {
            Ok(at) => {
                let Some(known) = bucket.sorted.get_mut(at) else { return };
                bucket.sum.take(&known.0);
                self.sum.take(&known.0);
                *known = (id, thing);
            }
            Err(at) => bucket.sorted.insert(at, (id, thing)),
        }
        bucket.sum.add(&id);
        self.sum.add(&id);
    }

    /// Takes a thing out, whatever its state.
    pub fn remove(&mut self, id: &SyncId) {
        let Some(bucket) = self.buckets.get_mut(first(id)) else { return };
        if let Ok(at) = bucket.sorted.binary_search_by(|(known, _)| half(known).cmp(half(id))) {
            let (known, _) = bucket.sorted.remove(at);
            bucket.sum.take(&known);
            self.sum.take(&known);
        }
    }

    /// The thing that `id` names, in whatever state.
    #[must_use]
    pub fn thing(&self, id: &SyncId) -> Option<&(SyncId, T)> {
        let bucket = self.buckets.get(first(id))?;
        let at = bucket.sorted.binary_search_by(|(known, _)| half(known).cmp(half(id))).ok()?;
        bucket.sorted.get(at)
    }

    /// All of it added up.
    #[must_use]
    pub fn whole(&self) -> Sum {
        self.sum
    }

    /// The range of `prefix`, a list of half-bytes, added up.
    #[must_use]
    pub fn sum(&self, prefix: &[u8]) -> Sum {
        match prefix {
            [] => self.sum,
            [_] | [_, _] => self.under(prefix).iter().fold(Sum::default(), |sum, bucket| sum.and(bucket.sum)),
            _ => {
                let mut sum = Sum::default();
                self.range(prefix).for_each(|(id, _)| sum.add(id));
                sum
            }
        }
    }

    /// What lies in the range of `prefix`, in order of ids.
    pub fn range<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a (SyncId, T)> + 'a {
        self.under(prefix).iter().flat_map(move |bucket| {
            let from = bucket.sorted.partition_point(|(id, _)| nibbles(id, prefix.len()).lt(prefix.iter().copied()));
            let rest = bucket.sorted.get(from..).unwrap_or_default();
            rest.iter().take_while(move |(id, _)| nibbles(id, prefix.len()).eq(prefix.iter().copied()))
        })
    }

    /// The buckets that may hold ids of the range.
    fn under(&self, prefix: &[u8]) -> &[Bucket<T>] {
        let (from, to) = match prefix {
            [] => (0, 256),
            [high] => (usize::from(*high) * 16, usize::from(*high) * 16 + 16),
            [high, low, ..] => (usize::from(*high) * 16 + usize::from(*low), usize::from(*high) * 16 + usize::from(*low) + 1),
        };
        self.buckets.get(from..to).unwrap_or_default()
    }
}

/// Which half of an id names the thing.
#[must_use]
pub fn half(id: &SyncId) -> &[u8] {
    id.split_at(16).0
}

/// Half of one hash, then half of the other.
pub(crate) fn join_halves(first: &blake3::Hash, second: &blake3::Hash) -> SyncId {
    let mut id = [0; 32];
    let halves = first.as_bytes().iter().take(16).chain(second.as_bytes().iter().take(16));
    for (to, from) in id.iter_mut().zip(halves) {
        *to = *from;
    }
    id
}

fn first(id: &SyncId) -> usize {
    let [first, ..] = *id;
    usize::from(first)
}

fn nibbles(id: &SyncId, most: usize) -> impl Iterator<Item = u8> + '_ {
    id.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(most)
}

fn numbers(id: &SyncId) -> (u128, u128) {
    let number = |bytes: &[u8]| bytes.iter().fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
    let (thing, state) = id.split_at(16);
    (number(thing), number(state))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(thing: u8, state: u8) -> SyncId {
        // Few first bytes, so that ranges of every depth hold something.
        let [a, b, ..] = *blake3::hash(&[thing]).as_bytes();
        let mut id = [state; 32];
        id[..3].copy_from_slice(&[a & 0x13, b & 0x31, thing]);
        id[3..16].fill(0);
        id
    }

    proptest! {
        #[test]
        fn the_sums_kept_are_those_added_up_anew(steps in proptest::collection::vec((any::<bool>(), 0_u8..40, 0_u8..4), 0..200)) {
            let mut kept = SyncSet::default();
            let mut held: BTreeMap<u8, SyncId> = BTreeMap::new();
            for (put, thing, state) in steps {
                let id = id(thing, state);
                if put {
                    kept.put(id, thing);
                    held.insert(thing, id);
                } else {
                    kept.remove(&id);
                    held.remove(&thing);
                }
            }
            let mut all: Vec<SyncId> = held.values().copied().collect();
            all.sort_unstable();
            for depth in [0, 1, 2, 3, 4, 6] {
                let prefixes = all.iter().map(|id| nibbles(id, depth).collect::<Vec<u8>>()).chain([alloc::vec![15; depth]]);
                for prefix in prefixes {
                    let inside: Vec<SyncId> = all.iter().filter(|id| nibbles(id, depth).eq(prefix.iter().copied())).copied().collect();
                    let mut anew = Sum::default();
                    inside.iter().for_each(|id| anew.add(id));
                    prop_assert_eq!(kept.sum(&prefix), anew, "at {:?}", prefix);
                    prop_assert_eq!(kept.range(&prefix).map(|(id, _)| *id).collect::<Vec<_>>(), inside);
                }
            }
            for thing in 0..40 {
                prop_assert_eq!(kept.thing(&id(thing, 9)).map(|(id, _)| *id), held.get(&thing).copied());
            }
        }
    }

    #[test]
    fn nothing_has_the_fingerprint_of_zeros_and_what_differs_another() {
        assert_eq!(Sum::default().fingerprint(), [0; 16]);
        let (mut one, mut other) = (Sum::default(), Sum::default());
        one.add(&[0; 32]);
        assert_ne!(one.fingerprint(), [0; 16]);
        other.add(&id(1, 1));
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(one.and(other).fingerprint(), other.and(one).fingerprint());
    }
}
