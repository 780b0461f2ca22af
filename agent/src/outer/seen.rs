//! Published forms that were brought and are not here, which need not be brought again: of superseded documents, mostly.
//!
//! What a keeper says of a document counts for nothing. One is remembered only once the core has judged it, and for as long
//! as its bytes and the other documents here settle the verdict; what only time settles, never.

use std::collections::BTreeSet;

use groundswell_core::digest::Digest;
use groundswell_core::documents::rejection::Reason;

/// Most that are remembered of each kind; one more, and all are forgotten: they are brought once more.
const REMEMBERED: usize = 4_096;

/// In memory only. Bounded.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What no document ever is, whatever else is here.
    never: BTreeSet<Digest>,
    /// What was judged beside the documents of `revision`: another one may turn the verdict.
    beside: BTreeSet<Digest>,
    revision: u64,
}

/// What was found out about a published form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Taken in, or known.
    Taken,
    /// Refused: no bytes of a document, whatever else is known.
    Unreadable,
    /// Refused for now.
    Refused(Reason),
}

impl Seen {
    /// Whether the published form need not be brought, `revision` being that of the documents here.
    pub(crate) fn has(&mut self, published: &Digest, revision: u64) -> bool {
        self.at(revision);
        self.never.contains(published) || self.beside.contains(published)
    }

    /// Takes note of a verdict that was given beside the documents of `revision`.
    pub(crate) fn note(&mut self, published: Digest, revision: u64, verdict: Verdict) {
        self.at(revision);
        let set = match verdict {
            Verdict::Unreadable => &mut self.never,
            // The clock may be wrong, and goes on.
            Verdict::Refused(Reason::Expired | Reason::NotYetValid) => return,
            Verdict::Taken | Verdict::Refused(_) => &mut self.beside,
        };
        if set.len() >= REMEMBERED {
            set.clear();
        }
        set.insert(published);
    }

    fn at(&mut self, revision: u64) {
        if self.revision != revision {
            self.revision = revision;
            self.beside.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(n: u16) -> Digest {
        Digest::of(&n.to_be_bytes())
    }

    #[test]
    fn a_refusal_holds_until_another_document_is_here_and_one_for_the_time_not_at_all() {
        let mut seen = Seen::default();
        seen.note(form(1), 7, Verdict::Refused(Reason::Threshold));
        seen.note(form(2), 7, Verdict::Refused(Reason::NotYetValid));
        seen.note(form(3), 7, Verdict::Refused(Reason::Expired));
        seen.note(form(4), 7, Verdict::Unreadable);
        seen.note(form(5), 7, Verdict::Taken);
        let has = |seen: &mut Seen, revision| (1..=5).map(|n| seen.has(&form(n), revision)).collect::<Vec<_>>();
        assert_eq!(has(&mut seen, 7), [true, false, false, true, true]);
        assert_eq!(has(&mut seen, 8), [false, false, false, true, false]);
    }

    #[test]
    fn no_keeper_can_fill_the_memory() {
        let mut seen = Seen::default();
        for n in 0..3 * u16::try_from(REMEMBERED).unwrap() {
            seen.note(form(n), 1, Verdict::Unreadable);
            seen.note(form(n), 1, Verdict::Refused(Reason::Rollback));
        }
        assert!(seen.never.len() <= REMEMBERED && seen.beside.len() <= REMEMBERED);
    }
}
