//! The trials of one release that came to no verdict, and those of the agent itself that ended without having been told to.
//!
//! Its supervisor counts the starts of one trial. A trial that comes to no verdict is made again: an agent that ends, or takes its
//! machine down, in each of them before its starts are used up is found here. Once is a power cut, whatever the site; a trial
//! that nothing cut short begins the count anew.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::limits::{RETRY_DOUBLINGS, RETRY_LONGEST_MS, TRIAL_ENDS, TRIAL_STOPS, TRIALS_UNDOUBLED};

/// Of one release, until there is a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    release: Option<Digest>,
    trials: u32,
    /// In so many trials in a row it has ended, this one with them.
    in_a_row: u32,
    /// In this one.
    ended: bool,
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
        } else if !self.ended {
            self.in_a_row = 0;
        }
        self.trials = self.trials.saturating_add(1);
        self.ended = false;
        self.last = Last::HandedOver;
    }

    /// It has started, and the trial goes on.
    pub(super) fn start(&mut self) {
        if self.last == Last::Runs && !self.ended {
            self.ended = true;
            self.in_a_row = self.in_a_row.saturating_add(1);
        }
        self.last = Last::Runs;
    }

    /// It ends in an orderly way, which is no end of its own; not so often that it has its machine restarted for ever.
    pub(super) fn stop(&mut self) {
        if self.last == Last::Runs && self.stops < TRIAL_STOPS {
            self.stops = self.stops.saturating_add(1);
            self.last = Last::Stops;
        }
    }

    /// In how many trials in a row it has ended, where those are as many as may be.
    pub(super) fn spent(&self) -> Option<u32> {
        (self.in_a_row >= TRIAL_ENDS).then_some(self.in_a_row)
    }

    /// How long to wait before it is tried again, in milliseconds: each trial takes its machine away from its work.
    pub(super) fn pause_ms(&self) -> u64 {
        RETRY_LONGEST_MS << self.trials.saturating_sub(TRIALS_UNDOUBLED).min(RETRY_DOUBLINGS)
    }
}
