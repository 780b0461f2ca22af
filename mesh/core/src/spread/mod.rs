//! How records and documents reach everyone: eager and lazy push to neighbours, and sync as the truth behind it.
