//! Who does what only one may do: `{_id: role, holder, term, expiresAt}`, by the server's clock.
//!
//! The term grows with every change of holder and is the fence: who writes under an old term finds
//! that a newer one stands there, and nothing of what it wrote happens.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::ReturnDocument;

use super::Store;

/// A lease that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// For what.
    pub role: String,
    /// By whom.
    pub holder: String,
    /// The fencing token.
    pub term: i64,
}

impl Store {
    /// Takes the lease if it is free, has expired, or is the holder's own from an earlier life;
    /// `None`: somebody else holds it.
    ///
    /// # Errors
    /// The driver's.
    pub async fn take_lease(
        &self,
        role: &str,
        holder: &str,
        ttl: Duration,
    ) -> mongodb::error::Result<Option<Lease>> {
        // Of two processes with one name the later one wins; the other finds itself fenced off.
        let free = doc! { "$or": [
            { "$not": ["$holder"] },
            { "$eq": ["$holder", holder] },
            { "$lte": ["$expiresAt", "$$NOW"] },
        ] };
        let pick = |mine: mongodb::bson::Bson, theirs: &str| {
            doc! { "$cond": [free.clone(), mine, theirs] }
        };
        let term = doc! { "$add": [{ "$ifNull": ["$term", 0_i64] }, 1_i64] };
        let until = doc! { "$add": ["$$NOW", millis(ttl)] };
        let update = vec![doc! { "$set": {
            "term": pick(term.into(), "$term"),
            "holder": pick(holder.into(), "$holder"),
            "expiresAt": pick(until.into(), "$expiresAt"),
        } }];
        let before = self
            .kept::<Document>(&self.names().leases)
            .find_one_and_update(doc! { "_id": role }, update)
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        Ok(before
            .filter(|lease| lease.get_str("holder") == Ok(holder))
            .map(|lease| Lease {
                role: role.to_owned(),
                holder: holder.to_owned(),
                term: lease.get_i64("term").unwrap_or_default(),
            }))
    }

    /// Holds it for longer; `false`: it is somebody else's by now.
    ///
    /// # Errors
    /// The driver's.
    pub async fn renew_lease(&self, lease: &Lease, ttl: Duration) -> mongodb::error::Result<bool> {
        let until = doc! { "$add": ["$$NOW", millis(ttl)] };
        let renewed = self
            .kept::<Document>(&self.names().leases)
            .update_one(mine(lease), vec![doc! { "$set": { "expiresAt": until } }])
            .await?;
        Ok(renewed.matched_count == 1)
    }

    /// Gives it up, so that another need not wait.
    ///
    /// # Errors
    /// The driver's.
    pub async fn give_up_lease(&self, lease: &Lease) -> mongodb::error::Result<()> {
        let update = vec![doc! { "$set": { "expiresAt": "$$NOW" } }];
        let leases = self.kept::<Document>(&self.names().leases);
        leases.update_one(mine(lease), update).await.map(drop)
    }
}

fn mine(lease: &Lease) -> Document {
    doc! { "_id": &lease.role, "holder": &lease.holder, "term": lease.term }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
