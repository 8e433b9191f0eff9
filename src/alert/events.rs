//! What a term hears, and what it makes of it: documents of the feed, ends of rows, changes of
//! devices, words of operators. Nothing is written here; what follows gathers in the draft.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::controls::Said;
use super::load::silences;
use super::metrics::Restart;
use super::own::Own;
use super::rules::{Device, Sample};
use super::term::{Ended, Term};
use super::watch::News;
use super::{Change, Delivery, EndReason, NoticeKind, Settled, Transition};
use crate::model;
use crate::runtime::now;
use crate::store::{
    DeviceChange, FeedDocument, FeedEvent, FeedReading, FeedStreamError, NoDocument, Request, words,
};

/// Pause before an ended stream is opened anew.
const REOPEN: Duration = Duration::from_millis(100);

/// Documents, and readings in them, judged before what changed is written.
const IN_ONE_COMMIT: usize = 500;
const READINGS_AT_ONCE: usize = 5_000;

/// How long an alert of the gateway's own stands that says what has happened.
pub(super) const STANDS: Duration = Duration::from_secs(600);

impl Term<'_> {
    /// The stream brought something, and perhaps more.
    pub(super) async fn news(
        &mut self,
        first: Option<News>,
        feed: &mut mpsc::Receiver<News>,
    ) -> Result<(), Ended> {
        let mut next = first;
        let mut readings = 0;
        for _ in 0..IN_ONE_COMMIT {
            match next {
                None => return Err(Ended::Failed("the reader of the feed has ended".into())),
                Some(News::Event(event)) => {
                    readings += event.document.as_ref().map_or(0, |d| d.readings.len());
                    self.event(*event)?;
                }
                Some(News::Quiet(place)) => {
                    self.reached.place = Some(place);
                    self.reached.moved = true;
                }
                Some(News::Ended(error)) => {
                    *feed = self.again(error).await?;
                    return Ok(());
                }
            }
            if readings >= READINGS_AT_ONCE {
                break;
            }
            match feed.try_recv() {
                Ok(news) => next = Some(news),
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn event(&mut self, event: FeedEvent) -> Result<(), Ended> {
        match event.document {
            Ok(document) => self.document(document)?,
            Err(error) => {
                self.setting.metrics.undecodable.inc();
                tracing::warn!(%error, "A document in the feed is none of the feed's; it is passed over");
            }
        }
        self.heard();
        self.reached.place = Some(event.place);
        self.reached.cluster_seconds = event.cluster_seconds;
        self.reached.moved = true;
        Ok(())
    }

    /// Judges what a document says.
    pub(super) fn document(&mut self, document: FeedDocument) -> Result<(), Ended> {
        let mut out = Vec::new();
        for reading in document.readings {
            self.engine
                .sample(&sample(reading, &document.stream, true), &mut out);
        }
        if let Some(beat) = document.beat {
            self.clock.beat(&document.gateway, document.at, beat);
            if let Some(showing) = self.clock.showing() {
                self.engine.tick(showing.time, showing.blind, &mut out);
            }
        }
        self.reached.at = self.reached.at.max(document.at);
        self.setting.metrics.events.inc();
        self.changed(out, None)
    }

    /// Alerts changed, `by` somebody if it was not their readings.
    pub(super) fn changed(
        &mut self,
        transitions: Vec<Transition>,
        by: Option<&str>,
    ) -> Result<(), Ended> {
        let now = now();
        for transition in transitions {
            let changes = &self.setting.metrics.transitions;
            changes.with_label_values(&[transition.change.name()]).inc();
            if transition.change != Change::Updated {
                let episode = &transition.episode;
                tracing::info!(
                    alert = episode.key,
                    change = transition.change.name(),
                    severity = %episode.severity,
                    "An alert changed"
                );
            }
            self.planner.transition(&transition, now);
            self.draft.transition(&transition, by).map_err(unwritable)?;
        }
        Ok(())
    }

    /// A row has ended.
    pub(super) fn settled(&mut self, settled: Option<Settled>) -> Result<(), Ended> {
        let Some(settled) = settled else {
            return Err(Ended::Failed("the delivery has ended".into()));
        };
        self.planner.settled(&settled, now());
        self.draft.commit.reported.push(settled.notice.id.clone());
        self.draft.settled(&settled).map_err(unwritable)?;
        let notice = &settled.notice;
        if let Delivery::Dead { reason, .. } = &settled.outcome
            && notice.kind == NoticeKind::Firing
        {
            // Not through the one that does not take them.
            let others = self.telling.others(&notice.receiver);
            let summary = format!(
                "{} did not take {}: {reason}. See: tidegate outbox list --state dead",
                notice.receiver, notice.key
            );
            let own = &mut self.own;
            let told = own.raise(Own::Undelivered, now(), Some(STANDS), summary, others);
            self.changed(told.into_iter().collect(), None)?;
        }
        Ok(())
    }

    /// The registry changed.
    pub(super) fn device(&mut self, change: Result<DeviceChange, RecvError>) -> Result<(), Ended> {
        let mut out = Vec::new();
        match change {
            Ok(DeviceChange::Put(device)) => {
                self.engine.device_changed(entry(&device), now(), &mut out);
            }
            Ok(DeviceChange::Gone(id)) => self.engine.device_deleted(&id, now(), &mut out),
            Err(RecvError::Lagged(_)) => return self.all_devices(),
            Err(RecvError::Closed) => {
                return Err(Ended::Failed("the registry has ended".into()));
            }
        }
        self.changed(out, None)
    }

    /// Takes the whole registry in.
    pub(super) fn all_devices(&mut self) -> Result<(), Ended> {
        let all: Vec<_> = self
            .setting
            .devices
            .view()
            .all()
            .map(|d| entry(d))
            .collect();
        let mut out = Vec::new();
        self.engine.devices(all, now(), &mut out);
        self.changed(out, None)
    }

    /// An operator said something.
    pub(super) async fn control(&mut self, said: Said) -> Result<(), Ended> {
        match said {
            Said::Rules(rules) => {
                let mut out = Vec::new();
                self.engine.replace(rules, now(), &mut out);
                self.changed(out, None)
            }
            Said::Silences(records) => {
                self.planner.silences(silences(records));
                Ok(())
            }
            Said::Told(told) => {
                self.planner.configure(&told.0, &told.1);
                let receivers = self.setting.controls.receivers();
                self.telling.configure(&told.0.environment, receivers);
                Ok(())
            }
            Said::Requests => self.requests().await,
        }
    }

    /// Does what is asked.
    async fn requests(&mut self) -> Result<(), Ended> {
        let store = self.setting.store.clone();
        let asked = tokio::spawn(async move { store.asked().await });
        let asked = match asked.await {
            Ok(Ok(asked)) => asked,
            // Looked at again with the next, or within the minute.
            Ok(Err(error)) => {
                tracing::warn!(error = words(&error), "Requests cannot be read");
                return Ok(());
            }
            Err(error) => return Err(Ended::Failed(error.to_string())),
        };
        for (id, request, by) in asked {
            if self.draft.commit.requests.contains(&id) {
                continue;
            }
            let mut out = Vec::new();
            match &request {
                Some(Request::Ack { key, until }) => {
                    self.engine.ack(key, *until, now(), &mut out);
                    self.planner.acked(key, *until);
                    self.draft
                        .asked("acked", key, &by, now())
                        .map_err(unwritable)?;
                }
                Some(Request::Resolve { key }) => {
                    self.engine.resolve(key, now(), &mut out);
                    out.extend(self.own.end(key, now(), EndReason::Manual));
                }
                None => tracing::warn!(%id, "A request that this release does not know is dropped"),
            }
            self.changed(out, Some(&by))?;
            self.draft.commit.requests.push(id);
        }
        Ok(())
    }

    /// The stream has ended: opens it again, by query for what cannot be followed any more.
    async fn again(&mut self, error: FeedStreamError) -> Result<mpsc::Receiver<News>, Ended> {
        let cause = Restart::of(&error);
        self.count(cause);
        match cause {
            Restart::Passing => {
                tracing::warn!(%error, "The feed cannot be followed for now; trying again");
                // A stream that opens and ends at once is not to be opened all the time.
                tokio::time::sleep(REOPEN).await;
                self.open().await
            }
            lasting => self.bridge(lasting, &error.to_string()).await,
        }
    }
}

/// A reading as rules look at it; the series does not keep topics.
pub(super) fn sample(reading: FeedReading, stream: &Arc<str>, with_topic: bool) -> Sample {
    Sample {
        device: reading.device,
        kind: reading.kind,
        stream: Arc::clone(stream),
        topic: with_topic.then_some(reading.topic),
        tags: reading.tags,
        at: reading.at,
        received: reading.received,
        fields: reading.fields,
    }
}

/// An entry of the registry as rules look at it.
fn entry(device: &model::Device) -> Device {
    Device {
        id: device.id.clone(),
        kind: device.kind.clone(),
        tags: device.tags.clone().into_iter().collect(),
        enabled: device.enabled,
        first_seen: device.first_seen,
        last_seen: device.last_seen,
        expected_interval: device.expected_interval,
    }
}

/// What cannot be written cannot be remembered: better to stop than to go on without.
pub(super) fn unwritable(error: NoDocument) -> Ended {
    Ended::Failed(error.to_string())
}
