//! A Slack incoming webhook, and what imitates one: a line that shows in notifications, and one
//! attachment with a colour. All texts are escaped, so that a device cannot call a whole channel.

use serde_json::{Value, json};

use super::super::text;
use super::view::View;
use crate::model::Severity;

pub fn body(view: &View<'_>) -> Value {
    let line = text::cut(&view.headline(), 400);
    if view.brief {
        return json!({ "text": line });
    }
    let mut attachment = json!({
        "color": color(view),
        "fallback": line,
        "text": text::cut(&view.text, 3_000),
        "footer": text::line(&format!("Tidegate {}", view.environment), 100),
        "ts": view.happened().millis() / 1_000,
    });
    if let Some(link) = view
        .runbook()
        .filter(|link| !link.contains(['<', '>', '|', '&']))
    {
        attachment["title"] = json!("Runbook");
        attachment["title_link"] = json!(link);
    }
    json!({ "text": line, "attachments": [attachment] })
}

fn color(view: &View<'_>) -> &'static str {
    match view.severity() {
        _ if view.resolved() => "#2eb67d",
        Severity::Critical => "#c92a2a",
        Severity::Error => "#e8590c",
        Severity::Warning => "#f2c744",
        Severity::Info => "#439fe0",
    }
}
