//! What an alert is matched by: its labels, one name space for receivers, silences and quiet hours.

use std::collections::BTreeMap;

use wildmatch::WildMatch;

use crate::alert::Episode;

/// The value of one label; empty: the alert has none of that name. The gateway's own names come
/// first, then the rule's labels, then the device's tags.
pub(super) fn label<'a>(episode: &'a Episode, receiver: &'a str, name: &str) -> &'a str {
    match name {
        "rule" => &episode.rule,
        "severity" => episode.severity.name(),
        "device" => &episode.device,
        "type" => episode.device_type.as_deref().unwrap_or(""),
        "field" => episode.field.as_deref().unwrap_or(""),
        "receiver" => receiver,
        _ => episode
            .labels
            .get(name)
            .or_else(|| episode.tags.get(name))
            .map_or("", String::as_str),
    }
}

/// Conditions as written in the configuration: any of the patterns, for every label named.
#[derive(Debug, Clone, Default)]
pub(super) struct Patterns(Vec<(String, Vec<WildMatch>)>);

impl Patterns {
    pub fn new(matches: &BTreeMap<String, Vec<String>>) -> Self {
        let compiled = |patterns: &[String]| -> Vec<WildMatch> {
            patterns.iter().map(|p| WildMatch::new(p)).collect()
        };
        Self(
            matches
                .iter()
                .map(|(label, patterns)| (label.clone(), compiled(patterns)))
                .collect(),
        )
    }

    pub fn fit(&self, episode: &Episode, receiver: &str) -> bool {
        self.0.iter().all(|(name, patterns)| {
            let value = label(episode, receiver, name);
            patterns.iter().any(|pattern| pattern.matches(value))
        })
    }
}
