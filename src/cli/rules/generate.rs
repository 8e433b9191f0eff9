//! A step of a story becomes events: readings in order of receipt, or one thing done.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::fixture::{Step, field_value};
use crate::alert::rules::Sample;
use crate::model::{DeviceId, Timestamp};

/// Readings one step may make: more of them is a slip.
const MAX_READINGS: u128 = 1_000_000;

/// Something that happens.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Reading(Sample),
    Blind(Duration),
    Edit(toml::Table),
    Delete(String),
    Remove(DeviceId),
    Resolve(String, DeviceId),
    Ack(String, DeviceId),
}

/// What a step comes to, with the moment of each event.
pub(super) fn events(step: &Step, start: Timestamp) -> anyhow::Result<Vec<(Timestamp, Event)>> {
    let at = step.at.from(start);
    let device = || {
        let id = step.device.as_deref().context("device is missing")?;
        DeviceId::new(id).context("device is empty")
    };
    let mut done = Vec::new();
    if let Some(span) = step.blind {
        done.push(Event::Blind(span.0));
    }
    if let Some(edit) = &step.edit {
        done.push(Event::Edit(edit.clone()));
    }
    if let Some(rule) = &step.delete {
        done.push(Event::Delete(rule.clone()));
    }
    if let Some(id) = &step.remove {
        done.push(Event::Remove(DeviceId::new(id).context("remove is empty")?));
    }
    if let Some(rule) = &step.resolve {
        done.push(Event::Resolve(rule.clone(), device()?));
    }
    if let Some(rule) = &step.ack {
        done.push(Event::Ack(rule.clone(), device()?));
    }
    let readings = !step.fields.is_empty()
        || step.ramp.is_some()
        || step.square.is_some()
        || step.steady.is_some();
    ensure!(
        readings || !done.is_empty(),
        "says nothing: give fields, a generator (ramp, square, steady) or something to do"
    );
    let mut events: Vec<_> = done.into_iter().map(|event| (at, event)).collect();
    if readings {
        events.extend(self::readings(step, at, start, &device()?)?);
    }
    Ok(events)
}

/// The readings of a step, in order of receipt.
fn readings(
    step: &Step,
    at: Timestamp,
    start: Timestamp,
    device: &DeviceId,
) -> anyhow::Result<Vec<(Timestamp, Event)>> {
    let mut events = Vec::new();
    for (n, (after, generated)) in values(step)?.into_iter().enumerate() {
        let outside = |[from, to]: [crate::config::Span; 2]| after < from.0 || after >= to.0;
        if !step.gap.is_none_or(outside) {
            continue;
        }
        let own = step.ts.map_or(at, |ts| ts.from(start)).plus(after);
        let mut received = step.received.map_or(at, |at| at.from(start)).plus(after);
        if let Some(late) = &step.late
            && late.every > 0
            && (n + 1) % late.every == 0
        {
            received = received.plus(late.by.0);
        }
        let mut fields: BTreeMap<&str, _> = step
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), field_value(value)))
            .collect();
        if let Some((name, value)) = generated {
            fields.insert(name, crate::model::FieldValue::Double(value));
        }
        let sample = Sample {
            device: device.clone(),
            kind: step.kind.as_deref().map(Into::into),
            stream: step.stream.as_deref().unwrap_or("telemetry").into(),
            topic: step.topic.as_deref().map(Into::into),
            tags: step.tags.clone().into_iter().collect(),
            at: own,
            received,
            fields: fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        let twice = step
            .dup
            .is_some_and(|every| every > 0 && (n + 1) % every == 0);
        for _ in 0..=usize::from(twice) {
            events.push((received, Event::Reading(sample.clone())));
        }
    }
    Ok(events)
}

/// Time after the start of the step, and the generated field, of each reading.
type Generated<'a> = (Duration, Option<(&'a str, f64)>);

fn values(step: &Step) -> anyhow::Result<Vec<Generated<'_>>> {
    if let Some(ramp) = &step.ramp {
        let over = ramp.over.0.as_secs_f64();
        return Ok(moments(ramp.over.0, ramp.every.0)?
            .map(|after| {
                let part = if over > 0.0 {
                    after.as_secs_f64() / over
                } else {
                    1.0
                };
                let value = ramp.from + (ramp.to - ramp.from) * part;
                (after, Some((ramp.field.as_str(), value)))
            })
            .collect());
    }
    if let Some(square) = &step.square {
        let period = square.period.0.as_millis();
        ensure!(period >= 2, "square.period is too short");
        return Ok(moments(square.over.0, square.every.0)?
            .map(|after| {
                let high = after.as_millis() % period < period / 2;
                let value = if high { square.high } else { square.low };
                (after, Some((square.field.as_str(), value)))
            })
            .collect());
    }
    if let Some(steady) = &step.steady {
        let moments = moments(steady.over.0, steady.every.0)?;
        return Ok(moments.map(|after| (after, None)).collect());
    }
    Ok(vec![(Duration::ZERO, None)])
}

/// From nothing to `over`, both included.
fn moments(over: Duration, every: Duration) -> anyhow::Result<impl Iterator<Item = Duration>> {
    ensure!(!every.is_zero(), "every is 0: expected a duration");
    let count = over.as_millis() / every.as_millis().max(1);
    ensure!(
        count < MAX_READINGS,
        "makes {count} readings: that is a slip"
    );
    Ok((0..=count).map(move |n| every * u32::try_from(n).unwrap_or(u32::MAX)))
}
