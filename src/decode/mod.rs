//! Decoding: one MQTT message in; readings, a refusal, or a named reason for leaving it out.
//!
//! Pure: no clock, no I/O, nothing kept between messages, so the same message decodes alike in the
//! gateway, in `explain` and in a replay from the dead letters. A [`Router`] is compiled once from
//! the configuration; [`decode`] then goes topic → stream → text → tree → readings. Every message
//! ends in at least one of the three; none ends in nothing.

mod calendar;
mod check;
mod codecs;
mod compile;
mod epoch;
mod expression;
mod fields;
mod inflate;
mod json;
mod keys;
mod number;
mod path;
mod pivot;
mod place;
mod reading;
mod refusal;
mod router;
mod rules;
mod stream;
mod tags;
mod template;
mod text;
mod time;
mod value;

use std::sync::Arc;

use crate::config::streams::{Action, Compression, Retained, Unrouted};
use crate::model::{IgnoreReason, Message, Reading, Reason};

use codecs::Parsed;
use expression::Scope;
use reading::Built;
pub use refusal::Refusal;
use refusal::quote;
pub use router::{Router, StreamProblem};
pub use stream::Stream;
use value::Value;

/// What became of one message. At least one of `readings`, `refused` and `ignored` says something;
/// readings beside a refusal mean that items of one message fared differently.
#[derive(Debug)]
pub struct Decoded {
    /// The stream that claimed the message.
    pub stream: Option<Arc<Stream>>,
    /// What to store.
    pub readings: Vec<Reading>,
    /// Why the message, or a part of it, becomes a dead letter.
    pub refused: Option<Refusal>,
    /// Why the message is left out, where nothing is stored and nothing refused.
    pub ignored: Option<IgnoreReason>,
}

/// Decodes one message.
pub fn decode(router: &Router, message: &Message) -> Decoded {
    let Ok(topic) = std::str::from_utf8(&message.topic) else {
        let detail = format!("the topic {} is not UTF-8", quote(&message.topic_lossy()));
        return Decoded::refused(None, Refusal::new(Reason::BadTopic, detail));
    };
    let Some(stream) = router.route(topic) else {
        return unrouted(router, topic);
    };
    match decode_in(stream, topic, message) {
        Ok(decoded) => decoded,
        Err(refusal) => Decoded::refused(Some(stream), refusal),
    }
}

fn unrouted(router: &Router, topic: &str) -> Decoded {
    match router.unrouted() {
        // A broker's own topics are noise under any setting, unless a stream asks for them.
        _ if topic.starts_with('$') => Decoded::ignored(None, IgnoreReason::DollarTopic),
        Unrouted::Ignore => Decoded::ignored(None, IgnoreReason::NoRoute),
        Unrouted::DeadLetter => {
            let detail = format!("no stream has a topic filter that matches {}", quote(topic));
            Decoded::refused(None, Refusal::new(Reason::NoRoute, detail))
        }
    }
}

fn decode_in(stream: &Arc<Stream>, topic: &str, message: &Message) -> Result<Decoded, Refusal> {
    let config = stream.config();
    let ignored = |reason| Ok(Decoded::ignored(Some(stream), reason));
    if config.action == Action::Ignore {
        return ignored(IgnoreReason::IgnoredTopic);
    }
    if message.payload.is_empty() {
        return ignored(IgnoreReason::EmptyPayload);
    }
    if message.retain && config.retained == Retained::Skip {
        return ignored(IgnoreReason::RetainedReplay);
    }
    let limit = config.limits.payload.bytes();
    if message.payload.len() > limit {
        return Err(Refusal::new(
            Reason::PacketTooLarge,
            format!(
                "the payload has {} bytes, the limit is {limit} bytes (`limits.payload`)",
                message.payload.len()
            ),
        ));
    }
    let inflated;
    let payload: &[u8] = match config.compression {
        Compression::None => &message.payload,
        Compression::Gzip => {
            inflated = inflate::gunzip(&message.payload, limit)?;
            &inflated
        }
    };
    let text = text::read(payload)?;
    if text.text.is_empty() {
        return ignored(IgnoreReason::EmptyPayload);
    }
    match codecs::parse(text, &stream.codec, &stream.fields)? {
        Parsed::Value(value) => readings(stream, topic, message, &value),
        Parsed::Ignored(reason) => ignored(reason),
    }
}

