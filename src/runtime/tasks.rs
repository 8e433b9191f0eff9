//! No orphan tasks: every long-lived task is spawned here, named and awaited.
//!
//! A task that fails or panics stops the whole process in order with a failing exit code; the
//! platform restarts it, and un-acknowledged messages come again. Stopping has two strengths:
//! `stop` asks (stop the inflow, drain), `abandon` ends the waiting.

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The process's tasks.
#[derive(Clone, Default)]
pub struct Tasks {
    stop: CancellationToken,
    abandon: CancellationToken,
    tracker: TaskTracker,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    running: Vec<String>,
    failure: Option<String>,
    /// Who was still busy when the waiting ended; `None`: it has not been cut short.
    stragglers: Option<Vec<String>>,
}

/// How the process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Asked to stop, and everything was finished in time.
    Clean,
    /// A task failed; the process stopped in order because of it.
    Failed(String),
    /// These tasks were still busy at the deadline.
    Abandoned(Vec<String>),
}

impl Tasks {
    /// Runs `future` as a task; its error, or a panic, stops the process.
    pub fn spawn<E: Display>(
        &self,
        name: impl Into<String>,
        future: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let name = name.into();
        self.lock().running.push(name.clone());
        let tasks = self.clone();
        let task = async move {
            let outcome = future.await;
            outcome.map_err(|error| format!("{error:#}"))
        };
        let handle = self.tracker.spawn(task);
        self.tracker.spawn(async move {
            let failure = match handle.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{name}: {error}")),
                Err(join) if join.is_panic() => Some(format!("{name}: panicked")),
                Err(_) => None,
            };
            tasks.ended(&name, failure);
        });
    }

    /// Runs `future` as a service to the others: it lasts until they are done and is not waited
    /// for. Its error, or a panic, stops the process too.
    pub fn spawn_service<E: Display>(
        &self,
        name: impl Into<String>,
        future: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let (name, tasks, done) = (name.into(), self.clone(), self.abandon.clone());
        let handle = tokio::spawn(async move {
            tokio::select! {
                // Dropped when everybody else is done: a service holds nothing that needs finishing.
                () = done.cancelled() => Ok(()),
                outcome = future => outcome.map_err(|error| format!("{error:#}")),
            }
        });
        tokio::spawn(async move {
            match handle.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tasks.ended(&name, Some(format!("{name}: {error}"))),
                Err(_) => tasks.ended(&name, Some(format!("{name}: panicked"))),
            }
        });
    }

    /// Resolves when the process is asked to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Resolves when waiting is over: finish at once, whatever is left.
    pub fn abandoned(&self) -> CancellationToken {
        self.abandon.clone()
    }

    /// Asks every task to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends the waiting.
    pub fn abandon(&self) {
        {
            // Noted before anybody can heed the call: whoever ends because of it has not finished.
            let mut state = self.lock();
            let running = state.running.clone();
            state.stragglers.get_or_insert(running);
        }
        self.stop.cancel();
        self.abandon.cancel();
    }

    /// Waits for a stop, then for all tasks, at most `drain` long.
    pub async fn finish(&self, drain: Duration) -> Verdict {
        self.stop.cancelled().await;
        self.tracker.close();
        tokio::select! {
            // `wait` only observes; dropping it loses nothing.
            () = self.tracker.wait() => {}
            () = tokio::time::sleep(drain) => self.abandon(),
            () = self.abandon.cancelled() => {}
        }
        let stragglers = self.lock().stragglers.clone().unwrap_or_default();
        self.abandon.cancel();
        // One more moment for tasks that heed the second call.
        let _ = tokio::time::timeout(Duration::from_millis(500), self.tracker.wait()).await;
        let failure = self.lock().failure.clone();
        match failure {
            Some(failure) => Verdict::Failed(failure),
            None if stragglers.is_empty() => Verdict::Clean,
            None => Verdict::Abandoned(stragglers),
        }
    }

    fn ended(&self, name: &str, failure: Option<String>) {
        let mut state = self.lock();
        if let Some(position) = state.running.iter().position(|n| n == name) {
            state.running.swap_remove(position);
        }
        if let Some(failure) = failure {
            tracing::error!(error = %failure, "A task ended before its time; stopping");
            state.failure.get_or_insert(failure);
            self.stop.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Names and a text are sound whatever a panicking holder was doing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failing_task_stops_the_others_in_order() {
        let tasks = Tasks::default();
        let stopping = tasks.stopping();
        tasks.spawn("waits", async move {
            stopping.cancelled().await;
            Ok::<_, String>(())
        });
        tasks.spawn("fails", async { Err("no luck") });
        assert_eq!(
            tasks.finish(Duration::from_secs(5)).await,
            Verdict::Failed("fails: no luck".into())
        );
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_and_a_straggler_is_named() {
        let tasks = Tasks::default();
        tasks.spawn::<String>("panics", async { panic!("boom") });
        assert_eq!(
            tasks.finish(Duration::from_secs(5)).await,
            Verdict::Failed("panics: panicked".into())
        );

        // Also where it heeds the call so fast that nobody is left when it is counted.
        let tasks = Tasks::default();
        let heeded = tasks.abandoned();
        tasks.spawn("busy", async move {
            heeded.cancelled().await;
            Ok::<_, String>(())
        });
        tasks.abandon();
        while !tasks.lock().running.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            tasks.finish(Duration::from_secs(5)).await,
            Verdict::Abandoned(vec!["busy".into()])
        );

        let tasks = Tasks::default();
        tasks.spawn::<String>("stuck", std::future::pending());
        tasks.stop();
        assert_eq!(
            tasks.finish(Duration::from_millis(10)).await,
            Verdict::Abandoned(vec!["stuck".into()])
        );
    }
}
