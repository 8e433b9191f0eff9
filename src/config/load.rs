//! Lays configuration files and environment variables over the defaults.
//!
//! Order: defaults, files as given, `TIDEGATE_<SECTION>__<KEY>`. figment merges and remembers
//! where each value came from; this module adds what it lacks: environment values are read by the
//! type of the key they set (a password `007` stays text), a named file must exist, and mistakes
//! are collected by taking each offending value out and reading again until the rest is sound.

use std::path::PathBuf;

use figment::error::Kind;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Value};
use figment::{Figment, Profile};

use super::{Config, Problem, Problems};

/// Prefix of environment variables that set keys.
const PREFIX: &str = "TIDEGATE_";

/// Keys whose values never appear in a message.
const SECRET_KEYS: [&str; 6] = [
    "password",
    "uri",
    "token",
    "secret",
    "previous_secret",
    "routing_key",
];

/// Where a configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// TOML files; later ones win, lists replace.
    pub files: Vec<PathBuf>,
    /// Environment variables, name and value.
    pub environment: Vec<(String, String)>,
}

impl Sources {
    /// Files as given on the command line, and the process environment.
    pub fn new(files: Vec<PathBuf>) -> Self {
        Self {
            files,
            environment: environment(),
        }
    }
}

/// The variables with our prefix. A value that is not UTF-8 can only be wrong: it is read with
/// replacement characters, which the key's own check then shows.
fn environment() -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(|(name, value)| (text(name), value))
        .filter(|(name, _)| name.starts_with(PREFIX))
        .map(|(name, value)| (name, text(value)))
        .collect()
}

/// A sound configuration and what is odd about it.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Whether no value of a stream had to be taken out.
    pub streams_complete: bool,
    /// Where each key of it stands, for problems found later.
    origin: Origin,
    /// Sentences worth a log line.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Fills in where each problem's key was set.
    pub fn locate(&self, mut problems: Problems) -> Problems {
        self.origin.fill_in(&mut problems);
        problems
    }
}

/// Reads, merges and checks.
///
/// # Errors
/// Every mistake found, each with its source, key and what was expected.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    match survey(sources) {
        (Some(loaded), problems) if problems.0.is_empty() => Ok(loaded),
        (_, problems) => Err(problems),
    }
}

/// The same for who wants to look further: what could be read, with defaults in the place of
/// what could not, beside the mistakes found.
pub fn survey(sources: &Sources) -> (Option<Loaded>, Problems) {
    let mut problems = Problems::default();
    let mut warnings = Vec::new();
    let mut figment = Figment::new();
    for file in &sources.files {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                problems.0.push(Problem {
                    source: Some(file.display().to_string()),
                    key: String::new(),
                    message,
                });
                continue;
            }
        };
        if let Err(error) = text.parse::<toml::Table>() {
            problems.0.push(syntax_problem(file, &text, &error));
            continue;
        }
        figment = figment.merge(Toml::file_exact(file));
    }
    let schema = schema();
    for (name, raw) in &sources.environment {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if !rest.contains("__") {
            // Container platforms set such variables for a service of the same name; the others
            // belong to the scripts and tests.
            let known = [
                "PORT",
                "SERVICE_",
                "CACHE",
                "MONGOD",
                "MOSQUITTO",
                "CASES",
                "DEMO_",
            ];
            if !known.iter().any(|name| rest.starts_with(name)) {
                warnings.push(format!(
                    "environment variable {name} is not read: keys are written {PREFIX}<SECTION>__<KEY>"
                ));
            }
            continue;
        }
        let key = rest.to_lowercase().replace("__", ".");
        let value = environment_value(&schema, &key, raw);
        figment = figment.merge(Variable { name, key, value });
    }

    let origin = Origin(figment.clone());
    let mut merged = match merged_tree(&figment) {
        Ok(tree) => tree,
        Err(error) => {
            problems.add("", error.to_string());
            return (None, problems);
        }
    };
    let config = loop {
        match merged.deserialize::<Config>() {
            Ok(config) => break Some(config),
            Err(error) => {
                let mut progress = false;
                for error in error {
                    problems.add(error.path.join("."), explain(&error));
                    progress |= remove(&mut merged, &error.path);
                }
                if !progress {
                    break None;
                }
            }
        }
    };
    let streams_complete = !problems
        .0
        .iter()
        .any(|problem| problem.key.starts_with("streams"));
    if let Some(config) = &config {
        config.validate(&mut problems);
    }
    origin.fill_in(&mut problems);
    let loaded = config.map(|config| Loaded {
        config,
        streams_complete,
        origin,
        warnings,
    });
    (loaded, problems)
}

/// figment's own view of which provider set a key.
#[derive(Debug)]
struct Origin(Figment);

impl Origin {
    fn fill_in(&self, problems: &mut Problems) {
        for problem in problems.0.iter_mut().filter(|p| p.source.is_none()) {
            problem.source = self.source(&problem.key);
        }
    }

