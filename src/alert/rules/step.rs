//! One step of one instance: works out the facts a row asks for, finds the row, does what it
//! says.

pub use super::episodes::{Cause, dress, update};
use super::episodes::{close, open, refresh, tell};
use super::evaluate::{Scalar, Verdict};
use super::instance::{Instance, Track};
use super::rule::Rule;
use super::state::{Decision, Effect, Input, Situation, State, decide};
use crate::alert::{Change, Transition};
use crate::model::{DeviceId, Severity};

/// Whose instance it is.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The device.
    pub device: &'a DeviceId,
    /// Its type.
    pub kind: Option<&'a str>,
    /// Its tags.
    pub tags: &'a [(String, String)],
    /// The stream of the reading, if there is one.
    pub stream: Option<&'a str>,
    /// Its topic.
    pub topic: Option<&'a str>,
    /// The longest pause a `for` runs on through, in milliseconds.
    pub gap_ms: Option<i64>,
}

/// A judged reading, or what stands for one.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Its time on the rule's clock, in milliseconds.
    pub now: i64,
    /// When it was received, in milliseconds.
    pub received: i64,
    /// What the levels say.
    pub verdict: Verdict,
    /// What was compared.
    pub value: Option<Scalar>,
    /// Tells this cause of an episode from any other.
    pub cause: Cause,
}

/// What a step came to.
#[derive(Debug, Default)]
pub struct Stepped {
    /// The row taken.
    pub row: Option<u8>,
    /// What there is to tell.
    pub transition: Option<Transition>,
    /// The state or a timer changed, so that it must be stored with this round.
    pub urgent: bool,
    /// It would have opened, but the rule has as many as it may.
    pub limited: bool,
}

/// A judged reading.
pub fn reading(who: &Who<'_>, instance: &mut Instance, judged: Judged, room: bool) -> Stepped {
    let track = instance.track.as_deref();
    if track.is_none() && judged.verdict.trigger.is_empty() {
        return Stepped {
            row: Some(1),
            ..Stepped::default()
        };
    }
    let fresh = Track::new(judged.now, judged.received);
    let now = track.map_or(judged.now, |track| judged.now.max(track.last_at));
    let (situation, since) = facts(who, track.unwrap_or(&fresh), &judged, now);
    let Some(decision) = decide(&situation) else {
        return Stepped::default();
    };
    if situation.state == State::Ok && decision.state != State::Ok && !room {
        return Stepped {
            limited: true,
            ..Stepped::default()
        };
    }
    let track = instance.track.get_or_insert_with(|| Box::new(fresh));
    let was_stale = std::mem::take(&mut track.stale);
    track.since = since;
    track.last_at = now;
    track.last_received = judged.received.max(track.last_received);
    track.value.clone_from(&judged.value);
    let mut stepped = apply(who, track, &decision, now, judged.cause, situation.gap);
    if was_stale && stepped.transition.is_none() && track.state.is_open() {
        stepped.transition = update(who, track, now);
        stepped.urgent = true;
    }
    if track.is_idle() {
        instance.track = None;
    }
    stepped
}

/// Silence has reached a level: `at` and `since` in milliseconds.
pub fn silent(
    who: &Who<'_>,
    instance: &mut Instance,
    level: Severity,
    at: i64,
    since: i64,
    room: bool,
) -> Stepped {
    let (state, current) = instance
        .track
        .as_ref()
        .map_or((State::Ok, None), |track| (track.state, track.level));
    if state == State::Ok && !room {
        return Stepped {
            limited: true,
            ..Stepped::default()
        };
    }
    let situation = Situation {
        breach: true,
        qualified: Some(level),
        ..Situation::new(state, current, Input::Reading)
    };
    let Some(decision) = decide(&situation) else {
        return Stepped::default();
    };
    let fresh = || Box::new(Track::new(at, since));
    let track = instance.track.get_or_insert_with(fresh);
    track.last_at = track.last_at.max(at);
    apply(who, track, &decision, at, Cause::Silence(since), false)
}

/// Anything but a reading: `at` in milliseconds. The level of `qualified` is for deadlines.
pub fn event(
    who: &Who<'_>,
    instance: &mut Instance,
    input: Input,
    at: i64,
    qualified: Option<Severity>,
) -> Stepped {
    let Some(track) = instance.track.as_deref_mut() else {
        return Stepped::default();
    };
    let situation = Situation {
        qualified,
        ..Situation::new(track.state, track.level, input)
    };
    let Some(decision) = decide(&situation) else {
        return Stepped::default();
    };
    let cause = Cause::Timer(track.began().unwrap_or(at));
    let stepped = apply(who, track, &decision, at, cause, false);
    if track.is_idle() {
        instance.track = None;
    }
    stepped
}

