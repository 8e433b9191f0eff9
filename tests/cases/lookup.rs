//! Finding an expected value in a stored reading.
//!
//! Cases name a value by its path in the payload. A reading holds it under a flattened name
//! (`a/b` is `a_b`) or kept in structure, with keys escaped; both are spelled out here once more,
//! apart from the code under test.

use serde_json::Value;
use tidegate::config::streams::{Nested, StreamConfig};
use tidegate::model::{FieldValue, Reading};

/// A reading seen through the paths of the cases.
pub struct Stored<'r> {
    pub reading: &'r Reading,
    pub config: &'r StreamConfig,
    pub tolerance: f64,
}

impl Stored<'_> {
    /// Whether the value at a path is the expected one.
    pub fn has(&self, path: &str, expected: &Value) -> bool {
        let keys = split(path);
        let found = match self.config.nested {
            Nested::Flatten => self.has_flat(&flat_name(&keys), expected),
            Nested::Keep => self.matches(self.kept(&keys), expected),
        };
        found || self.has_alias(path, expected)
    }

    /// Whether nothing is stored at a path.
    pub fn lacks(&self, path: &str) -> bool {
        self.has(path, &serde_json::json!({"$null_or_absent": true}))
    }

    /// Values from outside the fields' object are named by their whole path; cases may name them
    /// by the last part.
    fn has_alias(&self, path: &str, expected: &Value) -> bool {
        let outside = self.config.also.iter().chain([&self.config.fallback]);
        outside.filter(|p| !p.is_empty()).any(|outside| {
            let keys = split(outside.strip_prefix('/').unwrap_or(outside));
            let named = outside == path || keys.last().map(String::as_str) == Some(path);
            named && self.matches(self.field(&flat_name(&keys)), expected)
        })
    }

    fn field(&self, name: &str) -> Option<&FieldValue> {
        let fields = self.reading.fields.iter();
        fields.into_iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    fn has_flat(&self, name: &str, expected: &Value) -> bool {
        match expected {
            Value::Array(items) => {
                let all = items.iter().enumerate();
                all.into_iter()
                    .all(|(n, item)| self.has_flat(&format!("{name}_{n}"), item))
                    && self.field(&format!("{name}_{}", items.len())).is_none()
            }
            Value::Object(members) if !is_special(expected) => members
                .iter()
                .all(|(key, value)| self.has_flat(&format!("{name}_{}", escape(key)), value)),
            Value::Null => self.field(name).is_none(),
            _ => self.matches(self.field(name), expected),
        }
    }

    fn kept(&self, keys: &[String]) -> Option<&FieldValue> {
        let (first, rest) = keys.split_first()?;
        let top = self.field(&at_top(escape(first)))?;
        rest.iter().try_fold(top, |value, key| match value {
            FieldValue::Object(members) => members
                .iter()
                .find(|(k, _)| *k == escape(key))
                .map(|(_, v)| v),
            FieldValue::Array(items) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }

    fn matches(&self, found: Option<&FieldValue>, expected: &Value) -> bool {
        if let Some(any) = expected["$any_of"].as_array() {
            return any.iter().any(|one| self.matches(found, one));
        }
        if expected["$null_or_absent"] == true {
            return matches!(found, None | Some(FieldValue::Null));
        }
        if let Some(digits) = expected["$exact"].as_str() {
            return match found {
                Some(FieldValue::Int64(number)) => number.to_string() == digits,
                Some(FieldValue::Double(number)) => format!("{number}") == digits,
                Some(FieldValue::Text(text)) => text == digits,
                _ => false,
            };
        }
        match (found, expected) {
            (None | Some(FieldValue::Null), Value::Null) => true,
            (Some(FieldValue::Bool(a)), Value::Bool(b)) => a == b,
            (Some(FieldValue::Text(a)), Value::String(b)) => a == b,
            (Some(FieldValue::Double(a)), Value::Number(b)) => self.near(*a, b),
            (Some(FieldValue::Int64(a)), Value::Number(b)) => match b.as_i64() {
                Some(b) => *a == b,
                None => self.near(*a as f64, b),
            },
            (Some(FieldValue::Array(a)), Value::Array(b)) => {
                let mut pairs = a.iter().zip(b);
                a.len() == b.len() && pairs.all(|(a, b)| self.matches(Some(a), b))
            }
            (Some(FieldValue::Object(a)), Value::Object(b)) => b.iter().all(|(key, b)| {
                let member = a.iter().find(|(k, _)| *k == escape(key));
                self.matches(member.map(|(_, v)| v), b)
            }),
            _ => false,
        }
    }

    fn near(&self, found: f64, expected: &serde_json::Number) -> bool {
        expected
            .as_f64()
            .is_some_and(|e| found == e || (found - e).abs() <= self.tolerance)
    }
}

fn is_special(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|o| o.keys().any(|k| k.starts_with('$')))
}

fn split(path: &str) -> Vec<String> {
    let parts = path.split('/');
    parts
        .map(|p| p.replace("~e", "").replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn flat_name(keys: &[String]) -> String {
    let escaped: Vec<String> = keys.iter().map(|k| escape(k)).collect();
    at_top(escaped.join("_"))
}

fn escape(key: &str) -> String {
    if key.is_empty() {
        return "%".into();
    }
    let escaped = key.replace('%', "%25").replace('.', "%2E");
    match escaped.strip_prefix('$') {
        Some(rest) => format!("%24{rest}"),
        None => escaped,
    }
}

fn at_top(name: String) -> String {
    match name.as_str() {
        "_id" | "timestamp" | "metadata" | "_flags" | "_claimed" => format!("%{name}"),
        _ => name,
    }
}
