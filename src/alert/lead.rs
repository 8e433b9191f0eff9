//! Of many gateways one evaluates: takes the lease, leads until it is lost, begins again.
//!
//! The lease runs by the server's clock and is renewed three times in its life. Who cannot renew it
//! in time steps down before it has expired; who does not notice finds the fence of its successor
//! at the next commit.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::term::{Ended, Setting, Term};
use crate::runtime::{Backoff, Condition};
use crate::store::{Lease, Store, words};

/// What the lease is for.
const ROLE: &str = "alert";

/// Waits for its turn to lead, again and again, until asked to stop.
pub(super) async fn lead(
    setting: Arc<Setting>,
    condition: Condition,
    stopping: CancellationToken,
) -> Result<(), Infallible> {
    let ttl = setting.config.alerts.lease.0;
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
    while !stopping.is_cancelled() {
        let taken = tokio::select! {
            // Who took it without knowing has it taken away by time.
            () = stopping.cancelled() => break,
            taken = take(&setting, ttl) => taken,
        };
        match taken {
            Ok(Some(lease)) => {
                let ended = under(&setting, &lease, ttl, &condition, &stopping).await;
                setting.metrics.rest();
                match ended {
                    Ended::Stopped => {}
                    Ended::Lost => {
                        backoff.reset();
                        tracing::warn!(
                            term = lease.term,
                            "The lease is lost; another gateway may lead"
                        );
                    }
                    Ended::Failed(reason) => {
                        if condition.raise(reason.clone()) {
                            tracing::error!(term = lease.term, error = %reason, "Evaluation stopped; trying again");
                        }
                        pause(backoff.next_pause(), &stopping).await;
                    }
                }
                give_up(&setting.store, lease).await;
            }
            // Another leads: that is as good.
            Ok(None) => {
                condition.clear();
                backoff.reset();
                pause(ttl / 3, &stopping).await;
            }
            Err(reason) => {
                if condition.raise(reason.clone()) {
                    tracing::warn!(error = %reason, "Cannot ask who evaluates the rules; trying again");
                }
                pause(backoff.next_pause(), &stopping).await;
            }
        }
    }
    Ok(())
}

/// Leads until asked to stop, until the lease is lost, or until something fails.
async fn under(
    setting: &Arc<Setting>,
    lease: &Lease,
    ttl: Duration,
    condition: &Condition,
    stopping: &CancellationToken,
) -> Ended {
    tracing::info!(term = lease.term, "This gateway evaluates the rules");
    setting.metrics.term.set(lease.term);
    let lost = CancellationToken::new();
    let renewing = tokio::spawn(renew(
        setting.store.clone(),
        lease.clone(),
        ttl,
        lost.clone(),
    ));
    let begun = tokio::select! {
        // Nothing has begun that would have to be ended.
        () = stopping.cancelled() => Err(Ended::Stopped),
        begun = Term::begin(setting, lease, condition) => begun,
    };
    let ended = match begun {
        Ok(term) => {
            setting.metrics.leader.set(1);
            term.run(stopping, &lost).await
        }
        Err(ended) => ended,
    };
    renewing.abort();
    ended
}

/// Renews the lease until it cannot; then says that it is lost, before it has expired.
async fn renew(store: Store, lease: Lease, ttl: Duration, lost: CancellationToken) {
    let mut good = Instant::now();
    loop {
        sleep(ttl / 3).await;
        let asked = Instant::now();
        let (kept, held) = (store.clone(), lease.clone());
        // In a task of its own: a driver call is never dropped half way.
        let call = tokio::spawn(async move { kept.renew_lease(&held, ttl).await });
        // A third of its life is left when this is over.
        let patience = (ttl * 2 / 3).saturating_sub(good.elapsed());
        match timeout(patience.max(ttl / 10), call).await {
            Ok(Ok(Ok(true))) => good = asked,
            Ok(Ok(Ok(false))) => break,
            _ if good.elapsed() >= ttl * 2 / 3 => break,
            _ => {}
        }
    }
    lost.cancel();
}

async fn take(setting: &Setting, ttl: Duration) -> Result<Option<Lease>, String> {
    let (store, holder) = (setting.store.clone(), setting.gateway.clone());
    let call = tokio::spawn(async move { store.take_lease(ROLE, &holder, ttl).await });
    match call.await {
        Ok(Ok(lease)) => Ok(lease),
        Ok(Err(error)) => Err(words(&error)),
        Err(error) => Err(error.to_string()),
    }
}

async fn give_up(store: &Store, lease: Lease) {
    let store = store.clone();
    let call = tokio::spawn(async move { store.give_up_lease(&lease).await });
    // It runs out by itself if this does not get through.
    let _ = timeout(Duration::from_millis(500), call).await;
}

async fn pause(long: Duration, stopping: &CancellationToken) {
    tokio::select! {
        // Both branches only wait.
        () = stopping.cancelled() => {}
        () = sleep(long) => {}
    }
}