/// A payload's tree to its readings: one, or one per item of an array.
fn readings(
    stream: &Arc<Stream>,
    topic: &str,
    message: &Message,
    value: &Value<'_>,
) -> Result<Decoded, Refusal> {
    let scope = Scope {
        topic,
        template: stream.template.as_ref(),
        item: value,
        root: None,
    };
    let is_object = |v: &Value<'_>| matches!(v, Value::Object(_));
    let (items, root): (&[Value<'_>], _) = match &stream.readings {
        Some(path) => match scope.find(path) {
            Some(Value::Array(items)) => (items, Some(value)),
            Some(item) => (std::slice::from_ref(item), Some(value)),
            None => {
                let detail = format!(
                    "the payload has no readings at `{}` (`readings`)",
                    path.as_str()
                );
                return Err(Refusal::new(Reason::NoValues, detail));
            }
        },
        None => match value {
            Value::Array(items) if items.is_empty() || items.iter().any(is_object) => (items, None),
            _ => {
                let built = reading::build(stream, message, scope)?;
                return Ok(Decoded::built(stream, built));
            }
        },
    };
    if items.is_empty() {
        return Err(Refusal::new(
            Reason::NoValues,
            "the array of readings is empty",
        ));
    }
    if items.len() > stream.config().limits.readings {
        return Err(Refusal::new(
            Reason::TooManyReadings,
            format!(
                "{} readings in one message, the limit is {} (`limits.readings`)",
                items.len(),
                stream.config().limits.readings
            ),
        ));
    }
    Ok(several(stream, message, items, Scope { root, ..scope }))
}

/// Items succeed or fail one by one.
fn several(
    stream: &Arc<Stream>,
    message: &Message,
    items: &[Value<'_>],
    scope: Scope<'_, '_>,
) -> Decoded {
    let mut decoded = Decoded::nothing(Some(stream));
    let mut failed = Vec::new();
    for (n, item) in items.iter().enumerate() {
        let built = match item {
            Value::Object(_) => reading::build(stream, message, Scope { item, ..scope }),
            other => Err(Refusal::new(
                Reason::NotAnObject,
                format!("{} stands where a reading, an object, is due", other.kind()),
            )),
        };
        match built {
            Ok(Built::Reading(reading)) => decoded.readings.push(reading),
            Ok(Built::Ignored(reason)) => decoded.ignored = decoded.ignored.or(Some(reason)),
            Err(refusal) => failed.push((n, refusal)),
        }
    }
    decoded.refused = refusal::merge(failed, items.len());
    if !decoded.readings.is_empty() || decoded.refused.is_some() {
        decoded.ignored = None;
    }
    decoded
}

impl Decoded {
    fn nothing(stream: Option<&Arc<Stream>>) -> Self {
        Self {
            stream: stream.cloned(),
            readings: Vec::new(),
            refused: None,
            ignored: None,
        }
    }

    fn refused(stream: Option<&Arc<Stream>>, refusal: Refusal) -> Self {
        Self {
            refused: Some(refusal),
            ..Self::nothing(stream)
        }
    }

    fn ignored(stream: Option<&Arc<Stream>>, reason: IgnoreReason) -> Self {
        Self {
            ignored: Some(reason),
            ..Self::nothing(stream)
        }
    }

    fn built(stream: &Arc<Stream>, built: Built) -> Self {
        match built {
            Built::Reading(reading) => Self {
                readings: vec![reading],
                ..Self::nothing(Some(stream))
            },
            Built::Ignored(reason) => Self::ignored(Some(stream), reason),
        }
    }
}

#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
