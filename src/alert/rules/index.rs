//! Which rules can match a reading, without asking each of them.
//!
//! First by field, then by one part of the selector: the one that the fewest other rules share,
//! so that a thousand rules over one type, a tag each, cost a reading no more than ten do. What
//! comes out are candidates; the selector itself has the last word.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::select::View;
use crate::config::rules::SelectConfig;
use crate::model::{Filter, Level};

/// Maps are only ever asked, never walked: their seeds cannot show.
type Rules = HashMap<Box<str>, Vec<u32>>;

/// Rules by field, and those that look at none.
#[derive(Debug, Default)]
pub struct Index {
    fields: HashMap<Box<str>, Parts>,
    any: Parts,
}

/// A rule as the index sees it.
pub struct Entry<'a> {
    /// Its number.
    pub rule: u32,
    /// The field it looks at; `None`: any reading.
    pub field: Option<&'a str>,
    /// Its selector.
    pub select: &'a SelectConfig,
}

/// One part of a selector, with the keys under which a rule is found by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Device(String),
    /// The text before the first wildcard.
    DevicePrefix(String),
    Type(String),
    Tag(String, String),
    Topic(String),
    Stream(String),
}

#[derive(Debug, Default)]
struct Parts {
    devices: Rules,
    prefixes: Rules,
    /// Lengths of the prefixes, each once.
    prefix_lengths: Vec<usize>,
    types: Rules,
    tags: HashMap<Box<str>, Rules>,
    streams: Rules,
    topics: Node,
    /// Those under `topics`, for readings whose topic is not known.
    by_topic: Vec<u32>,
    rest: Vec<u32>,
}

/// Topic filters, level by level.
#[derive(Debug, Default)]
struct Node {
    literal: HashMap<Box<str>, Node>,
    one: Option<Box<Node>>,
    /// Filters that end here.
    here: Vec<u32>,
    /// Filters that end here with `#`.
    rest: Vec<u32>,
}

impl Index {
    /// Puts every rule where the fewest others are.
    pub fn build(entries: &[Entry<'_>]) -> Self {
        let heads = |field: &str| {
            // A path leads into a structure that is kept under its first name.
            let head = field.split_once('.').map(|(head, _)| head.to_owned());
            std::iter::once(field.to_owned()).chain(head)
        };
        let mut shared: HashMap<(Option<String>, Key), usize> = HashMap::new();
        for entry in entries {
            for key in ways(entry.select).into_iter().flatten() {
                *shared
                    .entry((entry.field.map(str::to_owned), key))
                    .or_default() += 1;
            }
        }
        let mut index = Self::default();
        for entry in entries {
            let field = entry.field.map(str::to_owned);
            let crowd = |keys: &Vec<Key>| {
                let count = |key: &Key| shared.get(&(field.clone(), key.clone())).copied();
                keys.iter().filter_map(count).max().unwrap_or_default()
            };
            // The first of equals: `ways` has the cheapest look-up first.
            let best = ways(entry.select).into_iter().min_by_key(crowd);
            let put = |parts: &mut Parts| match &best {
                Some(keys) => keys.iter().for_each(|key| parts.insert(key, entry.rule)),
                None => parts.rest.push(entry.rule),
            };
            match entry.field {
                None => put(&mut index.any),
                Some(field) => {
                    for head in heads(field) {
                        put(index.fields.entry(head.into()).or_default());
                    }
                }
            }
        }
        index
    }

    /// Shows every rule that can match; some may be shown twice.
    pub fn visit(
        &self,
        view: &View<'_>,
        show: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.fields.is_empty() {
            for (field, _) in view.fields {
                if let Some(parts) = self.fields.get(field.as_str()) {
                    parts.visit(view, show)?;
                }
            }
        }
        self.any.visit(view, show)
    }
}

/// The ways to find a rule, cheapest look-up first. A way covers the rule only with all its keys.
fn ways(select: &SelectConfig) -> Vec<Vec<Key>> {
    let mut ways = Vec::new();
    let prefix = |glob: &String| glob.split(['*', '?']).next().map(str::to_owned);
    let device = |id: &String| match prefix(id) {
        Some(prefix) if prefix.len() < id.len() => Key::DevicePrefix(prefix),
        _ => Key::Device(id.clone()),
    };
    let devices: Vec<Key> = select.devices.iter().map(device).collect();
    let open = |key: &Key| *key == Key::DevicePrefix(String::new());
    if !devices.is_empty() && !devices.iter().any(open) {
        ways.push(devices);
    }
    if !select.types.is_empty() {
        ways.push(select.types.iter().cloned().map(Key::Type).collect());
    }
    for (name, words) in &select.tags {
        let words = words.as_slice();
        let exact = |word: &String| !word.starts_with("!=") && !word.contains(['*', '?']);
        if !words.is_empty() && words.iter().all(exact) {
            let key = |word: &String| Key::Tag(name.clone(), word.clone());
            ways.push(words.iter().map(key).collect());
        }
    }
    if !select.topics.is_empty() {
        ways.push(select.topics.iter().cloned().map(Key::Topic).collect());
    }
    if !select.streams.is_empty() {
        ways.push(select.streams.iter().cloned().map(Key::Stream).collect());
    }
    ways
}

impl Parts {
    fn insert(&mut self, key: &Key, rule: u32) {
        let put = |rules: &mut Rules, key: &str| rules.entry(key.into()).or_default().push(rule);
        match key {
            Key::Device(id) => put(&mut self.devices, id),
            Key::DevicePrefix(prefix) => {
                put(&mut self.prefixes, prefix);
                if !self.prefix_lengths.contains(&prefix.len()) {
                    self.prefix_lengths.push(prefix.len());
                }
            }
            Key::Type(kind) => put(&mut self.types, kind),
            Key::Tag(name, value) => {
                put(self.tags.entry(name.as_str().into()).or_default(), value);
            }
            Key::Stream(name) => put(&mut self.streams, name),
            Key::Topic(text) => {
                if let Ok(filter) = Filter::parse(text) {
                    self.topics.insert(&filter.levels, rule);
                    self.by_topic.push(rule);
                }
            }
        }
    }

