//! What rules say and receivers are told: one alert's episode, from firing to resolved.
//!
//! A snapshot, complete without the rule it came from, so that an episode can be closed after the
//! rule was edited or deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Severity, Timestamp};

/// An alert's episode as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Episode {
    /// Identity of the alert, the same in every episode of it: `<rule>:<device>`, or
    /// `h:<32 hex digits>` where that is too long or not plain. Never value, level, tag or version.
    pub key: String,
    /// This episode: a hash of key and cause, the same when evaluated again.
    pub id: String,
    /// Counts the changes of this alert; grows, also from episode to episode.
    pub sequence: u64,
    /// The rule's id.
    pub rule: String,
    /// The rule's name for people; its id if it has none.
    pub name: String,
    /// `threshold`, `rate`, `count`, `absence`; `gateway` for what the gateway says of itself.
    pub kind: String,
    /// The device.
    pub device: String,
    /// Its type.
    pub device_type: Option<String>,
    /// Its tags when the episode began; they stay.
    pub tags: BTreeMap<String, String>,
    /// The field looked at.
    pub field: Option<String>,
    /// Its unit.
    pub unit: Option<String>,
    /// The comparison, as written in the rule.
    pub op: Option<String>,
    /// The level now, or the last one.
    pub severity: Severity,
    /// The value last seen: a number, text or truth value.
    pub value: Option<serde_json::Value>,
    /// The worst number seen.
    pub peak: Option<f64>,
    /// What the level fires at.
    pub threshold: Option<f64>,
    /// What it clears at.
    pub clear: Option<f64>,
    /// When the condition began to hold.
    pub started_at: Timestamp,
    /// When it began to fire.
    pub fired_at: Timestamp,
    /// When and why it ended; `None`: it fires.
    pub ended: Option<Ended>,
    /// The rule's labels.
    pub labels: BTreeMap<String, String>,
    /// The rule's annotations, templates not yet rendered.
    pub annotations: BTreeMap<String, String>,
    /// Whom the rule names; empty: whoever's own conditions fit.
    pub receivers: Vec<String>,
    /// The rule's own wishes about notifications.
    #[serde(default)]
    pub wishes: Wishes,
    /// Remarks: `late`, `catchup`, `stale`, `acked`.
    #[serde(default)]
    pub flags: Vec<String>,
}

/// What a rule may say about its notifications; `None`: as the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wishes {
    /// Time after an end in which a new episode is not told.
    pub cooldown: Option<Duration>,
    /// Time between reminders by level.
    #[serde(default)]
    pub repeat: BTreeMap<Severity, Duration>,
}

/// An episode's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: EndReason,
}

/// Why an episode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The condition no longer holds.
    ConditionCleared,
    /// No data for as long as the rule allows.
    NoData,
    /// The rule was edited, and its new form does not fire.
    RuleChanged,
    /// The rule was disabled.
    RuleDisabled,
    /// The rule was deleted.
    RuleDeleted,
    /// The device no longer is among those the rule selects.
    OutOfScope,
    /// The device was deleted.
    DeviceDeleted,
    /// Somebody said so.
    Manual,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [EndReason; 8] = [
        Self::ConditionCleared,
        Self::NoData,
        Self::RuleChanged,
        Self::RuleDisabled,
        Self::RuleDeleted,
        Self::OutOfScope,
        Self::DeviceDeleted,
        Self::Manual,
    ];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConditionCleared => "condition_cleared",
            Self::NoData => "no_data",
            Self::RuleChanged => "rule_changed",
            Self::RuleDisabled => "rule_disabled",
            Self::RuleDeleted => "rule_deleted",
            Self::OutOfScope => "out_of_scope",
            Self::DeviceDeleted => "device_deleted",
            Self::Manual => "manual",
        }
    }
}

/// How an alert changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// A new episode.
    Fired,
    /// To a higher level.
    Escalated,
    /// To a lower level.
    Deescalated,
    /// The end of the episode.
    Resolved,
    /// The episode goes on with another text, route or flag; nobody is told because of it.
    Updated,
}

impl Change {
    /// Every change.
    pub const ALL: [Change; 5] = [
        Self::Fired,
        Self::Escalated,
        Self::Deescalated,
        Self::Resolved,
        Self::Updated,
    ];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Escalated => "escalated",
            Self::Deescalated => "deescalated",
            Self::Resolved => "resolved",
            Self::Updated => "updated",
        }
    }
}

/// One change of one alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// What happened.
    pub change: Change,
    /// When, in the time of the rule: that of the reading, or of the deadline.
    pub at: Timestamp,
    /// The level before.
    pub previous: Option<Severity>,
    /// The episode after it.
    pub episode: Episode,
}
