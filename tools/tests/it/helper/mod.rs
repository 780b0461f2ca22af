//! `swell helper` as a real process, and everything that an agent that was broken into could ask of it.
//!
//! [`documents`] shows papers that do not warrant an install, [`open_files`] hands over files that are not what they
//! should be, [`orders`] asks out of turn, [`frames`] sends what is no frame, [`ground`] moves what the helper stands on,
//! [`killed`] ends it in the middle, [`hangs`] sends what makes it wait, [`rosters`] fills its shelf,
//! [`set_back`] damages what it remembers, [`shut`] so that it may install nothing new, [`moved`] is of another fleet now.

mod bench;
mod documents;
mod frames;
mod going_back;
mod ground;
mod hangs;
mod killed;
mod moved;
mod open_files;
mod orders;
mod rosters;
mod set_back;
mod shut;
mod units;
mod whole;
mod world;

pub(crate) use bench::{PATIENCE, not_tested};
