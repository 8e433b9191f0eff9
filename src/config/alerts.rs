//! `[alerts]`: when what fires is told, and what holds a message back.

use serde::{Deserialize, Serialize};

use super::Problems;
use super::units::Span;

/// Evaluation and notification as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertsConfig {
    /// Whether this process may evaluate rules and tell receivers. Of several that may, one does.
    pub enabled: bool,
    /// Names this installation in the keys that receivers see.
    pub environment: String,
    /// How long a new group gathers before it is told; not for `critical`.
    pub group_wait: Span,
    /// Time between two messages about a group.
    pub group_interval: Span,
    /// Time between reminders of what still fires.
    pub repeat: Span,
    /// Time after an end in which a new episode is not told unless it is worse.
    pub cooldown: Span,
}

impl Default for AlertsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            environment: "tidegate".into(),
            group_wait: Span::secs(10),
            group_interval: Span::secs(60),
            repeat: Span::secs(4 * 3_600),
            cooldown: Span::secs(300),
        }
    }
}

impl AlertsConfig {
    pub(super) fn validate(&self, _problems: &mut Problems) {}
}