    /// The file or variable that set `key`, or the nearest key above it that is set.
    fn source(&self, key: &str) -> Option<String> {
        let mut parts: Vec<&str> = key.split('.').filter(|part| !part.is_empty()).collect();
        while !parts.is_empty() {
            if let Some(source) = self.exact(&parts) {
                return Some(source);
            }
            parts.pop();
        }
        None
    }

    fn exact(&self, parts: &[&str]) -> Option<String> {
        let mut value = self.0.find_value(parts[0]).ok()?;
        for part in &parts[1..] {
            value = child(&value, part)?.clone();
        }
        let metadata = self.0.get_metadata(value.tag())?;
        Some(match &metadata.source {
            Some(figment::Source::File(path)) => path.display().to_string(),
            _ => metadata.name.to_string(),
        })
    }
}

fn child<'a>(value: &'a Value, part: &str) -> Option<&'a Value> {
    match value {
        Value::Dict(_, dict) => dict.get(part),
        Value::Array(_, items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    }
}

/// The merged tree, with figment's tags on every value.
fn merged_tree(figment: &Figment) -> Result<Value, Box<figment::Error>> {
    let mut profiles = figment::Provider::data(figment).map_err(Box::new)?;
    Ok(Value::from(
        profiles.remove(&Profile::Default).unwrap_or_default(),
    ))
}

/// One environment variable as a provider, so that errors can name it.
struct Variable<'a> {
    name: &'a str,
    key: String,
    value: Value,
}

impl figment::Provider for Variable<'_> {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(format!("environment variable {}", self.name))
    }

    fn data(&self) -> Result<figment::value::Map<Profile, Dict>, figment::Error> {
        let nested = figment::util::nest(&self.key, self.value.clone());
        let dict = nested.into_dict().unwrap_or_default();
        Ok(figment::value::Map::from([(Profile::Default, dict)]))
    }
}

/// The tree of defaults: tells what type a key has.
fn schema() -> Value {
    Value::serialize(Config::default()).unwrap_or_else(|_| Value::from(Dict::new()))
}

/// Text stays text unless the key it sets holds a number, a truth value or a list.
fn environment_value(schema: &Value, key: &str, raw: &str) -> Value {
    let known = key.split('.').try_fold(schema, child);
    match known {
        Some(Value::Num(..) | Value::Bool(..) | Value::Array(..) | Value::Dict(..)) => raw
            .parse::<Value>()
            .unwrap_or_else(|_| Value::from(raw.to_owned())),
        _ => Value::from(raw.to_owned()),
    }
}

fn syntax_problem(file: &std::path::Path, text: &str, error: &toml::de::Error) -> Problem {
    let line = error
        .span()
        .map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    let place = line
        .map(|line| format!(" (line {line})"))
        .unwrap_or_default();
    Problem {
        source: Some(file.display().to_string()),
        key: String::new(),
        message: format!("is not TOML{place}: {}", error.message().trim()),
    }
}

/// What was found and what was expected, without the value of a secret.
fn explain(error: &figment::Error) -> String {
    let secret = secret(&error.path);
    match &error.kind {
        Kind::UnknownField(name, known) => match nearest(name, known) {
            Some(near) => format!("unknown key; did you mean {near:?}?"),
            None => format!("unknown key; known here: {}", known.join(", ")),
        },
        Kind::UnknownVariant(found, known) => {
            format!("{found:?} is not one of {}", known.join(", "))
        }
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) if secret => {
            format!("expected {expected}")
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("found {found}, expected {}", plain(expected))
        }
        Kind::MissingField(name) => format!("{name:?} is missing"),
        other => other.to_string(),
    }
}

/// Whether the value at `path` is a secret. An address that alerts are sent to may hold a key, and
/// so may any header.
fn secret(path: &[String]) -> bool {
    let telling = path
        .first()
        .is_some_and(|section| matches!(section.as_str(), "receivers" | "watchdog"));
    let is = |key: &String| SECRET_KEYS.contains(&key.as_str());
    path.last().is_some_and(is)
        || telling && path.iter().any(|key| key == "url" || key == "headers")
}

/// What was expected, for who does not write Rust.
fn plain(expected: &str) -> &str {
    match expected {
        "usize" | "u16" | "u32" | "u64" => "a whole number",
        "f64" => "a number",
        other => other,
    }
}

/// The known key most like `name`, if it is at most two edits away.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), *candidate))
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Takes the value at `path` out; `false` if there is none.
fn remove(value: &mut Value, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else {
        return false;
    };
    let mut here = &mut *value;
    for part in parents {
        let next = match here {
            Value::Dict(_, dict) => dict.get_mut(part),
            Value::Array(_, items) => part.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
            _ => None,
        };
        match next {
            Some(next) => here = next,
            None => return false,
        }
    }
    match here {
        Value::Dict(_, dict) => dict.remove(last).is_some(),
        Value::Array(_, items) => match last.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
            // Emptied, not removed: the items behind it keep their positions in later messages.
            Some(Value::Dict(_, item)) if !item.is_empty() => {
                item.clear();
                true
            }
            // An item of a list of words cannot be empty: the list goes.
            _ => remove(value, parents),
        },
        _ => false,
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
