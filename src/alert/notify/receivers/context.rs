//! What a message says, before it is put in a receiver's format: the data that templates and the
//! generic payload carry, cleaned of what devices should not be able to do to a reader.

use serde_json::{Map, Value, json};

use super::super::{sandbox, text};
use crate::alert::{Episode, Notice, NoticeKind, Storm};

/// Characters of a tag's, label's or device's text.
const MOST_WORD: usize = 256;
/// Characters of a text value or an annotation.
const MOST_TEXT: usize = 1_024;
/// Tags, and labels, of one alert.
const MOST_PAIRS: usize = 64;
/// Beyond it a double cannot hold every whole number, and neither can many a JSON reader.
const SAFE_INTEGER: u64 = 1 << 53;

/// One alert of a message.
#[derive(Debug, Clone)]
pub struct Alert {
    /// One line about it: the rule's own summary, or the built-in one.
    pub summary: String,
    /// The rule's own description.
    pub description: Option<String>,
    /// The rendered annotations.
    pub annotations: Vec<(String, String)>,
    /// A page about what to do.
    pub runbook: Option<String>,
    /// Everything about it.
    pub data: Map<String, Value>,
    /// Whether it has ended.
    pub resolved: bool,
}

impl Alert {
    /// Of `episode`, as seen by `notice`; what goes wrong with its templates is added to `flaws`.
    pub fn new(episode: &Episode, notice: &Notice, flaws: &mut Vec<String>) -> Self {
        let mut data = about(episode, notice);
        let built_in = summary(episode);
        data.insert("summary".into(), json!(built_in));
        let annotations = annotations(episode, &Value::Object(data.clone()), flaws);
        let named = |name: &str| {
            let found = annotations.iter().find(|(known, _)| known == name);
            found.map(|(_, text)| text.clone())
        };
        let summary = named("summary").map_or(built_in, |own| text::line(&own, MOST_TEXT));
        let runbook = named("runbook")
            .or_else(|| named("runbook_url"))
            .filter(|link| is_link(link));
        data.insert("summary".into(), json!(summary));
        let shown: Map<String, Value> = annotations
            .iter()
            .map(|(name, text)| (name.clone(), json!(text)))
            .collect();
        data.insert("annotations".into(), Value::Object(shown));
        data.insert("links".into(), json!({ "runbook": runbook }));
        Self {
            summary,
            description: named("description"),
            annotations,
            runbook,
            data,
            resolved: episode.ended.is_some(),
        }
    }
}

/// What a page may be told to open.
fn is_link(link: &str) -> bool {
    (link.starts_with("https://") || link.starts_with("http://"))
        && link.len() <= MOST_TEXT
        && !link.contains(char::is_whitespace)
}

/// The data of one episode.
fn about(episode: &Episode, notice: &Notice) -> Map<String, Value> {
    let until = episode.ended.map_or(notice.at, |ended| ended.at);
    let word = |text: &String| text::line(text, MOST_WORD);
    let name = episode.tags.get("name").unwrap_or(&episode.device);
    let flags: Map<String, Value> = episode
        .flags
        .iter()
        .map(|flag| (word(flag), json!(true)))
        .collect();
    let Value::Object(data) = json!({
        "status": if episode.ended.is_some() { "resolved" } else { "firing" },
        "severity": episode.severity.name(),
        "reason": episode.ended.map(|ended| ended.reason.name()),
        "alert": { "key": word(&episode.key), "id": word(&episode.id), "sequence": episode.sequence },
        "rule": { "id": word(&episode.rule), "name": word(&episode.name), "kind": episode.kind },
        "device": {
            "id": word(&episode.device),
            "name": word(name),
            "type": episode.device_type.as_ref().map(word),
            "tags": pairs(&episode.tags),
        },
        "field": episode.field.as_ref().map(word),
        "unit": episode.unit.as_ref().map(word),
        "op": episode.op.as_ref().map(word),
        "threshold": episode.threshold,
        "clear": episode.clear,
        "value": episode.value.as_ref().map(plain_value),
        "peak": episode.peak,
        "started_at": episode.started_at,
        "fired_at": episode.fired_at,
        "ended_at": episode.ended.map(|ended| ended.at),
        "duration": until.since(episode.fired_at).as_secs(),
        "labels": pairs(&episode.labels),
        "flags": flags,
    }) else {
        unreachable!("the literal above is an object");
    };
    data
}

