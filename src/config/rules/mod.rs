//! `[[rules]]`: what readings are compared with, and when that is worth telling.
//!
//! The same shape is read from the file and from the collection `alert_rules`. What a key means
//! depends on `kind`; a key that means nothing for a rule's kind is a mistake, not ignored.

mod check;
mod choices;
mod ladder;
mod odd;
mod operand;
mod select;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use choices::{AbsenceTarget, Backfill, Clock, OnGap, OnNoData, Presence, RateMode, RuleKind};
pub use operand::{Op, Operand};
pub use select::{SelectConfig, Words};

use super::units::Span;
use super::{Problems, ReceiverConfig};
use crate::model::Severity;

/// Rules there may be.
pub const MAX_RULES: usize = 5_000;

/// Entries a window holds for one device at the most.
pub const MAX_WINDOW_ENTRIES: u64 = 10_000;

/// Prefix of the ids of what the gateway says of itself.
pub const RESERVED_PREFIX: &str = "tidegate.";

/// How the message about a receiver ends that is not there.
pub const UNKNOWN_RECEIVER: &str = "is not the name of a receiver";

/// One rule, as written in the file or in the collection `alert_rules`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleConfig {
    /// Immutable identity, used in keys; `[A-Za-z0-9_.-]`, unique.
    pub id: String,
    /// What people read; the id if empty.
    pub name: String,
    /// Whether it is evaluated.
    pub enabled: bool,
    /// Which readings it looks at.
    pub select: SelectConfig,
    /// The field it looks at, as stored.
    pub field: String,
    /// The field's unit, for texts.
    pub unit: Option<String>,
    /// How readings become a verdict.
    pub kind: RuleKind,
    /// The comparison: of the value, of the rate of change, or what `count` counts.
    pub op: Option<Op>,
    /// What `op` compares with, where there is one level; what `count` counts.
    pub value: Option<Operand>,
    /// Lower end for `inside` and `outside`, where there is one level.
    pub low: Option<f64>,
    /// Upper end for `inside` and `outside`.
    pub high: Option<f64>,
    /// How far numbers may differ and still be `==`.
    pub epsilon: f64,
    /// Whether text such as `"12.5"` is read as a number.
    pub coerce: bool,
    /// The ladder, by severity. Without it the keys beside it make one level.
    pub levels: BTreeMap<Severity, LevelConfig>,
    /// The severity of a rule with one level.
    pub severity: Option<Severity>,
    /// What the only level fires at.
    pub at: Option<Operand>,
    /// What the only level clears at; `at` if unset.
    pub clear: Option<Operand>,
    /// How far inside the safe range a value of `inside` or `outside` must be to clear.
    pub band: Option<f64>,
    /// How long the condition must hold, unless a level says otherwise.
    #[serde(rename = "for")]
    pub hold: Span,
    /// How long it must be clear to recover, unless a level says otherwise.
    pub recover_for: Span,
    /// How often a device reports.
    pub expected_interval: Option<Span>,
    /// The longest pause between readings that still counts as "the whole time"; three times
    /// `expected_interval` if that is known, else unlimited.
    pub max_gap: Option<Span>,
    /// What a longer pause does to a running `for`.
    pub on_gap: OnGap,
    /// Which clock `for` runs on.
    pub clock: Clock,
    /// What becomes of an open episode when the device falls silent.
    pub on_no_data: OnNoData,
    /// Silence after which an open episode is marked `stale`.
    pub stale_after: Option<Span>,
    /// `rate`: the time the change is expressed per.
    pub per: Option<Span>,
    /// `rate`, `count`: how far back it looks.
    pub window: Option<Span>,
    /// `rate`: the least time between the readings compared; half the window if unset.
    pub min_span: Option<Span>,
    /// `rate`: which direction counts.
    pub mode: Option<RateMode>,
    /// `rate`: the field only grows; a drop is a restart of the device, not a change.
    pub counter: bool,
    /// `count`: how many fire, where there is one level.
    pub at_least: Option<u64>,
    /// `count`: how many still in the window let it clear; one less than fire if unset.
    pub clear_n: Option<u64>,
    /// `count`: how late a reading may come and still be counted; 30s if unset.
    pub allowed_lateness: Option<Span>,
    /// `absence`: what must not be missing; the field if one is named, else the device.
    pub target: Option<AbsenceTarget>,
    /// `absence`: how long silence may last.
    pub timeout: Option<Span>,
    /// `absence`: added to it, so that a reconnect does not tell.
    pub grace: Span,
    /// `absence`: whether readings older than `max_age` prove that the device is there.
    pub presence: Presence,
    /// Readings that were received later than this after their time are history.
    pub max_age: Span,
    /// What to do with history.
    pub backfill: Backfill,
    /// Devices that may fire at once under this rule; more are counted, not opened.
    pub max_instances: u64,
    /// Time after an end in which a new episode is not told; as `[alerts]` says if unset.
    pub cooldown: Option<Span>,
    /// Time between reminders, by level; as `[alerts]` says where unset.
    pub repeat: BTreeMap<Severity, Span>,
    /// Labels for routes and texts.
    pub labels: BTreeMap<String, String>,
    /// Texts, as templates.
    pub annotations: BTreeMap<String, String>,
    /// Names of receivers; empty: whoever's own conditions fit.
    pub receivers: Vec<String>,
}

