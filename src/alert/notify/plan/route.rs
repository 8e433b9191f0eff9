//! Who is told of an alert, and each receiver's terms: waits, reminders, sizes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::identity::hash64;
use super::labels::Patterns;
use crate::alert::Episode;
use crate::config::{AlertsConfig, Incident, ReceiverConfig};
use crate::model::Severity;

/// One receiver's terms, with the configuration's where it has none of its own.
#[derive(Debug, Clone)]
pub(super) struct Receiver {
    pub min_severity: Severity,
    pub incident: Incident,
    pub group_by: Vec<String>,
    pub group_wait: Duration,
    pub group_interval: Duration,
    repeat: Option<Duration>,
    pub max_alerts: usize,
    patterns: Patterns,
}

impl Receiver {
    pub fn new(policy: &AlertsConfig, config: &ReceiverConfig) -> Self {
        Self {
            min_severity: config.min_severity,
            incident: config.incident(),
            group_by: config.group_by.clone(),
            group_wait: config.group_wait.unwrap_or(policy.group_wait).0,
            group_interval: config.group_interval.unwrap_or(policy.group_interval).0,
            repeat: config.repeat.map(|span| span.0),
            max_alerts: config.max_alerts.max(1),
            patterns: Patterns::new(&config.matches),
        }
    }

    /// For one that is no longer configured: only ends are told to it.
    pub fn retired(policy: &AlertsConfig) -> Self {
        Self::new(policy, &ReceiverConfig::default())
    }

    /// Time between reminders of an alert; zero: none. What the rule wishes for the level comes
    /// first, then the receiver.
    pub fn repeat(&self, policy: &AlertsConfig, episode: Option<&Episode>) -> Duration {
        let wish = episode.and_then(|e| e.wishes.repeat.get(&e.severity).copied());
        wish.or(self.repeat).unwrap_or(policy.repeat.0)
    }
}

/// The names of those an alert is told to: whom its rule names, else whoever's conditions fit.
/// Sticky: asked when the episode begins or rises, and never taken back.
pub(super) fn route(receivers: &BTreeMap<String, Receiver>, episode: &Episode) -> Vec<String> {
    if !episode.receivers.is_empty() {
        let mut named = Vec::new();
        for name in &episode.receivers {
            if receivers.contains_key(name) && !named.contains(name) {
                named.push(name.clone());
            }
        }
        return named;
    }
    receivers
        .iter()
        .filter(|(name, terms)| {
            episode.severity >= terms.min_severity && terms.patterns.fit(episode, name)
        })
        .map(|(name, _)| name.clone())
        .collect()
}

/// Plus or minus a tenth, the same each time for the same text: reminders of alerts that began
/// together drift apart.
pub(super) fn jittered(interval: Duration, text: &str) -> Duration {
    let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    let share = hash64(text) % 2_001;
    Duration::from_millis(millis / 10 * 9 + (millis / 10_000).saturating_mul(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_a_tenth_and_stays() {
        let hour = Duration::from_secs(3_600);
        let spread: Vec<Duration> = (0..50).map(|n| jittered(hour, &n.to_string())).collect();
        assert!(
            spread
                .iter()
                .all(|d| (3_240..=3_960).contains(&d.as_secs()))
        );
        assert!(spread.iter().any(|d| *d < hour) && spread.iter().any(|d| *d > hour));
        assert_eq!(jittered(hour, "x"), jittered(hour, "x"));
    }
}
