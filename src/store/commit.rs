//! How the alerts write: state, notices, outbox rows, history and the place in the feed in one
//! transaction, under a fence.
//!
//! Everything is put under a known id, so a transaction whose outcome is unknown can be repeated as
//! it is.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::{
    Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT,
};
use mongodb::options::{Acknowledgment, ReadConcern, TransactionOptions, WriteConcern};
use mongodb::{ClientSession, Database};
use serde::Serialize;

use super::alerts::{CHECKPOINT, Checkpoint, Fence};
use super::feed_stream::Place;
use super::{Store, words};
use crate::model::Timestamp;

/// Documents in one command.
const IN_ONE_COMMAND: usize = 1_000;

/// How long the server may take to confirm a transaction.
const LIMIT: Duration = Duration::from_secs(20);

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

/// One line of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// When.
    pub at: Timestamp,
    /// The alert.
    pub key: String,
    /// What happened.
    pub body: Document,
    id: mongodb::bson::oid::ObjectId,
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

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A newer leader has taken over.
    #[error("another gateway leads by now")]
    Fenced,
    /// The same commit may succeed later.
    #[error("{0}")]
    Passing(String),
    /// The server will say the same again.
    #[error("{0}")]
    Refused(String),
}

impl Store {
    /// Writes one commit, all of it or nothing. To be run to its end.
    ///
    /// # Errors
    /// See [`CommitError`]. After one that passes, the same commit may be tried again.
    pub async fn commit(&self, fence: &Fence, commit: &Commit) -> Result<(), CommitError> {
        let term = fence.term;
        let mut session = fence.session.lock().await;
        let majority = WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(true)
            .w_timeout(LIMIT)
            .build();
        let options = TransactionOptions::builder()
            .read_concern(ReadConcern::local())
            .write_concern(majority)
            .build();
        session
            .start_transaction()
            .with_options(options)
            .await
            .map_err(refusal)?;
        if let Err(error) = self.write_all(&mut session, term, commit).await {
            // What the server has of it is gone with the session at the latest.
            let _ = session.abort_transaction().await;
            return Err(error);
        }
        let mut attempts = 0;
        loop {
            match session.commit_transaction().await {
                Ok(()) => return Ok(()),
                Err(error)
                    if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && attempts < 3 =>
                {
                    attempts += 1;
                }
                Err(error) => return Err(refusal(error)),
            }
        }
    }

    async fn write_all(
        &self,
        session: &mut ClientSession,
        term: i64,
        commit: &Commit,
    ) -> Result<(), CommitError> {
        let names = self.names();
        let mut fence = doc! { "term": term };
        if let Some(checkpoint) = &commit.checkpoint {
            fence.insert("clusterSeconds", i64::from(checkpoint.cluster_seconds));
            fence.insert("at", DateTime::from_millis(checkpoint.at.millis()));
            if let Some(place) = checkpoint.place.as_ref().and_then(Place::encode) {
                fence.insert("place", place);
            }
        }
        // Counted, so that the document is written in any case: a transaction that writes it conflicts
        // with the next leader's stamp; one that only reads it does not.
        let stands = self
            .database()
            .collection::<Document>(&names.marks)
            .update_one(
                doc! { "_id": CHECKPOINT, "term": term },
                doc! { "$set": fence, "$inc": { "commits": 1_i64 } },
            )
            .session(&mut *session)
            .await
            .map_err(refusal)?;
        if stands.matched_count == 0 {
            return Err(CommitError::Fenced);
        }
        let database = self.database();
        for (collection, all) in [
            (&names.state, &commit.state),
            (&names.marks, &commit.marks),
            (&names.notices, &commit.notices),
        ] {
            // Gone first: what was put again after it went stays.
            let gone = all.iter().filter(|kept| kept.body.is_none());
            let gone = gone.map(|kept| doc! { "q": { "_id": &kept.id }, "limit": 1 });
            bulk(database, session, "delete", "deletes", collection, gone).await?;
            let puts = all.iter().filter_map(|kept| {
                let body = kept.body.as_ref()?;
                Some(doc! { "q": { "_id": &kept.id }, "u": body, "upsert": true })
            });
            bulk(database, session, "update", "updates", collection, puts).await?;
        }
        let rows = commit.outbox.iter().map(|row| {
            let mut body = row.clone();
            let id = body.remove("_id").unwrap_or(Bson::Null);
            doc! { "q": { "_id": id }, "u": { "$setOnInsert": body }, "upsert": true }
        });
        bulk(database, session, "update", "updates", &names.outbox, rows).await?;
        let reported = commit
            .reported
            .iter()
            .map(|id| doc! { "q": { "_id": id }, "u": { "$set": { "reported": true } } });
        bulk(
            database,
            session,
            "update",
            "updates",
            &names.outbox,
            reported,
        )
        .await?;
        let lines = commit.history.iter().map(|line| {
            let mut body = doc! { "at": DateTime::from_millis(line.at.millis()), "key": &line.key };
            body.extend(line.body.clone());
            doc! { "q": { "_id": line.id }, "u": body, "upsert": true }
        });
        bulk(
            database,
            session,
            "update",
            "updates",
            &names.history,
            lines,
        )
        .await?;
        let done = commit.requests.iter();
        let done = done.map(|id| doc! { "q": { "_id": id }, "limit": 1 });
        bulk(
            database,
            session,
            "delete",
            "deletes",
            &names.requests,
            done,
        )
        .await
    }
}

/// Runs many updates or deletes of one collection within the transaction.
async fn bulk(
    database: &Database,
    session: &mut ClientSession,
    verb: &str,
    list: &str,
    collection: &str,
    operations: impl Iterator<Item = Document>,
) -> Result<(), CommitError> {
    let operations: Vec<Bson> = operations.map(Bson::Document).collect();
    for some in operations.chunks(IN_ONE_COMMAND) {
        let command = doc! { verb: collection, list: some, "ordered": true };
        let answer = database
            .run_command(command)
            .session(&mut *session)
            .await
            .map_err(refusal)?;
        // A command's answer is "ok" also where documents of it were refused.
        if let Ok(errors) = answer.get_array("writeErrors")
            && !errors.is_empty()
        {
            return Err(CommitError::Refused(format!(
                "{collection}: {:?}",
                errors[0]
            )));
        }
    }
    Ok(())
}

/// What a failure of the server means for a commit.
fn refusal(error: Error) -> CommitError {
    let text = words(&error);
    let passing = error.contains_label(TRANSIENT_TRANSACTION_ERROR)
        || error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
        || !matches!(
            error.kind.as_ref(),
            ErrorKind::Command(_)
                | ErrorKind::Write(_)
                | ErrorKind::BsonSerialization(_)
                | ErrorKind::InvalidArgument { .. }
        );
    if passing {
        CommitError::Passing(text)
    } else {
        CommitError::Refused(text)
    }
}
