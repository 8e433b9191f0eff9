//! Whether an alert comes and goes too often to be told each time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::FlapConfig;
use crate::model::Timestamp;

/// More are not kept: they say nothing new.
const KEPT: usize = 64;

/// The latest beginnings and ends of one alert.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Flap {
    /// When, oldest first.
    changes: Vec<Timestamp>,
    /// Since when it flaps.
    since: Option<Timestamp>,
}

impl Flap {
    pub fn flaps(&self) -> bool {
        self.since.is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.since.is_none()
    }

    /// Notes a beginning or an end; `true`: with this one it flaps.
    pub fn note(&mut self, at: Timestamp, now: Timestamp, config: &FlapConfig) -> bool {
        if config.high == 0 {
            return false;
        }
        self.changes.push(at.min(now));
        self.changes.sort_unstable();
        self.prune(now, config.window.0);
        if self.changes.len() > KEPT.max(config.high) {
            self.changes.remove(0);
        }
        let enters = self.since.is_none() && self.changes.len() >= config.high;
        if enters {
            self.since = Some(now);
        }
        enters
    }

    /// Brings it up to `now`; `true`: it flapped, and does no longer.
    pub fn turn_to(&mut self, now: Timestamp, config: &FlapConfig) -> bool {
        self.prune(now, config.window.0);
        let Some(since) = self.since else {
            return false;
        };
        if config.high > 0 && self.changes.len() > config.low {
            if since.plus(config.max_hold.0) > now {
                return false;
            }
            // Held long enough: it takes as many changes again until it is held anew.
            self.changes.clear();
        }
        self.since = None;
        true
    }

    /// When to look again: at the end of flapping, or when there is less to remember.
    pub fn next(&self, config: &FlapConfig) -> Option<Timestamp> {
        let window = config.window.0;
        let oldest = self.changes.first().map(|first| first.plus(window));
        let Some(since) = self.since else {
            return oldest;
        };
        let few = match self.changes.len().checked_sub(config.low + 1) {
            Some(index) => self.changes[index].plus(window),
            None => since,
        };
        let end = few.min(since.plus(config.max_hold.0));
        Some(oldest.map_or(end, |at| at.min(end)))
    }

    fn prune(&mut self, now: Timestamp, window: Duration) {
        self.changes.retain(|at| at.plus(window) > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Span;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    #[test]
    fn enters_at_the_high_mark_and_leaves_at_the_low_one() {
        let config = FlapConfig::default();
        let mut flap = Flap::default();
        let entered: Vec<bool> = (0..5).map(|n| flap.note(at(n), at(n), &config)).collect();
        assert_eq!(entered, [false, false, false, false, true]);
        // The fourth of five leaves the window of an hour at minute 63.
        for minute in 60..63 {
            assert_eq!(flap.next(&config), Some(at(minute)));
            assert!(!flap.turn_to(at(minute), &config));
        }
        assert_eq!(flap.next(&config), Some(at(63)));
        assert!(flap.turn_to(at(63), &config));
        assert!(!flap.flaps());
        assert_eq!(flap.next(&config), Some(at(64)));
        assert!(!flap.turn_to(at(64), &config));
        assert!(flap.is_empty());
    }

    #[test]
    fn is_held_no_longer_than_allowed_and_starts_to_count_anew() {
        let config = FlapConfig::default();
        let mut flap = Flap::default();
        for minute in (0..=120).step_by(5) {
            flap.note(at(minute), at(minute), &config);
        }
        // Flapping since minute 20.
        assert!(!flap.turn_to(at(139), &config));
        assert_eq!(flap.next(&config), Some(at(140)));
        assert!(flap.turn_to(at(140), &config));
        assert!(flap.is_empty());
        assert!(!flap.note(at(141), at(141), &config));
    }

    #[test]
    fn is_off_at_zero() {
        let config = FlapConfig {
            high: 0,
            low: 0,
            window: Span::secs(60),
            ..FlapConfig::default()
        };
        let mut flap = Flap::default();
        assert!((0..100).all(|n| !flap.note(at(n), at(n), &config)));
        assert!(flap.is_empty());
    }
}
