//! Waves, gates, halts and counting, by the cases of the field and of the design.

mod applies;
mod counts;
mod excuses;
mod fixture;
mod gates;
mod halts;
mod plan;
mod tally;
mod waves;
