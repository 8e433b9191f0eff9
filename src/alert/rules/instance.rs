//! The state of one rule for one device, in memory and as it is stored.
//!
//! Nearly all instances are ok and never were anything else: they are a watermark. What fires,
//! waits to, or did within the last day has a track beside it.

use serde::{Deserialize, Serialize};

use super::episodes::Held;
use super::evaluate::Scalar;
use super::rule::{Condition, Rule};
use super::state::State;
use super::watermark::Watermark;
use super::window::{CountWindow, Memory, Presence, RateWindow};
use crate::model::Severity;

/// How long the track of what ended is kept, in milliseconds: a replay must not open it again.
pub const KEEP_CLOSED_MS: i64 = 86_400_000;

/// One rule for one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// How far it has come.
    pub mark: Watermark,
    /// What it waits for, what fires or did.
    pub track: Option<Box<Track>>,
    /// What the rule's kind remembers.
    pub memory: Option<Box<Memory>>,
    /// When the engine is due to look at it, in milliseconds; `i64::MAX`: never.
    pub(super) queued: i64,
    /// What of it must be stored.
    pub(super) dirt: Dirt,
}

/// What of an instance must be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Dirt {
    /// With the transitions of this round.
    pub urgent: bool,
    /// At the next checkpoint.
    pub touched: bool,
    /// There is a document of it.
    pub stored: bool,
}

/// What an instance is about, beyond its watermark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Track {
    /// The state.
    pub state: State,
    /// The level that fires.
    pub level: Option<Severity>,
    /// Since when each level's trigger holds, in milliseconds, on the rule's clock.
    pub since: [Option<i64>; 4],
    /// Since when it is clear, likewise.
    pub recover_since: Option<i64>,
    /// Time of the last reading judged, likewise.
    pub last_at: i64,
    /// When it was received, in milliseconds.
    pub last_received: i64,
    /// What it said.
    pub value: Option<Scalar>,
    /// No data for longer than the rule allows.
    pub stale: bool,
    /// Somebody knows.
    pub ack: Option<Ack>,
    /// Ended by hand; fires again only after a clear reading.
    pub latched: bool,
    /// That of the last transition.
    pub sequence: u64,
    /// The stream of the reading it began with, if it began with one.
    pub stream: Option<Box<str>>,
    /// Its topic, likewise.
    pub topic: Option<Box<str>>,
    /// The episode, open or the last one.
    pub episode: Option<Box<Held>>,
}

/// An acknowledgement: reminders stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// In milliseconds; `None`: for the rest of the episode.
    pub until: Option<i64>,
}

impl Track {
    pub(super) fn new(last_at: i64, last_received: i64) -> Self {
        Self {
            state: State::Ok,
            level: None,
            since: [None; 4],
            recover_since: None,
            last_at,
            last_received,
            value: None,
            stale: false,
            ack: None,
            latched: false,
            sequence: 0,
            stream: None,
            topic: None,
            episode: None,
        }
    }

    /// Since when the trigger of any level holds.
    pub(super) fn began(&self) -> Option<i64> {
        self.since.iter().flatten().min().copied()
    }

    /// The next end of a `for` on the clock of receipt, and the worst level it qualifies. `None`
    /// also where the device has been silent for so long that its last value cannot be taken to
    /// hold until then.
    pub(super) fn wall_deadline(
        &self,
        rule: &Rule,
        gap_ms: Option<i64>,
    ) -> Option<(i64, Severity)> {
        if !rule.wall || rule.is_absence() || self.state == State::Ok {
            return None;
        }
        let due = rule
            .ladder()
            .filter(|(severity, _)| Some(*severity) > self.level);
        let due = due.filter_map(|(severity, level)| {
            let since = self.since[severity as usize]?;
            Some((since.saturating_add(level.for_ms), severity))
        });
        let due: Vec<_> = due.collect();
        let at = due.iter().map(|(at, _)| *at).min()?;
        if gap_ms.is_some_and(|most| at - self.last_received > most) {
            return None;
        }
        let qualified = due.iter().filter(|(due, _)| *due <= at);
        qualified
            .map(|(_, severity)| *severity)
            .max()
            .map(|level| (at, level))
    }

    /// When an open episode has had no data for `after`, in milliseconds.
    pub(super) fn no_data_at(&self, rule: &Rule, after: Option<i64>, thawed: i64) -> Option<i64> {
        let after = after.filter(|_| self.state.is_open() && !rule.is_absence())?;
        Some(graced(
            self.last_received.saturating_add(after),
            after,
            thawed,
        ))
    }

