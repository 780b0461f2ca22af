//! What a device was asked for and has not come to the end of. The core asks for a confirm or a revert again and again, for either
//! may take as long as it likes: one that waits behind another of its kind would only keep others out.

use std::sync::{Mutex, PoisonError};

use groundswell_core::node::effect::Step;

/// The confirms and reverts that wait or run.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<Vec<Step>>);

impl Asked {
    /// Notes that `step` waits or runs. `false`: the same one does already, and answers for both.
    pub(super) fn note(&self, step: &Step) -> bool {
        if !is_asked_for_again(step) {
            return true;
        }
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !asked.contains(step);
        if is_new {
            asked.push(step.clone());
        }
        is_new
    }

    /// It has come to an end, or was not taken.
    pub(super) fn end(&self, step: &Step) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|asked| asked != step);
    }
}

fn is_asked_for_again(step: &Step) -> bool {
    matches!(step, Step::Confirm { .. } | Step::Revert { .. })
}
