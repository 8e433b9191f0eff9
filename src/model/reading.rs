//! One reading: what a device said, at one time, about some fields.

use std::sync::Arc;

use super::{DeviceId, Timestamp};

/// A value of a field. Flattened readings hold scalars only; `Array`, `Object` and `Null` appear
/// where a stream asks to keep nested values.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// Any number, unless the stream preserves integers.
    Double(f64),
    /// An integer beyond 2^53, or any integer where the stream preserves them.
    Int64(i64),
    /// `true` or `false`, or a word the stream maps to one.
    Bool(bool),
    /// Text as sent.
    Text(String),
    /// Kept structure only.
    Array(Vec<FieldValue>),
    /// Kept structure only.
    Object(Vec<(String, FieldValue)>),
    /// Kept structure only: a null inside an array holds its place.
    Null,
}

/// Where a reading's time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSource {
    /// The device said it: (device, time, series) identifies the reading.
    Device,
    /// The gateway's clock at receipt: delivery is at least once.
    Received,
}

/// Something worth knowing about a reading that does not stop it from being stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// The claimed time lies before the stream's earliest plausible time.
    ClockUnset,
    /// The claimed time lies too far ahead of receipt.
    ClockFuture,
    /// Local time without a zone was read as UTC.
    TzAssumed,
    /// The local time happens twice (end of summer time); the one nearest to receipt was taken.
    TzAmbiguous,
    /// The local time never happens (start of summer time); it was shifted forward.
    TzGap,
    /// A NaN or infinity was left out.
    NonFinite,
}

impl Flag {
    /// Every flag, in the order they are printed.
    pub const ALL: [Flag; 6] = [
        Flag::ClockUnset,
        Flag::ClockFuture,
        Flag::TzAssumed,
        Flag::TzAmbiguous,
        Flag::TzGap,
        Flag::NonFinite,
    ];

    /// The stable name, as stored in `_flags`.
    pub const fn name(self) -> &'static str {
        match self {
            Flag::ClockUnset => "clock_unset",
            Flag::ClockFuture => "clock_future",
            Flag::TzAssumed => "tz_assumed",
            Flag::TzAmbiguous => "tz_ambiguous",
            Flag::TzGap => "tz_gap",
            Flag::NonFinite => "non_finite",
        }
    }
}

/// A set of [`Flag`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// Adds one.
    pub fn insert(&mut self, flag: Flag) {
        self.0 |= 1 << flag as u8;
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: Flags) {
        self.0 |= other.0;
    }

    /// Whether it holds none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of those it holds.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flag::ALL
            .into_iter()
            .filter(move |f| self.0 & (1 << *f as u8) != 0)
            .map(Flag::name)
    }
}

/// One reading, ready to become one document of a time-series collection.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Who measured.
    pub device: DeviceId,
    /// What kind of device or message, if the stream knows.
    pub kind: Option<Arc<str>>,
    /// When; never an implausible claim.
    pub timestamp: Timestamp,
    /// Whose clock `timestamp` is.
    pub time_source: TimeSource,
    /// Stable identity beside the device id, sorted by name.
    pub tags: Vec<(String, String)>,
    /// Never empty; names are unique and safe as BSON keys.
    pub fields: Vec<(String, FieldValue)>,
    /// Remarks.
    pub flags: Flags,
    /// The device's own claim where it was not believed, as sent or as RFC 3339.
    pub claimed: Option<String>,
}

impl Reading {
    /// Bytes it takes in memory, about; its document takes less.
    pub fn weight(&self) -> usize {
        let named =
            |name: &str, value: usize| size_of::<(String, FieldValue)>() + name.len() + value;
        let tags = self.tags.iter().map(|(name, tag)| named(name, tag.len()));
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| named(name, value.weight()));
        let claimed = self.claimed.as_ref().map_or(0, String::len);
        size_of::<Self>()
            + self.device.as_str().len()
            + claimed
            + tags.sum::<usize>()
            + fields.sum::<usize>()
    }
}

impl FieldValue {
    /// Bytes beside its own size.
    fn weight(&self) -> usize {
        match self {
            Self::Double(_) | Self::Int64(_) | Self::Bool(_) | Self::Null => 0,
            Self::Text(text) => text.len(),
            Self::Array(items) => items
                .iter()
                .map(|item| size_of::<Self>() + item.weight())
                .sum(),
            Self::Object(entries) => entries
                .iter()
                .map(|(name, value)| size_of::<(String, Self)>() + name.len() + value.weight())
                .sum(),
        }
    }
}
