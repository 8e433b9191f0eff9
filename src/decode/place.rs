//! Where a value stands on the walk over a reading: what it would be called, which rules hold, and
//! the way to it.
//!
//! All of it lives on the stack. The way is a chain of keys, built into text only when something
//! is wrong.

use super::keys;
use super::refusal::{Refusal, quote};
use super::rules::Node;
use crate::model::Reason;

/// The way from the reading down to a value.
#[derive(Clone, Copy)]
pub(super) struct Trail<'t> {
    pub(super) above: Option<&'t Trail<'t>>,
    pub(super) key: &'t str,
}

/// A value on its way to a field.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    /// Name of what is around it; empty at the top.
    pub(super) prefix: &'t str,
    pub(super) node: Option<&'t Node>,
    pub(super) included: bool,
    pub(super) trail: Trail<'t>,
}

impl<'t> Place<'t> {
    /// The name under which the value would be stored, its key escaped.
    pub(super) fn name(&self) -> String {
        let prefix = self.prefix;
        let key = keys::escape(self.trail.key);
        if prefix.is_empty() {
            return key.into_owned();
        }
        let mut name = String::with_capacity(prefix.len() + 1 + key.len());
        name.push_str(prefix);
        name.push('_');
        name.push_str(&key);
        name
    }

    /// Refuses a key that BSON or the stream's limit does not take.
    pub(super) fn check_key(&self, limit: usize) -> Result<(), Refusal> {
        let key = self.trail.key;
        if key.len() > limit {
            return Err(Refusal::new(
                Reason::BadKey,
                format!(
                    "key {} is {} bytes long, the limit is {} (`limits.key`)",
                    quote(key),
                    key.len(),
                    limit
                ),
            ));
        }
        if key.bytes().any(|b| b == 0) {
            let detail = format!("key {} holds a NUL, which BSON cannot store", quote(key));
            return Err(Refusal::new(Reason::BadKey, detail));
        }
        Ok(())
    }

    /// The place of a value inside this one, which is named `name`.
    pub(super) fn below<'b>(&'b self, name: &'b str, key: &'b str, included: bool) -> Place<'b> {
        Place {
            prefix: name,
            node: self.node.and_then(|n| n.child(key)),
            included,
            trail: Trail {
                above: Some(&self.trail),
                key,
            },
        }
    }
}

impl Trail<'_> {
    /// The payload path as text.
    pub(super) fn path(&self) -> String {
        match self.above {
            Some(above) => format!("{}/{}", above.path(), self.key),
            None => self.key.to_owned(),
        }
    }
}