/// The rule was edited: what the last value says under its new form.
pub fn edited(who: &Who<'_>, track: &mut Track, verdict: Verdict, at: i64) -> Stepped {
    let holds = |level: &Severity| {
        who.rule.level(*level).is_some()
            && (verdict.trigger.has(*level) || !verdict.clear.has(*level))
    };
    let most = track.level;
    let fallback = Severity::ALL
        .into_iter()
        .rev()
        .find(|level| Some(*level) <= most && holds(level));
    let situation = Situation {
        clear: fallback != track.level,
        fallback: fallback.filter(|level| Some(*level) != track.level),
        ..Situation::new(track.state, track.level, Input::Edit)
    };
    match decide(&situation) {
        Some(decision) => apply(who, track, &decision, at, Cause::Timer(at), false),
        None => Stepped::default(),
    }
}

/// What a row may ask for, and the timers as they stand with this reading.
fn facts(who: &Who<'_>, track: &Track, judged: &Judged, now: i64) -> (Situation, [Option<i64>; 4]) {
    let rule = who.rule;
    let Verdict { trigger, clear } = judged.verdict;
    let gap = track.state != State::Ok && who.gap_ms.is_some_and(|most| now - track.last_at > most);
    let mut since = [None; 4];
    let mut qualified = None;
    for (severity, level) in rule.ladder().filter(|(severity, _)| trigger.has(*severity)) {
        let begun = track.since[severity as usize]
            .filter(|_| !gap)
            .unwrap_or(now);
        since[severity as usize] = Some(begun);
        if now - begun >= level.for_ms {
            qualified = Some(severity);
        }
    }
    let level = track.level.and_then(|severity| rule.level(severity));
    let recover_since = track.recover_since.filter(|_| !gap).unwrap_or(now);
    let milder = rule.ladder().rev().map(|(severity, _)| severity);
    let situation = Situation {
        breach: !trigger.is_empty(),
        qualified,
        clear: track.level.is_none_or(|level| clear.has(level)),
        fallback: milder
            .filter(|severity| Some(*severity) < track.level)
            .find(|severity| !clear.has(*severity)),
        delayed: level.is_some_and(|level| level.recover_ms > 0),
        recovered: level.is_none_or(|level| now - recover_since >= level.recover_ms),
        gap,
        latched: track.latched,
        ..Situation::new(track.state, track.level, Input::Reading)
    };
    (situation, since)
}

fn apply(
    who: &Who<'_>,
    track: &mut Track,
    decision: &Decision,
    at: i64,
    cause: Cause,
    gap: bool,
) -> Stepped {
    let before = (track.state, track.recover_since, track.latched);
    track.state = decision.state;
    let mut change = None;
    match decision.effect {
        Effect::Nothing | Effect::Timers => {}
        Effect::DropTimers => {
            track.since = [None; 4];
            track.recover_since = None;
        }
        Effect::Release => track.latched = false,
        Effect::Open(level) => {
            open(who, track, level, at, cause);
            change = Some((Change::Fired, None));
        }
        Effect::Escalate(level) => {
            track.ack = None;
            track.recover_since = None;
            change = Some((Change::Escalated, track.level.replace(level)));
        }
        Effect::Deescalate(level) => {
            track.recover_since = None;
            change = Some((Change::Deescalated, track.level.replace(level)));
        }
        Effect::Remember => {}
        Effect::Refire => track.recover_since = None,
        Effect::Recover => {
            if gap || track.recover_since.is_none() {
                track.recover_since = Some(at);
            }
        }
        Effect::Stale => {
            track.stale = true;
            change = Some((Change::Updated, track.level));
        }
        Effect::Resolve(reason) => {
            close(track, reason, at);
            change = Some((Change::Resolved, track.level.take()));
        }
    }
    refresh(who.rule, track);
    let moved = before != (track.state, track.recover_since, track.latched);
    let restarted = decision.row == 6;
    Stepped {
        row: Some(decision.row),
        urgent: change.is_some() || moved || restarted,
        transition: change.and_then(|(change, previous)| tell(who, track, change, previous, at)),
        limited: false,
    }
}
