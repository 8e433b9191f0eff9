//! What one receiver knows of one incident, and the one request about it that is under way.
//!
//! Everything else compares with this: what should be known, less what is, is what is sent next.
//! A request whose fate is unclear counts as heard where that obliges us (an end is owed) and as
//! not heard where it would excuse us (the level, the end).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::identity::row_id;
use crate::alert::{Delivery, Episode, Notice, NoticeKind, Settled};
use crate::model::{Severity, Timestamp};

/// The flag of an episode that comes and goes.
pub(super) const FLAPPING: &str = "flapping";

/// How long an end is owed.
pub(super) const OWED: Duration = Duration::from_secs(72 * 3_600);

/// Before a refused request is tried again where there are no reminders.
const RETRY: Duration = Duration::from_secs(4 * 3_600);

/// The conversation with one receiver about one incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    /// The incident's key.
    pub key: String,
    /// Of the last request.
    pub sequence: u64,
    /// Of the last request that was accepted.
    pub sure: u64,
    /// Of the last request that may have been.
    pub maybe: u64,
    /// The request under way.
    pub row: Option<Row>,
    /// Set while the receiver has, or may have, the incident open.
    pub told: Option<Told>,
    /// Set after a refusal.
    pub retry: Option<Retry>,
    /// When the last request was made.
    pub emitted: Option<Timestamp>,
}

/// A request under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub id: String,
    pub sequence: u64,
    pub kind: NoticeKind,
    pub severity: Severity,
    /// The episode, where the incident is one alert.
    pub episode: Option<String>,
    /// It has been asked back.
    pub recalling: bool,
}

/// What the receiver knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    /// The episode, where the incident is one alert.
    pub episode: Option<String>,
    /// The level; `None`: unclear.
    pub severity: Option<Severity>,
    /// The worst level it was told.
    pub worst: Severity,
    pub sequence: u64,
    /// When it was last told.
    pub at: Timestamp,
    /// It knows that the alert comes and goes.
    pub flapping: bool,
    /// Whether it said yes.
    pub sure: bool,
}

/// A refusal, and when to ask again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Retry {
    pub at: Timestamp,
    pub severity: Severity,
    pub resolved: bool,
}

/// What a row's end means for the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The receiver has it open.
    Open,
    /// It may have it open.
    Doubt,
    /// Taken back unseen.
    Unsaid,
    /// Refused.
    Refused,
    /// The receiver has closed it.
    Closed,
    /// Its end was refused for so long that it is not tried again.
    GaveUp,
    /// Old news.
    Nothing,
}

/// What is said next on a line.
pub(super) struct Words {
    pub kind: NoticeKind,
    pub severity: Severity,
    /// One at least.
    pub episodes: Vec<Episode>,
    pub truncated: usize,
    /// Whether the line is that of a single alert.
    pub alone: bool,
}

impl Line {
    pub fn new(key: String) -> Self {
        Self {
            key,
            sequence: 0,
            sure: 0,
            maybe: 0,
            row: None,
            told: None,
            retry: None,
            emitted: None,
        }
    }

    /// Nothing known, nothing under way: nothing owed.
    pub fn is_idle(&self) -> bool {
        self.told.is_none() && self.row.is_none()
    }

    /// Puts one request under way.
    pub fn say(&mut self, receiver: &str, words: Words, sequence: u64, now: Timestamp) -> Notice {
        debug_assert!(self.row.is_none() && !words.episodes.is_empty());
        self.sequence = sequence.max(self.sequence + 1);
        let id = row_id(receiver, &self.key, self.sequence);
        let episode = words.alone.then(|| words.episodes[0].id.clone());
        self.row = Some(Row {
            id: id.clone(),
            sequence: self.sequence,
            kind: words.kind,
            severity: words.severity,
            episode,
            recalling: false,
        });
        self.emitted = Some(now);
        Notice {
            id,
            receiver: receiver.to_owned(),
            key: self.key.clone(),
            sequence: self.sequence,
            kind: words.kind,
            severity: words.severity,
            at: now,
            episodes: words.episodes,
            truncated: words.truncated,
            group: Default::default(),
            storm: None,
        }
    }

    /// Asks the row under way back; its id the first time.
    pub fn recall(&mut self) -> Option<String> {
        let row = self.row.as_mut().filter(|row| !row.recalling)?;
        row.recalling = true;
        Some(row.id.clone())
    }

    /// Takes in how a row ended: the one under way, or one given up earlier that somebody replayed.
    /// `repeat` is the time between reminders; `ended` when what the line is about was over.
    pub fn settle(
        &mut self,
        settled: &Settled,
        repeat: Duration,
        ended: Option<Timestamp>,
    ) -> Meaning {
        let notice = &settled.notice;
        let ours = self.row.take_if(|row| row.id == notice.id);
        self.sequence = self.sequence.max(notice.sequence);
        match notice.kind {
            NoticeKind::Test => Meaning::Nothing,
            NoticeKind::Resolved => self.settle_end(settled, ours.is_some(), repeat, ended),
            NoticeKind::Firing | NoticeKind::Update | NoticeKind::Repeat => {
                self.settle_firing(settled, ours, repeat)
            }
        }
    }

