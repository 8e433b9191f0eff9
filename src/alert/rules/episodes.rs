//! Episodes: the only place where one begins, changes or ends, and where what is told of it is
//! put together.

use super::evaluate::{Scalar, Test};
use super::hash;
use super::instance::Track;
use super::rule::Rule;
use super::state::State;
use super::step::Who;
use crate::alert::{Change, EndReason, Ended, Episode, Transition};
use crate::model::{Severity, Timestamp};

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
    track.episode = Some(Box::new(Episode {
        id: hash::episode(&key, &cause.text()),
        key,
        sequence: track.sequence,
        rule: rule.id.clone(),
        name: String::new(),
        kind: rule.kind.name().into(),
        device: who.device.as_str().into(),
        device_type: who.kind.map(str::to_owned),
        tags: who.tags.iter().cloned().collect(),
        field: who.rule.field().map(str::to_owned),
        unit: None,
        op: None,
        severity: level,
        value: None,
        peak: None,
        threshold: None,
        clear: None,
        started_at: Timestamp::from_millis(started_at),
        fired_at: Timestamp::from_millis(at),
        ended: None,
        labels: Default::default(),
        annotations: Default::default(),
        receivers: Vec::new(),
        wishes: Default::default(),
        flags: Vec::new(),
    }));
    dress(who.rule, track);
}

/// Puts into the episode what the rule says about it today.
pub fn dress(rule: &Rule, track: &mut Track) {
    let Some(episode) = &mut track.episode else {
        return;
    };
    let config = &rule.config;
    config.title().clone_into(&mut episode.name);
    episode.unit.clone_from(&config.unit);
    episode.op = config.op.map(|op| op.symbol().into());
    episode.labels.clone_from(&config.labels);
    episode.annotations.clone_from(&config.annotations);
    episode.receivers.clone_from(&config.receivers);
    episode.wishes.clone_from(&rule.wishes);
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
            episode.value = Some(value.json());
        }
    }
}

/// Value, peak, level and flags of an open episode.
pub(super) fn refresh(rule: &Rule, track: &mut Track) {
    let Some(episode) = &mut track.episode else {
        return;
    };
    // What has ended stays as it ended, whatever the device says later.
    if episode.ended.is_some() {
        episode.flags.clear();
        return;
    }
    if let Some(level) = track.level {
        episode.severity = level;
    }
    let number = track.value.as_ref().and_then(Scalar::number);
    if let Some(value) = &track.value {
        episode.value = Some(value.json());
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
    episode.flags.clear();
    for (flag, set) in [("stale", track.stale), ("acked", track.ack.is_some())] {
        if set {
            episode.flags.push(flag.into());
        }
    }
}

/// The episode goes on with another flag or text.
pub fn update(track: &mut Track, at: i64) -> Option<Transition> {
    tell(track, Change::Updated, track.level, at)
}

/// The same, once value and flags in it are brought up to date.
pub fn refreshed(rule: &Rule, track: &mut Track, at: i64) -> Option<Transition> {
    refresh(rule, track);
    update(track, at)
}

pub(super) fn tell(
    track: &mut Track,
    change: Change,
    previous: Option<Severity>,
    at: i64,
) -> Option<Transition> {
    // From the time, so that it still grows after the track of an earlier episode was forgotten.
    let floor = u64::try_from(at).unwrap_or_default();
    track.sequence = (track.sequence + 1).max(floor);
    let episode = track.episode.as_mut()?;
    episode.sequence = track.sequence;
    Some(Transition {
        change,
        at: Timestamp::from_millis(at),
        previous,
        episode: (**episode).clone(),
    })
}
