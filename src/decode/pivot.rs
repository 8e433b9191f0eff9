//! Fields given as an array of name and value pairs: `[{"name": "level", "value": 7}]`.
//!
//! A pair without value is left out; a value without name is refused, since it would be lost.

use super::expression::Scope;
use super::path::Path;
use super::refusal::Refusal;
use super::value::Value;
use crate::model::Reason;

/// Where the pairs are.
#[derive(Debug, Clone)]
pub(super) struct Pivot {
    pub(super) path: Path,
    pub(super) name: Path,
    pub(super) value: Path,
}

impl Pivot {
    /// The pairs of a reading; none if they are absent.
    pub(super) fn items<'v, 'a>(&self, scope: Scope<'v, 'a>) -> Result<&'v [Value<'a>], Refusal> {
        match scope.find(&self.path) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(Refusal::new(
                Reason::NotAnObject,
                format!(
                    "`{}` is {}, where an array of pairs is due (`pivot`)",
                    self.path.as_str(),
                    other.kind()
                ),
            )),
        }
    }

    /// One pair; `None` if it has no value.
    pub(super) fn pair<'v, 'a>(
        &self,
        index: usize,
        item: &'v Value<'a>,
    ) -> Result<Option<(&'v str, &'v Value<'a>)>, Refusal> {
        let Some(value) = self.value.find(item).filter(|v| **v != Value::Null) else {
            return Ok(None);
        };
        match self.name.find(item).and_then(Value::as_word) {
            Some(name) => Ok(Some((name, value))),
            None => Err(Refusal::new(
                Reason::BadKey,
                format!(
                    "item {index} of `{}` has a value but no name at `{}` (`pivot`)",
                    self.path.as_str(),
                    self.name.as_str()
                ),
            )),
        }
    }
}
