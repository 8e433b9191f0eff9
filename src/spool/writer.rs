//! The writer: groups of messages onto the disk, one fsync each; deletes what is stored.
//!
//! While a group is being written the next one grows, so a busy spool writes large groups and an
//! idle one writes at once. A failed write is tried again for ever, on a file opened anew, with the
//! same numbers; until it succeeds nothing of the group is acknowledged. Space is needed to delete,
//! so what is stored is deleted before more is written.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::limit::{Level, full};
use super::queue::{Most, Waiting};
use super::store::{Numbered, StoreError, Totals};
use super::{Inner, State, record};
use crate::model::Outcome;
use crate::runtime::{Backoff, now};

/// The largest group.
const GROUP: Most = Most {
    messages: 10_000,
    bytes: 16 << 20,
};

/// So many stored messages are deleted at once; fewer wait for company for `DELETE_AFTER`.
const DELETE_AT: usize = 1_000;
const DELETE_AFTER: Duration = Duration::from_millis(200);

/// How long an idle writer sleeps at the most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An empty spool's file of this size is made anew.
const GIVE_BACK: u64 = 64 << 20;

/// One transaction.
#[derive(Default)]
struct Work {
    group: Vec<Waiting>,
    /// Their records.
    records: Vec<Numbered>,
    gone: Vec<u64>,
    damaged: Vec<Numbered>,
}

impl Inner {
    /// Writes until the spool is closed.
    pub(super) fn write_all(&self) {
        let mut next = self.lock().progress.next();
        while let Some(mut work) = self.next_work() {
            for waiting in &work.group {
                let bytes = record::encode(&waiting.message, waiting.stream.as_deref());
                work.records.push((next, bytes));
                next += 1;
            }
            self.write(work, next);
            self.give_space_back();
        }
        let left = self.lock().totals.records;
        if left > 0 {
            tracing::info!(messages = left, "Left in the spool for the next start");
        }
    }

    /// Waits for something to do; `None`: the spool is closed.
    fn next_work(&self) -> Option<Work> {
        let idle_since = Instant::now();
        let mut state = self.lock();
        loop {
            self.look(&mut state);
            let done = state.progress.done();
            let blocked = state.full.is_some();
            let room = self.config.max_bytes.0.saturating_sub(state.totals.bytes);
            if !state.queue.is_empty() && !blocked {
                let most = Most {
                    bytes: GROUP.bytes.min(usize::try_from(room).unwrap_or(usize::MAX)),
                    ..GROUP
                };
                let group = state.queue.take(most);
                return Some(Work {
                    group,
                    ..state.chores()
                });
            }
            let due = done >= DELETE_AT || idle_since.elapsed() >= DELETE_AFTER;
            if (done > 0 || !state.damaged.is_empty()) && (due || blocked || state.closing) {
                return Some(state.chores());
            }
            if state.stopping && blocked && !state.queue.is_empty() {
                let unkept = state.queue.take(Most {
                    messages: usize::MAX,
                    bytes: usize::MAX,
                });
                drop(state);
                // Outside the lock. Unsettled: the broker delivers them again.
                drop(unkept);
                self.changed.notify_waiters();
                state = self.lock();
                continue;
            }
            if state.closing {
                return None;
            }
            state.writer_waits = true;
            let patience = match done {
                0 => LOOK_EVERY,
                _ => DELETE_AFTER,
            };
            let woken = self.work.wait_timeout(state, patience);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.writer_waits = false;
        }
    }

    /// Whether the spool is full now, and tells if that has changed.
    pub(super) fn look(&self, state: &mut State) {
        let oldest = state.progress.oldest();
        let level = Level {
            bytes: state.totals.bytes,
            oldest: oldest.map_or(Duration::ZERO, |oldest| now().since(oldest)),
        };
        let before = state.full;
        state.full = full(&self.config, level, before);
        if state.full == before {
            return;
        }
        self.tell(state);
        match state.full {
            Some(why) => tracing::error!(
                bytes = level.bytes,
                oldest_seconds = level.oldest.as_secs(),
                "The spool is full: {why}. Nothing more is acknowledged until MongoDB has taken some of it"
            ),
            None => tracing::info!("The spool takes messages again"),
        }
    }

