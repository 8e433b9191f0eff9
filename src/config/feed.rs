//! `[feed]`: readings in an ordinary collection, which change streams can follow.

use serde::{Deserialize, Serialize};

use super::Problems;
use super::mongodb::collection_name;
use super::units::{ByteSize, Span};

/// The feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedConfig {
    /// Which readings it carries.
    pub mode: FeedMode,
    /// Where it is.
    pub collection: String,
    /// How long a document is kept.
    pub ttl: Span,
    /// Largest document.
    pub document_bytes: ByteSize,
}

/// Which readings the feed carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedMode {
    /// Those that some rule selects.
    Rules,
    /// All.
    All,
    /// None: rules are not evaluated.
    Off,
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self {
            mode: FeedMode::Rules,
            collection: "feed".into(),
            ttl: Span::days(1),
            document_bytes: ByteSize::mib(1),
        }
    }
}

impl FeedConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        collection_name(problems, "feed.collection", &self.collection);
        if self.ttl < Span::secs(600) || !super::TTL_SECONDS.contains(&self.ttl.0.as_secs()) {
            problems.add(
                "feed.ttl",
                format!(
                    "is {}: expected 10m to 68 years; a watcher that was away for longer misses readings",
                    self.ttl
                ),
            );
        }
        if !(16 << 10..=8 << 20).contains(&self.document_bytes.0) {
            problems.add(
                "feed.document_bytes",
                format!("is {}: expected 16KiB to 8MiB", self.document_bytes),
            );
        }
    }
}
