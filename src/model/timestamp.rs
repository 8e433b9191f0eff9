//! A point in time as MongoDB keeps it: milliseconds since the Unix epoch.

use std::fmt;
use std::str::FromStr;

/// Milliseconds since 1970-01-01T00:00:00Z, as in a BSON date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with three decimals; a bare number of milliseconds outside the calendar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(ts) => write!(f, "{ts:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>()
            .map(|ts| Self(ts.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn prints_and_reads_rfc_3339_with_milliseconds() {
        let ts = Timestamp::from_millis(1_773_479_730_250);
        assert_eq!(ts.to_string(), "2026-03-14T09:15:30.250Z");
        assert_eq!("2026-03-14T09:15:30.25Z".parse::<Timestamp>().unwrap(), ts);
        assert_eq!(
            Timestamp::from_millis(i64::MAX).to_string(),
            "9223372036854775807 ms"
        );
    }
}
