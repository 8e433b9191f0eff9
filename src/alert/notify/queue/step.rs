//! What an attempt's end does to its row and to its receiver.

use std::time::Duration;

use super::super::classify::{Class, Verdict};
use super::super::retry;
use super::super::row::Row;
use super::{Queue, Stage};
use crate::alert::Delivery;
use crate::model::Timestamp;
use crate::store::{Last, Progress, RowState};

/// What is to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The row has ended.
    Finish {
        /// How, as stored.
        state: RowState,
        /// How far it came.
        progress: Progress,
        /// How, for whoever decides what is told next.
        delivery: Delivery,
    },
    /// Once more, later.
    Retry {
        /// How much later.
        pause: Duration,
        /// How far it came.
        progress: Progress,
    },
}

/// What somebody should hear of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// It keeps failing: rows wait, one at a time tries.
    Opened,
    /// Something in its configuration is wrong.
    Misconfigured,
    /// It is gone for good.
    Gone,
    /// It works again.
    Recovered,
}

/// What an attempt's end led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// To be written down.
    pub step: Step,
    /// To be said.
    pub news: Option<News>,
    /// For how long the receiver is left alone because it asked for that.
    pub throttled: Duration,
}

impl Queue {
    /// An attempt has ended; `chance` in 0..1 decides the jitter. `None`: the row is not being sent.
    pub fn sent(
        &mut self,
        id: &str,
        verdict: &Verdict,
        now: Timestamp,
        chance: f64,
    ) -> Option<Outcome> {
        let entry = self.rows.get_mut(id)?;
        if !matches!(entry.stage, Stage::Flying { .. }) {
            return None;
        }
        let channel = self.channels.get_mut(&entry.row.receiver)?;
        entry.stage = Stage::Settling;
        entry.leased_until = None;
        self.flying = self.flying.saturating_sub(1);
        channel.flying = channel.flying.saturating_sub(1);

        let row = &mut entry.row;
        row.attempts = row.attempts.saturating_add(1);
        row.ambiguous |= verdict.ambiguous;
        let own = retry::pause(row.attempts, verdict.pause, chance);
        let mut throttled = Duration::ZERO;
        // What is said to be of this message may still be true of it after the minimal body.
        let (pause, news) = match verdict.class {
            Class::Ok => (None, recovered(channel, now)),
            Class::Transient => {
                let opened = channel.breaker.failure(now);
                (Some(own), opened.then_some(News::Opened))
            }
            Class::Throttled => {
                // It answers, but is no proof that it takes anything.
                channel.breaker.probe_void(now);
                channel.paused_until = channel.paused_until.max(now.plus(own));
                throttled = own;
                (Some(own), None)
            }
            Class::Message => {
                let news = recovered(channel, now);
                let again = !row.use_minimal && row.minimal.is_some();
                row.use_minimal |= again;
                (again.then_some(Duration::ZERO), news)
            }
            Class::Configuration => {
                let news = channel.breaker.trip(now, retry::SLOW);
                (Some(retry::SLOW), news.then_some(News::Misconfigured))
            }
            Class::Gone => {
                let news = channel.breaker.disable();
                (Some(retry::SLOW), news.then_some(News::Gone))
            }
        };
        if !channel.breaker.is_closed() {
            let since = channel.trouble.take().map_or(now, |(_, since)| since);
            channel.trouble = Some((verdict.why.clone(), since));
        }
        row.last = Some(Last {
            status: verdict.status,
            why: verdict.why.clone(),
        });
        let progress = progress(row);
        let dead = |reason: String| Step::Finish {
            state: RowState::Dead,
            delivery: Delivery::Dead {
                reason,
                ambiguous: progress.ambiguous,
            },
            progress: progress.clone(),
        };
        let step = match pause {
            _ if verdict.class == Class::Ok => Step::Finish {
                state: RowState::Delivered,
                delivery: Delivery::Accepted,
                progress,
            },
            None => dead(verdict.why.clone()),
            Some(pause) if now.plus(pause) >= entry.deadline => {
                dead(given_up(entry.deadline.since(row.queued_at), &verdict.why))
            }
            Some(pause) => {
                entry.ready_at = now.plus(pause);
                Step::Retry { pause, progress }
            }
        };
        Some(Outcome {
            step,
            news,
            throttled,
        })
    }

    /// Rows whose time is over, though none of them is being sent right now.
    pub fn expired(&mut self, now: Timestamp) -> Vec<(String, Step)> {
        let mut expired = Vec::new();
        let due: Vec<String> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, id)| id.clone())
            .collect();
        for id in due {
            let Some(entry) = self.rows.get_mut(&id) else {
                continue;
            };
            // Looked at again when the attempt has ended.
            if !matches!(entry.stage, Stage::Behind | Stage::Waiting) {
                continue;
            }
            entry.stage = Stage::Settling;
            let row = &entry.row;
            let channel = self.channels.get_mut(&row.receiver);
            let known = channel.as_ref().is_some_and(|channel| channel.known);
            if let Some(channel) = channel {
                channel.remove(&id);
            }
            let why = match &row.last {
                _ if !known => "the receiver is not in the configuration".to_owned(),
                Some(last) => last.why.clone(),
                None => "the receiver was not to be reached".to_owned(),
            };
            let step = Step::Finish {
                state: RowState::Dead,
                delivery: Delivery::Dead {
                    reason: given_up(entry.deadline.since(row.queued_at), &why),
                    ambiguous: row.ambiguous,
                },
                progress: progress(row),
            };
            // It ends once; the set is what is looked at again and again.
            self.deadlines.remove(&(entry.deadline, id.clone()));
            expired.push((id, step));
        }
        expired
    }
}

fn progress(row: &Row) -> Progress {
    Progress {
        attempts: row.attempts,
        ambiguous: row.ambiguous,
        use_minimal: row.use_minimal,
        last: row.last.clone(),
    }
}

fn recovered(channel: &mut super::Channel, now: Timestamp) -> Option<News> {
    let news = channel.breaker.success(now);
    channel.trouble = None;
    if news {
        // Those that wait for another attempt need not wait for a receiver that is back.
        channel.release(now);
    }
    news.then_some(News::Recovered)
}

fn given_up(after: Duration, why: &str) -> String {
    format!("given up after {}: {why}", super::super::text::span(after))
}
