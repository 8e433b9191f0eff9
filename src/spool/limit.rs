//! When the spool is full, and how long until then. Pure.

use std::fmt;
use std::time::Duration;

use crate::config::SpoolConfig;

/// Why nothing more is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// As many bytes as there may be.
    Bytes,
    /// The oldest message is as old as it may be.
    Age,
}

/// How full it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Bytes of messages on disk.
    pub bytes: u64,
    /// Age of the oldest that is not stored.
    pub oldest: Duration,
}

/// Whether it is full at `level`, given whether it `was`. Full of bytes, it stays so until a
/// twentieth is free, so that it does not take messages one by one.
pub fn full(config: &SpoolConfig, level: Level, was: Option<Full>) -> Option<Full> {
    let most = config.max_bytes.0;
    let limit = match was {
        Some(Full::Bytes) => most - most / 20,
        _ => most,
    };
    if level.bytes >= limit {
        Some(Full::Bytes)
    } else if level.oldest >= config.max_age.0 {
        Some(Full::Age)
    } else {
        None
    }
}

/// Seconds until it is full at the present pace: `growth` in bytes a second, and whether anything
/// is being stored. Infinite where it does not fill.
pub fn time_to_full(config: &SpoolConfig, level: Level, growth: f64, storing: bool) -> f64 {
    let room = config.max_bytes.0.saturating_sub(level.bytes) as f64;
    let by_bytes = if room <= 0.0 {
        0.0
    } else if growth > 0.0 {
        room / growth
    } else {
        f64::INFINITY
    };
    let by_age = match storing || level.oldest.is_zero() {
        true => f64::INFINITY,
        false => config.max_age.0.saturating_sub(level.oldest).as_secs_f64(),
    };
    by_bytes.min(by_age)
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "spool.max_bytes is reached",
            Self::Age => "its oldest message is older than spool.max_age",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, Span};

    fn config() -> SpoolConfig {
        SpoolConfig {
            max_bytes: ByteSize(1_000),
            max_age: Span::secs(60),
            ..SpoolConfig::default()
        }
    }

    fn level(bytes: u64, seconds: u64) -> Level {
        Level {
            bytes,
            oldest: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn full_by_bytes_with_a_margin_or_by_age() {
        for (bytes, seconds, was, expected) in [
            (999, 59, None, None),
            (1_000, 59, None, Some(Full::Bytes)),
            (960, 0, Some(Full::Bytes), Some(Full::Bytes)),
            (949, 0, Some(Full::Bytes), None),
            (999, 0, Some(Full::Age), None),
            (10, 60, None, Some(Full::Age)),
            (1_000, 60, Some(Full::Age), Some(Full::Bytes)),
        ] {
            assert_eq!(
                full(&config(), level(bytes, seconds), was),
                expected,
                "{bytes} {seconds}"
            );
        }
    }

    #[test]
    fn the_time_to_full_is_the_nearer_of_both_limits() {
        let config = config();
        for (bytes, seconds, growth, storing, expected) in [
            (0, 0, 0.0, false, f64::INFINITY),
            (500, 1, -5.0, true, f64::INFINITY),
            (500, 1, 50.0, true, 10.0),
            (500, 20, 1.0, false, 40.0),
            (500, 20, 50.0, false, 10.0),
            (1_000, 20, 50.0, true, 0.0),
            (0, 99, 0.0, false, 0.0),
        ] {
            assert_eq!(
                time_to_full(&config, level(bytes, seconds), growth, storing),
                expected
            );
        }
    }
}
