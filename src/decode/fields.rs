//! A tree to the fields of one reading: flattened or kept, filtered, renamed, with safe and unique
//! names.
//!
//! The common payload is a flat object, so that path costs one string per field and nothing else:
//! names are compared with each other only where nesting or renaming could make two alike.

use std::borrow::Cow;
use std::collections::HashMap;

use super::keys;
use super::number;
use super::path::Path;
use super::place::{Place, Trail};
use super::refusal::{Refusal, quote};
use super::rules::{FieldRules, Node, Rule};
use super::value::Value;
use crate::config::streams::Nested;
use crate::model::{FieldValue, Flag, Flags, Reason};

/// Gathers the fields of one reading.
pub(super) struct Fields<'r> {
    rules: &'r FieldRules,
    pub(super) out: Vec<(String, FieldValue)>,
    pub(super) flags: Flags,
    /// A word for "no value" was left out.
    pub(super) missing: bool,
    scalars: usize,
    /// Two names might be alike.
    doubtful: bool,
    /// Where each field came from; kept only to explain a collision.
    trace: Option<Vec<String>>,
}

impl<'r> Fields<'r> {
    pub(super) fn new(rules: &'r FieldRules, trace: bool) -> Self {
        Self {
            rules,
            out: Vec::new(),
            flags: Flags::default(),
            missing: false,
            scalars: 0,
            doubtful: false,
            trace: trace.then(Vec::new),
        }
    }

    /// Takes the members of an object that stands at `path` of the reading.
    pub(super) fn take_members(
        &mut self,
        members: &[(Cow<'_, str>, Value<'_>)],
        path: Option<&Path>,
    ) -> Result<(), Refusal> {
        let node = match path {
            Some(path) => self.rules.paths.descend(path),
            None => Some(&self.rules.paths),
        };
        self.out.reserve(members.len().min(self.rules.max_fields));
        self.doubtful |= !self.out.is_empty();
        let included = self.rules.all || node.is_some_and(|n| n.rule.include);
        for (key, value) in members {
            let place = Place {
                prefix: "",
                node: node.and_then(|n| n.child(key)),
                included,
                trail: Trail { above: None, key },
            };
            self.walk(place, value)?;
        }
        Ok(())
    }

    /// Takes one value under a name of the stream's choosing.
    pub(super) fn take_named(
        &mut self,
        name: &str,
        value: &Value<'_>,
        path: Option<&Path>,
    ) -> Result<(), Refusal> {
        self.doubtful = true;
        let place = Place {
            prefix: "",
            node: path.and_then(|path| self.rules.paths.descend(path)),
            included: true,
            trail: Trail {
                above: None,
                key: name,
            },
        };
        self.walk(place, value)
    }

    /// Takes a value from outside the fields' object, named by its whole path.
    pub(super) fn take_at(&mut self, path: &Path, value: &Value<'_>) -> Result<(), Refusal> {
        self.doubtful = true;
        let Some((last, above)) = path.segments.split_last() else {
            return Ok(());
        };
        let prefix: Vec<_> = above.iter().map(|key| keys::escape(key)).collect();
        let place = Place {
            prefix: &prefix.join("_"),
            node: self.rules.paths.descend(path),
            included: true,
            trail: Trail {
                above: None,
                key: last,
            },
        };
        self.walk(place, value)
    }

    /// Drops fields from `before` on that repeat an earlier one. Where the fields' object is the
    /// whole reading, a further path may lead into it: that is no collision.
    pub(super) fn drop_taken(&mut self, before: usize) {
        let mut further = self.out.split_off(before);
        let taken: HashMap<&str, &FieldValue> = self
            .out
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let new: Vec<bool> = further
            .iter()
            .map(|(name, value)| taken.get(name.as_str()) != Some(&value))
            .collect();
        let mut kept = new.iter();
        further.retain(|_| *kept.next().unwrap_or(&true));
        if let Some(trace) = &mut self.trace {
            let mut position = 0;
            trace.retain(|_| {
                position += 1;
                position <= before || *new.get(position - 1 - before).unwrap_or(&true)
            });
        }
        self.out.append(&mut further);
    }

    /// The positions of two fields of one name, if there are any.
    pub(super) fn collision(&self) -> Option<(usize, usize)> {
        self.doubtful
            .then(|| keys::repeated(&self.out, |(name, _)| name))
            .flatten()
    }

    /// Where the field at a position came from, if traced.
    pub(super) fn origin(&self, position: usize) -> &str {
        self.trace
            .as_ref()
            .and_then(|t| t.get(position))
            .map_or("", String::as_str)
    }

    fn walk(&mut self, place: Place<'_>, value: &Value<'_>) -> Result<(), Refusal> {
        if place.node.is_some_and(|n| n.rule.drop) || *value == Value::Null {
            return Ok(());
        }
        place.check_key(self.rules.max_key)?;
        let mut name = place.name();
        self.doubtful |= !place.prefix.is_empty();
        let mut included = place.included;
        if !self.apply(place.node, &mut name, &mut included) {
            return Ok(());
        }
        match (value, self.rules.nested) {
            (Value::Object(members), Nested::Flatten) => {
                self.doubtful = true;
                for (key, value) in members {
                    self.walk(place.below(&name, key, included), value)?;
                }
                Ok(())
            }
            (Value::Array(items), Nested::Flatten) => {
                self.doubtful = true;
                for (n, value) in items.iter().enumerate() {
                    self.walk(place.below(&name, &n.to_string(), included), value)?;
                }
                Ok(())
            }
            (Value::Object(_) | Value::Array(_), Nested::Keep) => {
                match self.keep(place, &name, included, value)? {
                    Some(kept) => self.push(name, kept, place.trail),
                    None => Ok(()),
                }
            }
            _ if !included => Ok(()),
            _ => match self.scalar(value, place)? {
                Some(scalar) => self.push(name, scalar, place.trail),
                None => Ok(()),
            },
        }
    }

