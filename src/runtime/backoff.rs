//! Pauses between attempts: doubling, capped, with jitter so that many gateways do not return in
//! step.

use std::time::Duration;

/// A sequence of pauses: `first`, twice that, and so on up to `max`, each shortened by up to half.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    attempt: u32,
}

impl Backoff {
    /// Starts with pauses of about `first`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max: max.max(first),
            attempt: 0,
        }
    }

    /// The next pause; `chance` in 0..1 decides the jitter.
    pub fn next_with(&mut self, chance: f64) -> Duration {
        let full = self
            .first
            .saturating_mul(2u32.saturating_pow(self.attempt))
            .min(self.max);
        self.attempt = (self.attempt + 1).min(31);
        full.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
    }

    /// The next pause with a random jitter.
    pub fn next_pause(&mut self) -> Duration {
        self.next_with(fastrand::f64())
    }

    /// The first pause with a random jitter, whatever came before: for whoever has waited already.
    pub fn first_pause(&self) -> Duration {
        self.first.mul_f64(1.0 - fastrand::f64() / 2.0)
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap_and_jitters_down_to_half() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let pauses: Vec<_> = (0..4).map(|_| backoff.next_with(0.0).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 350, 350]);
        assert_eq!(backoff.next_with(1.0).as_millis(), 175);
        assert!(backoff.first_pause() <= Duration::from_millis(100));
        backoff.reset();
        assert_eq!(backoff.next_with(0.0).as_millis(), 100);
    }
}
