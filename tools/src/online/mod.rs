//! What the commands that talk to agents share: the runtime, the socket, the observer, and how errors become exit codes.

pub(crate) mod gather;
pub(crate) mod observer;
pub(crate) mod shown;
pub(crate) mod socket;
pub(crate) mod table;

use groundswell_core::documents::rejection::{Reason, Rejection};

use crate::failure::Failure;

/// Runs `work` on a runtime of this thread alone: a tool does one thing at a time.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| Failure::failed("cannot start", source))?.block_on(work)
}

/// The rejection behind a reason code that came over the wire; `None` when it is no code of a refused document.
pub(crate) fn rejection(code: &str, field: &str, detail: &str) -> Option<Rejection> {
    const ALL: [Reason; 13] = [
        Reason::Malformed,
        Reason::NotCanonical,
        Reason::Threshold,
        Reason::Product,
        Reason::Expired,
        Reason::NotYetValid,
        Reason::Rollback,
        Reason::Conflict,
        Reason::TooLarge,
        Reason::Fleet,
        Reason::UnknownKey,
        Reason::Limits,
        Reason::Revoked,
    ];
    let reason = ALL.into_iter().find(|reason| reason.code() == code)?;
    Some(Rejection::new(reason, field, detail))
}
