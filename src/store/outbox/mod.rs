//! Requests that are owed to receivers, in the collection `alert_outbox`:
//! `{_id, receiver, key, sequence, kind, severity, created, queuedAt, notice, body, minimal, state,
//! attempts, ambiguous, useMinimal, nextAt, lease: {owner, until}, last: {at, status, why}, endedAt,
//! reported}`.
//!
//! Rows are inserted in the transaction that decided them. From then on only one process at a time
//! may send a row: whoever holds its lease, which runs by the server's clock. A lease that ran out
//! without being given back means that somebody may have sent it: the row is marked ambiguous.

mod row;

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::error::Result;
use mongodb::options::{CollectionOptions, IndexOptions, ReturnDocument};
use mongodb::{ClientSession, Collection};
use serde::de::DeserializeOwned;

use super::Store;
use super::collections::write_concern;
use super::provision::{ProvisionError, Provisioned, index, index_with};
use crate::config::streams::WriteConcernConfig;
pub use row::{Last, Lease, OutboxRow, RowState};

/// What came of asking for a lease.
#[derive(Debug)]
pub enum Leased<N> {
    /// Ours; the row as it is now.
    Taken(Box<OutboxRow<N>>),
    /// Somebody else's for now.
    Held,
    /// The row has ended.
    Ended(Box<OutboxRow<N>>),
    /// There is no such row.
    Gone,
}

/// How far a row has come, to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Requests made.
    pub attempts: u32,
    /// Whether one of them may have been accepted.
    pub ambiguous: bool,
    /// Whether the minimal body is next.
    pub use_minimal: bool,
    /// How the last one went; `None`: there was none.
    pub last: Option<Last>,
}

/// Which rows.
#[derive(Debug, Clone, Default)]
pub struct OutboxFilter {
    /// Only of this state.
    pub state: Option<RowState>,
    /// Only to this receiver.
    pub receiver: Option<String>,
    /// Only of this key.
    pub key: Option<String>,
}

/// The collection, always written with majority and journal.
#[derive(Debug, Clone)]
pub struct Outbox {
    rows: Collection<Document>,
}

impl Outbox {
    /// The outbox in `store` under the name `collection`.
    pub fn new(store: &Store, collection: &str) -> Self {
        let options = CollectionOptions::builder()
            .write_concern(write_concern(&WriteConcernConfig::default()))
            .build();
        Self {
            rows: store
                .database()
                .collection_with_options(collection, options),
        }
    }

