//! What an operator can say: one section per file.

pub mod streams;
pub mod units;
