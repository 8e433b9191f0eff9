//! `[log]`: what the gateway says about itself.

use serde::{Deserialize, Serialize};

use super::Problems;

/// Log output, on standard error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `text` for people, `json` for collectors.
    pub format: LogFormat,
    /// Level, or directives such as `info,tidegate::source=debug`.
    pub level: String,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: "info".into(),
        }
    }
}

impl LogConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        if let Err(error) = self.level.parse::<tracing_subscriber::filter::Targets>() {
            problems.add(
                "log.level",
                format!(
                    "{:?} is not a level: error, warn, info, debug or trace ({error})",
                    self.level
                ),
            );
        }
    }
}
