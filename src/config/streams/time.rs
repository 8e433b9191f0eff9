//! `streams.time`: where a reading's time is, how it is written, and what to believe.

use serde::{Deserialize, Serialize};

use crate::config::units::Span;

/// One path, or several of which the first that is present counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Paths(pub Vec<String>);

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Paths;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a path such as \"ts\", or a list of paths")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Paths, E> {
                let path = Some(text).filter(|t| !t.is_empty()).map(str::to_owned);
                Ok(Paths(path.into_iter().collect()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> Result<Paths, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = seq.next_element()? {
                    paths.push(path);
                }
                Ok(Paths(paths))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Where a reading's time is and what to believe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeConfig {
    /// Path or paths; empty: readings get the time of receipt.
    pub path: Paths,
    /// How it is written.
    pub unit: TimeUnit,
    /// IANA zone of local times without an offset; empty: UTC, flagged `tz_assumed`.
    pub zone: String,
    /// Earlier claims are not believed (`clock_unset`); an RFC 3339 date or time.
    pub earliest: String,
    /// Claims further ahead of receipt are not believed (`clock_future`).
    pub max_ahead: Span,
    /// What to do with a claim that is not believed.
    pub implausible: Implausible,
}

impl Default for TimeConfig {
    fn default() -> Self {
        Self {
            path: Paths::default(),
            unit: TimeUnit::Auto,
            zone: String::new(),
            earliest: "2010-01-01".into(),
            max_ahead: Span::secs(3_600),
            implausible: Implausible::Received,
        }
    }
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// RFC 3339 text, or an epoch number whose unit is told by its size.
    Auto,
    /// RFC 3339 and close spellings.
    #[serde(alias = "rfc3339")]
    Iso,
    /// An epoch number whose unit is told by its size: below 1e11 s, 1e14 ms, 1e17 µs, else ns.
    Epoch,
    /// Epoch seconds.
    S,
    /// Epoch milliseconds.
    Ms,
    /// Epoch microseconds.
    Us,
    /// Epoch nanoseconds.
    Ns,
}

/// What to do with a time that is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Implausible {
    /// Store at the time of receipt, keep the claim, flag it.
    Received,
    /// Dead-letter as `bad_time`.
    DeadLetter,
}