fn pairs(of: &std::collections::BTreeMap<String, String>) -> Map<String, Value> {
    of.iter()
        .take(MOST_PAIRS)
        .map(|(name, value)| {
            let (name, value) = (text::line(name, MOST_WORD), text::line(value, MOST_WORD));
            (name, json!(value))
        })
        .collect()
}

/// A scalar that any JSON reader takes for what it is.
fn plain_value(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let whole = number
                .as_u64()
                .or_else(|| number.as_i64().map(i64::unsigned_abs));
            if whole.is_some_and(|size| size > SAFE_INTEGER) {
                json!(number.to_string())
            } else {
                value.clone()
            }
        }
        Value::Bool(_) | Value::Null => value.clone(),
        Value::String(own) => json!(text::lines(own, MOST_TEXT)),
        other => json!(text::lines(&other.to_string(), MOST_TEXT)),
    }
}

fn annotations(episode: &Episode, data: &Value, flaws: &mut Vec<String>) -> Vec<(String, String)> {
    let mut made = Vec::new();
    for (name, source) in episode.annotations.iter().take(MOST_PAIRS) {
        match sandbox::render(source, data) {
            Ok(rendered) => {
                if rendered.missing {
                    flaws.push(format!("annotation {name:?} asks for what is not there"));
                }
                made.push((
                    text::line(name, MOST_WORD),
                    text::lines(&rendered.text, MOST_TEXT),
                ));
            }
            Err(error) => {
                flaws.push(format!("annotation {name:?}: {error}"));
                // A summary has a built-in one in its place; of others the source says most.
                if name != "summary" && name != "description" {
                    made.push((text::line(name, MOST_WORD), text::lines(source, MOST_TEXT)));
                }
            }
        }
    }
    made
}

/// One line about an episode.
fn summary(episode: &Episode) -> String {
    let mut line = format!("{}: {}", episode.name, episode.device);
    if let Some(field) = &episode.field {
        line.push_str(&format!(" {field}"));
    }
    if let Some(value) = value_with_unit(episode) {
        line.push_str(&format!(" {value}"));
    }
    text::line(&line, MOST_WORD)
}

/// `11.2 degC`.
pub fn value_with_unit(episode: &Episode) -> Option<String> {
    let value = match episode.value.as_ref()? {
        Value::Null => return None,
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(number)) => text::number(number),
            (None, None) => number.to_string(),
        },
        Value::String(own) => text::line(own, MOST_WORD),
        other => other.to_string(),
    };
    Some(match &episode.unit {
        Some(unit) => format!("{value} {}", text::line(unit, MOST_WORD)),
        None => value,
    })
}

/// The message's own type.
pub fn kind_name(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Firing => "alert.firing",
        NoticeKind::Update => "alert.updated",
        NoticeKind::Repeat => "alert.repeated",
        NoticeKind::Resolved => "alert.resolved",
        NoticeKind::Test => "alert.test",
    }
}

/// A storm's numbers.
pub fn storm_data(storm: &Storm) -> Value {
    let top: Vec<Value> = storm
        .top
        .iter()
        .map(|(label, value, count)| {
            let (label, value) = (text::line(label, MOST_WORD), text::line(value, MOST_WORD));
            json!({ "label": label, "value": value, "count": count })
        })
        .collect();
    json!({ "total": storm.total, "firing": storm.firing, "top": top, "since": storm.since })
}
