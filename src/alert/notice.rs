//! One request to one receiver: what it is about, before it is put in that receiver's words, and
//! how it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::episode::Episode;
use crate::model::{Severity, Timestamp};

/// What one request is to say. At most one is under way for each (receiver, key).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// The outbox row: 32 hex digits from receiver, key and sequence. The webhook id is `msg_` and this.
    pub id: String,
    /// To whom.
    pub receiver: String,
    /// What keeps order, and what the receiver knows the incident by: an alert's key, a group's
    /// (`group:…`) or a storm's (`storm:…`).
    pub key: String,
    /// Grows within (receiver, key).
    pub sequence: u64,
    /// What it is.
    pub kind: NoticeKind,
    /// The worst level among the episodes that fire, or that did.
    pub severity: Severity,
    /// When it was decided.
    pub at: Timestamp,
    /// One, or those of the group, worst first, cut to what the receiver takes.
    pub episodes: Vec<Episode>,
    /// How many more there are.
    #[serde(default)]
    pub truncated: usize,
    /// What the episodes of a group have in common.
    #[serde(default)]
    pub group: BTreeMap<String, String>,
    /// Where it stands for many: their numbers.
    #[serde(default)]
    pub storm: Option<Storm>,
}

/// What a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// Something new fires.
    Firing,
    /// The level or the members changed.
    Update,
    /// It still fires.
    Repeat,
    /// Nothing of it fires any more.
    Resolved,
    /// Somebody tries the receiver out.
    Test,
}

impl NoticeKind {
    /// Every kind.
    pub const ALL: [NoticeKind; 5] = [
        Self::Firing,
        Self::Update,
        Self::Repeat,
        Self::Resolved,
        Self::Test,
    ];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Update => "update",
            Self::Repeat => "repeat",
            Self::Resolved => "resolved",
            Self::Test => "test",
        }
    }
}

/// Many alerts told as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Storm {
    /// Members so far.
    pub total: usize,
    /// Those that fire now.
    pub firing: usize,
    /// The most frequent values of up to three labels: `(label, value, count)`.
    pub top: Vec<(String, String, usize)>,
    /// When it began.
    pub since: Timestamp,
}

/// How a notice's row ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The notice.
    pub notice: Notice,
    /// Its end.
    pub outcome: Delivery,
    /// When.
    pub at: Timestamp,
}

/// The end of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The receiver said yes.
    Accepted,
    /// Given up, with the reason. `ambiguous`: some attempt may have been accepted all the same.
    Dead {
        /// For people.
        reason: String,
        /// Whether the receiver may have it.
        ambiguous: bool,
    },
    /// Recalled before it was accepted. `ambiguous`: some attempt may have been accepted.
    Recalled {
        /// Whether the receiver may have it.
        ambiguous: bool,
    },
}
