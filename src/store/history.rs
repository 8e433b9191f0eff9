//! Readings read back: from the feed while it keeps them, from a series for what is older.

use std::sync::Arc;

use futures_util::TryStreamExt;
use mongodb::Cursor;
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;

use super::document::names;
use super::feed::{FeedDocument, FeedReading, decode_feed, field_value};
use super::{DriverResult, Store};
use crate::config::StreamConfig;
use crate::model::{DeviceId, Timestamp};

/// Documents of the feed, in the order in which they were written.
pub struct PastFeed(Cursor<RawDocumentBuf>);

/// Rows of a series, by time.
pub struct PastSeries(Cursor<RawDocumentBuf>);

impl Store {
    /// What was written to the feed from `from` until before `to`, by the gateways' clocks.
    ///
    /// # Errors
    /// The driver's.
    pub async fn past_feed(&self, from: Timestamp, to: Timestamp) -> DriverResult<PastFeed> {
        let cursor = self
            .feed()
            .find(doc! { "at": { "$gte": date(from), "$lt": date(to) } })
            .sort(doc! { "at": 1, "_id": 1 })
            .read_concern(ReadConcern::majority())
            .await?;
        Ok(PastFeed(cursor))
    }

    /// When the oldest document of the feed was written.
    ///
    /// # Errors
    /// The driver's.
    pub async fn feed_begins(&self) -> DriverResult<Option<Timestamp>> {
        let oldest = self
            .kept::<Document>(&self.names().feed)
            .find_one(doc! {})
            .sort(doc! { "at": 1 })
            .projection(doc! { "at": 1 })
            .await?;
        let at = oldest.and_then(|document| document.get_datetime("at").copied().ok());
        Ok(at.map(|at| Timestamp::from_millis(at.timestamp_millis())))
    }

    /// Rows of a stream's series from `from` until before `to`, by their own time; of one device
    /// or all.
    ///
    /// # Errors
    /// The driver's.
    pub async fn past_series(
        &self,
        stream: &StreamConfig,
        from: Timestamp,
        to: Timestamp,
        device: Option<&str>,
    ) -> DriverResult<PastSeries> {
        let mut query = doc! { names::TIMESTAMP: { "$gte": date(from), "$lt": date(to) } };
        if let Some(device) = device {
            query.insert(format!("{}.{}", names::METADATA, names::DEVICE), device);
        }
        let rows = self
            .database()
            .collection::<RawDocumentBuf>(&stream.collection)
            .find(query)
            .sort(doc! { names::TIMESTAMP: 1 })
            .read_concern(ReadConcern::majority())
            .await?;
        Ok(PastSeries(rows))
    }
}

impl PastFeed {
    /// The next document; what is none of the feed's is passed over.
    ///
    /// # Errors
    /// The driver's.
    pub async fn next(&mut self) -> DriverResult<Option<FeedDocument>> {
        while let Some(document) = self.0.try_next().await? {
            if let Ok(document) = decode_feed(&document) {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }
}

impl PastSeries {
    /// The next reading. It does not say on which topic it came, and counts as received at its own
    /// time.
    ///
    /// # Errors
    /// The driver's.
    pub async fn next(&mut self) -> DriverResult<Option<FeedReading>> {
        while let Some(row) = self.0.try_next().await? {
            if let Some(reading) = reading(&row) {
                return Ok(Some(reading));
            }
        }
        Ok(None)
    }
}

/// A row of a series as the feed would carry it.
fn reading(row: &RawDocument) -> Option<FeedReading> {
    let at = row.get_datetime(names::TIMESTAMP).ok()?;
    let at = Timestamp::from_millis(at.timestamp_millis());
    let metadata = row.get_document(names::METADATA).ok()?;
    let device = DeviceId::new(metadata.get_str(names::DEVICE).ok()?)?;
    let kind = metadata.get_str(names::TYPE).ok().map(Arc::from);
    let mut tags = Vec::new();
    for entry in metadata {
        let (name, value) = entry.ok()?;
        if let RawBsonRef::String(value) = value
            && name != names::DEVICE
            && name != names::TYPE
        {
            tags.push((name.to_owned(), value.to_owned()));
        }
    }
    let own = [
        names::ID,
        names::TIMESTAMP,
        names::METADATA,
        names::FLAGS,
        names::CLAIMED,
    ];
    let mut fields = Vec::new();
    for entry in row {
        let (name, value) = entry.ok()?;
        if !own.contains(&name)
            && let Some(value) = field_value(value)
        {
            fields.push((name.to_owned(), value));
        }
    }
    Some(FeedReading {
        device,
        kind,
        at,
        received: at,
        topic: "".into(),
        tags,
        fields,
    })
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.millis())
}

#[cfg(test)]
mod tests {
    use mongodb::bson::rawdoc;

    use super::*;
    use crate::model::FieldValue;

    #[test]
    fn a_row_reads_as_the_reading_it_was() {
        let row = rawdoc! {
            "_id": mongodb::bson::oid::ObjectId::new(), "timestamp": DateTime::from_millis(5),
            "metadata": { "deviceId": "d", "type": "probe", "site": "north" },
            "t": 1.5, "_flags": "clock_future", "_claimed": "x",
        };
        let read = reading(&row).unwrap();
        assert_eq!(read.device.as_str(), "d");
        assert_eq!(read.kind.as_deref(), Some("probe"));
        assert_eq!(read.tags, [("site".to_owned(), "north".to_owned())]);
        assert_eq!(read.fields, [("t".to_owned(), FieldValue::Double(1.5))]);
        assert_eq!(read.received, read.at);
    }
}
