//! Whether the database takes acknowledged writes right now.

use std::time::Duration;

use mongodb::ClientSession;
use mongodb::action::Action as _;
use mongodb::bson::doc;
use mongodb::options::WriteConcern;

use super::{Series, Store};

/// A write that changes nothing but is acknowledged like one: its answer means that all earlier
/// writes on this primary are confirmed too, as `like` asks for (a majority without it), within
/// `limit` or that series' own. Needs no right beside those on the dead letters.
///
/// With the session of an earlier write it is a fence as well: the server runs a session's writes
/// one after the other and refuses one whose number is lower than the last it has seen. An insert
/// that still waits in some buffer, of a frozen server perhaps, is then done or will never be. (No
/// fence on a standalone, which does not number writes, nor behind a router, where the series may
/// live on another shard than the dead letters.)
///
/// # Errors
/// The driver's; also where the confirmation does not come in time.
pub async fn probe(
    store: &Store,
    like: Option<&Series>,
    limit: Option<Duration>,
    session: Option<&mut ClientSession>,
) -> mongodb::error::Result<()> {
    let mut write_concern = like.map_or_else(WriteConcern::majority, Series::write_concern);
    if limit.is_some() {
        write_concern.w_timeout = limit;
    }
    store
        .dead_letters()
        .update_one(doc! { "_id": "probe" }, doc! { "$set": { "at": null } })
        .write_concern(write_concern)
        .optional(session, |update, session| update.session(session))
        .await
        .map(drop)
}
