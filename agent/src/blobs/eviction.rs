//! Which blobs give way to one that is to come, when the quota or the disk has no room for both.
//!
//! What rollouts still need and what is being written stays, whatever happens; of the rest that which was used longest ago
//! goes first. Nothing goes in vain: where all of it together would not do, none of it goes.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use groundswell_core::digest::Digest;

/// Says which blobs rollouts and this node's own slots still need. Asked only when room is short.
pub type Needed = Arc<dyn Fn() -> BTreeSet<Digest> + Send + Sync>;

/// Where [`Needed`] will stand. Until then nothing gives way.
#[derive(Default)]
pub(super) struct Spared(OnceLock<Needed>);

impl std::fmt::Debug for Spared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spared").field(&self.0.get().is_some()).finish()
    }
}

impl Spared {
    /// The first that is given stays.
    pub(super) fn set(&self, needed: Needed) {
        let _ = self.0.set(needed);
    }

    /// `None` while nobody knows.
    pub(super) fn ask(&self) -> Option<BTreeSet<Digest>> {
        self.0.get().map(|needed| needed())
    }
}

/// A blob that may give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) sha256: Digest,
    /// Bytes that its end frees.
    pub(super) size_bytes: u64,
    /// Grows with each use of any blob.
    pub(super) used: u64,
}

/// What goes, so that at least so many bytes and places are free; `None` where all candidates together are too few.
pub(super) fn choose(mut candidates: Vec<Candidate>, bytes: u64, places: usize) -> Option<Vec<Digest>> {
    candidates.sort_by_key(|candidate| (candidate.used, candidate.sha256));
    let (mut freed, mut chosen) = (0_u64, Vec::new());
    for candidate in candidates {
        if freed >= bytes && chosen.len() >= places {
            break;
        }
        freed = freed.saturating_add(candidate.size_bytes);
        chosen.push(candidate.sha256);
    }
    (freed >= bytes && chosen.len() >= places).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(number: u8, size_bytes: u64, used: u64) -> Candidate {
        Candidate { sha256: Digest([number; 32]), size_bytes, used }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_no_more_than_needed() {
        let all = vec![candidate(1, 10, 7), candidate(2, 10, 3), candidate(3, 10, 5)];
        assert_eq!(choose(all.clone(), 0, 0), Some(Vec::new()));
        assert_eq!(choose(all.clone(), 1, 0), Some(vec![Digest([2; 32])]));
        assert_eq!(choose(all.clone(), 11, 0), Some(vec![Digest([2; 32]), Digest([3; 32])]));
        assert_eq!(choose(all.clone(), 1, 2), Some(vec![Digest([2; 32]), Digest([3; 32])]));
        assert_eq!(choose(all.clone(), 30, 3).map(|chosen| chosen.len()), Some(3));
        assert_eq!((choose(all.clone(), 31, 0), choose(all, 0, 4)), (None, None), "nothing goes in vain");
    }

    proptest! {
        #[test]
        fn what_stays_was_never_used_before_what_goes(
            all in prop::collection::vec((1..100_u64, 0..50_u64), 0..20), bytes in 0..1_500_u64, places in 0..22_usize,
        ) {
            let all: Vec<Candidate> =
                (0..).zip(all).map(|(number, (size_bytes, used))| candidate(number, size_bytes, used)).collect();
            let total: u64 = all.iter().map(|it| it.size_bytes).sum();
            let chosen = choose(all.clone(), bytes, places);
            prop_assert_eq!(chosen.is_some(), total >= bytes && all.len() >= places);
            let chosen = chosen.unwrap_or_default();
            let (goes, stays): (Vec<Candidate>, Vec<Candidate>) = all.iter().copied().partition(|it| chosen.contains(&it.sha256));
            let newest = goes.iter().map(|it| it.used).max().unwrap_or(0);
            prop_assert!(stays.iter().all(|it| goes.is_empty() || it.used >= newest));
        }
    }
}
