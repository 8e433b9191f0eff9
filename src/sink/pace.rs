//! How long a free writer waits before it takes the next batch. Pure.
//!
//! A write costs MongoDB by the devices in it, not by the readings. When writes are slow, broad
//! and thin (many devices, few readings of each), resting twice as long as the last one took
//! triples what the next one carries for the same cost, so under load throughput rises and
//! waiting in line shrinks by more than the rest adds. When writes are quick, or slow for another
//! reason, there is nothing to gain and nothing is waited for.

use std::time::Duration;

/// A write that takes longer says that the database is busy, or far away.
const SLOW: Duration = Duration::from_millis(20);

/// Devices in a write from which on their number, and not the distance, decides what it takes.
const BROAD: usize = 64;

/// Readings per device beyond which fuller writes gain little.
const FULL: usize = 16;

/// The longest rest that is taken unasked.
const LONGEST: Duration = Duration::from_millis(500);

/// The last write.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    /// Readings in it.
    pub readings: usize,
    /// Distinct devices in it.
    pub devices: usize,
    /// From its start to its acknowledgement.
    pub took: Duration,
}

/// The wait before the next batch; never less than what the operator asks for.
pub fn rest(min_linger: Duration, last: Written) -> Duration {
    let thin = last.readings < last.devices.saturating_mul(FULL);
    let rest = if last.took > SLOW && last.devices >= BROAD && thin {
        (last.took * 2).min(LONGEST)
    } else {
        Duration::ZERO
    };
    rest.max(min_linger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_only_after_slow_broad_and_thin_writes() {
        let ms = Duration::from_millis;
        for (readings, devices, took, min_linger, expected) in [
            (0, 0, 0, 0, 0),
            (300, 250, 5, 0, 0),
            (500, 250, 100, 0, 200),
            (500, 250, 900, 0, 500),
            (5_000, 250, 100, 0, 0),
            (30, 30, 100, 0, 0),
            (3, 3, 5, 30, 30),
            (500, 250, 100, 300, 300),
        ] {
            let last = Written {
                readings,
                devices,
                took: ms(took),
            };
            assert_eq!(rest(ms(min_linger), last), ms(expected), "{last:?}");
        }
    }
}
