//! Which row is sent next, and what becomes of it. Pure: time and chance are arguments, so that an
//! outage of an hour passes in a moment.
//!
//! Rows of one (receiver, key) go one at a time, in the order of their sequence; across keys the
//! most urgent goes first. Attempts that cannot be made do not count.

mod channel;
mod step;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::row::{BORN_USABLE, Row, give_up_after};
use crate::model::Timestamp;
use channel::{Channel, Rank};
pub use step::{News, Step};

/// Requests under way in all.
const MOST_FLYING: usize = 64;

/// The rows that are owed.
#[derive(Debug, Default)]
pub struct Queue {
    /// Names this process in leases.
    owner: String,
    rows: HashMap<String, Entry>,
    /// By receiver and key, the order of rows.
    lines: HashMap<(String, String), BTreeSet<(u64, String)>>,
    channels: BTreeMap<String, Channel>,
    /// When each row is given up.
    deadlines: BTreeSet<(Timestamp, String)>,
    /// Since when each is owed.
    ages: BTreeSet<(Timestamp, String)>,
    flying: usize,
}

#[derive(Debug)]
struct Entry {
    row: Row,
    stage: Stage,
    ready_at: Timestamp,
    deadline: Timestamp,
    /// By our clock, until when nobody else may send it.
    leased_until: Option<Timestamp>,
    /// Somebody wants it back as soon as what is under way has ended.
    wanted_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Another row of the same key comes first.
    Behind,
    /// In its channel.
    Waiting,
    /// Being sent.
    Flying { probe: bool },
    /// What became of it is being written down.
    Settling,
}

/// A row to send.
#[derive(Debug)]
pub struct Job {
    /// The row.
    pub row: Row,
    /// Until when its lease is ours already; `None`: it has to be taken first.
    pub leased_until: Option<Timestamp>,
}

/// What became of a wish to take a row back.
#[derive(Debug, PartialEq, Eq)]
pub enum Recall {
    /// It is held still, to be written down.
    Now,
    /// It is being sent, or what became of it is being written down: see
    /// [`Queue::wanted_back`] afterwards.
    Busy,
    /// There is no such row.
    Unknown,
}

/// A receiver's rows in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its name.
    pub receiver: String,
    /// Rows that are not being sent.
    pub waiting: usize,
    /// Requests under way.
    pub flying: usize,
    /// See [`super::breaker::Breaker::level`].
    pub breaker: i64,
    /// What is wrong with it, and since when.
    pub trouble: Option<(String, Timestamp)>,
}