/// One level of the ladder.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LevelConfig {
    /// What it fires at: a value, `[low, high]`, or for `count` how many.
    pub at: Option<Operand>,
    /// What it clears at; `at` if unset, for `count` one less.
    pub clear: Option<Operand>,
    /// How far inside the safe range a value of `inside` or `outside` must be to clear.
    pub band: Option<f64>,
    /// How long the condition must hold; for `absence` beyond the time-out.
    #[serde(rename = "for")]
    pub hold: Option<Span>,
    /// How long it must be clear to recover.
    pub recover_for: Option<Span>,
}

impl Default for RuleConfig {
    fn default() -> Self {
        Self {
            id: String::new(),
            name: String::new(),
            enabled: true,
            select: SelectConfig::default(),
            field: String::new(),
            unit: None,
            kind: RuleKind::default(),
            op: None,
            value: None,
            low: None,
            high: None,
            epsilon: 0.0,
            coerce: false,
            levels: BTreeMap::new(),
            severity: None,
            at: None,
            clear: None,
            band: None,
            hold: Span::secs(0),
            recover_for: Span::secs(0),
            expected_interval: None,
            max_gap: None,
            on_gap: OnGap::default(),
            clock: Clock::default(),
            on_no_data: OnNoData::default(),
            stale_after: None,
            per: None,
            window: None,
            min_span: None,
            mode: None,
            counter: false,
            at_least: None,
            clear_n: None,
            allowed_lateness: None,
            target: None,
            timeout: None,
            grace: Span::secs(0),
            presence: Presence::default(),
            max_age: Span::secs(3_600),
            backfill: Backfill::default(),
            max_instances: 100_000,
            cooldown: None,
            repeat: BTreeMap::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            receivers: Vec::new(),
        }
    }
}

impl RuleConfig {
    /// What people read.
    pub fn title(&self) -> &str {
        if self.name.is_empty() {
            &self.id
        } else {
            &self.name
        }
    }

    /// What must not be missing, for `absence`.
    pub fn target(&self) -> AbsenceTarget {
        self.target.unwrap_or(if self.field.is_empty() {
            AbsenceTarget::Device
        } else {
            AbsenceTarget::Field
        })
    }

    /// The ladder, whichever way it is written; `hold` and `recover_for` are filled in.
    pub fn ladder(&self) -> BTreeMap<Severity, LevelConfig> {
        let whole = |level: &LevelConfig| LevelConfig {
            hold: Some(level.hold.unwrap_or(self.hold)),
            recover_for: Some(level.recover_for.unwrap_or(self.recover_for)),
            ..level.clone()
        };
        if !self.levels.is_empty() {
            let levels = self.levels.iter();
            return levels.map(|(s, level)| (*s, whole(level))).collect();
        }
        let only = match self.kind {
            RuleKind::Count => LevelConfig {
                at: self.at_least.map(Operand::from_count),
                clear: self.clear_n.map(Operand::from_count),
                ..LevelConfig::default()
            },
            RuleKind::Absence => LevelConfig::default(),
            RuleKind::Threshold | RuleKind::Rate => LevelConfig {
                at: self.at.clone().or_else(|| self.operand()),
                clear: self.clear.clone(),
                band: self.band,
                ..LevelConfig::default()
            },
        };
        BTreeMap::from([(self.severity.unwrap_or_default(), whole(&only))])
    }

    /// `value`, or `low` and `high`.
    pub fn operand(&self) -> Option<Operand> {
        match (self.low, self.high) {
            (Some(low), Some(high)) => Some(Operand::Pair([low, high])),
            _ => self.value.clone(),
        }
    }

    /// The longest pause that a `for` runs on through.
    pub fn effective_max_gap(&self) -> Option<Span> {
        self.max_gap
            .or_else(|| self.expected_interval.map(|every| Span(every.0 * 3)))
    }

    /// Every mistake in this rule by itself: key within the rule, and what was expected.
    pub fn validate_one(&self) -> Vec<(String, String)> {
        check::mistakes(self)
    }

    /// What is allowed but hardly meant: key within the rule, and why.
    pub fn warnings(&self) -> Vec<(String, String)> {
        odd::oddities(self)
    }

    pub(super) fn validate_all(
        rules: &[RuleConfig],
        receivers: &[ReceiverConfig],
        problems: &mut Problems,
    ) {
        if rules.len() > MAX_RULES {
            problems.add(
                "rules",
                format!("are {}: at most {MAX_RULES} are taken", rules.len()),
            );
        }
        for (index, rule) in rules.iter().enumerate() {
            for (key, message) in rule.validate_one() {
                problems.add(format!("rules.{index}.{key}"), message);
            }
            let twin = rules[..index].iter().position(|other| other.id == rule.id);
            if let Some(twin) = twin.filter(|_| !rule.id.is_empty()) {
                problems.add(
                    format!("rules.{index}.id"),
                    format!("{:?} is the id of rules.{twin} too", rule.id),
                );
            }
            for name in &rule.receivers {
                if !receivers.iter().any(|receiver| receiver.name == *name) {
                    problems.add(
                        format!("rules.{index}.receivers"),
                        format!("{name:?} {UNKNOWN_RECEIVER}"),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
