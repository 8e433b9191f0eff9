//! What a series holds, looked at from outside: which device has a row at which time, whether rows
//! of one time say the same, and what became dead letters instead.

use futures_util::TryStreamExt;
use mongodb::Cursor;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;

use super::document::names;
use super::{DriverResult, Store};
use crate::config::StreamConfig;
use crate::model::Timestamp;

/// Rows asked for in one answer: small documents, many of them.
const IN_ONE_ANSWER: u32 = 20_000;

/// Devices and times asked for in one query.
const KEYS_PER_QUERY: usize = 500;

/// Device and time of each row, in no order.
pub struct StoredTimes(Cursor<RawDocumentBuf>);

/// The rows of one device and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alike {
    /// How many there are.
    pub rows: u64,
    /// How many different things they say; ids do not count.
    pub contents: u64,
}

/// Dead letters of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterCount {
    /// `None`: those that name no device.
    pub device: Option<String>,
    /// How many there are.
    pub letters: u64,
}

impl Store {
    /// Every row of a stream's collection from `from` until before `to`, by its own time.
    ///
    /// # Errors
    /// The driver's.
    pub async fn stored_times(
        &self,
        stream: &StreamConfig,
        from: Timestamp,
        to: Timestamp,
    ) -> DriverResult<StoredTimes> {
        let device = format!("${}.{}", names::METADATA, names::DEVICE);
        let time = format!("${}", names::TIMESTAMP);
        let pipeline = [
            doc! { "$match": { names::TIMESTAMP: { "$gte": date(from), "$lt": date(to) } } },
            doc! { "$project": { "_id": 0, "d": device, "t": time } },
        ];
        let cursor = self
            .database()
            .collection::<Document>(&stream.collection)
            .aggregate(pipeline)
            .batch_size(IN_ONE_ANSWER)
            .read_concern(ReadConcern::majority())
            .with_type::<RawDocumentBuf>()
            .await?;
        Ok(StoredTimes(cursor))
    }

    /// For each device and time, how many rows there are and how many of them differ.
    ///
    /// # Errors
    /// The driver's.
    pub async fn alike(
        &self,
        stream: &StreamConfig,
        keys: &[(&str, Timestamp)],
    ) -> DriverResult<Vec<Alike>> {
        let path = format!("{}.{}", names::METADATA, names::DEVICE);
        let mut all = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_PER_QUERY) {
            let filters: Vec<Bson> = some
                .iter()
                .map(|(device, at)| {
                    Bson::Document(doc! { &path: device, names::TIMESTAMP: date(*at) })
                })
                .collect();
            let rows: Vec<Document> = self
                .database()
                .collection::<Document>(&stream.collection)
                .find(doc! { "$or": filters })
                .read_concern(ReadConcern::majority())
                .await?
                .try_collect()
                .await?;
            all.extend(some.iter().map(|(device, at)| {
                let here = rows.iter().filter(|row| is_of(row, device, *at));
                alike(here)
            }));
        }
        Ok(all)
    }

    /// Dead letters of a stream received from `from` until before `to` that were not replayed.
    ///
    /// # Errors
    /// The driver's.
    pub async fn letters_by_device(
        &self,
        stream: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> DriverResult<Vec<LetterCount>> {
        let open = doc! {
            "stream": stream,
            "at": { "$gte": date(from), "$lt": date(to) },
            "replayedAt": { "$exists": false },
        };
        let pipeline = [
            doc! { "$match": open },
            doc! { "$unwind": { "path": "$deviceId", "preserveNullAndEmptyArrays": true } },
            doc! { "$group": { "_id": "$deviceId", "letters": { "$sum": 1_i64 } } },
            doc! { "$sort": { "_id": 1 } },
        ];
        let cursor = self.dead_letters().aggregate(pipeline).await?;
        let count = |row: Document| LetterCount {
            device: row.get_str("_id").ok().map(str::to_owned),
            letters: row
                .get_i64("letters")
                .map_or(0, |n| u64::try_from(n).unwrap_or(0)),
        };
        cursor.map_ok(count).try_collect().await
    }
}

impl StoredTimes {
    /// Hands every row to `take`; rows without a device are passed over.
    ///
    /// # Errors
    /// The driver's.
    pub async fn each(&mut self, mut take: impl FnMut(&str, Timestamp)) -> DriverResult<()> {
        while self.0.advance().await? {
            let row = self.0.current();
            if let (Ok(device), Ok(at)) = (row.get_str("d"), row.get_datetime("t")) {
                take(device, Timestamp::from_millis(at.timestamp_millis()));
            }
        }
        Ok(())
    }
}

fn is_of(row: &Document, device: &str, at: Timestamp) -> bool {
    let metadata = row.get_document(names::METADATA);
    metadata.is_ok_and(|metadata| metadata.get_str(names::DEVICE) == Ok(device))
        && row.get_datetime(names::TIMESTAMP) == Ok(&date(at))
}

fn alike<'a>(rows: impl Iterator<Item = &'a Document>) -> Alike {
    let mut contents: Vec<Vec<(&String, &Bson)>> = Vec::new();
    let mut count = 0;
    for row in rows {
        count += 1;
        let mut content: Vec<_> = row.iter().filter(|(key, _)| *key != names::ID).collect();
        content.sort_by_key(|(key, _)| *key);
        if !contents.contains(&content) {
            contents.push(content);
        }
    }
    Alike {
        rows: count,
        contents: contents.len() as u64,
    }
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_in_their_id_only_say_the_same() {
        let rows = [
            doc! { "_id": 1, "t": 1.5, "u": 2 },
            doc! { "u": 2, "_id": 2, "t": 1.5 },
            doc! { "_id": 3, "t": 2.5, "u": 2 },
        ];
        let of = |n: usize| alike(rows[..n].iter());
        let expect = |rows, contents| Alike { rows, contents };
        assert_eq!(of(0), expect(0, 0));
        assert_eq!(of(2), expect(2, 1));
        assert_eq!(of(3), expect(3, 2));
    }
}
