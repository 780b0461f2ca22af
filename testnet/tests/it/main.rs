//! Whole fleets in the virtual world: the core's rules at work together, each test one story.

mod rollouts;
