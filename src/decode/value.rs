//! What a codec makes of a payload: a tree that borrows from the payload's text.
//!
//! Numbers stay text until it is known what they are for: a time is read from its digits, an
//! identity is written as sent, and only a field becomes a number.

use std::borrow::Cow;

/// A payload, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    /// A number in JSON grammar.
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
    Array(Vec<Value<'a>>),
    /// Keys are unescaped and unique.
    Object(Vec<(Cow<'a, str>, Value<'a>)>),
    /// A NaN or infinity that the stream leaves out.
    NonFinite,
}

impl Value<'_> {
    /// The member of that name.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Value::Object(members) => members.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            Value::Array(items) => items.get(position(key)?),
            _ => None,
        }
    }

    /// A scalar as text: how identities, tags and words see it.
    pub(super) fn as_word(&self) -> Option<&str> {
        match self {
            Value::Bool(true) => Some("true"),
            Value::Bool(false) => Some("false"),
            Value::Number(text) | Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What it is, in JSON's words.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) | Value::NonFinite => "a number",
            Value::Text(_) => "text",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

/// An array position as written in a path: decimal, without leading zeros.
fn position(key: &str) -> Option<usize> {
    let plain = key.bytes().all(|b| b.is_ascii_digit()) && (key == "0" || !key.starts_with('0'));
    plain.then(|| key.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_positions_are_found_by_text() {
        let array = Value::Array(vec![Value::Null, Value::Bool(true)]);
        assert_eq!(array.get("1"), Some(&Value::Bool(true)));
        for missing in ["2", "01", "+1", "", "x"] {
            assert_eq!(array.get(missing), None, "{missing}");
        }
        let object = Value::Object(vec![("01".into(), Value::Number("7".into()))]);
        assert_eq!(object.get("01").and_then(Value::as_word), Some("7"));
        assert_eq!(object.get("1"), None);
    }
}
