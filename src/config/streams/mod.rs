//! `[[streams]]`: which topics belong together, how their payloads read, where they are stored.
//!
//! Paths into a payload are written `a/b` or `a.b`; a key that itself holds a dot or slash is
//! written as a JSON pointer (`/wk.day`, `~1` for a slash, `~0` for a tilde). An array position is
//! its number. Expressions (`device`, `type`, `field`) are text with `{name}` placeholders: a
//! capture of the topic template if there is one of that name, else a path into the payload. Where
//! `readings` splits a payload, paths are looked up in the reading first, then in the whole payload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod time;

pub use time::{Implausible, Paths, TimeConfig, TimeUnit};

use super::units::{ByteSize, Span};

/// One stream: the first one in file order whose topics match a message takes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// Names the stream in metrics, logs and dead letters; `[a-z0-9_-]`, unique.
    pub name: String,
    /// Topic filters; `$share/<group>/` is allowed in front. Derived from `template` if empty.
    pub topics: Vec<String>,
    /// How topic levels name things: `plants/{tag.site}/{deviceId}/{type}`. `{x}` takes one level
    /// (text may stand around it), `{x...}` the rest, `+` and `#` match without a name.
    pub template: String,
    /// `store`, or `ignore` to count and drop messages by topic alone, before decoding.
    pub action: Action,
    /// How to read the payload.
    pub codec: Codec,
    /// What wraps the payload.
    pub compression: Compression,
    /// Expression for the device id.
    pub device: String,
    /// Expression for the type; empty: the template's `{type}`, if it has one.
    #[serde(rename = "type")]
    pub kind: String,
    /// Expression for the field name of a lone value; empty: the template's `{field}`, else `value`.
    pub field: String,
    /// Where the reading's time is.
    pub time: TimeConfig,
    /// Path of an array whose items are readings; a payload that is itself an array of objects
    /// needs no path.
    pub readings: String,
    /// Path of the object (or lone value) that holds the fields; empty: the whole reading.
    pub values: String,
    /// Paths of further values outside `values`.
    pub also: Vec<String>,
    /// Path of a value to store when there are no others (an undecoded payload, say).
    pub fallback: String,
    /// Fields given as an array of name and value pairs.
    pub pivot: Option<PivotConfig>,
    /// Which fields to take and what to call them.
    pub fields: FieldsConfig,
    /// Paths of payload values that describe the device: moved to `metadata`.
    pub tags: Vec<String>,
    /// Tags given to every reading.
    pub static_tags: BTreeMap<String, String>,
    /// Words that stand for true and false, such as `{ ON = true, OFF = false }`.
    pub booleans: BTreeMap<String, bool>,
    /// Words, in any case, that mean "no value"; where the payload is a lone number, `nan null none
    /// unknown unavailable` do so too.
    pub missing: Vec<String>,
    /// Store text that is a complete decimal number as a number.
    pub coerce_numbers: bool,
    /// Read `21,5` as 21.5 where the payload is a lone number.
    pub decimal_comma: bool,
    /// What to do with NaN and infinities in JSON.
    pub non_finite: NonFinite,
    /// What becomes of nested objects and arrays.
    pub nested: Nested,
    /// How numbers are stored.
    pub numbers: Numbers,
    /// What to do with messages replayed from the broker's retained store.
    pub retained: Retained,
    /// Leave a message out when the value at a path is one of these words.
    pub ignore_when: BTreeMap<String, Vec<String>>,
    /// Dead-letter a message as `unsupported` when the value at a path is one of these words.
    pub refuse_when: BTreeMap<String, Vec<String>>,
    /// Bounds on what a payload may hold.
    pub limits: LimitsConfig,
    /// The time-series collection.
    pub collection: String,
    /// `seconds`, `minutes` or `hours`: how far apart a device's readings typically are.
    pub granularity: Granularity,
    /// How long readings are kept; empty: for ever.
    pub ttl: Option<Span>,
    /// What MongoDB must confirm before a message is acknowledged.
    pub write_concern: WriteConcernConfig,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            topics: Vec::new(),
            template: String::new(),
            action: Action::Store,
            codec: Codec::Json,
            compression: Compression::None,
            device: "{deviceId}".into(),
            kind: String::new(),
            field: String::new(),
            time: TimeConfig::default(),
            readings: String::new(),
            values: String::new(),
            also: Vec::new(),
            fallback: String::new(),
            pivot: None,
            fields: FieldsConfig::default(),
            tags: Vec::new(),
            static_tags: BTreeMap::new(),
            booleans: BTreeMap::new(),
            missing: Vec::new(),
            coerce_numbers: false,
            decimal_comma: false,
            non_finite: NonFinite::DeadLetter,
            nested: Nested::Flatten,
            numbers: Numbers::Double,
            retained: Retained::Skip,
            ignore_when: BTreeMap::new(),
            // OwnTracks and its kin announce that nobody here can read them.
            refuse_when: BTreeMap::from([("_type".into(), vec!["encrypted".into()])]),
            limits: LimitsConfig::default(),
            collection: "readings".into(),
            granularity: Granularity::Seconds,
            ttl: None,
            write_concern: WriteConcernConfig::default(),
        }
    }
}

