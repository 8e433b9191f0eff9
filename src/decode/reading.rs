//! One tree to one reading: who, when, what.
//!
//! In comes an item of a payload with its topic and message; out comes a reading that is safe to
//! put into a batch, a reason for leaving the item out, or a refusal.

use std::sync::Arc;

use super::expression::Scope;
use super::fields::Fields;
use super::refusal::{Refusal, quote};
use super::stream::Stream;
use super::time::Stamp;
use super::value::Value;
use crate::model::{DeviceId, FieldValue, IgnoreReason, Message, Reading, Reason, TimeSource};

/// What a time-series collection takes as one measurement.
const MAX_DOCUMENT: usize = 4 * 1024 * 1024;

/// What became of one item of a payload.
pub(super) enum Built {
    Reading(Reading),
    Ignored(IgnoreReason),
}

/// Builds the reading of one item, or says why it is none.
pub(super) fn build(
    stream: &Stream,
    message: &Message,
    scope: Scope<'_, '_>,
) -> Result<Built, Refusal> {
    if stream.ignores(scope).is_some() {
        return Ok(Built::Ignored(IgnoreReason::IgnoredContent));
    }
    if let Some((path, word)) = stream.refuses(scope) {
        return Err(Refusal::new(
            Reason::Unsupported,
            format!(
                "the value at `{path}` is {}, which cannot be read (`refuse_when`)",
                quote(word)
            ),
        ));
    }
    let device = device(stream, scope)?;
    let stamp = stamp(stream, message, scope)?;
    if message.retain && stamp.source == TimeSource::Received {
        return Ok(Built::Ignored(IgnoreReason::RetainedReplay));
    }
    let mut fields = Fields::new(&stream.fields, false);
    gather(&mut fields, stream, scope)?;
    if let Some((first, second)) = fields.collision() {
        return Err(collision(stream, scope, first, second));
    }
    if fields.out.is_empty() {
        return match fields.missing && stream.lone(scope).is_some() {
            true => Ok(Built::Ignored(IgnoreReason::MissingValue)),
            false => Err(no_values(stream, &fields)),
        };
    }
    let mut flags = stamp.flags;
    flags.extend(fields.flags);
    let reading = Reading {
        device,
        kind: kind(stream, scope),
        timestamp: stamp.timestamp,
        time_source: stamp.source,
        tags: stream.tags.collect(scope)?,
        fields: fields.out,
        flags,
        claimed: stamp.claimed,
    };
    check_size(&reading)?;
    Ok(Built::Reading(reading))
}

fn device(stream: &Stream, scope: Scope<'_, '_>) -> Result<DeviceId, Refusal> {
    let refuse = |why: String| {
        let topic = quote(scope.topic);
        Refusal::new(Reason::NoDeviceId, format!("{why}; topic {topic}"))
    };
    let text = stream.device.evaluate(scope).map_err(refuse)?;
    DeviceId::new(&text).ok_or_else(|| refuse("the device id is empty".into()))
}

fn kind(stream: &Stream, scope: Scope<'_, '_>) -> Option<Arc<str>> {
    if stream.fixed_kind.is_some() {
        return stream.fixed_kind.clone();
    }
    let text = stream.kind.as_ref()?.evaluate(scope).ok()?;
    (!text.is_empty()).then(|| Arc::from(&*text))
}

fn stamp(stream: &Stream, message: &Message, scope: Scope<'_, '_>) -> Result<Stamp, Refusal> {
    for path in &stream.time.paths {
        if let Some(claim) = scope.find(path) {
            return stream.time.judge(path, claim, message.received_at);
        }
    }
    Ok(Stamp::received(message.received_at))
}

