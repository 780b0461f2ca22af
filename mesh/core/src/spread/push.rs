//! Push.