    fn visit(
        &self,
        view: &View<'_>,
        show: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        all(&self.rest, show)?;
        found(&self.devices, view.device, show)?;
        for length in &self.prefix_lengths {
            if let Some(prefix) = view.device.get(..*length) {
                found(&self.prefixes, prefix, show)?;
            }
        }
        if let Some(kind) = view.kind {
            found(&self.types, kind, show)?;
        }
        if !self.tags.is_empty() {
            for (name, value) in view.tags {
                if let Some(values) = self.tags.get(name.as_str()) {
                    found(values, value, show)?;
                }
            }
        }
        if let Some(stream) = view.stream {
            found(&self.streams, stream, show)?;
        }
        match view.topic {
            _ if self.by_topic.is_empty() => ControlFlow::Continue(()),
            None => all(&self.by_topic, show),
            Some(topic) => self.topics.visit(topic.split('/'), show),
        }
    }
}

fn found(
    rules: &Rules,
    key: &str,
    show: &mut impl FnMut(u32) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if rules.is_empty() {
        return ControlFlow::Continue(());
    }
    match rules.get(key) {
        Some(list) => all(list, show),
        None => ControlFlow::Continue(()),
    }
}

fn all(list: &[u32], show: &mut impl FnMut(u32) -> ControlFlow<()>) -> ControlFlow<()> {
    list.iter().try_for_each(|rule| show(*rule))
}

impl Node {
    fn insert(&mut self, levels: &[Level], rule: u32) {
        match levels.split_first() {
            None => self.here.push(rule),
            Some((Level::Rest, _)) => self.rest.push(rule),
            Some((Level::One, below)) => self.one.get_or_insert_default().insert(below, rule),
            Some((Level::Literal(text), below)) => self
                .literal
                .entry(text.clone())
                .or_default()
                .insert(below, rule),
        }
    }

    fn visit(
        &self,
        mut levels: std::str::Split<'_, char>,
        show: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        all(&self.rest, show)?;
        let Some(level) = levels.next() else {
            return all(&self.here, show);
        };
        if let Some(node) = self.literal.get(level) {
            node.visit(levels.clone(), show)?;
        }
        match &self.one {
            Some(node) => node.visit(levels, show),
            None => ControlFlow::Continue(()),
        }
    }
}
