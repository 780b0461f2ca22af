//! One node of the mesh: everything it decides, behind one door.
//!
//! ```text
//!            Input ──► handle(now, input) ──► take_effects() ──► Effect, run in order by the driver
//!                          │                                     (a Persist is durable before the next effect runs)
//!                          └──► next_wakeup(): when to come back with Input::Wake
//! ```
//!
//! [`input`] and [`effect`] are the door's two closed enums, [`hold`] every "not yet" with its facts,
//! [`view`] what `status`, `rollouts`, `leases` and `explain` show.

pub mod effect;
pub mod hold;
pub mod input;
pub mod view;
