//! A stream ready to decode: expressions, paths and rules parsed once, at start.
//!
//! `compile.rs` makes it from the configuration; here is what it answers per message.

use std::sync::Arc;

use super::codecs::CodecRules;
use super::expression::{Expression, Scope};
use super::path::Path;
use super::pivot::Pivot;
use super::rules::FieldRules;
use super::tags::TagRules;
use super::template::Template;
use super::time::TimeRule;
use super::value::Value;
use crate::config::streams::StreamConfig;
use crate::model::{DeviceId, Filter};

/// A compiled stream.
#[derive(Debug)]
pub struct Stream {
    pub(super) index: usize,
    pub(super) config: StreamConfig,
    pub(super) filters: Vec<Filter>,
    pub(super) template: Option<Template>,
    pub(super) codec: CodecRules,
    pub(super) device: Expression,
    pub(super) kind: Option<Expression>,
    /// The type where it is the same for every reading.
    pub(super) fixed_kind: Option<Arc<str>>,
    pub(super) field: Option<Expression>,
    pub(super) time: TimeRule,
    pub(super) readings: Option<Path>,
    pub(super) values: Option<Path>,
    pub(super) also: Vec<Path>,
    pub(super) fallback: Option<Path>,
    pub(super) pivot: Option<Pivot>,
    pub(super) tags: TagRules,
    pub(super) fields: FieldRules,
    pub(super) ignore_when: Vec<(Path, Vec<String>)>,
    pub(super) refuse_when: Vec<(Path, Vec<String>)>,
}

impl Stream {
    /// Position in the configuration file.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What the operator wrote.
    pub fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// The device that a topic names by itself, whatever the payload.
    pub fn device_of(&self, topic: &str) -> Option<DeviceId> {
        let scope = Scope {
            topic,
            template: self.template.as_ref(),
            item: &Value::Null,
            root: None,
        };
        DeviceId::new(&self.device.evaluate(scope).ok()?)
    }

    /// Whether the stream takes messages of a topic.
    pub(super) fn claims(&self, topic: &str) -> bool {
        self.filters.iter().any(|f| f.matches(topic))
            && self.template.as_ref().is_none_or(|t| t.fits(topic))
    }

    /// The path and word by which a reading is left out.
    pub(super) fn ignores<'v>(&'v self, scope: Scope<'v, '_>) -> Option<(&'v str, &'v str)> {
        first_word(&self.ignore_when, scope)
    }

    /// The path and word by which a reading is refused.
    pub(super) fn refuses<'v>(&'v self, scope: Scope<'v, '_>) -> Option<(&'v str, &'v str)> {
        first_word(&self.refuse_when, scope)
    }

    /// The value of a reading that has only one.
    pub(super) fn lone<'v, 'a>(&self, scope: Scope<'v, 'a>) -> Option<&'v Value<'a>> {
        let values = match &self.values {
            Some(path) => scope.find(path)?,
            None => scope.item,
        };
        (!matches!(values, Value::Object(_) | Value::Array(_))).then_some(values)
    }
}

fn first_word<'v>(
    rules: &'v [(Path, Vec<String>)],
    scope: Scope<'v, '_>,
) -> Option<(&'v str, &'v str)> {
    rules.iter().find_map(|(path, words)| {
        let found = scope.find(path)?.as_word()?;
        words
            .iter()
            .any(|word| word == found)
            .then_some((path.as_str(), found))
    })
}
