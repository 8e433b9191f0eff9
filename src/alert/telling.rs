//! The delivery of one term: rows go out after they were committed, their ends come back.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::notify::plan::Plan;
use super::notify::{Deliverer, DeliveryHandle, Row, render, row};
use super::term::Setting;
use super::{Delivery, Notice, Settled};
use crate::config::ReceiverConfig;
use crate::model::Timestamp;
use crate::runtime::now;
use crate::store::Outbox;

/// How long the end of a term waits for requests under way.
const LAST_WORDS: Duration = Duration::from_secs(25);

/// Who tells receivers, and what is known of them.
pub(super) struct Telling {
    handle: DeliveryHandle,
    settled: UnboundedReceiver<Settled>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Those of the configuration, and those that were in it before: they may be owed an end.
    receivers: BTreeMap<String, ReceiverConfig>,
    environment: String,
}

impl Telling {
    pub fn begin(setting: &Setting) -> Self {
        let outbox = Outbox::new(&setting.store, &setting.store.names().outbox);
        let receivers = setting.controls.receivers();
        let named = receivers.values().cloned().collect();
        let (deliverer, handle, settled) = Deliverer::new(outbox, named, setting.delivery.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let Ok(()) = deliverer.run(stopped).await;
        });
        Self {
            handle,
            settled,
            stop,
            task,
            receivers,
            environment: setting.controls.told().0.environment.clone(),
        }
    }

    /// Others are told from now on; those who were before are known still.
    pub fn configure(&mut self, environment: &str, receivers: BTreeMap<String, ReceiverConfig>) {
        environment.clone_into(&mut self.environment);
        self.handle.configure(receivers.values().cloned().collect());
        self.receivers = receivers;
    }

    /// The rows for what a plan wants told, and the ends of what cannot be told to anybody.
    pub fn rows(&self, notices: &[Notice], at: Timestamp) -> (Vec<Row>, Vec<Settled>) {
        let mut rows = Vec::new();
        let mut lost = Vec::new();
        for notice in notices {
            let Some(receiver) = self.receivers.get(&notice.receiver) else {
                lost.push(Settled {
                    notice: notice.clone(),
                    outcome: Delivery::Dead {
                        reason: "the receiver is no longer configured".to_owned(),
                        ambiguous: false,
                    },
                    at,
                });
                continue;
            };
            let rendered = render(receiver, notice, &self.environment);
            for flaw in &rendered.flaws {
                tracing::warn!(receiver = notice.receiver, %flaw, "A template failed; the built-in text is sent");
            }
            rows.push(row(notice, rendered, Some(self.handle.owner()), now()));
        }
        (rows, lost)
    }

    /// Sends what was committed, and takes back what need not be told any more.
    pub fn send(&self, rows: Vec<Row>, plan: &Plan) {
        if !rows.is_empty() {
            self.handle.deliver(rows);
        }
        for id in &plan.recall {
            self.handle.recall(id.clone());
        }
    }

    /// The next row's end.
    pub async fn settled(&mut self) -> Option<Settled> {
        self.settled.recv().await
    }

    /// Receivers but for one.
    pub fn others(&self, but: &str) -> Vec<String> {
        self.receivers
            .keys()
            .filter(|name| *name != but)
            .cloned()
            .collect()
    }

    /// Age of the oldest row that is still owed.
    pub fn oldest(&self) -> Option<Duration> {
        self.handle.oldest()
    }

    /// Lets requests under way end and gives the rest back.
    pub async fn end(mut self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(LAST_WORDS, &mut self.task).await;
    }
}
