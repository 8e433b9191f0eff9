//! Whether the database takes acknowledged writes right now.

use std::time::Duration;

use mongodb::bson::doc;
use mongodb::options::WriteConcern;

use super::Store;

/// A write that changes nothing but is acknowledged by a majority: its answer means that all
/// earlier writes on this primary are on a majority too. Needs no right beside those on the dead
/// letters.
///
/// # Errors
/// The driver's; also where the majority does not answer within `limit`.
pub async fn probe(store: &Store, limit: Duration) -> mongodb::error::Result<()> {
    let write_concern = WriteConcern::builder()
        .w(mongodb::options::Acknowledgment::Majority)
        .w_timeout(limit)
        .build();
    store
        .dead_letters()
        .update_one(doc! { "_id": "probe" }, doc! { "$set": { "at": null } })
        .write_concern(write_concern)
        .await
        .map(drop)
}
