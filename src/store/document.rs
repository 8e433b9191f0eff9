//! A reading as a document: `{_id, timestamp, metadata: {deviceId, type?, tags…}, fields…}`.
//!
//! Encoded here, each alone and before batching, so that nothing can fail when a batch is sent.
//! The id is made by the gateway and stays the same when the write is repeated.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{DateTime, RawArrayBuf, RawBson};

use crate::model::{FieldValue, Reading};

/// What a time-series collection takes as one measurement, with room for the bucket's own fields.
pub const MAX_MEASUREMENT_BYTES: usize = 4 * 1024 * 1024 - 4 * 1024;

/// Field names of stored readings.
pub mod names {
    /// The id, first in every document.
    pub const ID: &str = "_id";
    /// The time field of the series.
    pub const TIMESTAMP: &str = "timestamp";
    /// The meta field of the series.
    pub const METADATA: &str = "metadata";
    /// In `metadata`: the device.
    pub const DEVICE: &str = "deviceId";
    /// In `metadata`: the type.
    pub const TYPE: &str = "type";
    /// Remarks, separated by commas.
    pub const FLAGS: &str = "_flags";
    /// The device's own claim of the time, where it was not believed.
    pub const CLAIMED: &str = "_claimed";
}

/// Why a reading cannot become a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// BSON keys end at a NUL.
    #[error("key {0:?} holds a NUL")]
    NulInKey(String),
    /// Beyond what the server takes.
    #[error("the document has {bytes} bytes; a time-series collection takes {limit} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// Encodes one reading.
///
/// # Errors
/// Where no server would take it.
pub fn encode_reading(id: ObjectId, reading: &Reading) -> Result<RawDocumentBuf, EncodeError> {
    let mut document = RawDocumentBuf::new();
    document.append(names::ID, id);
    document.append(
        names::TIMESTAMP,
        DateTime::from_millis(reading.timestamp.millis()),
    );
    let mut metadata = RawDocumentBuf::new();
    metadata.append(names::DEVICE, reading.device.as_str());
    if let Some(kind) = &reading.kind {
        metadata.append(names::TYPE, kind.as_ref());
    }
    for (name, value) in &reading.tags {
        append(&mut metadata, name, RawBson::String(value.clone()))?;
    }
    document.append(names::METADATA, metadata);
    for (name, value) in &reading.fields {
        append_value(&mut document, name, value)?;
    }
    if !reading.flags.is_empty() {
        let flags: Vec<_> = reading.flags.names().collect();
        document.append(names::FLAGS, flags.join(","));
    }
    if let Some(claimed) = &reading.claimed {
        document.append(names::CLAIMED, claimed.as_str());
    }
    match document.as_bytes().len() {
        bytes if bytes > MAX_MEASUREMENT_BYTES => Err(EncodeError::TooLarge {
            bytes,
            limit: MAX_MEASUREMENT_BYTES,
        }),
        _ => Ok(document),
    }
}

/// Appends a field.
pub(super) fn append_value(
    document: &mut RawDocumentBuf,
    name: &str,
    value: &FieldValue,
) -> Result<(), EncodeError> {
    match value {
        FieldValue::Double(number) => append(document, name, *number),
        FieldValue::Int64(number) => append(document, name, *number),
        FieldValue::Bool(truth) => append(document, name, *truth),
        FieldValue::Text(text) => append(document, name, text.as_str()),
        nested => append(document, name, raw(nested)?),
    }
}

/// Appends under a key that may be anything.
pub(super) fn append(
    document: &mut RawDocumentBuf,
    key: &str,
    value: impl Into<RawBson>,
) -> Result<(), EncodeError> {
    // The encoder panics on such keys; the decoder refuses them, tags from the file do not pass it.
    if key.as_bytes().contains(&0) {
        return Err(EncodeError::NulInKey(key.to_owned()));
    }
    document.append(key, value);
    Ok(())
}

fn raw(value: &FieldValue) -> Result<RawBson, EncodeError> {
    Ok(match value {
        FieldValue::Double(number) => RawBson::Double(*number),
        FieldValue::Int64(number) => RawBson::Int64(*number),
        FieldValue::Bool(truth) => RawBson::Boolean(*truth),
        FieldValue::Text(text) => RawBson::String(text.clone()),
        FieldValue::Null => RawBson::Null,
        FieldValue::Array(items) => {
            let mut array = RawArrayBuf::new();
            for item in items {
                array.push(raw(item)?);
            }
            RawBson::Array(array)
        }
        FieldValue::Object(entries) => {
            let mut object = RawDocumentBuf::new();
            for (key, value) in entries {
                append(&mut object, key, raw(value)?)?;
            }
            RawBson::Document(object)
        }
    })
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Document, doc};

    use super::*;
    use crate::model::{DeviceId, Flag, Flags, TimeSource, Timestamp};

    fn reading(fields: Vec<(String, FieldValue)>) -> Reading {
        Reading {
            device: DeviceId::new("d1").unwrap(),
            kind: Some("th".into()),
            timestamp: Timestamp::from_millis(1_000),
            time_source: TimeSource::Device,
            tags: vec![("site".into(), "n".into())],
            fields,
            flags: Flags::default(),
            claimed: None,
        }
    }

    #[test]
    fn the_shape_of_a_stored_reading() {
        let id = ObjectId::new();
        let mut reading = reading(vec![
            ("t".into(), FieldValue::Double(1.5)),
            ("n".into(), FieldValue::Int64(1 << 60)),
            ("on".into(), FieldValue::Bool(true)),
            ("s".into(), FieldValue::Text("x".into())),
            (
                "a".into(),
                FieldValue::Array(vec![FieldValue::Null, FieldValue::Double(2.0)]),
            ),
        ]);
        reading.flags.insert(Flag::ClockFuture);
        reading.claimed = Some("2099-01-01T00:00:00Z".into());
        let document: Document = encode_reading(id, &reading).unwrap().try_into().unwrap();
        let expected = doc! {
            "_id": id,
            "timestamp": DateTime::from_millis(1_000),
            "metadata": { "deviceId": "d1", "type": "th", "site": "n" },
            "t": 1.5, "n": 1_i64 << 60, "on": true, "s": "x", "a": [null, 2.0],
            "_flags": "clock_future", "_claimed": "2099-01-01T00:00:00Z",
        };
        assert_eq!(document, expected);
    }

    #[test]
    fn what_no_server_takes_is_refused_alone() {
        let nul = encode_reading(
            ObjectId::new(),
            &reading(vec![("a\0b".into(), FieldValue::Bool(true))]),
        );
        assert_eq!(nul, Err(EncodeError::NulInKey("a\0b".into())));
        let huge = FieldValue::Text("x".repeat(MAX_MEASUREMENT_BYTES));
        let error =
            encode_reading(ObjectId::new(), &reading(vec![("a".into(), huge)])).unwrap_err();
        assert!(
            matches!(error, EncodeError::TooLarge { .. }) && error.to_string().contains("bytes")
        );
    }
}
