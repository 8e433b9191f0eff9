//! What the deliverer reads from the outbox and writes to it. Writes are repeated until the database
//! has them: what a receiver has accepted must not be forgotten.

use std::collections::HashSet;
use std::time::Duration;

use super::super::attempt::Attempted;
use super::super::metrics::DeliveryMetrics;
use super::super::queue::Step;
use super::super::row::Row;
use crate::alert::{Delivery, Notice};
use crate::runtime::Backoff;
use crate::store::{DriverResult, Outbox, words};

/// Rows loaded at once.
const PAGE: usize = 500;

/// What a job of the deliverer has to say.
pub enum Done {
    /// An attempt.
    Attempted(Box<Row>, Attempted),
    /// A row's progress was written; with its end, if that was it.
    Written {
        /// The row.
        id: String,
        /// Its end.
        delivery: Option<Delivery>,
    },
    /// A row was to be taken back.
    Recalled {
        /// The row.
        id: String,
        /// As it is now, if it could be.
        row: Option<Box<Row>>,
    },
    /// A look for rows.
    Looked {
        /// Those to be sent.
        queued: Vec<Row>,
        /// Those whose end nobody has noted.
        ended: Vec<Row>,
        /// Whether the database did not answer.
        failed: bool,
    },
}

/// The outbox, as the deliverer uses it.
#[derive(Clone)]
pub struct Records {
    pub outbox: Outbox,
    pub owner: String,
    pub metrics: DeliveryMetrics,
}

impl Records {
    /// Writes a row's progress down.
    pub async fn write(self, id: String, step: Step) -> Done {
        let delivery = match &step {
            Step::Finish { delivery, .. } => Some(delivery.clone()),
            Step::Retry { .. } => None,
        };
        let (outbox, owner, row) = (self.outbox.clone(), self.owner.clone(), id.clone());
        self.until_written(move || {
            let (outbox, owner, row, step) =
                (outbox.clone(), owner.clone(), row.clone(), step.clone());
            async move {
                match step {
                    Step::Finish {
                        state, progress, ..
                    } => outbox.finish(&row, state, &progress).await.map(drop),
                    Step::Retry { pause, progress } => {
                        outbox.postpone(&row, &owner, &progress, pause).await
                    }
                }
            }
        })
        .await;
        Done::Written { id, delivery }
    }

    /// Takes a row back.
    pub async fn recall(self, id: String) -> Done {
        let (outbox, owner, row) = (self.outbox.clone(), self.owner.clone(), id.clone());
        let row = self
            .until_written(move || {
                let (outbox, owner, row) = (outbox.clone(), owner.clone(), row.clone());
                async move { outbox.recall::<Notice>(&row, &owner).await }
            })
            .await;
        Done::Recalled {
            id,
            row: row.map(Box::new),
        }
    }

    /// Looks for rows to be sent, but for those `known`, and, if asked for, for ends that nobody has noted.
    pub async fn look(self, known: HashSet<String>, ends: bool) -> Done {
        let outbox = self.outbox.clone();
        let call = tokio::spawn(async move {
            let mut queued = Vec::new();
            let mut ids = outbox.queued_ids().await?;
            ids.retain(|id| !known.contains(id));
            for page in ids.chunks(PAGE) {
                queued.extend(outbox.queued_among::<Notice>(page).await?);
            }
            let ended = if ends {
                outbox.unreported().await?
            } else {
                Vec::new()
            };
            DriverResult::Ok((queued, ended))
        });
        let looked = call
            .await
            .expect("a driver call does not panic; if it does, so does this task");
        match looked {
            Ok((queued, ended)) => Done::Looked {
                queued,
                ended,
                failed: false,
            },
            Err(error) => {
                tracing::debug!(
                    why = words(&error),
                    "The outbox cannot be read; trying again"
                );
                Done::Looked {
                    queued: Vec::new(),
                    ended: Vec::new(),
                    failed: true,
                }
            }
        }
    }

    /// Gives leases back, once: they run out by themselves.
    pub async fn release(self, ids: Vec<String>) {
        let (outbox, owner) = (self.outbox, self.owner);
        let call = tokio::spawn(async move { outbox.release(&ids, &owner).await });
        // Waited for so long and no longer; the call goes on in its own task.
        let answered = tokio::time::timeout(Duration::from_secs(3), call).await;
        if let Ok(Ok(Err(error))) = answered {
            tracing::debug!(why = words(&error), "Leases not given back; they run out");
        }
    }

    /// Repeats `call` until it succeeds, each time in a task of its own.
    async fn until_written<T, F>(&self, call: impl Fn() -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = DriverResult<T>> + Send + 'static,
    {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        loop {
            let made = tokio::spawn(call())
                .await
                .expect("a driver call does not panic; if it does, so does this task");
            match made {
                Ok(made) => return made,
                Err(error) => {
                    self.metrics.write_retried();
                    tracing::debug!(
                        why = words(&error),
                        "The outbox does not take it; trying again"
                    );
                    tokio::time::sleep(backoff.next_pause()).await;
                }
            }
        }
    }
}
