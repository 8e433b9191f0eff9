//! Episodes: the only place where one begins, changes or ends, and where what is told of it is
//! put together. In memory one holds only what is its own; what its rule says of it is shared by
//! all of the rule, and stored with each, so that it can be ended when the rule is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::evaluate::{Scalar, Test};
use super::hash;
use super::instance::Track;
use super::rule::Rule;
use super::state::State;
use super::step::Who;
use crate::alert::{Change, EndReason, Ended, Episode, Transition, Wishes};
use crate::config::RuleConfig;
use crate::model::{DeviceId, Severity, Timestamp};

/// An episode as an instance holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Its id.
    pub id: Box<str>,
    /// The device's type.
    pub device_type: Option<Box<str>>,
    /// The device's tags when it began.
    pub tags: Box<[(Box<str>, Box<str>)]>,
    /// The level now, or the last one.
    pub severity: Severity,
    /// The value last seen.
    pub value: Option<Scalar>,
    /// The worst number seen.
    pub peak: Option<f64>,
    /// What the level fires at.
    pub threshold: Option<f64>,
    /// What it clears at.
    pub clear: Option<f64>,
    /// When the condition began to hold.
    pub started_at: Timestamp,
    /// When it began to fire.
    pub fired_at: Timestamp,
    /// When and why it ended.
    pub ended: Option<Ended>,
    /// What the rule says of it.
    #[serde(with = "shared")]
    pub telling: Arc<Telling>,
}

/// What a rule says of its episodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Telling {
    name: String,
    kind: String,
    field: Option<String>,
    unit: Option<String>,
    op: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    receivers: Vec<String>,
    wishes: Wishes,
}

