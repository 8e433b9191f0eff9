//! What the alerts keep: state, notices, outbox rows, history and the place in the feed (`_id:
//! "checkpoint"` among the marks), as it goes into one commit and as it is read back.

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::feed_stream::Place;
use super::{Store, words};
use crate::model::Timestamp;

/// The checkpoint's id among the marks.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// A document under its id; `None`: it is to go.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Its `_id`.
    pub id: String,
    /// What it holds beside that.
    pub body: Option<Document>,
}

impl Kept {
    /// To be put.
    ///
    /// # Errors
    /// Where the value has no form in BSON.
    pub fn put(id: impl Into<String>, value: &impl Serialize) -> Result<Self, NoDocument> {
        let body =
            mongodb::bson::to_document(value).map_err(|error| NoDocument(error.to_string()))?;
        Ok(Self {
            id: id.into(),
            body: Some(body),
        })
    }

    /// To be removed.
    pub fn gone(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            body: None,
        }
    }
}

/// A value that BSON cannot hold.
#[derive(Debug, thiserror::Error)]
#[error("cannot be written as a document: {0}")]
pub struct NoDocument(String);

/// Where evaluation stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The place in the feed.
    pub place: Option<Place>,
    /// The server's time of the last event handled, in seconds since the epoch.
    pub cluster_seconds: u32,
    /// The gateway's time of the last document handled.
    pub at: Timestamp,
}

/// One line of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// When.
    pub at: Timestamp,
    /// The alert.
    pub key: String,
    /// What happened.
    pub body: Document,
    pub(super) id: mongodb::bson::oid::ObjectId,
}

impl Line {
    /// A new line.
    ///
    /// # Errors
    /// Where the value has no form in BSON.
    pub fn new(at: Timestamp, key: &str, value: &impl Serialize) -> Result<Self, NoDocument> {
        Ok(Self {
            at,
            key: key.to_owned(),
            body: mongodb::bson::to_document(value)
                .map_err(|error| NoDocument(error.to_string()))?,
            id: mongodb::bson::oid::ObjectId::new(),
        })
    }
}

/// What one transaction writes.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// Where evaluation stands; `None`: as before.
    pub checkpoint: Option<Checkpoint>,
    /// Alerts.
    pub state: Vec<Kept>,
    /// What is remembered of the others, packed.
    pub marks: Vec<Kept>,
    /// What receivers were told and are owed.
    pub notices: Vec<Kept>,
    /// New requests to receivers, whole documents.
    pub outbox: Vec<Document>,
    /// What happened.
    pub history: Vec<Line>,
    /// Rows of the outbox whose end is known to the planner by now.
    pub reported: Vec<String>,
    /// Requests of operators that are done.
    pub requests: Vec<Bson>,
}

impl Commit {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.checkpoint.is_none()
            && self.state.is_empty()
            && self.marks.is_empty()
            && self.notices.is_empty()
            && self.outbox.is_empty()
            && self.history.is_empty()
            && self.reported.is_empty()
            && self.requests.is_empty()
    }
}

impl Store {
    /// Where evaluation stood.
    ///
    /// # Errors
    /// The driver's.
    pub async fn checkpoint(&self) -> mongodb::error::Result<Option<Checkpoint>> {
        let found = self
            .kept::<Document>(&self.names().marks)
            .find_one(doc! { "_id": CHECKPOINT })
            .read_concern(ReadConcern::majority())
            .await?;
        Ok(found.and_then(|document| {
            Some(Checkpoint {
                place: document.get("place").and_then(Place::decode),
                cluster_seconds: u32::try_from(document.get_i64("clusterSeconds").ok()?).ok()?,
                at: Timestamp::from_millis(document.get_datetime("at").ok()?.timestamp_millis()),
            })
        }))
    }

    /// Every document of a collection of the alerts, each with its id taken out.
    ///
    /// # Errors
    /// The driver's.
    pub async fn kept_documents(
        &self,
        collection: &str,
    ) -> mongodb::error::Result<Vec<(Bson, Document)>> {
        let cursor = self
            .kept::<Document>(collection)
            .find(doc! {})
            .read_concern(ReadConcern::majority())
            .await?;
        cursor
            .map_ok(|mut document| (document.remove("_id").unwrap_or(Bson::Null), document))
            .try_filter(|(id, _)| std::future::ready(*id != Bson::String(CHECKPOINT.to_owned())))
            .try_collect()
            .await
    }

    /// The same by id, read as `T`. One that cannot be read ends it: to leave it out would mean to
    /// forget what it says.
    ///
    /// # Errors
    /// The driver's, or what is wrong with a document, named.
    pub async fn kept_as<T: DeserializeOwned>(
        &self,
        collection: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, T)>, String> {
        let documents = self.kept_documents(collection).await;
        let documents = documents.map_err(|error| words(&error))?;
        let mut all = Vec::with_capacity(documents.len());
        for (id, document) in documents {
            let id = match id {
                Bson::String(id) => id,
                other => return Err(format!("{collection}: the _id {other} is not text")),
            };
            if wanted(&id) {
                let value = mongodb::bson::from_document(document)
                    .map_err(|error| format!("{collection}: {id:?}: {error}"))?;
                all.push((id, value));
            }
        }
        Ok(all)
    }
}
