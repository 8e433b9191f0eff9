//! `[[receivers]]`: who is told, and how.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Problems;
use super::units::Span;
use crate::model::Severity;

/// One receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverConfig {
    /// Its name, in rules, rows and metrics.
    pub name: String,
    /// What it speaks.
    pub kind: ReceiverKind,
    /// The mildest level it is told about.
    pub min_severity: Severity,
    /// What an alert must have, by label: `rule`, `severity`, `device`, `type`, `field`, a tag or a
    /// label of the rule; any of the values, with `*` and `?`. A rule that names its receivers
    /// passes this by.
    #[serde(rename = "match")]
    pub matches: BTreeMap<String, Vec<String>>,
    /// Whether each alert is told for itself, or all of a group in one message. By default what
    /// the kind can do best.
    pub incident: Option<Incident>,
    /// Labels whose values make a group.
    pub group_by: Vec<String>,
    /// How long a new group gathers before it is told; not for `critical`.
    pub group_wait: Option<Span>,
    /// Time between two messages about a group.
    pub group_interval: Option<Span>,
    /// Time between reminders of what still fires.
    pub repeat: Option<Span>,
    /// Episodes in one message at the most.
    pub max_alerts: usize,
}

/// What a receiver speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReceiverKind {
    /// Tidegate's own JSON, signed as Standard Webhooks.
    #[default]
    Generic,
    /// PagerDuty Events v2.
    Pagerduty,
    /// A Slack incoming webhook.
    Slack,
    /// Alertmanager's webhook payload, version 4.
    Alertmanager,
    /// Opsgenie alerts.
    Opsgenie,
    /// ntfy.
    Ntfy,
    /// A JSON body of the operator's own.
    Template,
}

/// What one incident at the receiver stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Incident {
    /// One alert.
    Alert,
    /// A group of alerts.
    Group,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: ReceiverKind::Generic,
            min_severity: Severity::Info,
            matches: BTreeMap::new(),
            incident: None,
            group_by: vec!["rule".into()],
            group_wait: None,
            group_interval: None,
            repeat: None,
            max_alerts: 100,
        }
    }
}

impl ReceiverConfig {
    /// What one incident stands for.
    pub fn incident(&self) -> Incident {
        self.incident.unwrap_or(match self.kind {
            ReceiverKind::Slack | ReceiverKind::Alertmanager | ReceiverKind::Ntfy => {
                Incident::Group
            }
            _ => Incident::Alert,
        })
    }

    pub(super) fn validate_all(_receivers: &[ReceiverConfig], _problems: &mut Problems) {}
}
