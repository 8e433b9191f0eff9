//! The format of a fixture: rules, what devices say and when, and what should come of it.
//!
//! Moments are written as a duration since the start of the story (`"10m"`) or as RFC 3339.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer};

use super::files;
use crate::alert::Change;
use crate::alert::rules::State;
use crate::config::{AlertsConfig, ReceiverConfig, RuleConfig, Span};
use crate::model::{FieldValue, Severity, Timestamp};

/// Where stories begin unless they say otherwise: 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A file of stories.
#[derive(Debug)]
pub(super) struct Fixture {
    /// The rules as tables, so that a story can edit one.
    pub rules: Vec<RuleConfig>,
    /// When the stories begin.
    pub start: Timestamp,
    /// When what fires is told.
    pub alerts: AlertsConfig,
    /// Who is told; one who is told everything if empty.
    pub receivers: Vec<ReceiverConfig>,
    /// The stories.
    pub cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rules: toml::Value,
    start: Option<Timestamp>,
    #[serde(default)]
    alerts: AlertsConfig,
    #[serde(default)]
    receivers: Vec<ReceiverConfig>,
    #[serde(default)]
    cases: Vec<Case>,
}

/// One story.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// What it shows.
    pub name: String,
    /// Ids of the rules it is about; all if empty.
    #[serde(default)]
    pub only: Vec<String>,
    /// What the registry holds.
    #[serde(default)]
    pub devices: Vec<Known>,
    /// What happens.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// How long it goes on after that.
    pub until: Option<Moment>,
    /// States at moments.
    #[serde(default)]
    pub expect: Vec<Expected>,
    /// Every change that is told, in order; `updated` only if any is expected.
    pub transitions: Option<Vec<Told>>,
    /// What must not be told.
    #[serde(default)]
    pub never: Vec<Told>,
    /// Every message that receivers are sent, in order.
    pub notifications: Option<Vec<Notified>>,
}

/// A device in the registry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default = "yes")]
    pub enabled: bool,
    pub expected_interval: Option<Span>,
}

fn yes() -> bool {
    true
}

/// Something that happens: a reading, several of them, or something done to rules or devices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub at: Moment,
    pub device: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    pub topic: Option<String>,
    pub stream: Option<String>,
    /// What it says; with a generator, what each reading says beside the generated field.
    #[serde(default)]
    pub fields: BTreeMap<String, serde_json::Value>,
    /// The device's own time; `at` if unset.
    pub ts: Option<Moment>,
    /// When it is received; `at` if unset.
    pub received: Option<Moment>,
    /// A field that goes evenly from one value to another.
    pub ramp: Option<Ramp>,
    /// A field that jumps between two values.
    pub square: Option<Square>,
    /// Readings that say the same for a while.
    pub steady: Option<Steady>,
    /// No reading between these two durations after `at`.
    pub gap: Option<[Span; 2]>,
    /// Every n-th reading is delivered twice.
    pub dup: Option<usize>,
    /// Every n-th reading is received late.
    pub late: Option<Late>,
    /// The gateway sees nothing for so long.
    pub blind: Option<Span>,
    /// Keys to put over a rule, by its id; a list of levels replaces the old one.
    pub edit: Option<toml::Table>,
    /// A rule to delete.
    pub delete: Option<String>,
    /// A device to take out of the registry.
    pub remove: Option<String>,
    /// Ends the alert of this rule and `device` by hand.
    pub resolve: Option<String>,
    /// Acknowledges it.
    pub ack: Option<String>,
}

/// A field that goes evenly from one value to another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ramp {
    pub field: String,
    pub from: f64,
    pub to: f64,
    pub over: Span,
    pub every: Span,
}

/// A field that jumps between two values, `high` first.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Square {
    pub field: String,
    pub low: f64,
    pub high: f64,
    pub period: Span,
    pub over: Span,
    pub every: Span,
}

/// Readings that say the same for a while.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Steady {
    pub over: Span,
    pub every: Span,
}

/// Every n-th reading is received so much later.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Late {
    pub every: usize,
    pub by: Span,
}

/// The state of an alert at a moment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    pub at: Moment,
    pub rule: String,
    pub device: String,
    pub state: State,
    pub level: Option<Severity>,
}

/// A change; what is not said may be anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    pub at: Option<Moment>,
    pub rule: Option<String>,
    pub device: Option<String>,
    pub change: Option<Change>,
    pub level: Option<Severity>,
    pub reason: Option<String>,
}

/// A message to a receiver; what is not said may be anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Notified {
    pub at: Option<Moment>,
    pub kind: String,
    pub receiver: Option<String>,
    pub severity: Option<Severity>,
    pub reason: Option<String>,
}

/// A moment of a story.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment {
    After(Span),
    At(Timestamp),
}

impl Moment {
    pub fn from(self, start: Timestamp) -> Timestamp {
        match self {
            Self::After(span) => start.plus(span.0),
            Self::At(at) => at,
        }
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if let Ok(span) = humantime::parse_duration(&text) {
            return Ok(Self::After(Span(span)));
        }
        text.parse().map(Self::At).map_err(|_| {
            serde::de::Error::custom(format!(
                "{text:?} is neither a duration since the start nor an RFC 3339 time"
            ))
        })
    }
}

/// Reads a file of stories, and the rules it names, which are looked for beside it.
pub(super) fn read(path: &Path) -> anyhow::Result<Fixture> {
    let text = std::fs::read_to_string(path).context("cannot be read")?;
    let written: Written = toml::from_str(&text)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let rules = match written.rules {
        toml::Value::String(file) => files::sound(&[folder.join(file)])?,
        toml::Value::Array(items) if items.iter().all(toml::Value::is_str) => {
            let names = items.iter().filter_map(toml::Value::as_str);
            files::sound(
                &names
                    .map(|name| folder.join(name))
                    .collect::<Vec<PathBuf>>(),
            )?
        }
        toml::Value::Array(items) => inline(items)?,
        _ => bail!("rules: expected a file, a list of files, or [[rules]]"),
    };
    Ok(Fixture {
        rules,
        start: written.start.unwrap_or(START),
        alerts: written.alerts,
        receivers: written.receivers,
        cases: written.cases,
    })
}

fn inline(items: Vec<toml::Value>) -> anyhow::Result<Vec<RuleConfig>> {
    let mut rules = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let rule: RuleConfig = item
            .try_into()
            .with_context(|| format!("rules.{index} cannot be read"))?;
        if let Some((key, message)) = rule.validate_one().first() {
            bail!("rules.{index}.{key}: {message}");
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// A value as it would be stored by default: numbers as doubles where a double can hold them.
pub(super) fn field_value(value: &serde_json::Value) -> FieldValue {
    use serde_json::Value as V;
    match value {
        V::Null => FieldValue::Null,
        V::Bool(truth) => FieldValue::Bool(*truth),
        V::Number(number) => match number.as_i64() {
            Some(whole) if (whole as f64) as i64 != whole || whole.unsigned_abs() > 1 << 53 => {
                FieldValue::Int64(whole)
            }
            _ => FieldValue::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        V::String(text) => FieldValue::Text(text.clone()),
        V::Array(items) => FieldValue::Array(items.iter().map(field_value).collect()),
        V::Object(entries) => FieldValue::Object(
            entries
                .iter()
                .map(|(name, value)| (name.clone(), field_value(value)))
                .collect(),
        ),
    }
}
