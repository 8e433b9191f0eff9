//! Rules, pure: samples, ticks and changes in, transitions out. No clock, no I/O.

mod sample;

pub use sample::Sample;
