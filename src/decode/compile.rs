//! Configuration to a compiled stream, or everything that is wrong with it: an operator mends a
//! file once, not once per mistake.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::calendar;
use super::codecs::CodecRules;
use super::expression::Expression;
use super::filter::Filter;
use super::json::Options;
use super::keys;
use super::path::Path;
use super::pivot::Pivot;
use super::router::StreamProblem;
use super::rules::{FieldRules, Node, Rule};
use super::stream::Stream;
use super::tags::{self, TagRules};
use super::template::Template;
use super::time::TimeRule;
use crate::config::streams::{Action, Codec, StreamConfig, TimeConfig};

/// The server stops near 100 levels; ours are the reading's own, inside the document.
const MAX_DEPTH: usize = 90;

/// Compiles one stream; with problems the result is not to be used.
pub(super) fn compile(
    index: usize,
    config: &StreamConfig,
    problems: &mut Vec<StreamProblem>,
) -> Stream {
    let mut check = Check {
        index,
        payload: matches!(config.codec, Codec::Json | Codec::JsonOrText),
        problems,
    };
    check.basics(config);
    let template = check.template(config);
    let filters = check.filters(config, template.as_ref());
    let storing = config.action == Action::Store;
    let template_ref = template.as_ref();
    let device = match storing {
        true => check.expression("device", &config.device, template_ref),
        false => None,
    };
    let kind_text = fallback_capture(&config.kind, "type", template_ref);
    let field_text = fallback_capture(&config.field, "field", template_ref);
    let kind = kind_text.and_then(|text| check.expression("type", text, template_ref));
    let field = field_text.and_then(|text| check.expression("field", text, template_ref));
    let time = check.time(&config.time);
    let values = check.optional_path("values", &config.values);
    let pivot = check.pivot(config);
    let tags = check.tags(config, template_ref);
    let consumed = [device.as_ref(), kind.as_ref()];
    let consumed = consumed
        .into_iter()
        .flatten()
        .filter_map(Expression::single_path);
    let consumed = consumed
        .chain(&time.paths)
        .chain(tags.paths.iter().map(|(_, path)| path));
    let fields = check.fields(config, values.as_ref(), consumed);
    Stream {
        index,
        config: config.clone(),
        filters,
        codec: CodecRules {
            codec: config.codec,
            options: Options {
                depth: config.limits.depth,
                non_finite: config.non_finite,
            },
            decimal_comma: config.decimal_comma,
        },
        device: device.unwrap_or_else(Expression::empty),
        fixed_kind: kind.as_ref().and_then(Expression::constant).map(Arc::from),
        kind,
        field,
        time,
        readings: check.optional_path("readings", &config.readings),
        also: check.paths("also", &config.also),
        fallback: check.optional_path("fallback", &config.fallback),
        ignore_when: check.words("ignore_when", &config.ignore_when),
        refuse_when: check.words("refuse_when", &config.refuse_when),
        values,
        pivot,
        tags,
        fields,
        template,
    }
}

/// The text, or the capture that stands for it if the template has one.
fn fallback_capture<'t>(
    text: &'t str,
    capture: &str,
    template: Option<&Template>,
) -> Option<&'t str> {
    match (text.is_empty(), template.and_then(|t| t.index_of(capture))) {
        (false, _) => Some(text),
        (true, Some(_)) => Some(if capture == "type" {
            "{type}"
        } else {
            "{field}"
        }),
        (true, None) => None,
    }
}

struct Check<'p> {
    index: usize,
    /// The codec's payload has paths.
    payload: bool,
    problems: &'p mut Vec<StreamProblem>,
}

