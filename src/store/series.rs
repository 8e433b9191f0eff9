//! One time-series collection: unordered inserts, and the look-up that tells what is there already.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use mongodb::{ClientSession, Collection};

use super::document::names;
use crate::model::Timestamp;

/// Devices asked for in one query; keeps the filter well below the server's limits.
const DEVICES_PER_QUERY: usize = 500;

/// A stream's collection.
#[derive(Clone)]
pub struct Series {
    collection: Collection<RawDocumentBuf>,
    write_concern: WriteConcern,
}

/// What a look-up looks for.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// `metadata.deviceId`.
    pub device: &'a str,
    /// The reading's time.
    pub timestamp: Timestamp,
    /// The reading as it is or would be stored.
    pub document: &'a RawDocumentBuf,
}

/// What a look-up found at a key's device and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A row that says something else.
    OtherContent,
    /// A row that says the same under another id.
    SameContent,
    /// The row itself.
    SameId,
}

impl Series {
    pub(super) fn new(collection: Collection<RawDocumentBuf>, write_concern: WriteConcern) -> Self {
        Self {
            collection,
            write_concern,
        }
    }

    /// The collection's name.
    pub fn name(&self) -> &str {
        self.collection.name()
    }

    /// What the server must confirm.
    pub fn write_concern(&self) -> WriteConcern {
        self.write_concern.clone()
    }

    /// How long the server may take for it.
    pub fn wtimeout(&self) -> Duration {
        self.write_concern.w_timeout.unwrap_or_default()
    }

    /// Inserts all documents with one unordered command. The caller keeps a batch below what one
    /// command takes; the future must be run to its end.
    ///
    /// # Errors
    /// The driver's, which names refused documents by position where that is the trouble.
    pub async fn insert(
        &self,
        documents: &[RawDocumentBuf],
        session: &mut ClientSession,
    ) -> mongodb::error::Result<()> {
        self.collection
            .insert_many(documents)
            .ordered(false)
            .session(session)
            .await
            .map(drop)
    }

    /// What is in the collection for each of `keys`, as far as it is confirmed.
    ///
    /// # Errors
    /// The driver's.
    pub async fn find(&self, keys: &[Key<'_>]) -> mongodb::error::Result<Vec<Found>> {
        let mut by_device: BTreeMap<&str, Vec<Bson>> = BTreeMap::new();
        for key in keys {
            let time = Bson::DateTime(DateTime::from_millis(key.timestamp.millis()));
            by_device.entry(key.device).or_default().push(time);
        }
        let path = format!("{}.{}", names::METADATA, names::DEVICE);
        let filters: Vec<Bson> = by_device
            .into_iter()
            .map(|(device, times)| {
                Bson::Document(doc! { &path: device, names::TIMESTAMP: { "$in": times } })
            })
            .collect();
        // A write that fewer than a majority confirmed is not in a majority's view.
        let read_concern = match self.write_concern.w {
            Some(Acknowledgment::Majority) | None => ReadConcern::majority(),
            Some(_) => ReadConcern::local(),
        };
        let mut rows: HashMap<(String, i64), Vec<Document>> = HashMap::new();
        for some in filters.chunks(DEVICES_PER_QUERY) {
            let mut cursor = self
                .collection
                .clone_with_type::<Document>()
                .find(doc! { "$or": some.to_vec() })
                .read_concern(read_concern.clone())
                .await?;
            while let Some(row) = cursor.try_next().await? {
                let device = row
                    .get_document(names::METADATA)
                    .and_then(|m| m.get_str(names::DEVICE));
                let time = row.get_datetime(names::TIMESTAMP);
                if let (Ok(device), Ok(time)) = (device, time) {
                    let key = (device.to_owned(), time.timestamp_millis());
                    rows.entry(key).or_default().push(row);
                }
            }
        }
        let found = |key: &Key<'_>| {
            let there = rows.get(&(key.device.to_owned(), key.timestamp.millis()));
            compare(key.document, there.map_or(&[], Vec::as_slice))
        };
        Ok(keys.iter().map(found).collect())
    }
}

/// The closest match of `document` among `rows` of its device and time.
fn compare(document: &RawDocumentBuf, rows: &[Document]) -> Found {
    let Ok(wanted) = Document::try_from(document.as_ref()) else {
        return Found::Nothing;
    };
    let id = wanted.get(names::ID);
    let content = |document: &Document| {
        let fields = document.iter().filter(|(name, _)| *name != names::ID);
        fields
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let same_id = rows.iter().any(|row| row.get(names::ID) == id);
    if same_id {
        Found::SameId
    } else if rows.iter().any(|row| content(row) == content(&wanted)) {
        Found::SameContent
    } else if rows.is_empty() {
        Found::Nothing
    } else {
        Found::OtherContent
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::oid::ObjectId;
    use mongodb::bson::rawdoc;

    use super::*;

    #[test]
    fn rows_are_compared_by_id_then_by_what_they_say() {
        let (id, other) = (ObjectId::new(), ObjectId::new());
        let document = rawdoc! { "_id": id, "timestamp": DateTime::MIN, "t": 1.5 };
        let row = |id: ObjectId, t: f64| doc! { "t": t, "_id": id, "timestamp": DateTime::MIN };
        assert_eq!(compare(&document, &[]), Found::Nothing);
        assert_eq!(compare(&document, &[row(other, 2.0)]), Found::OtherContent);
        assert_eq!(
            compare(&document, &[row(other, 2.0), row(other, 1.5)]),
            Found::SameContent
        );
        assert_eq!(
            compare(&document, &[row(other, 1.5), row(id, 1.5)]),
            Found::SameId
        );
    }
}
