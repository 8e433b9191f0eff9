//! The writer: groups of messages onto the disk, one fsync each; deletes what is stored.
//!
//! While a group is being written the next one grows, so a busy spool writes large groups and an
//! idle one writes at once. A group that could not be written is tried again for ever, in smaller
//! parts and on a file opened anew; until then nothing of it is acknowledged. Space is needed to
//! delete, so what is stored is deleted before more is written.

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
    /// The number of the first of them.
    first: u64,
    gone: Vec<u64>,
    damaged: Vec<Numbered>,
}

impl Inner {
    /// Writes until the spool is closed.
    pub(super) fn write_all(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        // A group that does not fit on a full disk may do so in part.
        let mut most = GROUP.messages;
        while let Some(work) = self.next_work(most) {
            let tried = work.group.len();
            if self.write(work) {
                if tried > 0 {
                    backoff.reset();
                    most = most.saturating_mul(2).min(GROUP.messages);
                }
                self.give_space_back();
            } else {
                if tried > 0 {
                    most = (tried / 2).max(1);
                }
                self.mend(&mut backoff);
            }
        }
        let left = self.lock().totals.records;
        if left > 0 {
            tracing::info!(messages = left, "Left in the spool for the next start");
        }
    }

    /// Waits for something to do; `None`: the spool is closed.
    fn next_work(&self, most_messages: usize) -> Option<Work> {
        let idle_since = Instant::now();
        let mut state = self.lock();
        loop {
            self.look(&mut state);
            let done = state.progress.done();
            let blocked = state.full.is_some();
            let room = self.config.max_bytes.0.saturating_sub(state.totals.bytes);
            if state.stopping && state.blocked() && !state.queue.is_empty() {
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
            if !state.queue.is_empty() && !blocked {
                let most = Most {
                    messages: most_messages,
                    bytes: GROUP.bytes.min(usize::try_from(room).unwrap_or(usize::MAX)),
                };
                return Some(Work {
                    group: state.queue.take(most),
                    first: state.progress.next(),
                    ..state.chores()
                });
            }
            let due = done >= DELETE_AT || idle_since.elapsed() >= DELETE_AFTER;
            if state.trouble.is_some() && state.closing {
                return None;
            }
            if (done > 0 || !state.damaged.is_empty()) && (due || blocked || state.closing) {
                return Some(state.chores());
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

    /// Puts `work` on disk; `false`: nothing of it may be taken to be there.
    fn write(&self, mut work: Work) -> bool {
        let records: Vec<_> = (work.first..)
            .zip(&work.group)
            .map(|(number, one)| (number, record::encode(&one.message, one.stream.as_deref())))
            .collect();
        let started = Instant::now();
        match self.store.commit(&records, &work.gone, &work.damaged) {
            Ok(totals) => {
                self.metrics
                    .commit_seconds
                    .observe(started.elapsed().as_secs_f64());
                let bytes: usize = records.iter().map(|(_, record)| record.len()).sum();
                self.metrics.taken_bytes.inc_by(bytes as u64);
                self.written(work, totals);
                true
            }
            Err(error) => {
                self.failed(&error);
                let mut state = self.lock();
                state.queue.put_back(std::mem::take(&mut work.group));
                state.put_off(work);
                false
            }
        }
    }

    /// Opens the file anew after a failed write, deletes what is stored before more is written,
    /// and waits; returns when that succeeded, or when asked to stop.
    fn mend(&self, backoff: &mut Backoff) {
        loop {
            // At once: a file that could not be written cannot be read either.
            let mended = self.open_anew() && self.delete();
            if !self.pause(backoff.next_pause()) || mended {
                return;
            }
        }
    }

    fn open_anew(&self) -> bool {
        let all_stored = self.lock().progress.oldest().is_none();
        // A file that has no room for deleting is replaced once nothing in it is needed.
        let opened = match all_stored {
            true => self.store.start_over(),
            false => self.store.reopen(),
        };
        if let Err(error) = &opened {
            self.failed(error);
        }
        let mut state = self.lock();
        if std::mem::take(&mut state.drain_waits) {
            self.room.notify_one();
        }
        opened.is_ok()
    }

    fn delete(&self) -> bool {
        let work = self.lock().chores();
        match self.store.commit(&[], &work.gone, &work.damaged) {
            Ok(totals) => {
                let mut state = self.lock();
                state.totals = totals;
                if state.queue.is_empty() {
                    self.mended(&mut state);
                }
                true
            }
            Err(error) => {
                self.failed(&error);
                self.lock().put_off(work);
                // For those who read.
                self.open_anew();
                false
            }
        }
    }

    fn mended(&self, state: &mut State) {
        if state.trouble.take().is_some() {
            self.tell(state);
            tracing::info!("The spool can be written again");
        }
    }

    fn written(&self, work: Work, totals: Totals) {
        let oldest = work.group.iter().map(|one| one.message.received_at).min();
        let mut state = self.lock();
        state.totals = totals;
        if let Some(oldest) = oldest {
            let next = work.first + work.group.len() as u64;
            state.progress.committed(next, oldest);
            self.metrics.group.observe(work.group.len() as f64);
            self.metrics.taken.inc_by(work.group.len() as u64);
        }
        if oldest.is_some() {
            self.mended(&mut state);
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
        if self.lock().totals.records > 0 || self.store.grown() < GIVE_BACK {
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

    /// They are to be done later.
    fn put_off(&mut self, work: Work) {
        self.progress.keep_done(work.gone);
        self.damaged.extend(work.damaged);
    }
}
