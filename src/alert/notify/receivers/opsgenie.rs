//! Opsgenie alerts: created by POST, closed by POST to the alias; where to is decided when the
//! request is made.

use serde_json::{Map, Value, json};

use super::super::text;
use super::view::View;
use crate::model::Severity;

pub fn body(view: &View<'_>) -> Value {
    let source = text::line(&format!("tidegate {}", view.environment), 100);
    if view.resolved() {
        let note = text::cut(&view.text, 25_000);
        // The alias goes into the address when the request is made.
        return json!({ "alias": view.key, "source": source, "note": note, "user": "Tidegate" });
    }
    let priority = match view.severity() {
        Severity::Critical => "P1",
        Severity::Error => "P2",
        Severity::Warning => "P3",
        Severity::Info => "P5",
    };
    let mut body = json!({
        "message": text::cut(&view.summary, 130),
        "alias": view.key,
        "priority": priority,
        "source": source,
    });
    if !view.brief {
        body["description"] = json!(text::cut(&view.text, 15_000));
        let mut tags = vec![view.severity().name().to_owned()];
        if let Some(episode) = view.notice.episodes.first() {
            tags.push(text::line(&episode.rule, 50));
            if !view.many() {
                body["entity"] = json!(text::line(&episode.device, 512));
                body["details"] = Value::Object(details(view));
            }
        }
        body["tags"] = json!(tags);
    }
    body
}

/// Texts only, 8,000 characters in all.
fn details(view: &View<'_>) -> Map<String, Value> {
    let mut details = Map::new();
    let mut room: usize = 7_500;
    let Some(episode) = view.notice.episodes.first() else {
        return details;
    };
    let runbook = view.runbook().map(str::to_owned);
    let fixed = [
        ("field", episode.field.clone()),
        ("threshold", episode.threshold.map(text::number)),
        ("value", super::context::value_with_unit(episode)),
        ("runbook", runbook),
    ];
    let fixed = fixed
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let labels = episode.tags.iter().chain(&episode.labels);
    let labels = labels.map(|(name, value)| (text::line(name, 64), text::line(value, 256)));
    for (name, value) in fixed.chain(labels) {
        let size = name.chars().count() + value.chars().count();
        if size > room {
            break;
        }
        room -= size;
        details.entry(name).or_insert(json!(value));
    }
    details
}
