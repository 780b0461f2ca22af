//! The lease protocol as a small world whose every state can be visited (design, section 7).
//!
//! The rules are not written down again here: every grant, end of a grant, declaration and start is decided by the
//! core's own `Warden` and `may_start`. The world around them is as bad as it may be and small enough to exhaust:
//!
//! - **Messages.** Whatever was ever published can be read by anybody at any look, again and again, also after
//!   something newer was read; or never. That is more than loss, delay, duplication and reordering can do, and no
//!   state says who has read what.
//! - **Crashes.** A warden's promise is durable before it is published, in two steps with a crash between them.
//!   A claim does not outlast a crash, a durable `activating` does.
//! - **Time** is three facts: a claim is too old to start on; a holder died in its upgrade; a warden has not heard of
//!   a holder for `presumeLostAfter`, which can be so only of one whose claim can start no more, has ended, or who is
//!   dead (the assumption of `docs/LEASES.md`).
//! - **Liars** have no state: each reader may find in a liar's records whatever suits it best.
//!
//! [`explore`] searches, [`shape`] says how large a world is and what breaks in it, [`state`] is one state of it,
//! [`lease`] what can happen next, [`look`] how a node sees it, [`forget`] what need not be remembered, [`book`] keeps the real wardens and records behind the
//! small numbers that states are made of, [`tell`] puts a way into words.

pub mod book;
mod change;
pub mod explore;
mod forget;
pub mod lease;
mod look;
mod names;
mod reading;
pub mod shape;
pub mod state;
mod tell;
