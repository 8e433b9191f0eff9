//! `tidegate explain`: what would become of a message. The JSON form is a stable contract.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};

use super::ConfigArgs;
use crate::alert::rules::{RuleSet, View, lookup, scalar};
use crate::config::rules::RuleKind;
use crate::decode::{Decoded, decode};
use crate::model::{FieldValue, Message, QoS, Reading, Severity, Spooled, TimeSource, Timestamp};
use crate::runtime::now;

/// Show what would be stored for a topic and payload, or why nothing would be
///
/// Needs neither broker nor database. Exit code 0 whatever the outcome.
#[derive(Debug, Args)]
pub struct Explain {
    #[command(flatten)]
    config: ConfigArgs,
    /// Topic the message was published on
    #[arg(long)]
    topic: String,
    /// The payload as text
    #[arg(
        long,
        conflicts_with = "payload_file",
        required_unless_present = "payload_file"
    )]
    payload: Option<String>,
    /// File that holds the payload
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Moment of receipt, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    received_at: Option<Timestamp>,
    /// Treat it as a replay from the broker's retained store
    #[arg(long)]
    retained: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let prepared = self.config.prepare()?;
        let payload = match (&self.payload, &self.payload_file) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(path)) => {
                std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
            }
            (None, None) => Vec::new(),
        };
        let message = Message {
            topic: Bytes::from(self.topic),
            payload: Bytes::from(payload),
            cut_from: None,
            qos: QoS::AtLeastOnce,
            retain: self.retained,
            dup: false,
            spooled: Spooled::No,
            received_at: self.received_at.unwrap_or_else(now),
        };
        let decoded = decode(&prepared.router, &message);
        // Whatever is wrong with a rule has been refused before.
        let (set, _) = RuleSet::compile(&prepared.loaded.config.rules);
        let topic = String::from_utf8_lossy(&message.topic);
        let rules = selecting(&set, &decoded, &topic);
        if self.json {
            println!("{}", contract(&decoded, &rules));
        } else {
            print!("{}", text(&decoded, &rules));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `stored` where anything is stored; a part that is not is then told by reason and detail.
fn outcome(decoded: &Decoded) -> &'static str {
    match decoded {
        decoded if !decoded.readings.is_empty() => "stored",
        decoded if decoded.refused.is_some() => "dead_letter",
        _ => "ignored",
    }
}

/// A rule that looks at a reading.
struct Selecting {
    /// Place of the reading.
    reading: usize,
    id: String,
    kind: RuleKind,
    /// What the value alone would come to, for thresholds: the worst level that it breaches.
    level: Option<Severity>,
}

fn selecting(set: &RuleSet, decoded: &Decoded, topic: &str) -> Vec<Selecting> {
    let stream = decoded.stream.as_ref().map_or("", |stream| stream.name());
    let mut found = Vec::new();
    for (place, reading) in decoded.readings.iter().enumerate() {
        for rule in set.matching(&View::of_reading(reading, topic, stream)) {
            let field = rule.field().and_then(|name| lookup(&reading.fields, name));
            let value = scalar(field, rule.config.coerce).ok();
            let threshold = value.filter(|_| rule.config.kind == RuleKind::Threshold);
            let verdict = threshold.and_then(|value| rule.judge(&value));
            found.push(Selecting {
                reading: place,
                id: rule.id.to_string(),
                kind: rule.config.kind,
                level: verdict.and_then(|verdict| verdict.trigger.worst()),
            });
        }
    }
    found
}

