//! What the alerts keep: read by a new leader, who first puts up the fence.
//!
//! The checkpoint (`_id: "checkpoint"` among the marks) carries the term of the leader it belongs
//! to: a transaction of an older term does not find it and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::ReadConcern;
use mongodb::{ClientSession, Collection};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::feed_stream::Place;
use super::{Store, words};
use crate::model::Timestamp;

/// The checkpoint's id among the marks.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// How long a new leader's stamp waits for a transaction of the leader before.
const STAMP: Duration = Duration::from_secs(1);

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

/// The right to write, for one term.
#[derive(Clone)]
pub struct Fence {
    pub(super) term: i64,
    /// All transactions of the term run in it, so that the next leader can end what is left of them.
    pub(super) session: Arc<Mutex<ClientSession>>,
}

impl Store {
    /// Puts the fence of a new leader up; `None`: a newer one stands there.
    ///
    /// A leader that was killed or frozen in the middle of a transaction keeps what it wrote locked
    /// until the server gives it up, a minute later. That is not waited for: its session is ended.
    ///
    /// # Errors
    /// The driver's.
    pub async fn stamp_fence(&self, term: i64) -> mongodb::error::Result<Option<Fence>> {
        let session = self.session().await?;
        let own = session.id().clone();
        let marks = self.kept::<Document>(&self.names().marks);
        let older = doc! { "_id": CHECKPOINT, "$or": [
            { "term": { "$lt": term } },
            { "term": { "$exists": false } },
            // Ours already, if the answer was lost.
            { "term": term, "session": &own },
        ] };
        let stamp = doc! { "$set": { "term": term, "session": &own } };
        let mut ended = false;
        loop {
            let stamped = marks
                .find_one_and_update(older.clone(), stamp.clone())
                .upsert(true)
                .max_time(STAMP)
                .await;
            match stamped {
                Ok(_) => break,
                Err(error) => match code(&error) {
                    // The document is there, and not older.
                    Some(11_000) => return Ok(None),
                    // MaxTimeMSExpired.
                    Some(50) if !std::mem::replace(&mut ended, true) => {
                        self.end_session(&marks).await;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(Some(Fence {
            term,
            session: Arc::new(Mutex::new(session)),
        }))
    }

    /// Ends the session that the leader before wrote in, and with it what it left half done.
    async fn end_session(&self, marks: &Collection<Document>) {
        let before = marks.find_one(doc! { "_id": CHECKPOINT }).await;
        if let Ok(Some(before)) = before
            && let Ok(session) = before.get_document("session")
        {
            let end = doc! { "killSessions": [session] };
            match self.client().database("admin").run_command(end).await {
                Ok(_) => tracing::info!("The leader before left a transaction; it is ended"),
                Err(error) => tracing::warn!(
                    error = words(&error),
                    "The leader before left a transaction; waiting for the server to end it"
                ),
            }
        }
    }

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

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(mongodb::error::WriteFailure::WriteError(write)) => Some(write.code),
        _ => None,
    }
}
