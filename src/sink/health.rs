//! Whether MongoDB takes writes: told by the writers' own results and, when they are idle, by a
//! probe. Feeds `/readyz` and a gauge.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use prometheus::IntGauge;
use tokio_util::sync::CancellationToken;

use crate::runtime::{Condition, Readiness};
use crate::store::{Store, probe};
use crate::telemetry::Registry;

/// How often an idle gateway asks, and how old a writer's result may be to spare the question.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The state of the database as seen from here.
pub struct Health {
    condition: Condition,
    writable: IntGauge,
    last_write: Mutex<Option<Instant>>,
}

impl Health {
    pub(super) fn new(registry: &Registry, readiness: &Readiness) -> Self {
        Self {
            condition: readiness.condition("mongodb", "not reached yet"),
            writable: registry.gauge(
                "tidegate_mongodb_writable",
                "1 when the last write or probe was acknowledged",
            ),
            last_write: Mutex::new(None),
        }
    }

    /// A write was acknowledged.
    pub fn good(&self) {
        self.set_last_write(Some(Instant::now()));
        self.writable.set(1);
        if self.condition.clear() {
            tracing::info!("MongoDB takes writes");
        }
    }

    /// A write failed or is overdue.
    pub fn bad(&self, reason: &str) {
        self.set_last_write(None);
        self.writable.set(0);
        if self.condition.raise(reason) {
            tracing::warn!(
                error = reason,
                "MongoDB does not take writes; trying again, nothing is acknowledged meanwhile"
            );
        }
    }

    fn set_last_write(&self, at: Option<Instant>) {
        *self
            .last_write
            .lock()
            .expect("nothing panics while holding an instant") = at;
    }

    fn fresh(&self) -> bool {
        let last = *self
            .last_write
            .lock()
            .expect("nothing panics while holding an instant");
        last.is_some_and(|at| at.elapsed() < INTERVAL)
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
        // In a task of its own: a driver call is never dropped half way.
        let store = store.clone();
        let call = tokio::spawn(async move { probe(&store, LIMIT, None).await });
        match tokio::time::timeout(LIMIT + Duration::from_secs(5), call).await {
            Ok(Ok(Ok(()))) => self.good(),
            Ok(Ok(Err(error))) => self.bad(&error.to_string()),
            Ok(Err(join)) => self.bad(&join.to_string()),
            Err(_) => self.bad("no answer to a write"),
        }
    }
}
