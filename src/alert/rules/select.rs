//! A rule's selector, ready to be asked: does it match what is known of a reading or a device?

use wildmatch::WildMatch;

use crate::config::rules::SelectConfig;
use crate::model::{FieldValue, Filter, Reading};

use super::sample::Sample;

/// What is known of a reading, or of a device without one.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The device id.
    pub device: &'a str,
    /// Its type.
    pub kind: Option<&'a str>,
    /// Its tags.
    pub tags: &'a [(String, String)],
    /// The stream; `None`: not known.
    pub stream: Option<&'a str>,
    /// The topic; `None`: not known.
    pub topic: Option<&'a str>,
    /// What it says.
    pub fields: &'a [(String, FieldValue)],
}

impl<'a> View<'a> {
    /// Of a sample.
    pub fn of(sample: &'a Sample) -> Self {
        Self {
            device: sample.device.as_str(),
            kind: sample.kind.as_deref(),
            tags: &sample.tags,
            stream: Some(&sample.stream),
            topic: sample.topic.as_deref(),
            fields: &sample.fields,
        }
    }

    /// Of a reading on its way to the database.
    pub fn of_reading(reading: &'a Reading, topic: &'a str, stream: &'a str) -> Self {
        Self {
            device: reading.device.as_str(),
            kind: reading.kind.as_deref(),
            tags: &reading.tags,
            stream: Some(stream),
            topic: Some(topic),
            fields: &reading.fields,
        }
    }
}

/// A selector's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// It matches.
    Yes,
    /// It does not.
    No,
    /// It asks for a topic or stream, which is not known; the rest matches.
    Perhaps,
}

/// A compiled selector.
#[derive(Debug, Clone)]
pub struct Selector {
    types: Vec<Box<str>>,
    devices: Vec<Pattern>,
    tags: Vec<TagTest>,
    topics: Vec<Filter>,
    streams: Vec<Box<str>>,
}

#[derive(Debug, Clone)]
struct TagTest {
    name: Box<str>,
    /// Any of these, if there are any.
    wanted: Vec<Pattern>,
    /// None of these.
    refused: Vec<Pattern>,
}

/// Text, or text with `*` and `?`.
#[derive(Debug, Clone)]
enum Pattern {
    Exact(Box<str>),
    Glob(Box<WildMatch>),
}

impl Pattern {
    fn new(text: &str) -> Self {
        if text.contains(['*', '?']) {
            Self::Glob(Box::new(WildMatch::new(text)))
        } else {
            Self::Exact(text.into())
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *text,
            Self::Glob(glob) => glob.matches(text),
        }
    }
}

impl Selector {
    /// Compiles it; filters that do not parse, which validation has refused, match nothing.
    pub fn new(config: &SelectConfig) -> Self {
        let boxed = |words: &[String]| words.iter().map(|word| word.as_str().into()).collect();
        let tag = |(name, words): (&String, &crate::config::rules::Words)| {
            let negated = |word: &&String| word.starts_with("!=");
            let words = words.as_slice();
            TagTest {
                name: name.as_str().into(),
                wanted: words
                    .iter()
                    .filter(|word| !negated(word))
                    .map(|word| Pattern::new(word))
                    .collect(),
                refused: words
                    .iter()
                    .filter_map(|word| word.strip_prefix("!="))
                    .map(Pattern::new)
                    .collect(),
            }
        };
        Self {
            types: boxed(&config.types),
            devices: config.devices.iter().map(|d| Pattern::new(d)).collect(),
            tags: config.tags.iter().map(tag).collect(),
            topics: config
                .topics
                .iter()
                .filter_map(|topic| Filter::parse(topic).ok())
                .collect(),
            streams: boxed(&config.streams),
        }
    }

    /// Whether it matches.
    pub fn matches(&self, view: &View<'_>) -> Match {
        let any = |list: &[Box<str>], text: &str| list.iter().any(|item| **item == *text);
        if !self.types.is_empty() && !view.kind.is_some_and(|kind| any(&self.types, kind)) {
            return Match::No;
        }
        if !self.devices.is_empty() && !self.devices.iter().any(|d| d.matches(view.device)) {
            return Match::No;
        }
        if !self.tags.iter().all(|tag| tag.matches(view.tags)) {
            return Match::No;
        }
        let mut answer = Match::Yes;
        if !self.streams.is_empty() {
            match view.stream {
                Some(stream) if any(&self.streams, stream) => {}
                Some(_) => return Match::No,
                None => answer = Match::Perhaps,
            }
        }
        if !self.topics.is_empty() {
            match view.topic {
                Some(topic) if self.topics.iter().any(|filter| filter.matches(topic)) => {}
                Some(_) => return Match::No,
                None => answer = Match::Perhaps,
            }
        }
        answer
    }
}

impl TagTest {
    fn matches(&self, tags: &[(String, String)]) -> bool {
        let value = tags
            .iter()
            .find(|(name, _)| **name == *self.name)
            .map(|(_, value)| value.as_str());
        match value {
            Some(value) => {
                (self.wanted.is_empty() || self.wanted.iter().any(|p| p.matches(value)))
                    && !self.refused.iter().any(|p| p.matches(value))
            }
            // A tag that is not there is not equal to anything.
            None => self.wanted.is_empty(),
        }
    }
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
