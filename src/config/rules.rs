//! `[[rules]]`: what readings are compared with, and when that is worth telling.

use serde::{Deserialize, Serialize};

use super::Problems;

/// One rule, as written in the file or in the collection `alert_rules`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleConfig {
    /// Immutable identity, used in keys.
    pub id: String,
}

impl RuleConfig {
    pub(super) fn validate_all(_rules: &[RuleConfig], _problems: &mut Problems) {}
}
