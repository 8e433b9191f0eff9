//! Writes what the alerts keep: all of a commit in one transaction, under the fence of its leader.
//!
//! The checkpoint carries the term of the leader it belongs to: a transaction of an older term does
//! not find it and changes nothing. Everything is put under a known id, so a transaction whose
//! outcome is unknown can be repeated as it is.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::{
    Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT,
};
use mongodb::options::{Acknowledgment, ReadConcern, TransactionOptions, WriteConcern};
use mongodb::{ClientSession, Collection, Database};
use tokio::sync::Mutex;

use super::alerts::{CHECKPOINT, Commit};
use super::feed_stream::Place;
use super::{Store, words};

/// Documents in one command.
const IN_ONE_COMMAND: usize = 1_000;

/// How long the server may take to confirm a transaction.
const LIMIT: Duration = Duration::from_secs(20);

/// How long a new leader's stamp waits for a transaction of the leader before.
const STAMP: Duration = Duration::from_secs(1);

/// The right to write, for one term.
#[derive(Clone)]
pub struct Fence {
    term: i64,
    /// All transactions of the term run in it, so that the next leader can end what is left of them.
    session: Arc<Mutex<ClientSession>>,
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

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(mongodb::error::WriteFailure::WriteError(write)) => Some(write.code),
        _ => None,
    }
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