    /// Applies the rules of a node; false if it is left out.
    fn apply(&mut self, node: Option<&Node>, name: &mut String, included: &mut bool) -> bool {
        let by_name = match self.rules.names.is_empty() {
            true => None,
            false => self.rules.names.get(name.as_str()),
        };
        for rule in [node.map(|n| &n.rule), by_name].into_iter().flatten() {
            let Rule {
                drop,
                include,
                rename,
            } = rule;
            if *drop {
                return false;
            }
            *included |= include;
            if let Some(to) = rename {
                self.doubtful = true;
                *name = to.to_string();
            }
        }
        true
    }

    fn push(&mut self, name: String, value: FieldValue, trail: Trail<'_>) -> Result<(), Refusal> {
        if let Some(trace) = &mut self.trace {
            trace.push(trail.path());
        }
        self.out.push((keys::at_top(name), value));
        Ok(())
    }

    /// A kept value with the rules applied inside; `None` if nothing of it is taken.
    fn keep(
        &mut self,
        place: Place<'_>,
        name: &str,
        included: bool,
        value: &Value<'_>,
    ) -> Result<Option<FieldValue>, Refusal> {
        match value {
            Value::Object(members) => {
                let mut kept: Vec<(String, FieldValue)> = Vec::with_capacity(members.len());
                for (key, value) in members {
                    let below = place.below(name, key, included);
                    let Some((key, value)) = self.keep_member(below, value)? else {
                        continue;
                    };
                    kept.push((key, value));
                }
                // Only a rename can make two keys of one object alike.
                if self.doubtful
                    && let Some((n, _)) = keys::repeated(&kept, |(key, _)| key)
                {
                    let path = place.trail.path();
                    let detail = format!(
                        "two values of `{path}` would be named {}",
                        quote(&kept[n].0)
                    );
                    return Err(Refusal::new(Reason::KeyCollision, detail));
                }
                Ok((included || !kept.is_empty()).then_some(FieldValue::Object(kept)))
            }
            Value::Array(items) => {
                let mut kept = Vec::with_capacity(items.len());
                let mut any = included;
                for (n, value) in items.iter().enumerate() {
                    let position = n.to_string();
                    let below = place.below(name, &position, included);
                    let item = match self.keep_member(below, value)? {
                        Some((_, item)) => {
                            any = true;
                            item
                        }
                        // What is left out holds its place, or the others would change theirs.
                        None => FieldValue::Null,
                    };
                    kept.push(item);
                }
                Ok(any.then_some(FieldValue::Array(kept)))
            }
            scalar if included => self.scalar(scalar, place),
            _ => Ok(None),
        }
    }

    fn keep_member(
        &mut self,
        place: Place<'_>,
        value: &Value<'_>,
    ) -> Result<Option<(String, FieldValue)>, Refusal> {
        if place.node.is_some_and(|n| n.rule.drop) || *value == Value::Null {
            return Ok(None);
        }
        place.check_key(self.rules.max_key)?;
        let full = place.name();
        let mut name = full.clone();
        let mut included = place.included;
        if !self.apply(place.node, &mut name, &mut included) {
            return Ok(None);
        }
        let key = match name == full {
            true => keys::escape(place.trail.key).into_owned(),
            false => name.clone(),
        };
        let kept = self.keep(place, &name, included, value)?;
        Ok(kept.map(|kept| (key, kept)))
    }

    fn scalar(
        &mut self,
        value: &Value<'_>,
        place: Place<'_>,
    ) -> Result<Option<FieldValue>, Refusal> {
        self.scalars += 1;
        if self.scalars > self.rules.max_fields {
            return Err(Refusal::new(
                Reason::TooManyFields,
                format!(
                    "more than {} fields in one reading (`limits.fields`); the first beyond is `{}`",
                    self.rules.max_fields,
                    place.trail.path()
                ),
            ));
        }
        match value {
            Value::Bool(bool) => Ok(Some(FieldValue::Bool(*bool))),
            Value::Number(text) => match number::field(text, self.rules.numbers) {
                Some(number) => Ok(Some(number)),
                None => Err(Refusal::new(
                    Reason::NumberOutOfRange,
                    format!(
                        "{} at `{}`: beyond a 64-bit integer, or beyond a double where it has a fraction or exponent; send it as text to keep every digit",
                        quote(text),
                        place.trail.path()
                    ),
                )),
            },
            Value::Text(text) => Ok(self.text(text)),
            Value::NonFinite => {
                self.flags.insert(Flag::NonFinite);
                Ok(None)
            }
            Value::Null | Value::Array(_) | Value::Object(_) => Ok(None),
        }
    }

    fn text(&mut self, text: &str) -> Option<FieldValue> {
        let rules = self.rules;
        if !rules.booleans.is_empty()
            && let Some(bool) = rules.booleans.get(text)
        {
            return Some(FieldValue::Bool(*bool));
        }
        if rules.is_missing(text) {
            self.missing = true;
            return None;
        }
        if rules.coerce {
            if number::is_non_finite(text) {
                self.flags.insert(Flag::NonFinite);
                return None;
            }
            if let Some(number) = number::coerce(text, rules.numbers) {
                return Some(number);
            }
        }
        Some(FieldValue::Text(text.to_owned()))
    }
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
