//! What the gateway says of itself in the form of alerts: rules whose ids begin with `tidegate.`.
//! Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::episode::{Change, EndReason, Ended, Episode, Transition, Wishes};
use crate::model::{Severity, Timestamp};

/// What all keys of these alerts begin with.
pub(super) const PREFIX: &str = "tidegate.";

/// What stands in the place of a device.
const DEVICE: &str = "gateway";

/// What the gateway may have to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// Part of the stream was lost and evaluated by query.
    AlertGap,
    /// No gateway hears from the broker.
    IngestStalled,
    /// A receiver did not take a firing alert.
    Undelivered,
}

impl Own {
    pub const fn rule(self) -> &'static str {
        match self {
            Self::AlertGap => "tidegate.alert_gap",
            Self::IngestStalled => "tidegate.ingest_stalled",
            Self::Undelivered => "tidegate.alert_undelivered",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::AlertGap => "The watcher missed a part of the feed",
            Self::IngestStalled => "No readings can arrive",
            Self::Undelivered => "A receiver does not take an alert",
        }
    }

    const fn severity(self) -> Severity {
        match self {
            Self::AlertGap => Severity::Warning,
            Self::IngestStalled => Severity::Critical,
            Self::Undelivered => Severity::Error,
        }
    }

    fn key(self) -> String {
        format!("{}:{DEVICE}", self.rule())
    }
}

/// One of these alerts, as kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OwnAlert {
    pub(super) episode: Episode,
    /// When it ends by itself.
    until: Option<Timestamp>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OwnAlerts {
    alerts: BTreeMap<String, OwnAlert>,
    changed: Vec<String>,
}

impl OwnAlerts {
    /// Takes up what was kept.
    pub fn load(kept: impl IntoIterator<Item = (String, OwnAlert)>) -> Self {
        Self {
            alerts: kept.into_iter().collect(),
            changed: Vec::new(),
        }
    }

    /// It is so, for the length of `lasting` or until told otherwise. An episode that is open goes on.
    pub fn raise(
        &mut self,
        own: Own,
        now: Timestamp,
        lasting: Option<Duration>,
        summary: String,
        receivers: Vec<String>,
    ) -> Option<Transition> {
        let key = own.key();
        let until = lasting.map(|lasting| now.plus(lasting));
        self.changed.push(key.clone());
        let before = self.alerts.get_mut(&key);
        let sequence = before.as_ref().map_or(0, |alert| alert.episode.sequence);
        if let Some(open) = before.filter(|alert| alert.episode.ended.is_none()) {
            open.until = until;
            return None;
        }
        let episode = Episode {
            key: key.clone(),
            id: format!("{}-{}", own.rule(), now.millis()),
            sequence: sequence + 1,
            rule: own.rule().to_owned(),
            name: own.name().to_owned(),
            kind: "gateway".to_owned(),
            device: DEVICE.to_owned(),
            device_type: None,
            tags: BTreeMap::new(),
            field: None,
            unit: None,
            op: None,
            severity: own.severity(),
            value: None,
            peak: None,
            threshold: None,
            clear: None,
            started_at: now,
            fired_at: now,
            ended: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([("summary".to_owned(), summary)]),
            receivers,
            wishes: Wishes::default(),
            flags: Vec::new(),
        };
        let alert = OwnAlert {
            episode: episode.clone(),
            until,
        };
        self.alerts.insert(key, alert);
        Some(Transition {
            change: Change::Fired,
            at: now,
            previous: None,
            episode,
        })
    }

    /// It is no longer so.
    pub fn clear(&mut self, own: Own, now: Timestamp) -> Option<Transition> {
        self.end(&own.key(), now, EndReason::ConditionCleared)
    }

    /// Ends what ends by itself.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Transition> {
        let due = |alert: &OwnAlert| {
            alert.episode.ended.is_none() && alert.until.is_some_and(|until| until <= now)
        };
        let over = self.alerts.iter().filter(|(_, alert)| due(alert));
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        over.iter()
            .filter_map(|key| self.end(key, now, EndReason::ConditionCleared))
            .collect()
    }

    /// Ends the alert of that key.
    pub fn end(&mut self, key: &str, now: Timestamp, reason: EndReason) -> Option<Transition> {
        let alert = self.alerts.get_mut(key)?;
        let episode = &mut alert.episode;
        if episode.ended.is_some() {
            return None;
        }
        episode.sequence += 1;
        episode.ended = Some(Ended { at: now, reason });
        self.changed.push(key.to_owned());
        Some(Transition {
            change: Change::Resolved,
            at: now,
            previous: Some(episode.severity),
            episode: episode.clone(),
        })
    }

    /// What changed since the last call. Kept also when it has ended: its count must not begin anew.
    pub fn take_changed(&mut self) -> Vec<(String, OwnAlert)> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort();
        changed.dedup();
        changed
            .into_iter()
            .filter_map(|key| {
                let alert = self.alerts.get(&key)?.clone();
                Some((key, alert))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_of_the_gateway_fires_once_and_ends() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let lasting = Some(Duration::from_secs(300));
        let mut own = OwnAlerts::default();
        let raise = |own: &mut OwnAlerts, now| {
            own.raise(Own::AlertGap, now, lasting, "s".into(), Vec::new())
        };
        let fired = raise(&mut own, at(0)).unwrap();
        assert_eq!(fired.episode.key, "tidegate.alert_gap:gateway");
        // Again while it is open: it lasts longer.
        assert_eq!(raise(&mut own, at(100)), None);
        assert!(own.tick(at(399)).is_empty());
        let ended = own.tick(at(400));
        assert_eq!(ended[0].change, Change::Resolved);
        assert!(own.tick(at(500)).is_empty());
        assert_eq!(own.clear(Own::AlertGap, at(500)), None);
        // Kept, reloaded: the count goes on.
        let kept = own.take_changed();
        assert_eq!(kept.len(), 1);
        let mut own = OwnAlerts::load(kept);
        let again = raise(&mut own, at(600)).unwrap();
        assert!(again.episode.sequence > ended[0].episode.sequence);
        assert_ne!(again.episode.id, fired.episode.id);
        assert!(own.clear(Own::AlertGap, at(601)).is_some());
    }
}
