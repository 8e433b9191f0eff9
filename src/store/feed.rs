//! The feed: readings in an ordinary collection, because MongoDB offers no change stream on a
//! time-series collection. One document holds the readings of one stream from one write:
//!
//! `{_id, v: 1, at, gateway, lane, stream, readings: [{d, y?, t, rt, p, g?, f: {…}}]}`
//!
//! with device, type, time, time of receipt, topic, tags and fields of each reading. Once a second
//! each gateway adds a beat without readings: `{_id, v: 1, at, gateway, beat: {low, linked},
//! readings: []}`: everything it received before `low` is in the feed already. The format is
//! public: fields may be added, none changes its meaning while `v` is 1.

use std::sync::Arc;

use mongodb::bson::DateTime;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::document::{EncodeError, append, append_value};
use crate::model::{DeviceId, FieldValue, Reading, Timestamp};

/// What the format is called.
const VERSION: i32 = 1;

/// Bytes beside the readings.
const FRAME_BYTES: usize = 512;

/// Who writes, and into which lane's documents.
#[derive(Debug, Clone)]
pub struct FeedAuthor {
    /// The gateway's name.
    pub gateway: String,
    /// The lane.
    pub lane: usize,
}

/// One reading as the feed carries it.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedReading {
    /// Who measured.
    pub device: DeviceId,
    /// What kind of device.
    pub kind: Option<Arc<str>>,
    /// Its time.
    pub at: Timestamp,
    /// When the gateway received it.
    pub received: Timestamp,
    /// The topic it came on.
    pub topic: Arc<str>,
    /// Stable identity beside the device id.
    pub tags: Vec<(String, String)>,
    /// What it says.
    pub fields: Vec<(String, FieldValue)>,
}

/// A document of the feed.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedDocument {
    /// When it was written, by the gateway's clock.
    pub at: Timestamp,
    /// Who wrote it.
    pub gateway: String,
    /// The stream of its readings; empty in a beat.
    pub stream: Arc<str>,
    /// Its readings.
    pub readings: Vec<FeedReading>,
    /// What a beat says.
    pub beat: Option<Beat>,
}

/// A gateway's sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Everything received before this is in the feed.
    pub low: Timestamp,
    /// Whether it hears from the broker.
    pub linked: bool,
}

/// Encodes one reading of the feed.
///
/// # Errors
/// Where BSON has no way to say it.
pub fn encode_feed_reading(
    reading: &Reading,
    topic: &str,
    received: Timestamp,
) -> Result<RawDocumentBuf, EncodeError> {
    let date = |time: Timestamp| DateTime::from_millis(time.millis());
    let mut document = RawDocumentBuf::new();
    document.append("d", reading.device.as_str());
    if let Some(kind) = &reading.kind {
        document.append("y", kind.as_ref());
    }
    document.append("t", date(reading.timestamp));
    document.append("rt", date(received));
    document.append("p", topic);
    if !reading.tags.is_empty() {
        let mut tags = RawDocumentBuf::new();
        for (name, value) in &reading.tags {
            append(&mut tags, name, value.as_str())?;
        }
        document.append("g", tags);
    }
    let mut fields = RawDocumentBuf::new();
    for (name, value) in &reading.fields {
        append_value(&mut fields, name, value)?;
    }
    document.append("f", fields);
    Ok(document)
}

/// Puts readings together into documents of at most `most` bytes each (a larger reading stands
/// alone); returns each with the number of readings in it.
pub fn feed_documents(
    author: &FeedAuthor,
    stream: &str,
    at: Timestamp,
    readings: &[RawDocumentBuf],
    most: usize,
) -> Vec<(RawDocumentBuf, usize)> {
    let mut documents = Vec::new();
    let mut rest = readings;
    while !rest.is_empty() {
        let mut bytes = FRAME_BYTES;
        let fits = rest
            .iter()
            .take_while(|reading| {
                // Each item of an array has its position as its key.
                bytes += reading.as_bytes().len() + 8;
                bytes <= most
            })
            .count();
        let (some, others) = rest.split_at(fits.max(1));
        let mut document = frame(author.gateway.as_str(), at);
        document.append("lane", i32::try_from(author.lane).unwrap_or(i32::MAX));
        document.append("stream", stream);
        let mut array = RawArrayBuf::new();
        for reading in some {
            array.push(reading.clone());
        }
        document.append("readings", array);
        documents.push((document, some.len()));
        rest = others;
    }
    documents
}

