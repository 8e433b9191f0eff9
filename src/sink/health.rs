//! Whether MongoDB takes writes: told by the writers' own results, place by place, and by a probe
//! when they are idle. A place is a collection; the gateway is ready when none is in trouble.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntGauge;
use tokio_util::sync::CancellationToken;

use super::call::answer;
use crate::runtime::{Condition, Readiness};
use crate::store::{Store, probe, words};
use crate::telemetry::Registry;

/// How often an idle gateway asks, and how old a writer's result may be to spare the question.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long the server may take for the answer.
const LIMIT: Duration = Duration::from_secs(5);

/// What the probe is about.
const SERVER: &str = "server";

/// The state of the database as seen from here.
pub struct Health {
    condition: Condition,
    writable: IntGauge,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_success: Option<Instant>,
    /// Reasons by place.
    trouble: BTreeMap<String, String>,
}

impl Health {
    pub(super) fn new(registry: &Registry, readiness: &Readiness) -> Self {
        Self {
            condition: readiness.condition("mongodb", "not reached yet"),
            writable: registry.gauge(
                "tidegate_mongodb_writable",
                "1 when every collection took the last write to it, and the last probe was acknowledged",
            ),
            state: Mutex::default(),
        }
    }

    /// A write to `place` was acknowledged.
    pub fn good(&self, place: &str) {
        let mut state = self.lock();
        state.last_success = Some(Instant::now());
        // The server as a whole answers if any part of it does.
        let news = [place, SERVER]
            .into_iter()
            .filter(|place| state.trouble.remove(*place).is_some())
            .count()
            > 0;
        if state.trouble.is_empty() {
            self.writable.set(1);
            self.condition.clear();
        } else if news {
            self.raise(&state);
        }
        if news {
            tracing::info!(place, "MongoDB takes writes again");
        }
    }

    /// A write to `place` failed or is overdue.
    pub fn bad(&self, place: &str, reason: &str) {
        let mut state = self.lock();
        state.last_success = None;
        let before = state.trouble.insert(place.to_owned(), reason.to_owned());
        self.writable.set(0);
        self.raise(&state);
        if before.as_deref() != Some(reason) {
            tracing::warn!(
                place,
                error = reason,
                "MongoDB does not take writes; trying again, what waits for it is kept meanwhile"
            );
        }
    }

    fn raise(&self, state: &State) {
        let reasons = state
            .trouble
            .iter()
            .map(|(place, reason)| format!("{place}: {reason}"));
        self.condition.raise(reasons.collect::<Vec<_>>().join("; "));
    }

    fn fresh(&self) -> bool {
        self.lock()
            .last_success
            .is_some_and(|at| at.elapsed() < INTERVAL)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Reasons and an instant are sound whatever a panicking holder was doing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks when the writers have nothing to tell.
    pub(super) async fn watch(
        self: Arc<Self>,
        store: Store,
        stopping: CancellationToken,
    ) -> Result<(), Infallible> {
        loop {
            if !self.fresh() {
                tokio::select! {
                    // The question is a task of its own; nobody waits for its answer.
                    () = stopping.cancelled() => return Ok(()),
                    () = self.ask(&store) => {}
                }
            }
            tokio::select! {
                // Both branches only wait.
                () = stopping.cancelled() => return Ok(()),
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    async fn ask(&self, store: &Store) {
        let asked = store.clone();
        let question = async move { probe(&asked, None, Some(LIMIT), None).await };
        match answer(self, SERVER, LIMIT, question).await {
            Ok(()) => self.good(SERVER),
            Err(error) => self.bad(SERVER, &words(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_no_place_is_in_trouble() {
        let readiness = Readiness::default();
        let health = Health::new(&Registry::default(), &readiness);
        health.bad("a", "not authorized");
        health.bad(SERVER, "unreachable");
        health.good("b");
        let reasons = readiness.reasons();
        assert_eq!(reasons["mongodb"], "a: not authorized");
        health.good(SERVER);
        assert_eq!(readiness.reasons().len(), 1);
        health.good("a");
        assert!(readiness.reasons().is_empty());
    }
}
