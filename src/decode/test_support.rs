//! What the unit tests of this folder share.
//!
//! Rules as a stream has them that says nothing about its fields, with limits small enough for a
//! table to reach.

use super::rules::{FieldRules, Node};
use crate::config::streams::{Nested, Numbers};

/// The rules of a stream that says nothing about its fields.
pub(super) fn field_rules() -> FieldRules {
    FieldRules {
        paths: Node::default(),
        names: Default::default(),
        all: true,
        nested: Nested::Flatten,
        numbers: Numbers::Double,
        booleans: Default::default(),
        missing: Vec::new(),
        coerce: false,
        max_fields: 100,
        max_key: 64,
    }
}