    /// Inserts rows as part of the caller's transaction.
    ///
    /// # Errors
    /// The driver's.
    pub async fn insert(&self, rows: &[Document], session: &mut ClientSession) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.rows.insert_many(rows).session(session).await.map(drop)
    }

    /// Inserts one row outside any transaction.
    ///
    /// # Errors
    /// The driver's.
    pub async fn insert_alone(&self, row: &Document) -> Result<()> {
        self.rows.insert_one(row).await.map(drop)
    }

    /// Takes the right to send row `id` for so long, if nobody else has it.
    ///
    /// # Errors
    /// The driver's.
    pub async fn lease<N: DeserializeOwned>(
        &self,
        id: &str,
        owner: &str,
        long: Duration,
    ) -> Result<Leased<N>> {
        let filter = doc! { "_id": id, "state": RowState::Queued.name(), "$expr": free_for(owner) };
        let left_behind = doc! { "$and": [
            { "$ne": [{ "$type": "$lease" }, "missing"] },
            { "$ne": ["$lease.owner", { "$literal": owner }] },
        ] };
        let update = vec![doc! { "$set": {
            "ambiguous": { "$or": ["$ambiguous", left_behind] },
            "lease": { "owner": { "$literal": owner }, "until": from_now(long) },
        } }];
        let taken = self
            .rows
            .find_one_and_update(filter, update)
            .return_document(ReturnDocument::After)
            .await?;
        if let Some(row) = taken.as_ref().and_then(OutboxRow::decode) {
            return Ok(Leased::Taken(Box::new(row)));
        }
        let row = self.show(id).await?;
        Ok(match row {
            Some(row) if row.state == RowState::Queued => Leased::Held,
            Some(row) => Leased::Ended(Box::new(row)),
            None => Leased::Gone,
        })
    }

    /// Ends row `id`, whoever holds its lease: what a receiver has said is so. `false`: it has
    /// ended before.
    ///
    /// # Errors
    /// The driver's.
    pub async fn finish(&self, id: &str, state: RowState, progress: &Progress) -> Result<bool> {
        let filter = doc! { "_id": id, "state": RowState::Queued.name() };
        let mut set = progressed(progress);
        set.insert("state", state.name());
        set.insert("endedAt", "$$NOW");
        let update = vec![doc! { "$set": set }, doc! { "$unset": ["lease", "nextAt"] }];
        let done = self.rows.update_one(filter, update).await?;
        Ok(done.matched_count == 1)
    }

    /// Puts row `id` off for so long and gives its lease back.
    ///
    /// # Errors
    /// The driver's.
    pub async fn postpone(
        &self,
        id: &str,
        owner: &str,
        progress: &Progress,
        pause: Duration,
    ) -> Result<()> {
        let filter = doc! { "_id": id, "state": RowState::Queued.name(), "lease.owner": owner };
        let mut set = progressed(progress);
        set.insert("nextAt", from_now(pause));
        let update = vec![doc! { "$set": set }, doc! { "$unset": "lease" }];
        self.rows.update_one(filter, update).await.map(drop)
    }

    /// Takes row `id` back unless somebody else holds it. `None`: it has ended before, or is held.
    ///
    /// # Errors
    /// The driver's.
    pub async fn recall<N: DeserializeOwned>(
        &self,
        id: &str,
        owner: &str,
    ) -> Result<Option<OutboxRow<N>>> {
        let filter = doc! { "_id": id, "state": RowState::Queued.name(), "$expr": free_for(owner) };
        let update = vec![
            doc! { "$set": { "state": RowState::Recalled.name(), "endedAt": "$$NOW" } },
            doc! { "$unset": ["lease", "nextAt"] },
        ];
        let row = self
            .rows
            .find_one_and_update(filter, update)
            .return_document(ReturnDocument::After)
            .await?;
        Ok(row.as_ref().and_then(OutboxRow::decode))
    }

    /// Gives the leases of these rows back, none of which was sent since.
    ///
    /// # Errors
    /// The driver's.
    pub async fn release(&self, ids: &[String], owner: &str) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let filter = doc! { "_id": { "$in": ids }, "lease.owner": owner };
        let update = doc! { "$unset": { "lease": "" } };
        self.rows.update_many(filter, update).await.map(drop)
    }

    /// All rows to be sent, oldest first.
    ///
    /// # Errors
    /// The driver's.
    pub async fn queued<N: DeserializeOwned>(&self) -> Result<Vec<OutboxRow<N>>> {
        self.find(doc! { "state": RowState::Queued.name() }, 1, 0)
            .await
    }

    /// The ids of all rows to be sent, oldest first.
    ///
    /// # Errors
    /// The driver's.
    pub async fn queued_ids(&self) -> Result<Vec<String>> {
        let cursor = self
            .rows
            .find(doc! { "state": RowState::Queued.name() })
            .projection(doc! { "_id": 1 })
            .sort(doc! { "created": 1 })
            .await?;
        cursor
            .try_filter_map(|row| async move { Ok(row.get_str("_id").ok().map(str::to_owned)) })
            .try_collect()
            .await
    }

    /// Those of these rows that are to be sent.
    ///
    /// # Errors
    /// The driver's.
    pub async fn queued_among<N: DeserializeOwned>(
        &self,
        ids: &[String],
    ) -> Result<Vec<OutboxRow<N>>> {
        let filter = doc! { "_id": { "$in": ids }, "state": RowState::Queued.name() };
        self.find(filter, 1, 0).await
    }

    /// Rows that have ended without anybody having noted it: see [`Outbox::reported`].
    ///
    /// # Errors
    /// The driver's.
    pub async fn unreported<N: DeserializeOwned>(&self) -> Result<Vec<OutboxRow<N>>> {
        let filter = doc! { "endedAt": { "$exists": true }, "reported": { "$ne": true } };
        self.find(filter, 1, 0).await
    }

    /// Notes, as part of the caller's transaction, that the end of row `id` is known to whoever
    /// decides what is told next.
    ///
    /// # Errors
    /// The driver's.
    pub async fn reported(&self, id: &str, session: &mut ClientSession) -> Result<()> {
        self.rows
            .update_one(doc! { "_id": id }, doc! { "$set": { "reported": true } })
            .session(session)
            .await
            .map(drop)
    }

    /// Rows that match, newest first, at most `limit` (0: all).
    ///
    /// # Errors
    /// The driver's.
    pub async fn list<N: DeserializeOwned>(
        &self,
        filter: &OutboxFilter,
        limit: i64,
    ) -> Result<Vec<OutboxRow<N>>> {
        self.find(filter.query(), -1, limit).await
    }

    /// How many match.
    ///
    /// # Errors
    /// The driver's.
    pub async fn count(&self, filter: &OutboxFilter) -> Result<u64> {
        self.rows.count_documents(filter.query()).await
    }

    /// One row.
    ///
    /// # Errors
    /// The driver's.
    pub async fn show<N: DeserializeOwned>(&self, id: &str) -> Result<Option<OutboxRow<N>>> {
        let row = self.rows.find_one(doc! { "_id": id }).await?;
        Ok(row.as_ref().and_then(OutboxRow::decode))
    }

    /// Puts a dead row in the queue again, under its id and with its body. `false`: it is not dead.
    ///
    /// # Errors
    /// The driver's.
    pub async fn requeue(&self, id: &str) -> Result<bool> {
        let filter = doc! { "_id": id, "state": RowState::Dead.name() };
        let update = vec![
            doc! { "$set": { "state": RowState::Queued.name(), "queuedAt": "$$NOW", "attempts": 0_i64 } },
            doc! { "$unset": ["endedAt", "nextAt", "lease", "reported", "useMinimal"] },
        ];
        let done = self.rows.update_one(filter, update).await?;
        Ok(done.matched_count == 1)
    }

    async fn find<N: DeserializeOwned>(
        &self,
        filter: Document,
        order: i32,
        limit: i64,
    ) -> Result<Vec<OutboxRow<N>>> {
        let cursor = self
            .rows
            .find(filter)
            .sort(doc! { "created": order, "sequence": order })
            .limit(limit)
            .await?;
        cursor
            .try_filter_map(|row| async move { Ok(OutboxRow::decode(&row)) })
            .try_collect()
            .await
    }
}

