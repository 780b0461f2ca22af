//! Placeholder while the dependencies warm up.