    /// When the track of an episode that ended may be forgotten.
    pub(super) fn forget_at(&self) -> Option<i64> {
        let ended = self.episode.as_ref()?.ended?;
        (self.state == State::Ok).then(|| ended.at.millis().saturating_add(KEEP_CLOSED_MS))
    }

    /// Whether there is nothing in it that matters.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Ok && !self.latched && self.episode.is_none()
    }
}

impl Default for Instance {
    fn default() -> Self {
        Self {
            mark: Watermark::default(),
            track: None,
            memory: None,
            queued: i64::MAX,
            dirt: Dirt::default(),
        }
    }
}

impl Instance {
    /// The state.
    pub fn state(&self) -> State {
        self.track.as_ref().map_or(State::Ok, |track| track.state)
    }

    pub(super) fn count_window(&mut self) -> &mut CountWindow {
        let memory = self
            .memory
            .get_or_insert_with(|| Box::new(Memory::Count(CountWindow::default())));
        if !matches!(**memory, Memory::Count(_)) {
            **memory = Memory::Count(CountWindow::default());
        }
        match &mut **memory {
            Memory::Count(window) => window,
            _ => unreachable!("set above"),
        }
    }

    pub(super) fn rate_window(&mut self) -> &mut RateWindow {
        let memory = self
            .memory
            .get_or_insert_with(|| Box::new(Memory::Rate(RateWindow::default())));
        if !matches!(**memory, Memory::Rate(_)) {
            **memory = Memory::Rate(RateWindow::default());
        }
        match &mut **memory {
            Memory::Rate(window) => window,
            _ => unreachable!("set above"),
        }
    }

    /// When it was last heard of, for absence.
    pub(super) fn presence(&self) -> Option<Presence> {
        match self.memory.as_deref() {
            Some(Memory::Presence(presence)) => Some(*presence),
            _ => None,
        }
    }

    pub(super) fn set_presence(&mut self, presence: Presence) {
        match self.memory.as_deref_mut() {
            Some(memory) => *memory = Memory::Presence(presence),
            None => self.memory = Some(Box::new(Memory::Presence(presence))),
        }
    }

    /// The earliest time at which silence by itself does something, `thawed` being when the
    /// gateway last began to see again.
    pub(super) fn deadline(&self, rule: &Rule, gap_ms: Option<i64>, thawed: i64) -> Option<i64> {
        let silence = self.silence_deadline(rule, thawed).map(|(at, _)| at);
        let Some(track) = &self.track else {
            return silence;
        };
        let no_data = |after: Option<i64>| track.no_data_at(rule, after, thawed);
        [
            silence,
            track.wall_deadline(rule, gap_ms).map(|(at, _)| at),
            no_data(rule.stale_after_ms.filter(|_| !track.stale)),
            no_data(rule.resolve_after_ms),
            track.ack.and_then(|ack| ack.until),
            track.forget_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next level that silence reaches, and when.
    pub(super) fn silence_deadline(&self, rule: &Rule, thawed: i64) -> Option<(i64, Severity)> {
        let Condition::Absence {
            silence_ms,
            timeout_ms,
            ..
        } = rule.condition
        else {
            return None;
        };
        let track = self.track.as_deref();
        if track.is_some_and(|track| track.latched) {
            return None;
        }
        // While recovering the level stands, but silence may take it up again.
        let level = track
            .filter(|track| track.state == State::Firing)
            .and_then(|track| track.level);
        let since = self.presence()?.since;
        let due = |for_ms: i64| {
            let due = since.saturating_add(silence_ms).saturating_add(for_ms);
            graced(due, timeout_ms, thawed)
        };
        let next = rule
            .ladder()
            .filter(|(severity, _)| Some(*severity) > level)
            .map(|(severity, level)| (due(level.for_ms), severity));
        let next: Vec<_> = next.collect();
        let at = next.iter().map(|(at, _)| *at).min()?;
        let reached = next.iter().filter(|(due, _)| *due == at);
        reached
            .map(|(_, severity)| *severity)
            .max()
            .map(|level| (at, level))
    }
}

/// After a time in which the gateway saw nothing, silence counts from a little later.
pub(super) fn graced(due: i64, span_ms: i64, thawed: i64) -> i64 {
    const GRACE_MS: i64 = 120_000;
    due.max(thawed.saturating_add(span_ms.min(GRACE_MS)))
}
