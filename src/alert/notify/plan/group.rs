//! Groups: alerts that a receiver is told of in one message. What a group says next is decided
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alone::Step;
use super::members::Members;
use super::output::{By, Held};
use super::told::Line;
use crate::alert::{Episode, NoticeKind};
use crate::model::{Severity, Timestamp};

/// One group at one receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub(super) id: String,
    pub(super) receiver: String,
    /// What its alerts have in common.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) line: Line,
    /// When it has gathered for long enough to be told for the first time.
    pub(super) opening: Option<Timestamp>,
    /// Episodes that are over and that only a request told of which was sent again by hand.
    pub(super) orphans: Vec<Episode>,
    /// Members that fire.
    #[serde(skip)]
    pub(super) firing: Members,
    /// Members that are over, which the receiver has yet to hear.
    #[serde(skip)]
    pub(super) ended: BTreeSet<String>,
    /// Something changed since its members were last compared with what was told.
    #[serde(skip)]
    pub(super) changed: bool,
}

/// What there is to tell of an open group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct News {
    pub any: bool,
    /// When there will be, as far as one knows.
    pub later: Option<Timestamp>,
}

/// What is looked at beside the group.
pub(super) struct Around<'a> {
    /// The receiver is gone: it is told ends only.
    pub ends_only: bool,
    pub interval: Duration,
    /// End of the catching up.
    pub hold_until: Option<Timestamp>,
    /// Compares members with what was told.
    pub news: &'a dyn Fn() -> News,
    /// The next reminder.
    pub repeat_at: &'a dyn Fn() -> Option<Timestamp>,
    /// Whether all members are silenced or known to somebody, and until when.
    pub unwanted: &'a dyn Fn() -> Option<Held>,
}

impl Group {
    pub fn new(receiver: &str, key: String, labels: BTreeMap<String, String>) -> Self {
        Self {
            id: key.clone(),
            receiver: receiver.to_owned(),
            labels,
            line: Line::new(key),
            opening: None,
            orphans: Vec::new(),
            firing: Members::default(),
            ended: BTreeSet::new(),
            changed: true,
        }
    }

    /// Whether its level makes it worth interrupting: it became critical.
    fn urgent(&self) -> bool {
        let known = self.line.told.as_ref().and_then(|told| told.severity);
        self.firing.worst() == Some(Severity::Critical) && known != Some(Severity::Critical)
    }

    /// Decides; beside it, whether members were compared and nothing was new.
    pub(super) fn decide(&self, around: &Around<'_>, now: Timestamp) -> (Step, bool) {
        let worst = self.firing.worst().unwrap_or(Severity::Info);
        if let Some(row) = &self.line.row {
            let risen = self.urgent() && worst > row.severity;
            let unwanted = self.firing.is_empty() || around.ends_only || risen;
            let recall = unwanted && row.kind != NoticeKind::Resolved && !row.recalling;
            return (if recall { Step::Recall } else { Step::Idle }, false);
        }
        let pause = self.line.emitted.map_or(now, |at| at.plus(around.interval));
        let told = self.line.told.is_some();
        if self.firing.is_empty() {
            // One that is closed is remembered until the next message about it may be sent.
            let due = match (told, self.line.free_at(worst, true)) {
                (true, Some(free)) => pause.max(free),
                _ => pause,
            };
            return match (told, due > now) {
                (true, true) => (group(due), false),
                (true, false) => (Step::Close, false),
                (false, true) => (Step::Wait(due), false),
                (false, false) => (Step::Idle, false),
            };
        }
        if around.ends_only {
            return (Step::Idle, false);
        }
        let free = self.line.free_at(worst, false).filter(|at| *at > now);
        let ready = if self.urgent() {
            now
        } else if told {
            pause
        } else {
            pause.max(self.opening.unwrap_or(now))
        };
        let ready = free.map_or(ready, |at| at.max(ready));
        match told {
            true => self.known(around, ready, now),
            false if ready > now => (group(ready), false),
            false => (caught_up(around).unwrap_or(Step::Open), false),
        }
    }

    fn known(&self, around: &Around<'_>, ready: Timestamp, now: Timestamp) -> (Step, bool) {
        if self.changed && ready > now {
            return (group(ready), false);
        }
        let news = if self.changed {
            (around.news)()
        } else {
            News::default()
        };
        if news.any {
            let step = caught_up(around).unwrap_or(Step::Say(NoticeKind::Update));
            return (step, false);
        }
        let due = match ((around.repeat_at)(), news.later) {
            (Some(a), Some(b)) => a.min(b),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => return (Step::Idle, true),
        };
        let due = due.max(ready);
        // What comes later has to be found then.
        let nothing = news.later.is_none();
        let step = if due > now {
            Step::Wait(due)
        } else if let Some(held) = (around.unwanted)() {
            Step::Held(held)
        } else {
            caught_up(around).unwrap_or(Step::Say(NoticeKind::Repeat))
        };
        (step, nothing)
    }
}

fn group(until: Timestamp) -> Step {
    Step::Held(Held {
        by: By::Group,
        until: Some(until),
    })
}

fn caught_up(around: &Around<'_>) -> Option<Step> {
    let until = around.hold_until?;
    Some(Step::Held(Held {
        by: By::CatchUp,
        until: Some(until),
    }))
}
