//! How fast a receiver is told: a bucket of tokens, filled at a steady rate.

use std::time::Duration;

use crate::model::Timestamp;

/// Tokens; one is taken for each request.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Tokens a second.
    rate: f64,
    /// Tokens at the most.
    most: f64,
    tokens: f64,
    /// When `tokens` was right.
    at: Timestamp,
}

impl Bucket {
    /// A full one.
    pub fn new((rate, most): (f64, f64), now: Timestamp) -> Self {
        Self {
            rate,
            most,
            tokens: most,
            at: now,
        }
    }

    /// Another rate from now on; what has gathered stays.
    pub fn set(&mut self, (rate, most): (f64, f64), now: Timestamp) {
        self.fill(now);
        (self.rate, self.most) = (rate, most);
        self.tokens = self.tokens.min(most);
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        // A hair's breadth for what rounding has lost.
        let there = self.tokens >= 1.0 - 1e-9;
        if there {
            self.tokens -= 1.0;
        }
        there
    }

    /// When there will be one.
    pub fn next(&self, now: Timestamp) -> Timestamp {
        let gathered = self.tokens + now.since(self.at).as_secs_f64() * self.rate;
        if gathered >= 1.0 - 1e-9 {
            return now;
        }
        let seconds = (1.0 - gathered) / self.rate;
        // Rounded up, so that the token is there when somebody comes for it.
        now.plus(Duration::from_secs_f64(seconds.min(1e9)) + Duration::from_millis(1))
    }

    fn fill(&mut self, now: Timestamp) {
        let passed = now.since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(self.most);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_steady_rate() {
        let start = Timestamp::from_millis(0);
        let mut bucket = Bucket::new((0.2, 3.0), start);
        let taken = (0..5).filter(|_| bucket.take(start)).count();
        assert_eq!(taken, 3);
        let next = bucket.next(start);
        assert!(next >= start.plus(Duration::from_secs(5)), "{next}");
        assert!(bucket.take(next));
        assert!(!bucket.take(next));
        // An hour of nothing fills it, and no more.
        let later = start.plus(Duration::from_secs(3_600));
        assert_eq!((0..10).filter(|_| bucket.take(later)).count(), 3);
        // A clock that steps back takes nothing away and gives nothing.
        assert!(!bucket.take(start));
    }

    #[test]
    fn one_a_second_is_sixty_a_minute() {
        let mut now = Timestamp::from_millis(0);
        let end = now.plus(Duration::from_secs(60));
        let mut bucket = Bucket::new((1.0, 1.0), now);
        let mut sent = 0;
        while now < end {
            sent += i32::from(bucket.take(now));
            now = bucket.next(now);
        }
        assert!((58..=60).contains(&sent), "{sent}");
    }
}
