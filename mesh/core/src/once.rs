//! What is worked out when it is first asked for, and then kept: a cell that several threads may share, and that `no_std` has.

use alloc::boxed::Box;

use once_cell::race::OnceBox;

/// A value that is worked out once. A copy has what was worked out by then.
#[derive(Debug)]
pub(crate) struct Once<T>(OnceBox<T>);

impl<T> Once<T> {
    /// What was worked out, if it was.
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// What was worked out, or what `work_out` makes now. Where two threads make it at once, one result is kept.
    pub(crate) fn get_or_init(&self, work_out: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(|| Box::new(work_out()))
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(OnceBox::new())
    }
}

impl<T: Clone> Clone for Once<T> {
    fn clone(&self) -> Self {
        let copy = Self::default();
        if let Some(value) = self.get() {
            copy.get_or_init(|| value.clone());
        }
        copy
    }
}