impl StreamConfig {
    /// The one stream of the shipped configuration.
    pub fn telemetry() -> Self {
        Self {
            name: "telemetry".into(),
            topics: vec!["devices/+/telemetry".into()],
            template: "devices/{deviceId}/telemetry".into(),
            time: TimeConfig {
                path: Paths(vec!["ts".into(), "timestamp".into()]),
                ..TimeConfig::default()
            },
            ..Self::default()
        }
    }
}

/// What happens to a message of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Decode and store.
    Store,
    /// Count and drop, judged by topic alone.
    Ignore,
}

/// What happens to a message that no stream claims (a wider subscription brought it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unrouted {
    /// Count and drop.
    Ignore,
    /// Keep as a dead letter, `no_route`.
    DeadLetter,
}

/// How a payload reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// A JSON document: object, array of objects, or a lone value.
    Json,
    /// JSON where it parses as an object or array, else text.
    JsonOrText,
    /// Text, stored as it is but for white space around it.
    Text,
    /// A lone decimal number.
    Number,
    /// A word from `booleans`.
    Bool,
}

/// What wraps a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Nothing.
    None,
    /// gzip (RFC 1952), one or more members.
    Gzip,
}

/// What to do with NaN and infinities in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// Not JSON: the message is dead-lettered.
    DeadLetter,
    /// Leave the value out, flag the reading.
    Drop,
}

/// What becomes of nested objects and arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nested {
    /// `a_b`, `a_0`: flat scalars, which a time-series collection stores best.
    Flatten,
    /// As sent. Large oplog entries and, on some servers, trouble when a field changes shape.
    Keep,
}

/// How numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// As doubles, so that a field keeps one type; integers beyond 2^53 as 64-bit integers.
    Double,
    /// Integers as 64-bit integers, the rest as doubles.
    Preserve,
}

/// What to do with messages replayed from the broker's retained store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retained {
    /// Count and drop: a replay is old, and came before.
    Skip,
    /// Store what carries its own time; skip the rest.
    Store,
}

/// `granularity` of a time-series collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// Buckets of up to an hour.
    Seconds,
    /// Buckets of up to a day.
    Minutes,
    /// Buckets of up to 30 days.
    Hours,
}

/// Fields given as an array of name and value pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PivotConfig {
    /// Path of the array.
    pub path: String,
    /// Path of the name inside an item.
    pub name: String,
    /// Path of the value inside an item; items without one are left out.
    pub value: String,
}

/// Which fields to take and what to call them. Names are those of the stored fields (`a_b` for a
/// nested one) or payload paths (`a/b`); an entry covers everything below it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FieldsConfig {
    /// Take only these; empty: all.
    pub include: Vec<String>,
    /// Leave these out.
    pub exclude: Vec<String>,
    /// Stored name for a field.
    pub rename: BTreeMap<String, String>,
}

/// Bounds on what a payload may hold; beyond them it is a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Payload size: `packet_too_large`; after decompression: `too_large`.
    pub payload: ByteSize,
    /// Nesting: `too_deep`.
    pub depth: usize,
    /// Fields of one reading: `too_many_fields`.
    pub fields: usize,
    /// Length of a key in bytes: `bad_key`.
    pub key: usize,
    /// Readings in one message: `too_many_readings`.
    pub readings: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            payload: ByteSize::mib(1),
            depth: 64,
            fields: 10_000,
            key: 1_024,
            readings: 10_000,
        }
    }
}

/// What MongoDB must confirm before a message is acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteConcernConfig {
    /// `"majority"`, or a number of nodes (1 or more) as text or number.
    #[serde(deserialize_with = "acknowledgment")]
    pub w: String,
    /// Wait for the journal.
    pub journal: bool,
    /// How long MongoDB may take to replicate before the outcome counts as unclear.
    pub wtimeout: Span,
}

impl Default for WriteConcernConfig {
    fn default() -> Self {
        Self {
            w: "majority".into(),
            journal: true,
            wtimeout: Span::secs(30),
        }
    }
}

fn acknowledgment<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(u32),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::Text(text) => text,
        Either::Number(number) => number.to_string(),
    })
}
