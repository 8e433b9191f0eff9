//! A JSON body of the operator's own: the tree as it stands in the configuration, every text in it
//! a template. The tree stays JSON whatever a device sends, because only texts are filled in.

use serde_json::Value;

use super::super::{sandbox, text};
use super::view::View;

pub fn body(view: &View<'_>) -> Value {
    let data = Value::Object(view.data.clone());
    match &view.config.body {
        Some(tree) => fill(tree, &data, view),
        None => Value::Null,
    }
}

fn fill(tree: &Value, data: &Value, view: &View<'_>) -> Value {
    match tree {
        Value::String(source) => Value::String(match sandbox::render(source, data) {
            Ok(made) if view.brief => text::lines(&made.text, 256),
            Ok(made) => text::lines(&made.text, sandbox::MOST_OUTPUT),
            Err(_) => view.summary.clone(),
        }),
        Value::Array(items) => items.iter().map(|item| fill(item, data, view)).collect(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (key.clone(), fill(value, data, view)))
            .collect(),
        other => other.clone(),
    }
}
