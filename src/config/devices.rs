//! `[devices]`: what is known of each device beside its readings.

use serde::{Deserialize, Serialize};

use super::Problems;
use super::mongodb::collection_name;
use super::units::Span;

/// The registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevicesConfig {
    /// Where it is.
    pub collection: String,
    /// Whether a device is entered when it is first seen.
    pub register: bool,
    /// Whether type and tags from the registry are joined into `metadata`, where a reading has
    /// none of that name.
    pub enrich: bool,
    /// How often `lastSeen` is written, for all devices seen since.
    pub last_seen_every: Span,
}

impl Default for DevicesConfig {
    fn default() -> Self {
        Self {
            collection: "devices".into(),
            register: true,
            enrich: true,
            last_seen_every: Span::secs(30),
        }
    }
}

impl DevicesConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        collection_name(problems, "devices.collection", &self.collection);
        if self.last_seen_every < Span::secs(1) {
            problems.add(
                "devices.last_seen_every",
                format!("is {}: expected at least 1s", self.last_seen_every),
            );
        }
    }
}