    /// Brings readiness and gauge in line with the state.
    fn tell(&self, state: &State) {
        self.metrics.full.set(i64::from(state.blocked()));
        if let Some(trouble) = &state.trouble {
            self.condition.raise(format!(
                "{trouble}; nothing more is acknowledged until it can be written"
            ));
        } else if let Some(why) = state.full {
            let (most, age) = (self.config.max_bytes, self.config.max_age);
            self.condition.raise(format!(
                "spool full: {why} (max_bytes {most}, max_age {age}); nothing more is acknowledged until MongoDB has taken some of it"
            ));
        } else {
            self.condition.clear();
        }
    }

    /// Puts `work` on disk, however long that takes, unless asked to stop meanwhile.
    fn write(&self, mut work: Work, next: u64) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let started = Instant::now();
            match self.store.commit(&work.records, &work.gone, &work.damaged) {
                Ok(totals) => {
                    self.metrics
                        .commit_seconds
                        .observe(started.elapsed().as_secs_f64());
                    return self.written(work, next, totals);
                }
                Err(error) => self.failed(&error),
            }
            loop {
                if !self.pause(backoff.next_pause()) {
                    // Unsettled: the broker delivers the group again.
                    return self.lock().progress.keep_done(work.gone);
                }
                if let Err(error) = self.store.reopen() {
                    self.failed(&error);
                    continue;
                }
                // More may have been stored meanwhile.
                work.gone.append(&mut self.lock().progress.take_done());
                match self.store.commit(&[], &work.gone, &work.damaged) {
                    Ok(totals) => {
                        self.lock().totals = totals;
                        work.gone.clear();
                        work.damaged.clear();
                        break;
                    }
                    Err(error) => self.failed(&error),
                }
            }
        }
    }

    fn written(&self, work: Work, next: u64, totals: Totals) {
        let oldest = work.group.iter().map(|one| one.message.received_at).min();
        let mut state = self.lock();
        state.totals = totals;
        if let Some(oldest) = oldest {
            state.progress.committed(next, oldest);
            self.metrics.group.observe(work.group.len() as f64);
            self.metrics.taken.inc_by(work.group.len() as u64);
            let bytes: usize = work.records.iter().map(|(_, record)| record.len()).sum();
            self.metrics.taken_bytes.inc_by(bytes as u64);
        }
        if state.trouble.take().is_some() {
            self.tell(&state);
            tracing::info!("The spool can be written again");
        }
        if std::mem::take(&mut state.drain_waits) {
            self.room.notify_one();
        }
        drop(state);
        // Outside the lock: the receipts' owners take locks of their own.
        for waiting in work.group {
            waiting.receipt.settle(Outcome::Spooled);
        }
        self.changed.notify_waiters();
    }

    /// Tells of a failed write or read.
    pub(super) fn failed(&self, error: &StoreError) {
        self.metrics.failures.inc();
        let error = error.to_string();
        let mut state = self.lock();
        let news = state.trouble.replace(error.clone()) != Some(error.clone());
        self.tell(&state);
        drop(state);
        if news {
            tracing::error!(
                error,
                "The spool cannot be written; trying again, nothing is acknowledged meanwhile"
            );
        }
    }

    /// Waits; `false`: asked to stop.
    fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        while !state.stopping {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let woken = self.work.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// The file of an empty spool keeps the size that the longest outage gave it.
    fn give_space_back(&self) {
        if self.lock().totals.records > 0 || self.store.file_bytes() < GIVE_BACK {
            return;
        }
        if let Err(error) = self.store.start_over() {
            // The next write opens it again.
            self.failed(&error);
        }
    }
}

impl State {
    /// What is to be done beside a group.
    fn chores(&mut self) -> Work {
        Work {
            gone: self.progress.take_done(),
            damaged: std::mem::take(&mut self.damaged),
            ..Work::default()
        }
    }
}
