//! The way to one receiver: what waits for its time, what is ready, and whether and how fast the
//! receiver may be asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::breaker::{Breaker, Leave};
use super::super::pace::Bucket;
use super::super::row::Row;
use crate::alert::NoticeKind;
use crate::model::{Severity, Timestamp};

/// Requests under way to one receiver.
const MOST_FLYING: usize = 4;
/// A row that has been ready for so long is served in its turn whatever it is.
const AGED: Duration = Duration::from_secs(60);
/// Of so many picks one goes to the oldest row, if that has aged: the urgent stays ahead, and
/// nothing waits for ever.
const TURN: u32 = 4;

/// Place in the order of a receiver's rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    urgency: u8,
    created: Timestamp,
    sequence: u64,
    id: String,
}

impl Rank {
    /// Of `row`.
    pub fn of(row: &Row) -> Self {
        let urgency = match (row.notice.kind, row.severity) {
            (NoticeKind::Firing, Severity::Critical) => 0,
            (NoticeKind::Resolved, _) => 1,
            (NoticeKind::Firing | NoticeKind::Test, _) => 2,
            (NoticeKind::Update, _) => 3,
            (NoticeKind::Repeat, _) => 4,
        };
        Self {
            urgency,
            created: row.created,
            sequence: row.sequence,
            id: row.id.clone(),
        }
    }
}

/// One receiver.
#[derive(Debug, Clone)]
pub struct Channel {
    /// Whether it is in the configuration.
    pub known: bool,
    /// Whether it is worth asking.
    pub breaker: Breaker,
    /// How fast.
    pub bucket: Bucket,
    /// It asked to be left alone until then.
    pub paused_until: Timestamp,
    /// Requests under way.
    pub flying: usize,
    /// What is wrong with it, and since when.
    pub trouble: Option<(String, Timestamp)>,
    /// First rows of their keys, by when they may be sent.
    waiting: BTreeSet<(Timestamp, Rank)>,
    /// Those that may be sent now.
    ready: BTreeSet<Rank>,
    /// The same by age.
    by_age: BTreeSet<(Timestamp, String)>,
    ranks: BTreeMap<String, Rank>,
    picks: u32,
}

impl Channel {
    /// A receiver that nothing is known of yet.
    pub fn new(pace: (f64, f64), known: bool, now: Timestamp) -> Self {
        Self {
            known,
            breaker: Breaker::default(),
            bucket: Bucket::new(pace, now),
            paused_until: Timestamp::from_millis(i64::MIN),
            flying: 0,
            trouble: None,
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            by_age: BTreeSet::new(),
            ranks: BTreeMap::new(),
            picks: 0,
        }
    }

    /// Puts a row in, to be sent at `at`.
    pub fn wait(&mut self, rank: Rank, at: Timestamp) {
        self.waiting.insert((at, rank));
    }

    /// Takes a row out, wherever it is.
    pub fn remove(&mut self, id: &str) {
        if let Some(rank) = self.ranks.remove(id) {
            self.ready.remove(&rank);
            self.by_age.remove(&(rank.created, rank.id));
        } else {
            self.waiting.retain(|(_, rank)| rank.id != id);
        }
    }

    /// Nobody needs to wait any longer: the receiver is back.
    pub fn release(&mut self, now: Timestamp) {
        for (_, rank) in std::mem::take(&mut self.waiting) {
            self.waiting.insert((now, rank));
        }
    }

    /// The row to send now, if any may be sent, and whether it is a probe. It is taken out.
    pub fn pick(&mut self, now: Timestamp) -> Option<(String, bool)> {
        if !self.known || self.flying >= MOST_FLYING || self.paused_until > now {
            return None;
        }
        let probe = match self.breaker.leave(now) {
            Leave::All => false,
            Leave::Probe => true,
            Leave::Nothing | Leave::NothingUntil(_) => return None,
        };
        self.ripen(now);
        let id = if probe {
            self.probe_candidate()?
        } else {
            self.ready_candidate(now)?
        };
        if !self.bucket.take(now) {
            return None;
        }
        if probe {
            self.breaker.probe();
        }
        self.picks = self.picks.wrapping_add(1);
        self.remove(&id);
        self.flying += 1;
        Some((id, probe))
    }

    /// When [`Channel::pick`] may have another answer.
    pub fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.known || self.flying >= MOST_FLYING {
            return None;
        }
        let probing = match self.breaker.leave(now) {
            Leave::All => None,
            Leave::Probe => Some(now),
            Leave::NothingUntil(until) => Some(until),
            Leave::Nothing => return None,
        };
        let first = match (self.ready.is_empty(), self.waiting.first()) {
            (false, _) => now,
            (true, Some((at, _))) => *at,
            (true, None) => return None,
        };
        // A probe goes whenever the breaker lets it, however long its row would have waited.
        let due = probing.unwrap_or(first);
        Some(due.max(self.paused_until).max(self.bucket.next(now)))
    }

    fn ripen(&mut self, now: Timestamp) {
        while let Some((at, rank)) = self.waiting.first().cloned() {
            if at > now {
                break;
            }
            self.waiting.pop_first();
            self.by_age.insert((rank.created, rank.id.clone()));
            self.ranks.insert(rank.id.clone(), rank.clone());
            self.ready.insert(rank);
        }
    }

    fn ready_candidate(&self, now: Timestamp) -> Option<String> {
        let aged = self
            .by_age
            .first()
            .filter(|(created, _)| now.since(*created) > AGED && self.picks % TURN == TURN - 1);
        match aged {
            Some((_, id)) => Some(id.clone()),
            None => self.ready.first().map(|rank| rank.id.clone()),
        }
    }

    /// The most urgent and oldest, also among those that wait for another attempt.
    fn probe_candidate(&self) -> Option<String> {
        let waiting = self.waiting.iter().map(|(_, rank)| rank);
        let best = self.ready.iter().chain(waiting).min()?;
        Some(best.id.clone())
    }
}
