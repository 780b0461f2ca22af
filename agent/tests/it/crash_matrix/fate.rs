//! When it ends: at which call, and whether before, inside or after it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the end comes, seen from one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The call does nothing.
    Before,
    /// It does a part of what it should.
    Inside,
    /// It does all, and nobody hears of it.
    After,
}

impl Phase {
    /// The phases of call number `at`: before it is after the one before it, but for the first.
    pub(crate) fn of(at: u64) -> &'static [Self] {
        if at == 0 { &[Self::Before, Self::Inside, Self::After] } else { &[Self::Inside, Self::After] }
    }
}

/// Counts the calls that change something, and ends at one of them.
#[derive(Clone, Debug)]
pub(crate) struct Fate(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    calls: u64,
    end: Option<(u64, Phase)>,
    ended: bool,
    /// The end is the end of this very process.
    kills: bool,
}

impl Fate {
    /// Nothing ends. `kills`: the end, once it is set, is the end of this process by SIGKILL; otherwise from then on
    /// every call fails, as nobody is there to make it.
    pub(crate) fn kind(kills: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner { calls: 0, end: None, ended: false, kills })))
    }

    /// Sets the end to call number `at`, counted from here and from 0.
    pub(crate) fn set(&self, at: u64, phase: Phase) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.calls, inner.end) = (0, Some((at, phase)));
    }

    /// Counts from 0 again.
    pub(crate) fn count_anew(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).calls = 0;
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).calls
    }

    /// Whether the end has come.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    /// Whether the end came after a whole call.
    pub(crate) fn ended_after(&self) -> bool {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.ended && inner.end.is_some_and(|(_, phase)| phase == Phase::After)
    }

    /// Makes one call: `whole`, or `half` of it, or nothing.
    pub(crate) fn call<T>(&self, half: impl FnOnce(), whole: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let phase = {
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if inner.ended {
                return Err(gone());
            }
            let here = inner.end.filter(|(at, _)| *at == inner.calls).map(|(_, phase)| phase);
            inner.calls += 1;
            inner.ended = here.is_some();
            here
        };
        match phase {
            None => return whole(),
            Some(Phase::Before) => {}
            Some(Phase::Inside) => half(),
            Some(Phase::After) => drop(whole()),
        }
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).kills {
            let this = rustix::process::getpid();
            let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        }
        Err(gone())
    }
}

fn gone() -> io::Error {
    io::Error::other("the machine is off")
}