/// Encodes a beat.
pub fn encode_beat(gateway: &str, at: Timestamp, beat: Beat) -> RawDocumentBuf {
    let mut document = frame(gateway, at);
    let mut inner = RawDocumentBuf::new();
    inner.append("low", DateTime::from_millis(beat.low.millis()));
    inner.append("linked", beat.linked);
    document.append("beat", inner);
    document.append("readings", RawArrayBuf::new());
    document
}

fn frame(gateway: &str, at: Timestamp) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append("_id", ObjectId::new());
    document.append("v", VERSION);
    document.append("at", DateTime::from_millis(at.millis()));
    document.append("gateway", gateway);
    document
}

/// Why a document is not one of the feed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// Written by a later release.
    #[error("the document is of version {0}, this release reads version {VERSION}")]
    Version(i32),
    /// Something is missing or of another type.
    #[error("{0}")]
    Shape(String),
}

/// Reads a document of the feed.
///
/// # Errors
/// Where it is not one.
pub fn decode_feed(document: &RawDocument) -> Result<FeedDocument, FeedError> {
    let version = document.get_i32("v").map_err(shape)?;
    if version != VERSION {
        return Err(FeedError::Version(version));
    }
    let stream: Arc<str> = document.get_str("stream").unwrap_or_default().into();
    let mut readings = Vec::new();
    for item in document.get_array("readings").map_err(shape)? {
        match item.map_err(shape)? {
            RawBsonRef::Document(reading) => readings.push(decode_reading(reading)?),
            other => {
                return Err(FeedError::Shape(format!(
                    "a reading is {:?}, not a document",
                    other.element_type()
                )));
            }
        }
    }
    let beat = match document.get_document("beat") {
        Ok(beat) => Some(Beat {
            low: time(beat, "low")?,
            linked: beat.get_bool("linked").map_err(shape)?,
        }),
        Err(_) => None,
    };
    Ok(FeedDocument {
        at: time(document, "at")?,
        gateway: document.get_str("gateway").map_err(shape)?.to_owned(),
        stream,
        readings,
        beat,
    })
}