fn contract(decoded: &Decoded, rules: &[Selecting]) -> Value {
    let reason = match (&decoded.refused, decoded.ignored) {
        (Some(refusal), _) => Some(refusal.reason.code()),
        (None, Some(ignored)) => Some(ignored.code()),
        (None, None) => None,
    };
    json!({
        "outcome": outcome(decoded),
        "stream": decoded.stream.as_ref().map(|stream| stream.name()),
        "reason": reason,
        "detail": decoded.refused.as_ref().map(|refusal| refusal.detail.as_str()),
        "readings": decoded.readings.iter().map(reading).collect::<Vec<_>>(),
        "rules": rules.iter().map(|rule| json!({
            "id": rule.id,
            "reading": rule.reading,
            "kind": rule.kind.name(),
            "level": rule.level.map(Severity::name),
        })).collect::<Vec<_>>(),
    })
}

fn reading(reading: &Reading) -> Value {
    let tags: Map<_, _> = reading
        .tags
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let fields: Map<_, _> = reading
        .fields
        .iter()
        .map(|(name, field)| (name.clone(), value(field)))
        .collect();
    json!({
        "deviceId": reading.device.as_str(),
        "type": reading.kind.as_deref(),
        "timestamp": reading.timestamp.to_string(),
        "timeSource": match reading.time_source {
            TimeSource::Device => "device",
            TimeSource::Received => "received",
        },
        "tags": tags,
        "fields": fields,
        "flags": reading.flags.names().collect::<Vec<_>>(),
        "claimed": reading.claimed,
    })
}

fn value(field: &FieldValue) -> Value {
    match field {
        // Whole doubles print as integers: to JSON they are the same number.
        FieldValue::Double(number)
            if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 =>
        {
            json!(*number as i64)
        }
        FieldValue::Double(number) => json!(number),
        FieldValue::Int64(number) => json!(number),
        FieldValue::Bool(truth) => json!(truth),
        FieldValue::Text(text) => json!(text),
        FieldValue::Null => Value::Null,
        FieldValue::Array(items) => items.iter().map(value).collect(),
        FieldValue::Object(entries) => entries
            .iter()
            .map(|(key, field)| (key.clone(), value(field)))
            .collect(),
    }
}

fn text(decoded: &Decoded, rules: &[Selecting]) -> String {
    let mut lines = Vec::new();
    let stream = decoded
        .stream
        .as_ref()
        .map_or("no stream claims the topic".to_owned(), |s| {
            format!("stream {}", s.name())
        });
    lines.push(format!("{} ({stream})", outcome(decoded).replace('_', " ")));
    if let Some(reason) = decoded.ignored {
        lines.push(format!("  reason     {reason}"));
    }
    if let Some(refusal) = &decoded.refused {
        lines.push(format!("  reason     {}", refusal.reason));
        lines.push(format!("  detail     {}", refusal.detail));
    }
    for (place, reading) in decoded.readings.iter().enumerate() {
        lines.push(format!("  device     {}", reading.device));
        if let Some(kind) = &reading.kind {
            lines.push(format!("  type       {kind}"));
        }
        let source = match reading.time_source {
            TimeSource::Device => "the device's own",
            TimeSource::Received => "time of receipt",
        };
        lines.push(format!("  timestamp  {} ({source})", reading.timestamp));
        if let Some(claimed) = &reading.claimed {
            lines.push(format!("  claimed    {claimed}, not believed"));
        }
        for (name, tag) in &reading.tags {
            lines.push(format!("  tag        {name} = {tag}"));
        }
        for (name, field) in &reading.fields {
            lines.push(format!("  field      {name} = {}", value(field)));
        }
        if !reading.flags.is_empty() {
            lines.push(format!(
                "  flags      {}",
                reading.flags.names().collect::<Vec<_>>().join(", ")
            ));
        }
        for rule in rules.iter().filter(|rule| rule.reading == place) {
            let level = match (rule.kind, rule.level) {
                (RuleKind::Threshold, Some(level)) => format!(", breaches {level}"),
                (RuleKind::Threshold, None) => ", breaches nothing".to_owned(),
                _ => String::new(),
            };
            lines.push(format!(
                "  rule       {} ({}{level})",
                rule.id,
                rule.kind.name()
            ));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}
