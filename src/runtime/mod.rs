//! What every task needs: a supervised spawn, an orderly stop, back-off, readiness, the clock.
//! Imports nothing of ours but `model`.

mod backoff;
mod clock;
mod readiness;
mod signals;
mod tasks;

pub use backoff::Backoff;
pub use clock::now;
pub use readiness::{Condition, Readiness};
pub use signals::{Signal, Signals};
pub use tasks::{Tasks, Verdict};