impl OutboxFilter {
    fn query(&self) -> Document {
        let mut query = Document::new();
        if let Some(state) = self.state {
            query.insert("state", state.name());
        }
        if let Some(receiver) = &self.receiver {
            query.insert("receiver", receiver);
        }
        if let Some(key) = &self.key {
            query.insert("key", key);
        }
        query
    }
}

/// Whether `owner` may take the lease: it is free, run out, or its own.
fn free_for(owner: &str) -> Document {
    doc! { "$or": [
        { "$eq": [{ "$type": "$lease" }, "missing"] },
        { "$lte": ["$lease.until", "$$NOW"] },
        { "$eq": ["$lease.owner", { "$literal": owner }] },
    ] }
}

fn from_now(long: Duration) -> Document {
    let millis = i64::try_from(long.as_millis()).unwrap_or(i64::MAX);
    doc! { "$add": ["$$NOW", millis] }
}

fn progressed(progress: &Progress) -> Document {
    let mut set = doc! {
        "attempts": i64::from(progress.attempts),
        "ambiguous": progress.ambiguous,
        "useMinimal": progress.use_minimal,
    };
    if let Some(Last { status, why }) = &progress.last {
        let mut last = doc! { "at": "$$NOW", "why": { "$literal": why } };
        if let Some(status) = status {
            last.insert("status", i32::from(*status));
        }
        set.insert("last", last);
    }
    set
}

/// Makes the outbox, and its indexes: one to find what is queued or dead, one that lets rows that
/// have ended expire. Rows that have not have no `endedAt` and stay however long it takes.
///
/// # Errors
/// See [`ProvisionError`].
pub async fn outbox_indexes(
    store: &Store,
    name: &str,
    keep_ended: Duration,
    findings: &mut Provisioned,
) -> std::result::Result<(), ProvisionError> {
    let keys = doc! { "state": 1, "created": 1 };
    index(store, name, keys, None, findings).await?;
    let ended = IndexOptions::builder()
        .expire_after(keep_ended)
        .partial_filter_expression(doc! { "endedAt": { "$exists": true } })
        .build();
    index_with(store, name, doc! { "endedAt": 1 }, ended, findings).await
}
