//! `swell helper`: the small process with rights beside an agent without any (design, section 10).
//!
//! It has no network and believes its agent nothing: [`archive`] keeps the documents that it verified itself, under its
//! own pins, and never goes back behind them, and [`memory`] opens it; [`desk`] carries installs out for one product, with the same executor as an
//! agent that needs no helper; [`server`] is the socket, [`peer`] one connection; [`wire`] and [`channel`] are the frames. [`ground`] and
//! [`beneath`] see to it that nobody else can move what lies under its feet. The agent's side is
//! `crate::install::remote`. Described in `docs/INSTALL.md`; what it keeps out stands in `docs/TRUST.md`.

pub mod account;
pub mod archive;
pub mod beneath;
pub mod channel;
pub mod desk;
pub mod ground;
mod in_force;
pub mod memory;
pub mod papers;
mod peer;
mod reader;
pub mod server;
pub mod wire;

pub use server::{HelperError, Patience, run};