/// Stored as if each had its own.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Telling;

    pub fn serialize<S: Serializer>(telling: &Arc<Telling>, s: S) -> Result<S::Ok, S::Error> {
        Telling::serialize(telling, s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<Telling>, D::Error> {
        Telling::deserialize(d).map(Arc::new)
    }
}

impl Telling {
    pub(super) fn of(config: &RuleConfig) -> Self {
        Self {
            name: config.title().to_owned(),
            kind: config.kind.name().to_owned(),
            field: Some(config.field.clone()).filter(|field| !field.is_empty()),
            unit: config.unit.clone(),
            op: config.op.map(|op| op.symbol().to_owned()),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            receivers: config.receivers.clone(),
            wishes: Wishes {
                cooldown: config.cooldown.map(|span| span.0),
                repeat: config.repeat.iter().map(|(s, span)| (*s, span.0)).collect(),
            },
        }
    }
}

impl Track {
    /// The episode, open or the last one, as it is told.
    pub fn told(&self, rule: &str, device: &DeviceId) -> Option<Episode> {
        let held = self.episode.as_deref()?;
        let telling = &*held.telling;
        let open = held.ended.is_none();
        let flags = [("stale", self.stale), ("acked", self.ack.is_some())];
        let flags = flags.into_iter().filter(|(_, set)| *set && open);
        let tag = |(name, value): &(Box<str>, Box<str>)| (name.to_string(), value.to_string());
        Some(Episode {
            key: hash::key(rule, device),
            id: held.id.to_string(),
            sequence: self.sequence,
            rule: rule.to_owned(),
            name: telling.name.clone(),
            kind: telling.kind.clone(),
            device: device.as_str().to_owned(),
            device_type: held.device_type.as_deref().map(str::to_owned),
            tags: held.tags.iter().map(tag).collect(),
            field: telling.field.clone(),
            unit: telling.unit.clone(),
            op: telling.op.clone(),
            severity: held.severity,
            value: held.value.as_ref().map(Scalar::json),
            peak: held.peak,
            threshold: held.threshold,
            clear: held.clear,
            started_at: held.started_at,
            fired_at: held.fired_at,
            ended: held.ended,
            labels: telling.labels.clone(),
            annotations: telling.annotations.clone(),
            receivers: telling.receivers.clone(),
            wishes: telling.wishes.clone(),
            flags: flags.map(|(name, _)| name.to_owned()).collect(),
        })
    }
}

/// What an episode began with.
#[derive(Debug, Clone, Copy)]
pub enum Cause {
    /// The reading of that time with that hash.
    Reading(i64, i64),
    /// A `for` that began then.
    Timer(i64),
    /// Silence since then.
    Silence(i64),
}

impl Cause {
    fn text(self) -> String {
        match self {
            Self::Reading(at, hash) => format!("{at}:{hash:016x}"),
            Self::Timer(since) => format!("for:{since}"),
            Self::Silence(since) => format!("absent:{since}"),
        }
    }
}

/// Begins an episode.
pub(super) fn open(who: &Who<'_>, track: &mut Track, level: Severity, at: i64, cause: Cause) {
    let rule = &who.rule.config;
    let key = hash::key(&rule.id, who.device);
    let started_at = match cause {
        Cause::Silence(since) => since,
        _ => track.began().unwrap_or(at),
    };
    track.level = Some(level);
    track.recover_since = None;
    track.ack = None;
    track.stream = who.stream.map(Into::into);
    track.topic = who.topic.map(Into::into);
    let boxed = |(name, value): &(String, String)| (name.as_str().into(), value.as_str().into());
    track.episode = Some(Box::new(Held {
        id: hash::episode(&key, &cause.text()).into(),
        device_type: who.kind.map(Into::into),
        tags: who.tags.iter().map(boxed).collect(),
        severity: level,
        value: None,
        peak: None,
        threshold: None,
        clear: None,
        started_at: Timestamp::from_millis(started_at),
        fired_at: Timestamp::from_millis(at),
        ended: None,
        telling: Arc::clone(&who.rule.telling),
    }));
}

/// Puts into the episode what the rule says about it today.
pub fn dress(rule: &Rule, track: &mut Track) {
    if let Some(episode) = &mut track.episode {
        episode.telling = Arc::clone(&rule.telling);
    }
}

pub(super) fn close(track: &mut Track, reason: EndReason, at: i64) {
    track.since = [None; 4];
    track.recover_since = None;
    track.ack = None;
    track.stale = false;
    track.latched = reason == EndReason::Manual;
    if let Some(episode) = &mut track.episode {
        let at = Timestamp::from_millis(at);
        episode.ended = Some(Ended { at, reason });
        if let Some(value) = &track.value {
            episode.value = Some(value.clone());
        }
    }
}

/// Value, peak and level of an open episode.
pub(super) fn refresh(rule: &Rule, track: &mut Track) {
    let Some(episode) = &mut track.episode else {
        return;
    };
    // What has ended stays as it ended, whatever the device says later.
    if episode.ended.is_some() {
        return;
    }
    if let Some(level) = track.level {
        episode.severity = level;
    }
    let number = track.value.as_ref().and_then(Scalar::number);
    if let Some(value) = &track.value {
        episode.value = Some(value.clone());
    }
    if let Some(level) = rule.level(episode.severity) {
        let threshold = |test: &Option<Test>| test.as_ref()?.threshold(number);
        // Of a range the end that was crossed; once it is back inside, that end stays.
        if track.state == State::Firing || episode.threshold.is_none() {
            episode.threshold = threshold(&level.trigger);
            episode.clear = threshold(&level.holding);
        }
        if let (Some(number), Some(test)) = (number, &level.trigger)
            && episode.peak.is_none_or(|peak| test.worse(number, peak))
        {
            episode.peak = Some(number);
        }
    }
}

/// The episode goes on with another flag or text.
pub fn update(who: &Who<'_>, track: &mut Track, at: i64) -> Option<Transition> {
    refresh(who.rule, track);
    tell(who, track, Change::Updated, track.level, at)
}

pub(super) fn tell(
    who: &Who<'_>,
    track: &mut Track,
    change: Change,
    previous: Option<Severity>,
    at: i64,
) -> Option<Transition> {
    // From the time, so that it still grows after the track of an earlier episode was forgotten.
    let floor = u64::try_from(at).unwrap_or_default();
    track.sequence = (track.sequence + 1).max(floor);
    Some(Transition {
        change,
        at: Timestamp::from_millis(at),
        previous,
        episode: track.told(&who.rule.id, who.device)?,
    })
}