impl Check<'_> {
    fn say(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(StreamProblem {
            stream: self.index,
            key: key.into(),
            message: message.into(),
        });
    }

    fn basics(&mut self, config: &StreamConfig) {
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
        let collection = &config.collection;
        if collection.is_empty()
            || collection.starts_with("system.")
            || collection.contains(['$', '\0'])
        {
            self.say(
                "collection",
                format!("`{collection}` is no collection name; write one such as `readings`, without `$` and not under `system.`"),
            );
        }
        if config.ttl.is_some_and(|ttl| ttl.0.as_secs() == 0) {
            self.say(
                "ttl",
                "below one second nothing would be kept; leave it out to keep readings for ever",
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

    fn template(&mut self, config: &StreamConfig) -> Option<Template> {
        if config.template.is_empty() {
            if config.topics.is_empty() {
                self.say(
                    "topics",
                    "a stream needs topics or a template; write `topics = [\"devices/+/telemetry\"]`",
                );
            }
            return None;
        }
        match Template::parse(&config.template) {
            Ok(template) => Some(template),
            Err(problems) => {
                for problem in problems {
                    self.say("template", problem);
                }
                None
            }
        }
    }

    fn filters(&mut self, config: &StreamConfig, template: Option<&Template>) -> Vec<Filter> {
        if config.topics.is_empty() {
            return template.map(Template::filter).into_iter().collect();
        }
        let mut filters = Vec::new();
        for (n, text) in config.topics.iter().enumerate() {
            let key = format!("topics[{n}]");
            match Filter::parse(text) {
                Ok(filter) => {
                    if let Some(Err(problem)) = template.map(|t| t.check_shape(&filter)) {
                        self.say(key, problem);
                    }
                    filters.push(filter);
                }
                Err(problem) => self.say(key, problem),
            }
        }
        filters
    }

    fn expression(
        &mut self,
        key: &str,
        text: &str,
        template: Option<&Template>,
    ) -> Option<Expression> {
        if key == "device" && text.is_empty() {
            self.say(
                "device",
                "an expression for the device id is needed, such as `{deviceId}`",
            );
            return None;
        }
        match Expression::parse(text, template, self.payload) {
            Ok(expression) => Some(expression),
            Err(problem) => {
                self.say(key, problem);
                None
            }
        }
    }

    fn path(&mut self, key: &str, text: &str) -> Option<Path> {
        if !self.payload {
            self.say(key, "this codec's payload is a lone value without paths; remove the key or use codec `json`");
            return None;
        }
        if text.is_empty() {
            self.say(key, "an empty path; name a key such as `ts` or `params/ts`");
            return None;
        }
        Path::parse(text)
            .map_err(|problem| self.say(key, problem))
            .ok()
    }

    fn optional_path(&mut self, key: &str, text: &str) -> Option<Path> {
        (!text.is_empty()).then(|| self.path(key, text)).flatten()
    }

    fn paths(&mut self, key: &str, texts: &[String]) -> Vec<Path> {
        let texts = texts.iter().enumerate();
        texts
            .filter_map(|(n, text)| self.path(&format!("{key}[{n}]"), text))
            .collect()
    }

    fn words(
        &mut self,
        key: &str,
        words: &BTreeMap<String, Vec<String>>,
    ) -> Vec<(Path, Vec<String>)> {
        // `refuse_when` has a default, which means nothing where the payload has no paths.
        if !self.payload && key == "refuse_when" {
            return Vec::new();
        }
        let mut rules = Vec::new();
        for (path, words) in words {
            if let Some(path) = self.path(&format!("{key}.{path}"), path) {
                rules.push((path, words.clone()));
            }
        }
        rules
    }

    fn pivot(&mut self, config: &StreamConfig) -> Option<Pivot> {
        let pivot = config.pivot.as_ref()?;
        let path = self.path("pivot.path", &pivot.path);
        let name = self.path("pivot.name", &pivot.name);
        let value = self.path("pivot.value", &pivot.value);
        Some(Pivot {
            path: path?,
            name: name?,
            value: value?,
        })
    }

    fn time(&mut self, time: &TimeConfig) -> TimeRule {
        let zone = match time.zone.as_str() {
            "" => None,
            name => match TimeZone::get(name) {
                Ok(zone) => Some(zone),
                Err(_) => {
                    self.say("time.zone", format!("`{name}` is no IANA time zone; write one such as `Europe/Berlin` or `UTC`"));
                    None
                }
            },
        };
        let civil = || calendar::parse(&time.earliest);
        let earliest = calendar::parse_date(&time.earliest).or_else(|| {
            civil().map(|c| c.as_utc_millis() - i64::from(c.offset.unwrap_or(0)) * 1_000)
        });
        if earliest.is_none() {
            self.say(
                "time.earliest",
                format!(
                    "`{}` is no date; write one such as `2010-01-01`",
                    time.earliest
                ),
            );
        }
        TimeRule {
            paths: self.paths("time.path", &time.path.0),
            unit: time.unit,
            zone,
            earliest: earliest.unwrap_or(0),
            max_ahead: i64::try_from(time.max_ahead.0.as_millis()).unwrap_or(i64::MAX),
            implausible: time.implausible,
        }
    }

    fn tags(&mut self, config: &StreamConfig, template: Option<&Template>) -> TagRules {
        let fixed = config.static_tags.iter();
        let mut rules = TagRules {
            fixed: fixed.map(|(k, v)| (k.clone(), v.clone())).collect(),
            captures: template.map(TagRules::captures_of).unwrap_or_default(),
            paths: Vec::new(),
            properties: template.and_then(|t| t.index_of("properties")),
        };
        for path in self.paths("tags", &config.tags) {
            if let Some(name) = path.last() {
                rules.paths.push((name.to_owned(), path.clone()));
            }
        }
        let mut origin: HashMap<String, String> = HashMap::new();
        let fixed = rules
            .fixed
            .iter()
            .map(|(n, _)| (n, format!("static_tags.{n}")));
        let captures = rules
            .captures
            .iter()
            .map(|(n, _)| (n, "template".to_owned()));
        let paths = rules
            .paths
            .iter()
            .map(|(n, p)| (n, format!("tags: {}", p.as_str())));
        for (name, key) in fixed.chain(captures).chain(paths) {
            if tags::RESERVED.contains(&name.as_str()) {
                let instead = if name == "type" { "type" } else { "device" };
                self.say(
                    key.clone(),
                    format!("`{name}` has its own place in `metadata`; set `{instead}` to an expression such as `{{{name}}}` instead"),
                );
            } else if name.is_empty() || name.contains(['.', '\0']) || name.starts_with('$') {
                self.say(
                    key.clone(),
                    format!(
                        "tag name `{name}` may not be empty, start with `$`, or hold a dot or NUL"
                    ),
                );
            }
            if let Some(other) = origin.insert(name.clone(), key.clone()) {
                self.say(
                    key,
                    format!("tag `{name}` is also given by `{other}`; keep one"),
                );
            }
        }
        rules
    }

    fn fields<'a>(
        &mut self,
        config: &StreamConfig,
        values: Option<&Path>,
        consumed: impl Iterator<Item = &'a Path>,
    ) -> FieldRules {
        let mut paths = Node::default();
        let mut names: HashMap<Box<str>, Rule> = HashMap::new();
        let mut set = |entry: &str, change: &dyn Fn(&mut Rule)| {
            change(names.entry(entry.into()).or_default());
            if let Ok(path) = Path::parse(entry)
                && !path.segments.is_empty()
            {
                change(paths.rule_mut(&path));
            }
        };
        for entry in &config.fields.include {
            set(entry, &|rule| rule.include = true);
        }
        for entry in &config.fields.exclude {
            set(entry, &|rule| rule.drop = true);
        }
        for (from, to) in &config.fields.rename {
            set(from, &|rule| rule.rename = Some(to.as_str().into()));
        }
        for path in consumed {
            paths.rule_mut(path).drop = true;
        }
        // What is said about something above the fields' object holds for the object.
        if let Some(values) = values {
            let above = (0..values.segments.len()).map(|n| &values.segments[..n]);
            let included = above.into_iter().filter(|s| !s.is_empty()).any(|segments| {
                let mut node = Some(&paths);
                for key in segments {
                    node = node.and_then(|n| n.child(key));
                }
                node.is_some_and(|n| n.rule.include)
            });
            if included {
                paths.rule_mut(values).include = true;
            }
        }
        self.field_names(config);
        FieldRules {
            paths,
            names,
            all: config.fields.include.is_empty(),
            nested: config.nested,
            numbers: config.numbers,
            booleans: config.booleans.clone(),
            missing: config.missing.clone(),
            coerce: config.coerce_numbers,
            max_fields: config.limits.fields,
            max_key: config.limits.key,
        }
    }

    fn field_names(&mut self, config: &StreamConfig) {
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
