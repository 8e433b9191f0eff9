//! `[spool]`: messages on the gateway's own disk, acknowledged once they are there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Problems;
use super::units::{ByteSize, Span};

/// The spool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpoolConfig {
    /// Whether messages go there first. What an earlier run left there is stored in any case.
    pub enabled: bool,
    /// Its folder: on a local disk, for one gateway alone. Made where it is missing.
    pub path: PathBuf,
    /// Bytes of messages in it at the most.
    pub max_bytes: ByteSize,
    /// Age of its oldest message at the most.
    pub max_age: Span,
    /// The outage of MongoDB it should bridge: a warning says when the incoming rate would fill it
    /// sooner.
    pub outage: Span,
    /// Messages read from it and not yet stored, at the most.
    pub drain_messages: usize,
    /// Bytes of them in memory.
    pub drain_bytes: ByteSize,
}

impl Default for SpoolConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            path: PathBuf::from("/var/lib/tidegate/spool"),
            max_bytes: ByteSize::mib(4 << 10),
            max_age: Span::secs(24 * 3600),
            outage: Span::secs(3600),
            drain_messages: 40_000,
            drain_bytes: ByteSize::mib(64),
        }
    }
}

impl SpoolConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        if self.path.as_os_str().is_empty() {
            problems.add("spool.path", "is empty: expected a folder of its own");
        }
        if self.max_bytes < ByteSize::mib(1) {
            problems.add(
                "spool.max_bytes",
                format!("is {}: expected at least 1MiB", self.max_bytes),
            );
        }
        if self.max_age < Span::secs(10) {
            problems.add(
                "spool.max_age",
                format!("is {}: expected at least 10s", self.max_age),
            );
        }
        if self.drain_messages == 0 {
            problems.add("spool.drain_messages", "is 0: expected at least 1");
        }
        if self.drain_bytes < ByteSize(64 << 10) {
            problems.add(
                "spool.drain_bytes",
                format!("is {}: expected at least 64KiB", self.drain_bytes),
            );
        }
    }
}