fn decode_reading(document: &RawDocument) -> Result<FeedReading, FeedError> {
    let device = DeviceId::new(document.get_str("d").map_err(shape)?)
        .ok_or_else(|| shape("a reading has an empty device id"))?;
    let mut tags = Vec::new();
    if let Ok(inner) = document.get_document("g") {
        for entry in inner {
            let (name, value) = entry.map_err(shape)?;
            if let RawBsonRef::String(value) = value {
                tags.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    let mut fields = Vec::new();
    for entry in document.get_document("f").map_err(shape)? {
        let (name, value) = entry.map_err(shape)?;
        if let Some(value) = field_value(value) {
            fields.push((name.to_owned(), value));
        }
    }
    Ok(FeedReading {
        device,
        kind: document.get_str("y").ok().map(Arc::from),
        at: time(document, "t")?,
        received: time(document, "rt")?,
        topic: document.get_str("p").unwrap_or_default().into(),
        tags,
        fields,
    })
}

fn time(document: &RawDocument, key: &str) -> Result<Timestamp, FeedError> {
    let date = document.get_datetime(key).map_err(shape)?;
    Ok(Timestamp::from_millis(date.timestamp_millis()))
}

fn shape(error: impl std::fmt::Display) -> FeedError {
    FeedError::Shape(error.to_string())
}

/// A stored value as a field's; `None`: of a type that the gateway does not write.
pub(super) fn field_value(value: RawBsonRef<'_>) -> Option<FieldValue> {
    Some(match value {
        RawBsonRef::Double(number) => FieldValue::Double(number),
        RawBsonRef::Int32(number) => FieldValue::Int64(number.into()),
        RawBsonRef::Int64(number) => FieldValue::Int64(number),
        RawBsonRef::Boolean(truth) => FieldValue::Bool(truth),
        RawBsonRef::String(text) => FieldValue::Text(text.to_owned()),
        RawBsonRef::Null => FieldValue::Null,
        RawBsonRef::Array(items) => FieldValue::Array(
            items
                .into_iter()
                .map(|item| item.ok().and_then(field_value))
                .collect::<Option<_>>()?,
        ),
        RawBsonRef::Document(inner) => FieldValue::Object(
            inner
                .into_iter()
                .map(|entry| {
                    let (name, value) = entry.ok()?;
                    Some((name.to_owned(), field_value(value)?))
                })
                .collect::<Option<_>>()?,
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Flags, TimeSource};

    fn reading(device: &str, fields: Vec<(String, FieldValue)>) -> Reading {
        Reading {
            device: DeviceId::new(device).unwrap(),
            kind: Some("probe".into()),
            timestamp: Timestamp::from_millis(1_000),
            time_source: TimeSource::Device,
            tags: vec![("site".into(), "north".into())],
            fields,
            flags: Flags::default(),
            claimed: None,
        }
    }

    fn author() -> FeedAuthor {
        FeedAuthor {
            gateway: "g1".into(),
            lane: 2,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let fields = vec![
            ("t".to_owned(), FieldValue::Double(1.5)),
            ("n".to_owned(), FieldValue::Int64(1 << 60)),
            ("on".to_owned(), FieldValue::Bool(true)),
            ("s".to_owned(), FieldValue::Text("x".into())),
            (
                "a".to_owned(),
                FieldValue::Array(vec![FieldValue::Null, FieldValue::Double(1.0)]),
            ),
        ];
        let received = Timestamp::from_millis(2_000);
        let encoded =
            encode_feed_reading(&reading("d1", fields.clone()), "a/d1", received).unwrap();
        let at = Timestamp::from_millis(3_000);
        let documents = feed_documents(&author(), "telemetry", at, &[encoded], 1 << 20);
        assert_eq!(documents.len(), 1);
        let read = decode_feed(&documents[0].0).unwrap();
        assert_eq!(
            (read.at, read.gateway.as_str(), read.beat),
            (at, "g1", None)
        );
        let expected = FeedReading {
            device: DeviceId::new("d1").unwrap(),
            kind: Some("probe".into()),
            at: Timestamp::from_millis(1_000),
            received,
            topic: "a/d1".into(),
            tags: vec![("site".into(), "north".into())],
            fields,
        };
        assert_eq!(read.readings, [expected]);
    }

    #[test]
    fn a_beat_is_a_document_without_readings() {
        let beat = Beat {
            low: Timestamp::from_millis(5),
            linked: true,
        };
        let document = encode_beat("g1", Timestamp::from_millis(9), beat);
        let read = decode_feed(&document).unwrap();
        assert_eq!((read.beat, read.readings.len()), (Some(beat), 0));
    }

    #[test]
    fn documents_are_split_by_size_and_lose_nothing() {
        let encoded: Vec<_> = (0..100)
            .map(|n| {
                let text = FieldValue::Text("x".repeat(1_000 * (n % 3 + 1)));
                let reading = reading(&format!("d{n}"), vec![("s".into(), text)]);
                encode_feed_reading(&reading, "t", Timestamp::from_millis(0)).unwrap()
            })
            .collect();
        let at = Timestamp::from_millis(0);
        let documents = feed_documents(&author(), "s", at, &encoded, 16_384);
        assert!(documents.len() > 10);
        let mut devices = Vec::new();
        for (document, count) in &documents {
            assert!(document.as_bytes().len() <= 16_384);
            let read = decode_feed(document).unwrap();
            assert_eq!(read.readings.len(), *count);
            devices.extend(read.readings.into_iter().map(|r| r.device.to_string()));
        }
        let expected: Vec<_> = (0..100).map(|n| format!("d{n}")).collect();
        assert_eq!(devices, expected);
        // One that is larger than any document stands alone.
        assert_eq!(feed_documents(&author(), "s", at, &encoded, 600).len(), 100);
    }

    #[test]
    fn what_is_not_of_the_feed_says_why() {
        let mut later = RawDocumentBuf::new();
        later.append("v", 2);
        assert_eq!(decode_feed(&later), Err(FeedError::Version(2)));
        let mut broken = RawDocumentBuf::new();
        broken.append("v", 1);
        assert!(matches!(decode_feed(&broken), Err(FeedError::Shape(_))));
    }
}
