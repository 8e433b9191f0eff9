//! How bad an alert is. One closed ladder, so that levels compare and labels stay a small set.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The level of an alert, mildest first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Worth a look in working hours.
    #[default]
    Warning,
    /// Something does not work.
    Error,
    /// Wake somebody.
    Critical,
}

impl Severity {
    /// Every level, mildest first.
    pub const ALL: [Severity; 4] = [Self::Info, Self::Warning, Self::Error, Self::Critical];

    /// As written in rules, payloads and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
