//! The end of each turn: what is to be told is decided, everything is written in one transaction,
//! and only then sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::draft::Draft;
use super::events::unwritable;
use super::load::CLOCK;
use super::notify::Row;
use super::notify::plan::Plan;
use super::own::Own;
use super::term::{Ended, Term};
use crate::runtime::{Backoff, now};
use crate::store::{Checkpoint, Commit, CommitError, Kept};

/// Time between two looks at what goes by the clock.
const SECOND: Duration = Duration::from_secs(1);

/// How long the stream may deliver nothing, not even our own beat, before that is trouble.
const CANARY: Duration = Duration::from_secs(15);

/// Behind by less than this: the backlog is done.
const CAUGHT_UP: Duration = Duration::from_secs(2);

/// The longest that messages are held for a backlog.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// How long the gateways must be deaf before somebody is told.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// Further behind than this, or with a message owed for so long, alerts do not work as they should.
const BEHIND_SECONDS: u32 = 30;
const OVERDUE: Duration = Duration::from_secs(300);

/// With so many documents of marks, the place goes along with every commit; with more it follows at
/// its own pace.
const FEW_MARKS: usize = 16;

/// How often a refused commit is tried before the term begins anew.
const REFUSALS: u32 = 5;

impl Term<'_> {
    /// Decides, writes, sends.
    pub(super) async fn turn(&mut self) -> Result<(), Ended> {
        if self.watching.second.elapsed() >= SECOND {
            self.watching.second = Instant::now();
            self.every_second()?;
        }
        let due = self.reached.saved.elapsed() >= self.setting.config.alerts.checkpoint_every.0;
        self.write(due).await
    }

    /// Writes where evaluation stands before it ends.
    pub(super) async fn last_turn(&mut self) -> Result<(), Ended> {
        self.write(true).await
    }

    pub(super) async fn write(&mut self, checkpoint: bool) -> Result<(), Ended> {
        let at = now();
        let plan = self.planner.plan(at);
        let (rows, lost) = self.telling.rows(&plan.notices, at);
        for settled in lost {
            self.planner.settled(&settled, at);
        }
        self.draft.plan(&plan).map_err(unwritable)?;
        for row in &rows {
            self.draft.commit.outbox.push(row.encode());
            let notices = &self.setting.metrics.notices;
            notices.with_label_values(&[row.notice.kind.name()]).inc();
        }
        self.draft
            .own(self.own.take_changed())
            .map_err(unwritable)?;
        let something = !plan.is_empty() || !self.draft.commit.is_empty();
        let along = something && self.reached.light;
        if (checkpoint || along) && self.reached.moved {
            self.checkpoint().map_err(unwritable)?;
        } else {
            let dirty = self.engine.take_dirty();
            self.draft
                .instances(&dirty.documents, &dirty.removed)
                .map_err(unwritable)?;
        }
        if !self.draft.commit.is_empty() {
            let Draft { commit } = std::mem::take(&mut self.draft);
            self.commit(commit).await?;
        }
        self.send(rows, &plan);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), crate::store::NoDocument> {
        let saved = self.engine.checkpoint();
        self.reached.light = saved.buckets.len() <= FEW_MARKS;
        self.draft.instances(&saved.documents, &saved.removed)?;
        let marks = &mut self.draft.commit.marks;
        for bucket in &saved.buckets {
            let id = format!("{:03}", bucket.bucket);
            marks.push(if bucket.devices.is_empty() {
                Kept::gone(id)
            } else {
                Kept::put(id, bucket)?
            });
        }
        marks.push(Kept::put(CLOCK, &saved.clock)?);
        self.draft.commit.checkpoint = Some(Checkpoint {
            place: self.reached.place.clone(),
            cluster_seconds: self.reached.cluster_seconds,
            at: self.reached.at,
        });
        self.reached.saved = Instant::now();
        self.reached.moved = false;
        Ok(())
    }

    fn send(&self, rows: Vec<Row>, plan: &Plan) {
        self.telling.send(rows, plan);
        for remark in &plan.remarks {
            let by = remark
                .by
                .as_ref()
                .map_or(remark.kind.name(), |by| by.name());
            let remarks = &self.setting.metrics.remarks;
            remarks.with_label_values(&[by]).inc();
        }
    }

    /// Writes one commit, however long it takes: the same one, because what it says has been
    /// decided.
    async fn commit(&self, commit: Commit) -> Result<(), Ended> {
        let metrics = &self.setting.metrics;
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(5));
        let commit = Arc::new(commit);
        let mut refusals = 0;
        loop {
            let started = Instant::now();
            let (store, sent, fence) = (
                self.setting.store.clone(),
                Arc::clone(&commit),
                self.fence.clone(),
            );
            // In a task of its own: a driver call is never dropped half way.
            let call = tokio::spawn(async move { store.commit(&fence, &sent).await });
            let error = match call.await {
                Ok(Ok(())) => {
                    metrics
                        .commit_seconds
                        .observe(started.elapsed().as_secs_f64());
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(error) => return Err(Ended::Failed(error.to_string())),
            };
            metrics.commits_failed.inc();
            match error {
                CommitError::Fenced => return Err(Ended::Lost),
                CommitError::Refused(reason) => {
                    refusals += 1;
                    if refusals >= REFUSALS {
                        return Err(Ended::Failed(format!("a commit is refused: {reason}")));
                    }
                    self.condition
                        .raise(format!("a commit is refused: {reason}"));
                }
                CommitError::Passing(reason) => {
                    if started.elapsed() > SECOND || refusals > 0 {
                        self.condition
                            .raise(format!("alerts cannot be written: {reason}"));
                    }
                    tracing::debug!(error = %reason, "A commit did not get through; trying again");
                }
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    /// What goes by the clock.
    fn every_second(&mut self) -> Result<(), Ended> {
        let at = now();
        let mut out = self.own.tick(at);
        let linked = self.clock.linked();
        let deaf = linked == Some(false);
        if deaf {
            let since = *self.watching.deaf.get_or_insert(at);
            if at.since(since) >= STALLED_AFTER {
                let summary = "No gateway hears from the broker; devices that are silent are not missed meanwhile";
                let own = &mut self.own;
                out.extend(own.raise(Own::IngestStalled, at, None, summary.into(), Vec::new()));
            }
        } else if linked == Some(true) {
            // Also where a term before has said so.
            self.watching.deaf = None;
            out.extend(self.own.clear(Own::IngestStalled, at));
        }
        self.changed(out, None)?;
        if let Some(since) = self.watching.holding
            && (at.since(self.reached.at) < CAUGHT_UP || since.elapsed() >= LONGEST_HOLD)
        {
            self.watching.holding = None;
            self.planner.hold(false);
        }
        if self.watching.heard.elapsed() > CANARY {
            self.condition.raise(
                "the change stream of the feed delivers nothing, not even this gateway's own beat",
            );
        } else if self.watching.delivers {
            self.condition.clear();
        }
        self.publish(deaf);
        let told = self.telling.oldest().is_none_or(|oldest| oldest < OVERDUE);
        if self.watching.delivers && self.behind() < BEHIND_SECONDS && told {
            self.setting.well.store(at.millis(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Messages wait until the backlog is done, so that what began and ended in it is not told.
    pub(super) fn hold(&mut self) {
        self.watching.holding = Some(Instant::now());
        self.planner.hold(true);
    }

    /// The stream delivers.
    pub(super) fn heard(&mut self) {
        self.watching.heard = Instant::now();
        self.watching.delivers = true;
    }

    /// Seconds between the last event and the server's own time.
    pub(super) fn behind(&self) -> u32 {
        let server = self.watching.server_seconds.load(Ordering::Relaxed);
        match self.reached.cluster_seconds {
            0 => 0,
            reached => server.saturating_sub(reached),
        }
    }
}
