//! PagerDuty Events v2. The routing key is put in when the request is made.

use serde_json::{Map, Value, json};

use super::super::text;
use super::context::storm_data;
use super::view::View;

/// PagerDuty takes 512 KB; nobody reads that much.
const MOST: usize = 100 << 10;

pub fn body(view: &View<'_>) -> Value {
    if view.resolved() {
        return json!({ "event_action": "resolve", "dedup_key": view.key });
    }
    view.fit(MOST, |alerts, truncated| {
        let worst = view.notice.episodes.first();
        let source = worst
            .filter(|_| !view.many())
            .map_or(view.environment, |episode| &episode.device);
        let mut payload = json!({
            "summary": text::cut(&view.summary, 1_024),
            "source": text::line(source, 255),
            "severity": view.severity().name(),
            "timestamp": view.happened(),
        });
        let mut event = json!({
            "event_action": "trigger",
            "dedup_key": view.key,
            "client": "Tidegate",
        });
        if !view.brief {
            payload["group"] = json!(view.environment);
            if let Some(episode) = worst {
                payload["class"] = json!(text::line(&episode.rule, 255));
                if let Some(field) = &episode.field {
                    payload["component"] = json!(text::line(field, 255));
                }
            }
            let mut details = Map::new();
            details.insert("text".into(), json!(view.text));
            if view.many() {
                let named: Vec<&str> = alerts.iter().map(|alert| alert.summary.as_str()).collect();
                details.insert("alerts".into(), json!(named));
                details.insert("truncated".into(), json!(truncated));
                details.insert(
                    "storm".into(),
                    json!(view.notice.storm.as_ref().map(storm_data)),
                );
            } else if let Some(alert) = alerts.first() {
                details.extend(alert.data.clone());
            }
            payload["custom_details"] = Value::Object(details);
            if let Some(link) = view.runbook() {
                event["links"] = json!([{ "href": link, "text": "Runbook" }]);
            }
        }
        event["payload"] = payload;
        event
    })
}
