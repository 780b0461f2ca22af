//! The disruption budget: numbered slots, their wardens, quorums, grants and claims (design, section 7).
