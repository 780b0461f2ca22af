//! Which fleet document a helper has seen as the newest: kept beside the documents, so that a file that is lost or damaged
//! does not make an older one count again.

use std::fmt;
use std::str::FromStr;

use groundswell_core::digest::Digest;
use groundswell_core::documents::envelope::Envelope;
use groundswell_core::documents::{Body, Kind};
use groundswell_core::trust::shelf::Shelf;

/// The file that held it before its name told the fleet. Still read; it goes when the other one is written.
pub(super) const OLD_IN_FORCE: &str = "fleet-in-force";

/// The file that holds it, of its own for each fleet: what one fleet had in force says nothing of another, to which the
/// machine may have been moved.
pub(super) fn in_force_name(fleet: &Digest) -> String {
    format!("{OLD_IN_FORCE}-of-{}", fleet.hex())
}

/// The highest version of the fleet document, and its body digest; two where two bodies of it are known, in order.
///
/// Written as `2 sha256/…` or `2 sha256/… sha256/…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InForce {
    version: u64,
    digests: Vec<Digest>,
}

/// The text does not say which fleet document it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version and one digest or two are expected")]
pub(super) struct InForceError;

impl InForce {
    /// As a shelf has it; `None` where it has no fleet document.
    pub(super) fn of(shelf: &Shelf) -> Option<Self> {
        let version = shelf.fleet()?.version;
        let mut digests: Vec<Digest> = shelf.fleets_after(version.saturating_sub(1)).collect();
        digests.sort();
        Some(Self { version, digests })
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.digests.iter()
    }

    /// Whether one of `envelopes` shows that it names the document of another fleet than `fleet`. What is there is believed by
    /// its digest alone, which this names; where nothing of it is there, nothing tells.
    pub(super) fn is_of_another(&self, fleet: &Digest, envelopes: &[Vec<u8>]) -> bool {
        envelopes.iter().filter_map(|bytes| Envelope::parse(bytes).ok()).any(|envelope| {
            let digest = envelope.digest();
            let named = envelope.kind == Kind::Fleet && self.digests.contains(&digest);
            named
                && match Body::parse(envelope.kind, &envelope.body) {
                    Ok(Body::Fleet(document)) => document.fleet.unwrap_or(digest) != *fleet,
                    _ => false,
                }
        })
    }

    /// Whether it says more than `known`: a higher version, or a second body of the same.
    pub(super) fn follows(&self, known: Option<&Self>) -> bool {
        known.is_none_or(|known| {
            let second = self.digests.len() > known.digests.len() && known.digests.iter().all(|it| self.digests.contains(it));
            self.version > known.version || (self.version == known.version && second)
        })
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        self.digests.iter().try_for_each(|digest| write!(f, " {digest}"))
    }
}

impl FromStr for InForce {
    type Err = InForceError;

    fn from_str(text: &str) -> Result<Self, InForceError> {
        let mut words = text.split(' ');
        let version = words.next().and_then(|word| word.parse().ok()).ok_or(InForceError)?;
        let digests: Vec<Digest> = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| InForceError)?;
        if matches!(digests.len(), 1 | 2) { Ok(Self { version, digests }) } else { Err(InForceError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: u64, digests: &[u8]) -> InForce {
        InForce { version, digests: digests.iter().map(|byte| Digest([*byte; 32])).collect() }
    }

    #[test]
    fn it_reads_what_it_writes_and_nothing_else() {
        for it in [of(1, &[1]), of(7, &[1, 2])] {
            assert_eq!(it.to_string().parse(), Ok(it));
        }
        for text in ["", "1", "x sha256/00", "1 sha256/00", &format!("{}", of(1, &[1, 2, 3])), &format!("{} ", of(1, &[1]))] {
            assert_eq!(text.parse::<InForce>(), Err(InForceError), "{text}");
        }
    }

    #[test]
    fn only_more_takes_the_place_of_what_is_known() {
        assert!(of(1, &[1]).follows(None));
        assert!(of(2, &[2]).follows(Some(&of(1, &[1]))));
        assert!(of(2, &[1, 2]).follows(Some(&of(2, &[2]))), "a rival is taken down too");
        assert!(!of(1, &[1]).follows(Some(&of(2, &[2]))), "a damaged file takes nobody back");
        assert!(!of(2, &[2]).follows(Some(&of(2, &[1, 2]))), "nor makes it forget a rival");
        assert!(!of(2, &[3]).follows(Some(&of(2, &[2]))));
        assert!(!of(2, &[1, 3]).follows(Some(&of(2, &[2]))));
    }
}