/// Fields in the order: values, pivot, fallback, further values.
fn gather(fields: &mut Fields<'_>, stream: &Stream, scope: Scope<'_, '_>) -> Result<(), Refusal> {
    let values = match &stream.values {
        Some(path) => scope.find(path),
        None if stream.pivot.is_some() => None,
        None => Some(scope.item),
    };
    match values {
        Some(Value::Object(members)) => fields.take_members(members, stream.values.as_ref())?,
        Some(value) => {
            let name = field_name(stream, scope);
            fields.take_named(&name, value, stream.values.as_ref())?;
        }
        None => {}
    }
    if let Some(pivot) = &stream.pivot {
        for (n, item) in pivot.items(scope)?.iter().enumerate() {
            if let Some((name, value)) = pivot.pair(n, item)? {
                fields.take_named(name, value, None)?;
            }
        }
    }
    if fields.out.is_empty()
        && let Some(path) = &stream.fallback
        && let Some(value) = scope.find(path)
    {
        fields.take_at(path, value)?;
    }
    let before = fields.out.len();
    for path in &stream.also {
        if let Some(value) = scope.find(path) {
            fields.take_at(path, value)?;
        }
    }
    if stream.values.is_none() && fields.out.len() > before {
        fields.drop_taken(before);
    }
    Ok(())
}

/// What a lone value is called: the expression, or the last part of `values`, or `value`.
fn field_name(stream: &Stream, scope: Scope<'_, '_>) -> String {
    let named = stream.field.as_ref().and_then(|e| e.evaluate(scope).ok());
    match named.filter(|name| !name.is_empty()) {
        Some(name) => name.into_owned(),
        None => stream
            .values
            .as_ref()
            .and_then(|path| path.last())
            .unwrap_or("value")
            .to_owned(),
    }
}

/// Walks again with a record of origins, which only this sentence needs.
#[cold]
fn collision(stream: &Stream, scope: Scope<'_, '_>, first: usize, second: usize) -> Refusal {
    let mut traced = Fields::new(&stream.fields, true);
    let (a, b) = match gather(&mut traced, stream, scope) {
        Ok(()) => (traced.origin(first), traced.origin(second)),
        Err(refusal) => return refusal,
    };
    let name = traced.out.get(first).map_or("", |(name, _)| name);
    Refusal::new(
        Reason::KeyCollision,
        format!(
            "{} and {} would both be stored as {}; rename or exclude one (`fields`)",
            quote(a),
            quote(b),
            quote(name)
        ),
    )
}

#[cold]
fn no_values(stream: &Stream, fields: &Fields<'_>) -> Refusal {
    let detail = match &stream.values {
        _ if !fields.flags.is_empty() => "every value is NaN or infinite".into(),
        Some(path) => format!("nothing to store at `{}` (`values`)", path.as_str()),
        None => "nothing to store: no values are left".into(),
    };
    Refusal::new(Reason::NoValues, detail)
}

/// Refuses what the server would, before it is part of a batch.
fn check_size(reading: &Reading) -> Result<(), Refusal> {
    let names = reading.tags.iter().map(|(k, v)| k.len() + v.len() + 8);
    let fields = reading.fields.iter().map(|(k, v)| k.len() + size(v) + 2);
    // Object id, time, metadata and flags, with room to spare.
    let total = 512 + reading.device.as_str().len() + names.sum::<usize>() + fields.sum::<usize>();
    if total <= MAX_DOCUMENT {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::TooLarge,
        format!(
            "the reading would take about {total} bytes; a time-series collection takes \
             {MAX_DOCUMENT} bytes"
        ),
    ))
}

fn size(value: &FieldValue) -> usize {
    match value {
        FieldValue::Double(_) | FieldValue::Int64(_) => 8,
        FieldValue::Bool(_) | FieldValue::Null => 1,
        FieldValue::Text(text) => text.len() + 5,
        // Positions are keys in BSON: up to six digits and a terminator.
        FieldValue::Array(items) => 5 + items.iter().map(|v| 8 + size(v)).sum::<usize>(),
        FieldValue::Object(members) => {
            5 + members
                .iter()
                .map(|(k, v)| k.len() + 2 + size(v))
                .sum::<usize>()
        }
    }
}
