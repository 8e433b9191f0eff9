//! `select` of a rule: which readings it looks at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which readings a rule looks at: those that satisfy every part that is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectConfig {
    /// Every reading. Needed where no part is given, so that an empty selector is no accident.
    pub all: bool,
    /// Types, any of them.
    pub types: Vec<String>,
    /// Device ids, any of them, with `*` and `?`.
    pub devices: Vec<String>,
    /// Tags by name: a value or any of several, with `*` and `?`; `"!=x"` for all but that one.
    pub tags: BTreeMap<String, Words>,
    /// Topic filters, any of them, with `+` and `#`.
    pub topics: Vec<String>,
    /// Streams by name, any of them.
    pub streams: Vec<String>,
}

impl SelectConfig {
    /// Whether no part is given.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
            && self.devices.is_empty()
            && self.tags.is_empty()
            && self.topics.is_empty()
            && self.streams.is_empty()
    }
}

/// One word or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Words {
    /// As a list.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Many(words) => words,
        }
    }
}
