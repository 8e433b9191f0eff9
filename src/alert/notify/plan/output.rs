//! What planning gives: requests to make and to take back, history, and what to remember.

use serde::{Deserialize, Serialize};

use super::alert::Alert;
use super::gate::Gate;
use super::group::Group;
use super::storm::StormState;
use crate::alert::{Notice, NoticeKind};
use crate::model::{Severity, Timestamp};

/// Everything that follows at one instant. To be stored in one transaction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// New rows of the outbox.
    pub notices: Vec<Notice>,
    /// Ids of rows to take back unless they are accepted first. Asked again after a restart.
    pub recall: Vec<String>,
    /// Lines of history.
    pub remarks: Vec<Remark>,
    /// Documents to write, whole, by their id.
    pub changed: Vec<Doc>,
    /// Ids of documents to delete.
    pub removed: Vec<String>,
}

impl Plan {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty()
            && self.recall.is_empty()
            && self.remarks.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
    }
}

/// What was stored, for a new planner.
#[derive(Debug, Clone, Default)]
pub struct Saved {
    /// The documents as last written, those removed left out.
    pub docs: Vec<Doc>,
}

/// One document of the planner's memory. Its `id` tells what it is of: `alert:`, `group:`,
/// `storm:` or `receiver:`. It is deleted when nothing is owed and nothing has to be remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "doc", rename_all = "camelCase")]
pub enum Doc {
    /// An alert, and what each receiver knows of it.
    Alert(Box<Alert>),
    /// A group that a receiver is told of as one.
    Group(Group),
    /// A storm.
    Storm(StormState),
    /// A receiver's counts; kept as long as it is configured.
    Receiver(Gate),
}

impl Doc {
    /// Its id, unique among all.
    pub fn id(&self) -> &str {
        match self {
            Self::Alert(alert) => &alert.id,
            Self::Group(group) => &group.id,
            Self::Storm(storm) => &storm.id,
            Self::Receiver(gate) => &gate.id,
        }
    }
}

/// A line of history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remark {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: RemarkKind,
    /// The alert's key, or that of the group or storm.
    pub key: String,
    /// The episode, where it is about one.
    pub episode: Option<String>,
    /// The receiver, where it is about one.
    pub receiver: Option<String>,
    /// What kept it back.
    #[serde(flatten)]
    pub by: Option<By>,
    /// For people.
    pub detail: Option<String>,
}

/// What a line of history says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemarkKind {
    /// A receiver is not told now.
    Suppressed,
    /// It was over before the receiver was told, and so it never will be.
    CancelledUnsent,
    /// It was over, and the receiver had refused it.
    NeverNotified,
    /// The receiver refused a request.
    Undelivered,
    /// The end of what the receiver was told could not be told for three days: given up.
    Abandoned,
    /// Nobody is told of the alert.
    NoReceiver,
    /// Many alerts became one incident.
    StormOpened,
    /// It is over; those left are told for themselves.
    StormClosed,
    /// The alert comes and goes: it is held.
    Flapping,
    /// It does no longer.
    Steady,
}

impl RemarkKind {
    /// Every kind.
    pub const ALL: [RemarkKind; 10] = [
        Self::Suppressed,
        Self::CancelledUnsent,
        Self::NeverNotified,
        Self::Undelivered,
        Self::Abandoned,
        Self::NoReceiver,
        Self::StormOpened,
        Self::StormClosed,
        Self::Flapping,
        Self::Steady,
    ];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Suppressed => "suppressed",
            Self::CancelledUnsent => "cancelled_unsent",
            Self::NeverNotified => "never_notified",
            Self::Undelivered => "undelivered",
            Self::Abandoned => "abandoned",
            Self::NoReceiver => "no_receiver",
            Self::StormOpened => "storm_opened",
            Self::StormClosed => "storm_closed",
            Self::Flapping => "flapping",
            Self::Steady => "steady",
        }
    }
}

/// What keeps a request back, and until when.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// What.
    pub by: By,
    /// Until when; `None`: until something changes.
    pub until: Option<Timestamp>,
}

/// What keeps a request back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", content = "name", rename_all = "snake_case")]
pub enum By {
    /// The receiver is told of worse only.
    MinSeverity,
    /// The watcher works through a backlog.
    CatchUp,
    /// The silence of this id.
    Silence(String),
    /// The quiet hours of this name.
    Quiet(String),
    /// The alert ended a moment ago.
    Cooldown,
    /// The group gathers, or was told a moment ago.
    Group,
    /// It is told as part of the storm of this key.
    Storm(String),
    /// Somebody knows.
    Acked,
    /// The receiver refused it.
    Refused,
    /// Too many requests in the last minute.
    Pace,
}

impl By {
    /// The stable name, without that of the silence, the hours or the storm.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::MinSeverity => "min_severity",
            Self::CatchUp => "catch_up",
            Self::Silence(_) => "silence",
            Self::Quiet(_) => "quiet",
            Self::Cooldown => "cooldown",
            Self::Group => "group",
            Self::Storm(_) => "storm",
            Self::Acked => "acked",
            Self::Refused => "refused",
            Self::Pace => "pace",
        }
    }
}

/// How an alert stands with one receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The receiver.
    pub receiver: String,
    /// The key of the incident it would know it by.
    pub key: String,
    /// Whether it knows: `Some(true)`: it said yes, `Some(false)`: it may have heard.
    pub told: Option<bool>,
    /// The level last told, if that is clear.
    pub severity: Option<Severity>,
    /// When it was last told.
    pub at: Option<Timestamp>,
    /// The request under way.
    pub under_way: Option<NoticeKind>,
    /// What keeps the next one back.
    pub held: Option<Held>,
}
