//! What a replay does to dead letters: one at a time has a letter to itself, and marks it when all
//! of it is stored. A replay that is killed half way leaves a letter that is open again a minute
//! later; what it had stored is found by id and content, and not stored again.

use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, doc};

use super::Store;
use super::dead_letters::REPLAYED_AT;

/// Since when a replay has the letter.
const REPLAYING_AT: &str = "replayingAt";

/// How long a replay has a letter to itself: longer than an insert may take, so that two of them
/// never store the same letter at the same time.
const CLAIM: Duration = Duration::from_secs(60);

/// Whether a replay may have a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It may.
    Taken,
    /// It was replayed meanwhile, or is gone.
    Done,
    /// Another replay has it, or had it when it was killed less than a minute ago.
    Busy,
}

impl Store {
    /// Takes a letter for a replay; one that was replayed only if `again`.
    ///
    /// # Errors
    /// The driver's.
    pub async fn claim_dead_letter(
        &self,
        id: ObjectId,
        again: bool,
    ) -> mongodb::error::Result<Claim> {
        let letters = self.dead_letters();
        let mut open = doc! { "_id": id };
        if !again {
            open.insert(REPLAYED_AT, doc! { "$exists": false });
        }
        let mut free = open.clone();
        // By the server's clock, which all replays share.
        let lapsed = doc! { "$subtract": ["$$NOW", millis(CLAIM)] };
        let since = doc! { "$ifNull": [format!("${REPLAYING_AT}"), DateTime::MIN] };
        free.insert("$expr", doc! { "$lt": [since, lapsed] });
        let take = vec![doc! { "$set": { REPLAYING_AT: "$$NOW" } }];
        if letters.update_one(free, take).await?.matched_count == 1 {
            return Ok(Claim::Taken);
        }
        Ok(match letters.find_one(open).await? {
            Some(_) => Claim::Busy,
            None => Claim::Done,
        })
    }

    /// Marks a letter whose readings are all stored now; it is kept until its time to live is over.
    ///
    /// # Errors
    /// The driver's.
    pub async fn mark_replayed(&self, id: ObjectId) -> mongodb::error::Result<()> {
        let change = vec![
            doc! { "$set": { REPLAYED_AT: "$$NOW" } },
            doc! { "$unset": [REPLAYING_AT] },
        ];
        let letters = self.dead_letters();
        letters
            .update_one(doc! { "_id": id }, change)
            .await
            .map(drop)
    }

    /// Gives a letter back that was claimed, and could not be judged.
    ///
    /// # Errors
    /// The driver's.
    pub async fn release_dead_letter(&self, id: ObjectId) -> mongodb::error::Result<()> {
        let change = doc! { "$unset": { REPLAYING_AT: "" } };
        let letters = self.dead_letters();
        letters
            .update_one(doc! { "_id": id }, change)
            .await
            .map(drop)
    }

    /// Notes one more replay that did not succeed, and why, beside the first reason.
    ///
    /// # Errors
    /// The driver's.
    pub async fn note_failed_replay(
        &self,
        id: ObjectId,
        reason: &str,
        detail: &str,
    ) -> mongodb::error::Result<()> {
        let change = doc! {
            "$inc": { "attempts": 1 },
            "$unset": { REPLAYING_AT: "" },
            "$set": { "lastReplay": { "at": DateTime::now(), "reason": reason, "detail": detail } },
        };
        let letters = self.dead_letters();
        letters
            .update_one(doc! { "_id": id }, change)
            .await
            .map(drop)
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
