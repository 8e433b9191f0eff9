//! What an instance remembers beyond its watermark: readings to count, readings to compare the
//! next one with, or when the device was last heard of. Bounded, whatever the device does.

use serde::{Deserialize, Serialize};

use crate::config::rules::{MAX_WINDOW_ENTRIES, RateMode};

/// Readings kept for a rate, at the most: a baseline needs no finer grain.
const GRAIN: i64 = 512;

/// What an instance remembers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Readings that satisfy the condition of a `count`.
    Count(CountWindow),
    /// Readings a rate is measured from.
    Rate(RateWindow),
    /// When the device, or its field, was last heard of.
    Presence(Presence),
}

/// Readings within a window of time that count: (time in milliseconds, hash), in that order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CountWindow(Vec<(i64, i64)>);

impl CountWindow {
    /// Adds one, once; `false` if it was there, or is older than a full window holds.
    pub fn insert(&mut self, at: i64, hash: i64) -> bool {
        let limit = usize::try_from(MAX_WINDOW_ENTRIES).unwrap_or(usize::MAX);
        match self.0.binary_search(&(at, hash)) {
            Ok(_) => false,
            Err(0) if self.0.len() >= limit => false,
            Err(place) => {
                self.0.insert(place, (at, hash));
                if self.0.len() > limit {
                    self.0.remove(0);
                }
                true
            }
        }
    }

    /// Forgets what is no longer in a window that ends at `now`.
    pub fn prune(&mut self, now: i64, window_ms: i64) {
        let oldest = now.saturating_sub(window_ms);
        let gone = self.0.partition_point(|(at, _)| *at <= oldest);
        self.0.drain(..gone);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Readings within a window of time, not closer than a 512th of it: (milliseconds, value).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RateWindow {
    kept: std::collections::VecDeque<(i64, f64)>,
    /// The newest, kept or not.
    last: Option<(i64, f64)>,
}

/// How a rate is measured.
#[derive(Debug, Clone, Copy)]
pub struct Rating {
    /// Change is expressed per so many milliseconds.
    pub per_ms: i64,
    /// How far back the baseline may lie.
    pub window_ms: i64,
    /// How far back it must lie.
    pub min_span_ms: i64,
    /// A longer pause starts anew.
    pub max_gap_ms: Option<i64>,
    /// Which direction counts.
    pub mode: RateMode,
    /// A drop is a restart.
    pub counter: bool,
}

impl RateWindow {
    /// Takes the next value; the rate, where there is a baseline far enough back.
    pub fn push(&mut self, at: i64, value: f64, how: &Rating) -> Option<f64> {
        if let Some((before, previous)) = self.last {
            let gap = how.max_gap_ms.is_some_and(|most| at - before > most);
            if gap || (how.counter && value < previous) {
                self.kept.clear();
            }
        }
        let oldest = at.saturating_sub(how.window_ms);
        while self.kept.front().is_some_and(|(at, _)| *at < oldest) {
            self.kept.pop_front();
        }
        let near = (how.window_ms / GRAIN).max(1);
        let crowded = |(before, _): &(i64, f64)| at - before < near;
        if !self.kept.back().is_some_and(crowded) {
            self.kept.push_back((at, value));
        }
        self.last = Some((at, value));
        self.rate(how)
    }

    /// The rate as it stands.
    pub fn rate(&self, how: &Rating) -> Option<f64> {
        let (at, value) = self.last?;
        let (start, from) = *self.kept.front()?;
        let span = at - start;
        if span < how.min_span_ms.max(1) {
            return None;
        }
        let change = (value - from) / span as f64 * how.per_ms as f64;
        let rate = match how.mode {
            RateMode::Rising => change,
            RateMode::Falling => -change,
            RateMode::Abs => change.abs(),
        };
        rate.is_finite().then_some(rate + 0.0)
    }
}

/// When a device, or its field, was last heard of: times of receipt in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// When silence began to count.
    pub since: i64,
    /// The last proof of life, if there ever was one.
    pub last: Option<i64>,
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
