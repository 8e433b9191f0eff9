//! ntfy, as JSON to the server's root.

use serde_json::{Value, json};

use super::super::text;
use super::view::View;
use crate::model::Severity;

pub fn body(view: &View<'_>) -> Value {
    let (priority, tag) = match view.severity() {
        _ if view.resolved() => (2, "white_check_mark"),
        Severity::Critical => (5, "rotating_light"),
        Severity::Error => (4, "red_circle"),
        Severity::Warning => (3, "warning"),
        Severity::Info => (2, "information_source"),
    };
    // The server turns a message over 4 KiB into an attachment.
    let message = if view.text.is_empty() {
        &view.summary
    } else {
        &view.text
    };
    let mut body = json!({
        "topic": view.config.topic.as_deref().unwrap_or_default(),
        "title": text::cut_bytes(&view.headline(), 250),
        "message": text::cut_bytes(message, 3_900),
        "priority": priority,
        "tags": [tag],
    });
    if let Some(link) = view.runbook().filter(|_| !view.brief) {
        body["click"] = json!(link);
    }
    body
}
