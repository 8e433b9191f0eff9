//! Values with a unit: durations (`"250ms"`, `"90d"`) and sizes (`"8MiB"`), so that no key needs
//! a unit in its name and no reader has to guess one.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration written as text with a unit: `"250ms"`, `"30s"`, `"12h"`, `"90d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Whole seconds.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// Milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Days of 24 hours.
    pub const fn days(days: u64) -> Self {
        Self(Duration::from_secs(days * 86_400))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs();
        if self.0.subsec_nanos() == 0 && secs > 0 && secs.is_multiple_of(86_400) {
            return write!(f, "{}d", secs / 86_400);
        }
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a duration with a unit, such as \"250ms\", \"30s\", \"12h\" or \"90d\"";
        deserialize_text(deserializer, expected, |text| {
            humantime::parse_duration(text.trim()).ok().map(Span)
        })
    }
}

/// A size in bytes: a whole number, or text with a unit (`"64KiB"`, `"8MiB"`, `"1GiB"`, `"10MB"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Units by size, greatest first; the decimal ones are read but never printed.
const UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// Mebibytes.
    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// As a length in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[digits.len()..].trim();
        let factor = match unit {
            "" => 1,
            _ => UNITS.iter().find(|(name, _)| *name == unit)?.1,
        };
        digits
            .trim()
            .parse::<u64>()
            .ok()?
            .checked_mul(factor)
            .map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in UNITS.iter().filter(|(unit, _)| unit.ends_with("iB")) {
            if self.0 >= *factor && self.0.is_multiple_of(*factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a size such as \"64KiB\", \"8MiB\" or a number of bytes";
        deserialize_text(deserializer, expected, ByteSize::parse)
    }
}

/// Reads text (or a whole number, as its digits) through `parse`.
fn deserialize_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    struct Text<F>(&'static str, F);

    impl<T, F: FnOnce(&str) -> Option<T>> serde::de::Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            let Text(expected, parse) = self;
            parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &expected))
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            let Text(expected, parse) = self;
            parse(&number.to_string())
                .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(number), &expected))
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            let Text(expected, parse) = self;
            parse(&number.to_string())
                .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(number), &expected))
        }
    }

    deserializer.deserialize_any(Text(expected, parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes, printed) in [
            ("8MiB", 8 << 20, "8MiB"),
            ("64 KiB", 65_536, "64KiB"),
            ("1000", 1_000, "1000B"),
            ("10MB", 10_000_000, "10000000B"),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!(size, ByteSize(bytes), "{text}");
            assert_eq!(size.to_string(), printed);
        }
        for bad in ["", "MiB", "8 miles", "-1", "1.5MiB"] {
            assert_eq!(ByteSize::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn spans_print_in_the_largest_whole_unit() {
        assert_eq!(Span::days(90).to_string(), "90d");
        assert_eq!(Span::millis(250).to_string(), "250ms");
        assert_eq!(Span::secs(3_600).to_string(), "1h");
    }
}