impl Queue {
    /// An empty one of the process `owner`.
    pub fn new(owner: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            ..Self::default()
        }
    }

    /// Which receivers there are, and how fast each may be told. A receiver that is no longer named
    /// stays known as long as rows are owed to it.
    pub fn configure(&mut self, paces: &BTreeMap<String, (f64, f64)>, now: Timestamp) {
        for (name, pace) in paces {
            let channel = self
                .channels
                .entry(name.clone())
                .or_insert_with(|| Channel::new(*pace, true, now));
            channel.known = true;
            channel.bucket.set(*pace, now);
            // Whatever was wrong may have been put right: ask again at once.
            channel.breaker.reset();
            channel.trouble = None;
            channel.release(now);
        }
        let owed: BTreeSet<&String> = self
            .rows
            .values()
            .map(|entry| &entry.row.receiver)
            .collect();
        self.channels
            .retain(|name, _| paces.contains_key(name) || owed.contains(name));
    }

    /// Whether anything is owed to this receiver.
    pub fn owes(&self, receiver: &str) -> bool {
        self.rows
            .values()
            .any(|entry| entry.row.receiver == receiver)
    }

    /// The rows that are here.
    pub fn ids(&self) -> HashSet<String> {
        self.rows.keys().cloned().collect()
    }

    /// Puts a row in. `false`: it is there already.
    pub fn push(&mut self, row: Row, now: Timestamp) -> bool {
        if self.rows.contains_key(&row.id) {
            return false;
        }
        let ours = row
            .lease
            .as_ref()
            .is_some_and(|lease| lease.owner == self.owner);
        let id = row.id.clone();
        let entry = Entry {
            stage: Stage::Behind,
            ready_at: row.next_at.unwrap_or(now),
            deadline: row.queued_at.plus(give_up_after(row.notice.kind)),
            leased_until: (ours && row.attempts == 0).then(|| row.created.plus(BORN_USABLE)),
            wanted_back: false,
            row,
        };
        self.deadlines.insert((entry.deadline, id.clone()));
        self.ages.insert((entry.row.queued_at, id.clone()));
        let line = line(&entry.row);
        self.channels
            .entry(entry.row.receiver.clone())
            .or_insert_with(|| Channel::new((1.0, 1.0), false, now));
        let sequence = entry.row.sequence;
        self.rows.insert(id.clone(), entry);
        let ahead = self.lines.entry(line.clone()).or_default();
        ahead.insert((sequence, id));
        self.promote(&line);
        true
    }

    /// The next row to send.
    pub fn next(&mut self, now: Timestamp) -> Option<Job> {
        if self.flying >= MOST_FLYING {
            return None;
        }
        let (id, probe) = self
            .channels
            .values_mut()
            .find_map(|channel| channel.pick(now))?;
        self.flying += 1;
        let entry = self
            .rows
            .get_mut(&id)
            .expect("a channel holds rows that are here");
        entry.stage = Stage::Flying { probe };
        Some(Job {
            row: entry.row.clone(),
            leased_until: entry.leased_until,
        })
    }

    /// When to look again, if nothing else happens.
    pub fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        // What is due already is on its way: see `expired`, which comes first.
        let later = (now.plus(Duration::from_millis(1)), String::new());
        let expiry = self.deadlines.range(later..).next().map(|(at, _)| *at);
        let channels = self
            .channels
            .values()
            .filter(|_| self.flying < MOST_FLYING)
            .filter_map(|channel| channel.wake(now));
        channels.chain(expiry).min()
    }

    /// The lease of a row could not be had: it waits without having been tried.
    pub fn not_sent(&mut self, id: &str, pause: Duration, now: Timestamp) {
        self.land(id, now.plus(pause));
        if let Some(entry) = self.rows.get_mut(id) {
            entry.leased_until = None;
            entry.ready_at = now.plus(pause);
            entry.stage = Stage::Behind;
            let line = line(&entry.row);
            self.promote(&line);
        }
    }

    /// The row as the database has it, now that its lease is ours.
    pub fn refresh(&mut self, row: &Row) {
        if let Some(entry) = self.rows.get_mut(&row.id) {
            entry.row.ambiguous |= row.ambiguous;
            entry.row.attempts = entry.row.attempts.max(row.attempts);
        }
    }

    /// What became of a row is written down. Returns the row, if that was its end.
    pub fn recorded(&mut self, id: &str, ended: bool, now: Timestamp) -> Option<Row> {
        if ended {
            self.land(id, now);
            return self.remove(id);
        }
        if let Some(entry) = self.rows.get_mut(id) {
            entry.stage = Stage::Behind;
            let line = line(&entry.row);
            self.promote(&line);
        }
        None
    }

    /// Somebody wants a row back.
    pub fn recall(&mut self, id: &str) -> Recall {
        let Some(entry) = self.rows.get_mut(id) else {
            return Recall::Unknown;
        };
        match entry.stage {
            Stage::Flying { .. } | Stage::Settling => {
                entry.wanted_back = true;
                Recall::Busy
            }
            Stage::Behind | Stage::Waiting => {
                entry.stage = Stage::Settling;
                if let Some(channel) = self.channels.get_mut(&entry.row.receiver) {
                    channel.remove(id);
                }
                Recall::Now
            }
        }
    }

    /// Whether somebody wanted the row back while it was being sent.
    pub fn wanted_back(&self, id: &str) -> bool {
        self.rows.get(id).is_some_and(|entry| entry.wanted_back)
    }

    /// Rows that are ours by lease but are not being sent.
    pub fn leased(&self) -> Vec<String> {
        let idle = |entry: &&Entry| {
            matches!(entry.stage, Stage::Behind | Stage::Waiting) && entry.leased_until.is_some()
        };
        let idle = self.rows.values().filter(idle);
        idle.map(|entry| entry.row.id.clone()).collect()
    }

    /// Since when the oldest row is owed.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.ages.first().map(|(at, _)| *at)
    }

    /// How things stand, by receiver.
    pub fn standing(&self, now: Timestamp) -> Vec<Standing> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for entry in self.rows.values() {
            *counts.entry(&entry.row.receiver).or_default() += 1;
        }
        let each = self.channels.iter().map(|(name, channel)| Standing {
            receiver: name.clone(),
            waiting: counts
                .get(name.as_str())
                .map_or(0, |all| all.saturating_sub(channel.flying)),
            flying: channel.flying,
            breaker: channel.breaker.level(now),
            trouble: channel.trouble.clone(),
        });
        each.collect()
    }

    /// The first row of a line goes into its channel.
    fn promote(&mut self, line: &(String, String)) {
        let Some(rows) = self.lines.get(line) else {
            return;
        };
        // While one is on its way or its end is being written, nobody overtakes it.
        let busy = |(_, id): &(u64, String)| {
            let stage = self.rows.get(id).map(|entry| entry.stage);
            matches!(stage, Some(Stage::Flying { .. } | Stage::Settling))
        };
        if rows.iter().any(busy) {
            return;
        }
        let Some((_, first)) = rows.first() else {
            return;
        };
        let first = first.clone();
        for (_, id) in rows.iter().skip(1) {
            let entry = self
                .rows
                .get_mut(id)
                .expect("a line holds rows that are here");
            // A row with a lower number came late.
            if entry.stage == Stage::Waiting {
                entry.stage = Stage::Behind;
                if let Some(channel) = self.channels.get_mut(&line.0) {
                    channel.remove(id);
                }
            }
        }
        let entry = self
            .rows
            .get_mut(&first)
            .expect("a line holds rows that are here");
        if entry.stage == Stage::Behind {
            entry.stage = Stage::Waiting;
            if let Some(channel) = self.channels.get_mut(&line.0) {
                channel.wait(Rank::of(&entry.row), entry.ready_at);
            }
        }
    }

    /// Ends a flight, if the row is on one, that has told nothing about the receiver. If it was a
    /// probe, the next one may go at `probe_again`.
    fn land(&mut self, id: &str, probe_again: Timestamp) {
        let Some(entry) = self.rows.get_mut(id) else {
            return;
        };
        if let Stage::Flying { probe } = entry.stage {
            entry.stage = Stage::Settling;
            self.flying = self.flying.saturating_sub(1);
            if let Some(channel) = self.channels.get_mut(&entry.row.receiver) {
                channel.flying = channel.flying.saturating_sub(1);
                if probe {
                    channel.breaker.probe_void(probe_again);
                }
            }
        }
    }

    fn remove(&mut self, id: &str) -> Option<Row> {
        let entry = self.rows.remove(id)?;
        self.deadlines.remove(&(entry.deadline, id.to_owned()));
        self.ages.remove(&(entry.row.queued_at, id.to_owned()));
        let line = line(&entry.row);
        if let Some(rows) = self.lines.get_mut(&line) {
            rows.remove(&(entry.row.sequence, id.to_owned()));
            if rows.is_empty() {
                self.lines.remove(&line);
            }
        }
        if let Some(channel) = self.channels.get_mut(&entry.row.receiver) {
            channel.remove(id);
        }
        self.promote(&line);
        Some(entry.row)
    }
}

fn line(row: &Row) -> (String, String) {
    (row.receiver.clone(), row.key.clone())
}

#[cfg(test)]
mod tests;
