//! One time-series collection: unordered inserts, and the look-up that tells which documents of
//! an unclear write have arrived.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;
use mongodb::{ClientSession, Collection};

use super::document::names;
use crate::model::Timestamp;

/// Devices asked for in one query; keeps the filter well below the server's limits.
const DEVICES_PER_QUERY: usize = 500;

/// A stream's collection.
#[derive(Clone)]
pub struct Series {
    collection: Collection<RawDocumentBuf>,
    wtimeout: Duration,
}

/// What identifies a document to the look-up.
#[derive(Debug, Clone)]
pub struct Key<'a> {
    /// `metadata.deviceId`.
    pub device: &'a str,
    /// The reading's time.
    pub timestamp: Timestamp,
    /// The id made for it.
    pub id: ObjectId,
}

impl Series {
    pub(super) fn new(collection: Collection<RawDocumentBuf>, wtimeout: Duration) -> Self {
        Self {
            collection,
            wtimeout,
        }
    }

    /// The collection's name.
    pub fn name(&self) -> &str {
        self.collection.name()
    }

    /// How long the server may take to replicate before it reports so.
    pub fn wtimeout(&self) -> Duration {
        self.wtimeout
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

    /// Which of `keys` are in the collection, as far as a majority has them.
    ///
    /// # Errors
    /// The driver's.
    pub async fn stored(&self, keys: &[Key<'_>]) -> mongodb::error::Result<HashSet<ObjectId>> {
        let wanted: HashSet<ObjectId> = keys.iter().map(|key| key.id).collect();
        let mut by_device: HashMap<&str, Vec<Bson>> = HashMap::new();
        for key in keys {
            let time = Bson::DateTime(DateTime::from_millis(key.timestamp.millis()));
            by_device.entry(key.device).or_default().push(time);
        }
        let filters: Vec<Bson> = by_device
            .into_iter()
            .map(|(device, times)| {
                let device_path = format!("{}.{}", names::METADATA, names::DEVICE);
                Bson::Document(doc! { device_path: device, names::TIMESTAMP: { "$in": times } })
            })
            .collect();
        let mut found = HashSet::new();
        for some in filters.chunks(DEVICES_PER_QUERY) {
            let mut cursor = self
                .collection
                .clone_with_type::<Document>()
                .find(doc! { "$or": some.to_vec() })
                .projection(doc! { names::ID: 1 })
                .read_concern(ReadConcern::majority())
                .await?;
            while let Some(document) = cursor.try_next().await? {
                if let Ok(id) = document.get_object_id(names::ID)
                    && wanted.contains(&id)
                {
                    found.insert(id);
                }
            }
        }
        Ok(found)
    }
}
