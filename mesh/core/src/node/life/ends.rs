//! How often the agent itself has ended without having been told to, while one release of it was on trial.
//!
//! Its supervisor counts the starts of one trial. A trial that comes to no verdict is made again: what ends its agent, or takes its
//! machine down, in each of them before its starts are used up is counted here, over all of them.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::limits::{TRIAL_ENDS, TRIAL_STOPS};

/// Of one release, until there is a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    release: Option<Digest>,
    ended: u32,
    /// How often it was told to.
    stops: u32,
    last: Last,
}

/// What was last heard of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Last {
    /// It is handed over: what ends now is not it.
    #[default]
    HandedOver,
    /// It runs.
    Runs,
    /// It ends as it was told to.
    Stops,
}

impl Ends {
    /// A trial of this release begins.
    pub(super) fn begin(&mut self, release: Digest) {
        if self.release != Some(release) {
            *self = Self { release: Some(release), ..Self::default() };
        }
        self.last = Last::HandedOver;
    }

    /// It has started, and the trial goes on.
    pub(super) fn start(&mut self) {
        self.ended = self.ended.saturating_add(u32::from(self.last == Last::Runs));
        self.last = Last::Runs;
    }

    /// It ends in an orderly way, which is no end of its own; not so often that it has its machine restarted for ever.
    pub(super) fn stop(&mut self) {
        if self.last == Last::Runs && self.stops < TRIAL_STOPS {
            self.stops = self.stops.saturating_add(1);
            self.last = Last::Stops;
        }
    }

    /// How often it has ended, where that is as often as it may.
    pub(super) fn spent(&self) -> Option<u32> {
        (self.ended >= TRIAL_ENDS).then_some(self.ended)
    }
}
