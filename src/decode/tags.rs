//! Tags: what describes a device rather than what it measured.
//!
//! They come from the configuration, from the topic, and from paths of the payload, and end beside
//! the device id in `metadata`.

use std::borrow::Cow;

use super::expression::Scope;
use super::keys;
use super::path::Path;
use super::refusal::{Refusal, quote};
use super::template::Template;
use super::value::Value;
use crate::model::Reason;

/// Names of `metadata` that are not tags.
pub(super) const RESERVED: [&str; 2] = ["deviceId", "type"];

/// Where a stream's tags come from; names are checked to differ when it is built.
#[derive(Debug, Clone, Default)]
pub(super) struct TagRules {
    pub(super) fixed: Vec<(String, String)>,
    /// Captures by position in the template.
    pub(super) captures: Vec<(String, usize)>,
    pub(super) paths: Vec<(String, Path)>,
    /// The capture that holds a property bag.
    pub(super) properties: Option<usize>,
}

impl TagRules {
    /// The tags of one reading, sorted by name. A configured tag wins over a property of its name.
    pub(super) fn collect(&self, scope: Scope<'_, '_>) -> Result<Vec<(String, String)>, Refusal> {
        let mut tags = self.fixed.clone();
        if let Some(template) = scope.template {
            for (name, capture) in &self.captures {
                push(
                    &mut tags,
                    name.clone(),
                    template.value(*capture, scope.topic),
                );
            }
        }
        for (name, path) in &self.paths {
            match scope.find(path) {
                Some(Value::Object(members)) => {
                    for (key, value) in members {
                        push(&mut tags, safe_name(key)?, value.as_word());
                    }
                }
                Some(value) => push(&mut tags, name.clone(), value.as_word()),
                None => {}
            }
        }
        if let (Some(template), Some(capture)) = (scope.template, self.properties) {
            let bag = template.value(capture, scope.topic).unwrap_or_default();
            for (key, value) in properties(bag) {
                push(&mut tags, safe_name(&key)?, Some(&value));
            }
        }
        // A stable sort keeps the order of precedence among tags of one name.
        if tags.len() > 1 {
            tags.sort_by(|(a, _), (b, _)| a.cmp(b));
            tags.dedup_by(|(later, _), (first, _)| later == first);
        }
        Ok(tags)
    }

    /// The captures of a template that are tags.
    pub(super) fn captures_of(template: &Template) -> Vec<(String, usize)> {
        let captures = template.captures().iter().enumerate();
        captures
            .filter_map(|(n, c)| Some((c.name.strip_prefix("tag.")?.to_owned(), n)))
            .collect()
    }
}

fn push(tags: &mut Vec<(String, String)>, name: String, value: Option<&str>) {
    if let Some(value) = value.filter(|v| !v.is_empty()) {
        tags.push((name, value.to_owned()));
    }
}

/// A name from outside as a key of `metadata`.
fn safe_name(key: &str) -> Result<String, Refusal> {
    if key.contains('\0') {
        let detail = format!(
            "tag name {} holds a NUL, which BSON cannot store",
            quote(key)
        );
        return Err(Refusal::new(Reason::BadKey, detail));
    }
    Ok(match RESERVED.contains(&key) {
        true => format!("%{key}"),
        false => keys::escape(key).into_owned(),
    })
}

/// `a=1&b=2`, percent-encoded, without the sender's system properties (`$.…`).
fn properties(bag: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    bag.split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = percent_decode(key);
        (!key.is_empty() && !key.starts_with("$.")).then(|| (key, percent_decode(value)))
    })
}

/// Text that does not decode to UTF-8 stays as it is.
fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let Some((first, rest)) = bytes.split_first() {
        let digits = rest
            .get(..2)
            .filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let decoded = digits
            .filter(|_| *first == b'%')
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 16).ok());
        match decoded {
            Some(byte) => {
                out.push(byte);
                bytes = &rest[2..];
            }
            None => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8(out).map_or(text.into(), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_bags() {
        let found: Vec<_> =
            properties("%24.ct=application%2Fjson&siteId=N4&n%20x=%C3%BC&flag&=x").collect();
        let expected = [("siteId", "N4"), ("n x", "ü"), ("flag", "")];
        assert_eq!(found, expected.map(|(k, v)| (k.into(), v.into())));
        assert_eq!(percent_decode("%ff%"), "%ff%");
    }

    #[test]
    fn configured_tags_come_first_and_names_are_unique() {
        let template = Template::parse("{tag.site}/{properties}").unwrap();
        let rules = TagRules {
            fixed: vec![("fleet".into(), "f".into())],
            captures: TagRules::captures_of(&template),
            paths: vec![("info".into(), Path::parse("info").unwrap())],
            properties: template.index_of("properties"),
        };
        let info = Value::Object(vec![
            ("floor".into(), Value::Number("2".into())),
            ("none".into(), Value::Null),
        ]);
        let item = Value::Object(vec![("info".into(), info)]);
        let scope = Scope {
            topic: "N/site=X&fleet=Y&rack=7",
            template: Some(&template),
            item: &item,
            root: None,
        };
        let expected = [("fleet", "f"), ("floor", "2"), ("rack", "7"), ("site", "N")];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(rules.collect(scope).unwrap(), expected);
    }

    #[test]
    fn names_from_outside_are_made_safe() {
        assert_eq!(safe_name("type"), Ok("%type".into()));
        assert_eq!(safe_name("a.b"), Ok("a%2Eb".into()));
        assert_eq!(safe_name("a\0").unwrap_err().reason, Reason::BadKey);
    }
}
