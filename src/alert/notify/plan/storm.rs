//! Storms: many alerts told as one incident. What the storm says next is decided here; who joins
//! is decided at the gate.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alone::Step;
use super::members::Members;
use super::output::{By, Held};
use super::told::Line;
use crate::alert::{Episode, NoticeKind};
use crate::config::StormConfig;
use crate::model::{Severity, Timestamp};

/// Time between two messages about one storm.
const INTERVAL: Duration = Duration::from_secs(60);

/// Before a refused one is tried again: it speaks for many.
pub(super) const RETRY: Duration = Duration::from_secs(600);

/// Members shown.
pub(super) const SAMPLES: usize = 20;

/// Labels shown.
const TOP: usize = 3;

/// One storm at one receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StormState {
    pub(super) id: String,
    pub(super) receiver: String,
    /// Of which rule; `None`: of all.
    pub(super) rule: Option<String>,
    pub(super) line: Line,
    /// It takes in what is new.
    pub(super) open: bool,
    pub(super) since: Timestamp,
    /// Members so far.
    pub(super) total: usize,
    /// Likewise, when it was last told.
    pub(super) told_total: usize,
    /// The worst level so far.
    pub(super) worst: Severity,
    /// Since when few members fire.
    pub(super) calm: Option<Timestamp>,
    /// Those shown last.
    pub(super) sample: Vec<Episode>,
    /// Labels shown last.
    pub(super) top: Vec<(String, String, usize)>,
    #[serde(skip)]
    pub(super) members: Members,
}

impl StormState {
    pub fn new(receiver: &str, key: String, rule: Option<&str>, now: Timestamp) -> Self {
        Self {
            id: key.clone(),
            receiver: receiver.to_owned(),
            rule: rule.map(str::to_owned),
            line: Line::new(key),
            open: true,
            since: now,
            total: 0,
            told_total: 0,
            worst: Severity::Info,
            calm: None,
            sample: Vec::new(),
            top: Vec::new(),
            members: Members::default(),
        }
    }

    /// Takes one in.
    pub(super) fn join(&mut self, key: &str, severity: Severity) {
        self.total += 1;
        self.level(key, severity);
    }

    /// Notes a member's level.
    pub(super) fn level(&mut self, key: &str, severity: Severity) {
        self.members.insert(key, severity);
        self.worst = self.worst.max(severity);
    }

    /// Follows how many fire; `true`: it is over now.
    pub(super) fn calms(&mut self, config: &StormConfig, now: Timestamp) -> bool {
        if !self.open || self.members.len() > config.close {
            self.calm = None;
            return false;
        }
        self.calm.get_or_insert(now).plus(config.calm.0) <= now
    }

    /// What to say next. `repeat_at` is the next reminder; `hold` what keeps it back.
    pub(super) fn decide(
        &self,
        repeat_at: Option<Timestamp>,
        hold: Option<Held>,
        now: Timestamp,
    ) -> Step {
        let line = &self.line;
        if let Some(row) = &line.row {
            let unwanted = !self.open && row.kind != NoticeKind::Resolved && !row.recalling;
            return if unwanted { Step::Recall } else { Step::Idle };
        }
        let level = self.members.worst().unwrap_or(self.worst);
        let free = |resolved| line.free_at(level, resolved).filter(|at| *at > now);
        let Some(told) = &line.told else {
            return match (self.open, free(false)) {
                (false, _) => Step::Idle,
                (true, Some(at)) => Step::Wait(at),
                (true, None) => Step::Open,
            };
        };
        if !self.open {
            return free(true).map_or(Step::Close, Step::Wait);
        }
        let news = self.total >= self.told_total.saturating_mul(2).max(1)
            || told.severity.is_none_or(|severity| level > severity);
        let due = if news {
            line.emitted.map_or(now, |at| at.plus(INTERVAL))
        } else {
            match repeat_at {
                Some(at) => at,
                None => return Step::Idle,
            }
        };
        let due = free(false).map_or(due, |at| at.max(due));
        match hold {
            _ if due > now => Step::Wait(due),
            Some(held) => Step::Held(held),
            None if news => Step::Say(NoticeKind::Update),
            None => Step::Say(NoticeKind::Repeat),
        }
    }

    /// Nothing left to do.
    pub(super) fn is_over(&self) -> bool {
        !self.open && self.line.is_idle() && self.members.is_empty()
    }

    /// Why its members are not told.
    pub(super) fn held(&self) -> Held {
        Held {
            by: By::Storm(self.line.key.clone()),
            until: None,
        }
    }
}

/// The most frequent value of each label, of the three labels where that is shared by most.
pub(super) fn top_labels<'a>(
    episodes: impl Iterator<Item = &'a Episode>,
) -> Vec<(String, String, usize)> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for episode in episodes {
        let own = [("rule", episode.rule.as_str())];
        let kind = episode.device_type.as_deref().map(|kind| ("type", kind));
        let others = episode.tags.iter().chain(&episode.labels);
        let others = others.map(|(label, value)| (label.as_str(), value.as_str()));
        for pair in own.into_iter().chain(kind).chain(others) {
            *counts.entry(pair).or_default() += 1;
        }
    }
    let mut best: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for ((label, value), count) in counts {
        let place = best.entry(label).or_insert((value, 0));
        if count > place.1 {
            *place = (value, count);
        }
    }
    let mut top: Vec<(String, String, usize)> = best
        .into_iter()
        .map(|(label, (value, count))| (label.to_owned(), value.to_owned(), count))
        .collect();
    top.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    top.truncate(TOP);
    top
}
