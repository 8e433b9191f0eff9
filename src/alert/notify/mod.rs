//! From transitions to requests: who is told what and when, and the telling itself.

pub mod plan;
