//! Configuration to a compiled stream: templates, expressions, paths and rules parsed once.
//!
//! Everything that is wrong is collected: an operator mends a file once, not once per mistake.
//! With problems the result is thrown away, so a part that failed may be missing from it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::calendar;
use super::check::Check;
use super::codecs::CodecRules;
use super::expression::Expression;
use super::json::Options;
use super::path::Path;
use super::pivot::Pivot;
use super::router::StreamProblem;
use super::rules::FieldRules;
use super::stream::Stream;
use super::tags::{self, TagRules};
use super::template::Template;
use super::time::TimeRule;
use crate::config::streams::{Action, Codec, StreamConfig, TimeConfig};
use crate::model::Filter;

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
    check.field_names(config);
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
    let fields = FieldRules::build(config, values.as_ref(), consumed);
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

impl Check<'_> {
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
}
