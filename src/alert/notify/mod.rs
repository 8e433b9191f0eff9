//! From transitions to requests: who is told what and when, and the telling itself.

mod receivers;
mod sandbox;
#[cfg(test)]
mod testing;
mod text;

pub use receivers::{Rendered, dedup_key, render};
