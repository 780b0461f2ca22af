//! The numbered steps from bytes to a verified document.
