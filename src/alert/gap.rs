//! Opens the stream, and bridges what it can no longer deliver: the readings of the gap are found
//! by query, judged as if they had come by stream, and somebody is told that there was one.
//!
//! The feed keeps its documents longer than the server keeps its history; what is older than both
//! is read from the series. Readings that were judged before are told by their time.

use std::time::Duration;

use tokio::sync::mpsc;

use super::events::{STANDS, sample};
use super::metrics::Restart;
use super::own::Own;
use super::term::{Ended, Term};
use super::watch::{News, watch};
use crate::config::streams::Action;
use crate::model::Timestamp;
use crate::runtime::{Backoff, now};
use crate::store::{DriverResult, FeedDocument, FeedReading, FeedStreamError, From, words};

/// Looked at again before the last document that was judged: documents of several writers do not
/// stand in the order of their times.
const OVERLAP: Duration = Duration::from_secs(60);

/// Documents of the feed judged between two commits.
const AT_ONCE: usize = 200;

/// Rows of a series judged between two commits.
const ROWS_AT_ONCE: usize = 10_000;

impl Term<'_> {
    /// Opens the stream where evaluation stands.
    pub(super) async fn open(&mut self) -> Result<mpsc::Receiver<News>, Ended> {
        let Some(place) = self.reached.place.clone() else {
            // The first term of all: what was written while it began has no place to go on from.
            let feed = self.opened(From::Now).await.map_err(ended)?;
            let from = self.reached.at;
            self.judge_past_feed(from).await?;
            return Ok(feed);
        };
        match self.opened(From::After(place)).await {
            Ok(feed) => Ok(feed),
            Err(error) => {
                let cause = Restart::of(&error);
                self.count(cause);
                self.bridge(cause, &error.to_string()).await
            }
        }
    }

    /// The stream from there, however long it takes; an error that lasts is returned.
    async fn opened(&self, from: From) -> Result<mpsc::Receiver<News>, FeedStreamError> {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(10));
        loop {
            match watch(&self.setting.store, from.clone()).await {
                Err(FeedStreamError::Passing(reason)) => {
                    if self
                        .condition
                        .raise(format!("the feed cannot be followed: {reason}"))
                    {
                        tracing::warn!(error = %reason, "The feed cannot be followed for now; trying again");
                    }
                    tokio::time::sleep(backoff.next_pause()).await;
                }
                outcome => return outcome,
            }
        }
    }

    pub(super) fn count(&self, cause: Restart) {
        let restarts = &self.setting.metrics.restarts;
        restarts.with_label_values(&[cause.name()]).inc();
    }

    /// Goes on from now, and judges by query what the stream does not deliver any more.
    pub(super) async fn bridge(
        &mut self,
        cause: Restart,
        reason: &str,
    ) -> Result<mpsc::Receiver<News>, Ended> {
        let since = self.reached.at;
        tracing::error!(%since, cause = cause.name(), error = reason, "The watcher has missed a part of the feed; it is evaluated by query");
        self.setting.metrics.gaps.inc();
        self.hold();
        // First the stream, then the query: what is written in between is judged twice, not never.
        let feed = self.opened(From::Now).await.map_err(ended)?;
        self.reached.place = None;
        let from = since.minus(OVERLAP);
        let store = self.setting.store.clone();
        let begins = called(async move { store.feed_begins().await }).await?;
        let kept = begins.filter(|begins| *begins <= since);
        let mut judged = 0;
        if kept.is_none() {
            judged += self.judge_series(from, begins.unwrap_or_else(now)).await?;
        }
        judged += self.judge_past_feed(from).await?;
        let summary = format!(
            "From {since} to {}: {reason}. {judged} readings of that time were evaluated by query. Look at the oplog's size if this comes again",
            now()
        );
        self.draft
            .gap(since, now(), cause.name(), judged)
            .map_err(super::events::unwritable)?;
        let own = &mut self.own;
        let told = own.raise(Own::AlertGap, now(), Some(STANDS), summary, Vec::new());
        self.changed(told.into_iter().collect(), None)?;
        Ok(feed)
    }

    /// Judges what the feed has since then; returns how many readings that were.
    async fn judge_past_feed(&mut self, from: Timestamp) -> Result<u64, Ended> {
        let store = self.setting.store.clone();
        // Gateways' clocks may be ahead.
        let to = now().plus(OVERLAP);
        let mut past = called(async move { store.past_feed(from, to).await }).await?;
        let mut judged = 0;
        loop {
            let (rest, documents) = called(async move {
                let mut some: Vec<FeedDocument> = Vec::new();
                while some.len() < AT_ONCE
                    && let Some(document) = past.next().await?
                {
                    some.push(document);
                }
                Ok((past, some))
            })
            .await?;
            past = rest;
            if documents.is_empty() {
                return Ok(judged);
            }
            for document in documents {
                judged += document.readings.len() as u64;
                self.document(document)?;
            }
            self.write(false).await?;
        }
    }

    /// Judges what the series have of that time; returns how many readings that were.
    async fn judge_series(&mut self, from: Timestamp, to: Timestamp) -> Result<u64, Ended> {
        let mut judged = 0;
        let streams = self.setting.config.streams.iter();
        for stream in streams.filter(|stream| stream.action == Action::Store) {
            let name = stream.name.as_str().into();
            let (store, asked) = (self.setting.store.clone(), stream.clone());
            let mut past =
                called(async move { store.past_series(&asked, from, to, None).await }).await?;
            loop {
                let (rest, readings) = called(async move {
                    let mut some: Vec<FeedReading> = Vec::new();
                    while some.len() < ROWS_AT_ONCE
                        && let Some(reading) = past.next().await?
                    {
                        some.push(reading);
                    }
                    Ok((past, some))
                })
                .await?;
                past = rest;
                if readings.is_empty() {
                    break;
                }
                let mut out = Vec::new();
                judged += readings.len() as u64;
                for reading in readings {
                    self.engine.sample(&sample(reading, &name, false), &mut out);
                }
                self.changed(out, None)?;
                self.write(false).await?;
            }
        }
        Ok(judged)
    }
}

/// Runs a call of the driver in a task of its own, because it must not be dropped half way.
async fn called<T: Send + 'static>(
    call: impl Future<Output = DriverResult<T>> + Send + 'static,
) -> Result<T, Ended> {
    match tokio::spawn(call).await {
        Ok(outcome) => outcome.map_err(|error| Ended::Failed(words(&error))),
        Err(error) => Err(Ended::Failed(error.to_string())),
    }
}

fn ended(error: FeedStreamError) -> Ended {
    Ended::Failed(error.to_string())
}
