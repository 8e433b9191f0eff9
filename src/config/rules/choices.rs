//! What a rule can choose between.

use serde::{Deserialize, Serialize};

use super::super::units::Span;

/// How readings become a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleKind {
    /// The value itself.
    #[default]
    Threshold,
    /// Its change over time.
    Rate,
    /// How many readings in a window satisfy a condition.
    Count,
    /// Silence.
    Absence,
}

impl RuleKind {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::Rate => "rate",
            Self::Count => "count",
            Self::Absence => "absence",
        }
    }
}

/// What a pause longer than `max_gap` does to a running `for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnGap {
    /// It starts again.
    #[default]
    Restart,
    /// The pause counts.
    Bridge,
}

/// Which clock `for` runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// That of the readings: it ends with a reading, never in silence.
    #[default]
    Event,
    /// That of receipt: it ends by itself, the last value is taken to hold. For devices that
    /// report changes only.
    Wall,
}

/// What becomes of an open episode when the device falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNoData {
    /// It stays.
    #[default]
    Keep,
    /// It ends after so long, with the reason `no_data`.
    ResolveAfter(Span),
}

/// Which direction of change counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateMode {
    /// Upwards is positive.
    #[default]
    Rising,
    /// Downwards is positive.
    Falling,
    /// Both are.
    Abs,
}

/// What must not be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AbsenceTarget {
    /// Any reading of the device.
    #[default]
    Device,
    /// A sound value of the field.
    Field,
}

/// Which readings prove that a device is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// Every one that is received.
    #[default]
    Receipt,
    /// Those no older than `max_age`.
    Fresh,
}

/// What to do with readings older than `max_age`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backfill {
    /// Store them, judge nothing by them.
    #[default]
    Ignore,
    /// Judge them as any other.
    Evaluate,
}
