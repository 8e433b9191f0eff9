//! Checks of a stream's configuration that need nothing compiled: names, limits, write concern,
//! and field names that contradict each other.
//!
//! Each finding names the key, what is wrong and what to write instead.

use std::collections::HashMap;

use super::keys;
use super::router::StreamProblem;
use crate::config::streams::{Action, Codec, StreamConfig};

/// The server stops near 100 levels; ours are the reading's own, inside the document.
const MAX_DEPTH: usize = 90;

/// Collects what is wrong with one stream.
pub(super) struct Check<'p> {
    pub(super) index: usize,
    /// The codec's payload has paths.
    pub(super) payload: bool,
    pub(super) problems: &'p mut Vec<StreamProblem>,
}

impl Check<'_> {
    pub(super) fn say(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(StreamProblem {
            stream: self.index,
            key: key.into(),
            message: message.into(),
        });
    }

    pub(super) fn basics(&mut self, config: &StreamConfig) {
        if config.name == "none" {
            self.say(
                "name",
                "`none` is what messages that no stream claims are counted under",
            );
        }
        let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if config.name.is_empty() {
            self.say(
                "name",
                "a stream needs a name; write `name = \"telemetry\"`",
            );
        } else if !config.name.bytes().all(allowed) {
            self.say(
                "name",
                format!(
                    "`{}`: use a-z, 0-9, `_` and `-` only; it is a metric label",
                    config.name
                ),
            );
        }
        if config.codec == Codec::Bool
            && config.booleans.is_empty()
            && config.action == Action::Store
        {
            self.say(
                "booleans",
                "codec `bool` needs its words: `booleans = { ON = true, OFF = false }`",
            );
        }
        self.limits(config);
        self.write_concern(&config.write_concern.w);
    }

    fn limits(&mut self, config: &StreamConfig) {
        let limits = &config.limits;
        for (key, value) in [
            ("limits.payload", limits.payload.bytes()),
            ("limits.depth", limits.depth),
            ("limits.fields", limits.fields),
            ("limits.key", limits.key),
            ("limits.readings", limits.readings),
        ] {
            if value == 0 {
                self.say(key, "0 would refuse every message; write 1 or more");
            }
        }
        if limits.depth > MAX_DEPTH {
            self.say(
                "limits.depth",
                format!(
                    "{} is beyond {MAX_DEPTH}: MongoDB refuses documents nested about 100 deep",
                    limits.depth
                ),
            );
        }
    }

    fn write_concern(&mut self, w: &str) {
        if w == "majority" || w.parse::<u32>().is_ok_and(|n| n > 0) {
            return;
        }
        let message = match w.parse::<u32>() {
            Ok(_) => "0 would acknowledge messages that MongoDB has not; write \"majority\", or a number of nodes from 1".to_owned(),
            Err(_) => format!("`{w}`: write \"majority\", or a number of nodes from 1"),
        };
        self.say("write_concern.w", message);
    }

    pub(super) fn field_names(&mut self, config: &StreamConfig) {
        let fields = &config.fields;
        for entry in fields.include.iter().filter(|e| fields.exclude.contains(e)) {
            self.say(
                "fields.include",
                format!("`{entry}` is also excluded; keep one"),
            );
        }
        let mut targets: HashMap<&str, &str> = HashMap::new();
        for (from, to) in &fields.rename {
            let key = format!("fields.rename.{from}");
            if fields.exclude.contains(from) {
                self.say(&key, "the field is also excluded; keep one");
            }
            if keys::escape(to) != to.as_str() || to.contains('\0') || keys::is_reserved(to) {
                self.say(
                    &key,
                    format!("`{to}` cannot be a field name: not empty, no dot, `%` or NUL, no leading `$`, and none of _id, timestamp, metadata, _flags, _claimed"),
                );
            }
            if let Some(other) = targets.insert(to, from) {
                self.say(
                    &key,
                    format!("`{other}` is also renamed to `{to}`; two fields cannot share a name"),
                );
            }
        }
    }
}
