//! The two loops of the registry: one reads what operators change, one writes who was heard from.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Devices;
use crate::runtime::Backoff;
use crate::store::{DriverResult, Seen, Store, words};

/// A new device waits this long for others, so that a fleet that comes up is entered in few writes.
const GATHER: Duration = Duration::from_millis(500);

/// How long the last write may take.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// Follows the collection for ever; whatever ends a stream, the next one begins with a look at everything.
pub(super) async fn follow(devices: Devices, store: Store) -> Result<(), Infallible> {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    let mut told = false;
    loop {
        if let Err(error) = follow_once(&devices, &store, &mut backoff).await
            && !std::mem::replace(&mut told, true)
        {
            tracing::warn!(
                error = words(&error),
                "The registry of devices cannot be followed; trying again"
            );
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

async fn follow_once(devices: &Devices, store: &Store, backoff: &mut Backoff) -> DriverResult<()> {
    // First the stream, then the look: what changes in between is seen twice, not never.
    let changes = store.watch_devices().await;
    devices.replace(store.all_devices().await?);
    // A standalone has no change streams: there the looks have to do.
    let mut changes = changes?;
    backoff.reset();
    while let Some(change) = changes.next().await? {
        devices.apply(change);
    }
    Ok(())
}

/// Writes who was heard from: new devices soon, the others now and then, all of them at the end.
pub(super) async fn write_seen(
    devices: Devices,
    store: Store,
    stopping: CancellationToken,
) -> Result<(), Infallible> {
    let every = devices.last_seen_every();
    let mut last = Instant::now();
    loop {
        tokio::select! {
            // All branches only wait.
            () = stopping.cancelled() => {}
            () = devices.0.unknown.notified() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(every.saturating_sub(last.elapsed())) => {}
        }
        let all = stopping.is_cancelled() || last.elapsed() >= every;
        let due = {
            let known = devices.view();
            let mut sightings = devices.sightings();
            sightings.take(|device| all || known.get(device).is_none())
        };
        if all {
            last = Instant::now();
        }
        if !due.is_empty() {
            tokio::select! {
                // A database that hangs must not hold up the exit; the call itself goes on.
                () = patience(&stopping) => return Ok(()),
                () = write(&devices, &store, due) => {}
            }
        }
        if stopping.is_cancelled() {
            return Ok(());
        }
    }
}

async fn write(devices: &Devices, store: &Store, due: Vec<Seen>) {
    let (kept, register) = (store.clone(), devices.0.config.register);
    let sent = due.clone();
    // In a task of its own: a driver call is never dropped half way.
    let call = tokio::spawn(async move { kept.note_seen(&sent, register).await });
    if let Ok(Err(error)) = call.await {
        tracing::warn!(
            error = words(&error),
            "lastSeen was not written; it will be with the next"
        );
        // What was heard from since is later; nothing is lost by putting these back.
        let mut sightings = devices.sightings();
        for seen in due {
            sightings.note(seen);
        }
    }
}

/// Until a stop has had its time.
async fn patience(stopping: &CancellationToken) {
    stopping.cancelled().await;
    tokio::time::sleep(LAST_WRITE).await;
}
