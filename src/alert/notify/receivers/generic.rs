//! Tidegate's own JSON, schema 1: `{type, timestamp, data}`. Keys are added, never changed.

use serde_json::{Value, json};

use super::context::kind_name;
use super::view::View;

/// Bytes of a body about many alerts.
const MOST: usize = 128 << 10;

pub fn body(view: &View<'_>) -> Value {
    view.fit(MOST, |alerts, truncated| {
        let mut data = view.data.clone();
        data.remove("type");
        data.remove("at");
        if view.many() && !view.brief {
            let listed = alerts.iter().map(|alert| Value::Object(alert.data.clone()));
            data.insert("alerts".into(), listed.collect());
            data["group"]["truncated"] = json!(truncated);
        }
        json!({
            "type": kind_name(view.notice.kind),
            "timestamp": view.notice.at,
            "data": data,
        })
    })
}
