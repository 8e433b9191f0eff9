//! How many in the last while, in steps of a second.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

const STEP: i64 = 1_000;

/// Counts by second. A count stays until the whole of its second is out of the window, so that
/// a limit is never exceeded because of the steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window(VecDeque<(i64, usize)>);

impl Window {
    pub fn add(&mut self, now: Timestamp, count: usize) {
        let second = now.millis().div_euclid(STEP);
        match self.0.back_mut() {
            // A clock that stepped back counts into the latest second there is.
            Some((last, n)) if *last >= second => *n += count,
            _ => self.0.push_back((second, count)),
        }
    }

    pub fn count(&self, now: Timestamp, length: Duration) -> usize {
        let alive = |(second, _): &&(i64, usize)| leaves(*second, length) > now;
        self.0.iter().filter(alive).map(|(_, n)| n).sum()
    }

    /// Forgets what has left.
    pub fn prune(&mut self, now: Timestamp, length: Duration) {
        while let Some((second, _)) = self.0.front()
            && leaves(*second, length) <= now
        {
            self.0.pop_front();
        }
    }

    /// When the oldest leaves.
    pub fn next(&self, length: Duration) -> Option<Timestamp> {
        self.0.front().map(|(second, _)| leaves(*second, length))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn leaves(second: i64, length: Duration) -> Timestamp {
    Timestamp::from_millis((second + 1) * STEP).plus(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_at_least_what_the_window_holds() {
        let minute = Duration::from_secs(60);
        let at = Timestamp::from_millis;
        let mut window = Window::default();
        window.add(at(1_500), 2);
        window.add(at(1_900), 1);
        window.add(at(5_000), 4);
        assert_eq!(window.count(at(5_000), minute), 7);
        assert_eq!(window.count(at(61_500), minute), 7);
        assert_eq!(window.next(minute), Some(at(62_000)));
        assert_eq!(window.count(at(62_000), minute), 4);
        window.prune(at(62_000), minute);
        assert_eq!(window.next(minute), Some(at(66_000)));
        window.add(at(4_000), 1);
        assert_eq!(window.count(at(62_000), minute), 5);
        window.prune(at(66_000), minute);
        assert!(window.is_empty());
    }
}
