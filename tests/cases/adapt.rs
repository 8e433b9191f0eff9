//! The neutral words of a route to a stream's configuration.
//!
//! One function, `stream`, knows all of them. A word without a counterpart makes the case be
//! skipped and listed, never bent to fit.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate::config::streams::{
    Action, Codec, Compression, Nested, Paths, PivotConfig, Retained, StreamConfig, TimeConfig,
    TimeUnit,
};
use tidegate::config::units::ByteSize;

/// Words that mean something here; the last ones need nothing of a configuration.
const KNOWN: &[&str] = &[
    "filter",
    "format",
    "action",
    "device",
    "value_name",
    "time",
    "values",
    "also_values",
    "not_values",
    "meta",
    "errors",
    "tags",
    "single_value",
    "raw_fallback",
    "coerce_numeric_strings",
    "bool_map",
    "missing_words",
    "decimal_comma",
    "compression",
    "retained",
    "max_payload_bytes",
    "subscribed_by",
    "kind_of_point",
    "properties",
    "ignore_when",
    "refuse_when",
    "message_id",
    "precision",
];

/// Why a route cannot be expressed, if so.
pub fn unsupported(route: &Value) -> Option<String> {
    let words = route.as_object()?.keys();
    let unknown: Vec<&str> = words
        .map(String::as_str)
        .filter(|w| !KNOWN.contains(w))
        .collect();
    if !unknown.is_empty() {
        return Some(format!("no option for {}", unknown.join(", ")));
    }
    let device = route["device"].as_str().unwrap_or_default();
    device
        .starts_with("tag:")
        .then(|| "device from a tag".into())
}

/// The stream that a route describes.
pub fn stream(route: &Value, index: usize, nested: Nested) -> Result<StreamConfig, String> {
    let mut config = StreamConfig {
        name: format!("s{index}"),
        topics: vec![text(&route["filter"])],
        nested,
        ..StreamConfig::default()
    };
    if route["action"] == "ignore" {
        config.action = Action::Ignore;
        return Ok(config);
    }
    config.codec = codec(&route["format"])?;
    let mut levels = Levels::new(&text(&route["filter"]));
    config.device = device(&text(&route["device"]), &mut levels)?;
    config.field = literal_or_levels(&route["value_name"], &mut levels)?;
    config.kind = literal_or_levels(&route["kind_of_point"], &mut levels)?;
    if let Some(word) = route["properties"].as_str() {
        levels.properties = Some(Span::parse(word).ok_or(format!("properties {word}"))?.from);
    }
    config.template = levels.template()?;
    time(&route["time"], &mut config.time)?;
    config.values = path(&text(&route["values"]));
    if let Some(single) = route["single_value"].as_str() {
        config.values = path(single);
    }
    config.also = paths(&route["also_values"]);
    config.also.extend(route["errors"].as_str().map(path));
    config.fields.exclude = paths(&route["not_values"]);
    config.fallback = path(&text(&route["raw_fallback"]));
    tags(route, &mut config);
    words(route, &mut config)?;
    Ok(config)
}

fn codec(format: &Value) -> Result<Codec, String> {
    Ok(match format.as_str() {
        Some("json") => Codec::Json,
        Some("json_or_text") => Codec::JsonOrText,
        Some("text") => Codec::Text,
        Some("number") => Codec::Number,
        Some("bool") => Codec::Bool,
        _ => return Err(format!("format {format}")),
    })
}

fn tags(route: &Value, config: &mut StreamConfig) {
    let listed = paths(&route["meta"])
        .into_iter()
        .chain(paths(&route["tags"]));
    for path in listed {
        // The type of a device has its own place.
        match path.as_str() {
            "type" if config.kind.is_empty() => config.kind = "{type}".into(),
            _ => config.tags.push(path),
        }
    }
    if let Some(array) = route["tags"]["array"].as_str() {
        config.pivot = Some(PivotConfig {
            path: path(array),
            name: path(&text(&route["tags"]["name"])),
            value: path(&text(&route["tags"]["value"])),
        });
    }
}

fn words(route: &Value, config: &mut StreamConfig) -> Result<(), String> {
    config.coerce_numbers = route["coerce_numeric_strings"] == true;
    config.decimal_comma = route["decimal_comma"] == true;
    config.missing = strings(&route["missing_words"]);
    for (word, bool) in route["bool_map"].as_object().into_iter().flatten() {
        config.booleans.insert(word.clone(), *bool == true);
    }
    config.compression = match route["compression"].as_str() {
        None | Some("none") => Compression::None,
        Some("gzip") => Compression::Gzip,
        Some(other) => return Err(format!("compression {other}")),
    };
    config.retained = match &route["retained"] {
        Value::Null => Retained::Skip,
        Value::Bool(store) => {
            if *store {
                Retained::Store
            } else {
                Retained::Skip
            }
        }
        word if ["skip", "ignore", "drop"].iter().any(|w| word == w) => Retained::Skip,
        _ => Retained::Store,
    };
    if let Some(bytes) = route["max_payload_bytes"].as_u64() {
        config.limits.payload = ByteSize(bytes);
    }
    config.ignore_when = conditions(&route["ignore_when"]);
    if route.get("refuse_when").is_some() {
        config.refuse_when = conditions(&route["refuse_when"]);
    }
    Ok(())
}

