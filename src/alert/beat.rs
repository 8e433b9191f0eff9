//! Once a second, into the feed: how far this gateway is. Written by every gateway, whether or not
//! it evaluates rules. It proves that the stream delivers, keeps the place of a quiet stream fresh,
//! and lets absence of data be told from a gateway that hears nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::Timestamp;
use crate::runtime::now;
use crate::store::{Beat, Store, encode_beat, words};

/// Time between two beats.
const EVERY: Duration = Duration::from_secs(1);

/// Tells before when everything received is settled, and whether the broker is heard.
pub type Pulse = Arc<dyn Fn(Timestamp) -> (Timestamp, bool) + Send + Sync>;

/// Beats until asked to stop.
pub(super) async fn beat(
    store: Store,
    gateway: String,
    pulse: Pulse,
    stopping: CancellationToken,
) -> Result<(), Infallible> {
    let mut troubled = false;
    loop {
        let at = now();
        let (low, linked) = pulse(at);
        let document = encode_beat(&gateway, at, Beat { low, linked });
        let feed = store.feed();
        // In a task of its own: a driver call is never dropped half way.
        let call = tokio::spawn(async move { feed.insert_one(document).await });
        match call.await {
            Ok(Err(error)) if !std::mem::replace(&mut troubled, true) => {
                tracing::warn!(
                    error = words(&error),
                    "The feed takes no beat; absence is not judged meanwhile"
                );
            }
            Ok(Ok(_)) => troubled = false,
            _ => {}
        }
        tokio::select! {
            // Both branches only wait.
            () = stopping.cancelled() => return Ok(()),
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