    fn settle_firing(&mut self, settled: &Settled, ours: Option<Row>, repeat: Duration) -> Meaning {
        let notice = &settled.notice;
        let late = self
            .told
            .as_ref()
            .is_some_and(|t| t.sequence >= notice.sequence);
        if ours.is_none() && late {
            return Meaning::Nothing;
        }
        let ambiguous = match settled.outcome {
            Delivery::Accepted => {
                self.open(settled);
                return Meaning::Open;
            }
            Delivery::Dead { ambiguous, .. } | Delivery::Recalled { ambiguous } => ambiguous,
        };
        if ambiguous {
            self.doubt(settled);
        }
        let Some(row) = ours else {
            return if ambiguous {
                Meaning::Doubt
            } else {
                Meaning::Nothing
            };
        };
        let refused = matches!(settled.outcome, Delivery::Dead { .. });
        // What somebody else took back is not sent again at once either.
        if refused || !row.recalling {
            self.put_off(settled, repeat, false);
        }
        match (refused, ambiguous) {
            (true, _) => Meaning::Refused,
            (false, true) => Meaning::Doubt,
            (false, false) => Meaning::Unsaid,
        }
    }

    fn settle_end(
        &mut self,
        settled: &Settled,
        ours: bool,
        repeat: Duration,
        ended: Option<Timestamp>,
    ) -> Meaning {
        let sequence = settled.notice.sequence;
        let newer = self.told.as_ref().is_some_and(|t| t.sequence > sequence);
        if newer || (!ours && self.told.is_none()) {
            return Meaning::Nothing;
        }
        match settled.outcome {
            Delivery::Accepted => {
                self.sure = self.sure.max(sequence);
                self.close(sequence);
                Meaning::Closed
            }
            _ if !ours => Meaning::Nothing,
            // Only a person takes an end back.
            Delivery::Recalled { .. } => {
                self.close(sequence);
                Meaning::Closed
            }
            Delivery::Dead { .. } if ended.is_some_and(|at| settled.at.since(at) >= OWED) => {
                self.close(sequence);
                Meaning::GaveUp
            }
            Delivery::Dead { .. } => {
                self.put_off(settled, repeat, true);
                Meaning::Refused
            }
        }
    }

    fn open(&mut self, settled: &Settled) {
        let notice = &settled.notice;
        let episode = single(notice);
        self.sure = self.sure.max(notice.sequence);
        self.maybe = self.maybe.max(notice.sequence);
        let known = self.told.as_ref().filter(|t| t.episode == episode);
        let worst = known.map_or(notice.severity, |t| t.worst.max(notice.severity));
        let flapping = notice
            .episodes
            .iter()
            .any(|e| e.flags.iter().any(|f| f == FLAPPING));
        self.told = Some(Told {
            episode,
            severity: Some(notice.severity),
            worst,
            sequence: notice.sequence,
            at: settled.at,
            flapping,
            sure: true,
        });
        self.retry = None;
    }

    fn doubt(&mut self, settled: &Settled) {
        let notice = &settled.notice;
        self.maybe = self.maybe.max(notice.sequence);
        match &mut self.told {
            Some(told) => told.severity = None,
            None => {
                self.told = Some(Told {
                    episode: single(notice),
                    severity: None,
                    worst: notice.severity,
                    sequence: notice.sequence,
                    at: settled.at,
                    flapping: false,
                    sure: false,
                });
            }
        }
    }

    fn close(&mut self, sequence: u64) {
        self.maybe = self.maybe.max(sequence);
        self.told = None;
        self.retry = None;
    }

    fn put_off(&mut self, settled: &Settled, repeat: Duration, resolved: bool) {
        let pause = if repeat.is_zero() { RETRY } else { repeat };
        self.retry = Some(Retry {
            at: settled.at.plus(pause),
            severity: settled.notice.severity,
            resolved,
        });
    }

    /// When a request may be made in spite of an earlier refusal: at once if it says something
    /// worse, or something else.
    pub fn free_at(&self, severity: Severity, resolved: bool) -> Option<Timestamp> {
        let retry = self.retry.as_ref()?;
        let same = retry.resolved == resolved && (resolved || severity <= retry.severity);
        same.then_some(retry.at)
    }
}

/// The episode of a notice about one alert.
fn single(notice: &Notice) -> Option<String> {
    let many = is_group(&notice.key) || is_storm(&notice.key);
    let first = notice.episodes.first().filter(|_| !many)?;
    Some(first.id.clone())
}

pub(super) fn is_group(key: &str) -> bool {
    key.starts_with("group:")
}

pub(super) fn is_storm(key: &str) -> bool {
    key.starts_with("storm:")
}

#[cfg(test)]
#[path = "told_tests.rs"]
mod tests;