fn conditions(words: &Value) -> BTreeMap<String, Vec<String>> {
    let entries = words.as_object().into_iter().flatten();
    entries
        .map(|(key, words)| (path(key), strings(words)))
        .collect()
}

fn time(time: &Value, config: &mut TimeConfig) -> Result<(), String> {
    if time.is_null() {
        return Ok(());
    }
    config.path = Paths(paths(&time["from"]));
    config.zone = text(&time["tz"]);
    config.unit = match (time["kind"].as_str(), time["unit"].as_str()) {
        (Some("iso"), _) => TimeUnit::Iso,
        (_, Some("s")) => TimeUnit::S,
        (_, Some("ms")) => TimeUnit::Ms,
        (_, Some("us")) => TimeUnit::Us,
        (_, Some("ns")) => TimeUnit::Ns,
        (Some("epoch"), _) => TimeUnit::Epoch,
        (Some("auto") | None, None | Some("auto")) => TimeUnit::Auto,
        other => return Err(format!("time {other:?}")),
    };
    Ok(())
}

/// `topic[n]`, `topic[a..b]` (both ends taken) or `topic[n..]`.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: usize,
    to: Option<usize>,
}

impl Span {
    fn parse(word: &str) -> Option<Self> {
        let inner = word.strip_prefix("topic[")?.strip_suffix(']')?;
        match inner.split_once("..") {
            None => {
                let from = inner.parse().ok()?;
                Some(Self {
                    from,
                    to: Some(from),
                })
            }
            Some((from, "")) => Some(Self {
                from: from.parse().ok()?,
                to: None,
            }),
            Some((from, to)) => Some(Self {
                from: from.parse().ok()?,
                to: Some(to.parse().ok()?),
            }),
        }
    }
}

/// Collects which topic levels are referred to and writes the template that names them.
struct Levels {
    filter: Vec<String>,
    single: Vec<usize>,
    rest: Option<usize>,
    properties: Option<usize>,
}

impl Levels {
    fn new(filter: &str) -> Self {
        let plain = match filter.strip_prefix("$share/") {
            Some(shared) => shared.split_once('/').map_or("", |(_, f)| f),
            None => filter,
        };
        Self {
            filter: plain.split('/').map(Into::into).collect(),
            single: Vec::new(),
            rest: None,
            properties: None,
        }
    }

    /// The expression for a span.
    fn expression(&mut self, span: Span) -> String {
        let Some(to) = span.to else {
            self.rest = Some(span.from);
            return format!("{{r{}}}", span.from);
        };
        self.single.extend(span.from..=to);
        let parts: Vec<String> = (span.from..=to).map(|n| format!("{{t{n}}}")).collect();
        parts.join("/")
    }

    fn template(&self) -> Result<String, String> {
        let highest = self.single.iter().chain(&self.properties).max();
        if self.rest.is_none() && highest.is_none() {
            return Ok(String::new());
        }
        if self.rest.is_some() && highest >= self.rest.as_ref() {
            return Err("the rest of a topic overlaps a level of it".into());
        }
        let open = self.filter.last().is_some_and(|l| l == "#");
        let fixed = if open {
            self.filter.len() - 1
        } else {
            self.filter.len()
        };
        let end = self.rest.unwrap_or(fixed.max(highest.map_or(0, |n| n + 1)));
        let mut levels: Vec<String> = (0..end)
            .map(|n| match self.filter.get(n).map(String::as_str) {
                _ if self.properties == Some(n) => "{properties}".into(),
                _ if self.single.contains(&n) => format!("{{t{n}}}"),
                None | Some("#") => "+".into(),
                Some(level) => level.into(),
            })
            .collect();
        match self.rest {
            Some(n) => levels.push(format!("{{r{n}...}}")),
            None if open => levels.push("#".into()),
            None => {}
        }
        Ok(levels.join("/"))
    }
}

/// A device is named by topic levels, fixed text, a template of body paths, or one body path.
fn device(word: &str, levels: &mut Levels) -> Result<String, String> {
    if let Some(span) = Span::parse(word) {
        return Ok(levels.expression(span));
    }
    if let Some(fixed) = word.strip_prefix('=') {
        return Ok(fixed.replace('{', "{{").replace('}', "}}"));
    }
    match word {
        "" => Err("no device".into()),
        _ if word.contains('{') => Ok(word.into()),
        _ => Ok(format!("{{{}}}", path(word))),
    }
}

fn literal_or_levels(word: &Value, levels: &mut Levels) -> Result<String, String> {
    let word = text(word);
    Ok(match Span::parse(&word) {
        Some(span) => levels.expression(span),
        None => word
            .strip_prefix('=')
            .unwrap_or(&word)
            .replace('{', "{{")
            .replace('}', "}}"),
    })
}

/// A path in the notation of the cases as a path of ours.
fn path(word: &str) -> String {
    match word.contains(['~', '.']) {
        true => format!("/{}", word.replace("~e", "")),
        false => word.into(),
    }
}

fn paths(words: &Value) -> Vec<String> {
    strings(words).iter().map(|p| path(p)).collect()
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().map(text).collect(),
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}
