//! When a request is made again: a table, jitter, and what the receiver itself asked for.

use std::time::Duration;

/// Seconds to the next attempt, by attempts made. It starts tight, because somebody is to be
/// woken; the last one goes on for ever, until the row is given up.
const PAUSES: [u64; 8] = [1, 5, 15, 30, 60, 120, 300, 600];

/// Between attempts that only a person can make succeed.
pub const SLOW: Duration = Duration::from_secs(300);

/// What a receiver may ask for at the most.
pub const MOST_ASKED: Duration = Duration::from_secs(3_600);

/// The pause after `attempts` attempts, at least one; `chance` in 0..1 decides the jitter. What the
/// receiver asked for is kept to and only ever made longer, or all would return at once.
pub fn pause(attempts: u32, asked: Option<Duration>, chance: f64) -> Duration {
    let index = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    let full = Duration::from_secs(PAUSES[index.min(PAUSES.len() - 1)]);
    let own = full.mul_f64(0.5 + jitter(chance) / 2.0);
    match asked {
        Some(asked) => own.max(asked.min(MOST_ASKED).mul_f64(1.0 + jitter(chance) / 10.0)),
        None => own,
    }
}

fn jitter(chance: f64) -> f64 {
    chance.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_with_half_of_it_random() {
        let seconds = |attempts, chance| pause(attempts, None, chance).as_secs_f64();
        let longest: Vec<f64> = (1..=10).map(|attempts| seconds(attempts, 1.0)).collect();
        assert_eq!(
            longest,
            [
                1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 600.0, 600.0
            ]
        );
        assert_eq!(seconds(3, 0.0), 7.5);
        assert_eq!(seconds(u32::MAX, 0.5), 450.0);
        assert_eq!(seconds(0, 1.0), 1.0);
    }

    #[test]
    fn what_the_receiver_asks_for_is_the_least() {
        let asked = |seconds, attempts, chance| {
            pause(attempts, Some(Duration::from_secs(seconds)), chance).as_secs_f64()
        };
        assert_eq!(asked(30, 1, 0.0), 30.0);
        assert_eq!(asked(30, 1, 1.0), 33.0);
        assert_eq!(asked(1, 8, 1.0), 600.0);
        assert_eq!(asked(1_000_000, 1, 0.0), 3_600.0);
    }
}
