//! Rules, pure: samples, ticks and changes in, transitions out. No clock, no I/O.
//!
//! [`RuleSet`] is what is written, compiled; [`Engine`] holds the state of each rule for each
//! device. The same code serves the live stream, catching up after a gap, fixtures and backtests,
//! and comes to the same result in each.

pub mod backtest;
mod counts;
mod engine;
mod episodes;
mod evaluate;
mod hash;
mod index;
mod instance;
mod judge;
mod rows;
mod rule;
mod sample;
mod select;
mod set;
mod state;
mod step;
mod stored;
mod watermark;
mod window;

pub use counts::{Census, RuleCounts};
pub use engine::{Checkpoint, Device, Dirty, Engine, StreamClock};
pub use episodes::{Held, Telling};
pub use evaluate::{Scalar, Unknown, Verdict, lookup, scalar};
pub use hash::{BUCKETS, key};
pub use instance::{Ack, Instance, Track};
pub use rows::row_name;
pub use rule::{Prints, Rule};
pub use sample::Sample;
pub use select::{Match, View};
pub use set::{RuleProblem, RuleSet, Rules};
pub use state::{ROWS, State};
pub use stored::{DeviceMarks, InstanceDocument, Mark, MarkBucket};
