//! What is wrong with a rule. Key within the rule, then a message that
//! says what was expected. Nothing stops at the first mistake.

use std::time::Duration;

use super::ladder::{self, ladder};
use super::operand::{Op, Operand};
use super::select::SelectConfig;
use super::{
    AbsenceTarget, Backfill, LevelConfig, MAX_WINDOW_ENTRIES, OnGap, OnNoData, Presence,
    RESERVED_PREFIX, RuleConfig, RuleKind, Span,
};
use crate::model::{Filter, Severity};

/// Longest window.
const MAX_WINDOW: Duration = Duration::from_secs(86_400);

/// Longest duration of any kind: beyond it a number is a slip.
const MAX_SPAN: Duration = Duration::from_secs(366 * 86_400);

/// Mistakes as they are found.
#[derive(Default)]
pub(super) struct Found(pub(super) Vec<(String, String)>);

impl Found {
    pub(super) fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.0.push((key.into(), message.into()));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

pub(super) fn mistakes(rule: &RuleConfig) -> Vec<(String, String)> {
    let mut found = Found::default();
    identity(rule, &mut found);
    selector(&rule.select, &mut found);
    keys_of_other_kinds(rule, &mut found);
    condition(rule, &mut found);
    ladder(rule, &mut found);
    times(rule, &mut found);
    texts(rule, &mut found);
    found.0
}

fn identity(rule: &RuleConfig, found: &mut Found) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if rule.id.is_empty() {
        found.add(
            "id",
            "is missing: every rule needs one, it names its alerts",
        );
    } else if !rule.id.chars().all(plain) || rule.id.len() > 128 {
        found.add(
            "id",
            format!(
                "is {:?}: expected at most 128 of A-Z a-z 0-9 _ . -",
                rule.id
            ),
        );
    } else if rule.id.starts_with(RESERVED_PREFIX) {
        found.add(
            "id",
            format!(
                "is {:?}: ids that start with `{RESERVED_PREFIX}` are the gateway's own",
                rule.id
            ),
        );
    }
}

fn selector(select: &SelectConfig, found: &mut Found) {
    if select.is_empty() && !select.all {
        found.add(
            "select",
            "is empty: give types, devices, tags, topics or streams, or all = true for every reading",
        );
    }
    if select.all && !select.is_empty() {
        found.add(
            "select.all",
            "is true, but other parts are given: leave one of the two out",
        );
    }
    for (key, words) in [
        ("types", &select.types),
        ("devices", &select.devices),
        ("topics", &select.topics),
        ("streams", &select.streams),
    ] {
        if words.iter().any(String::is_empty) {
            found.add(format!("select.{key}"), "holds an empty text");
        }
    }
    for (name, words) in &select.tags {
        let key = format!("select.tags.{name}");
        if words.as_slice().is_empty() {
            found.add(&key, "is empty: give a value, \"*\" for any");
        }
        if words.as_slice().iter().any(|word| word == "!=") {
            found.add(&key, "says not equal, but to nothing");
        }
    }
    for topic in select.topics.iter().filter(|topic| !topic.is_empty()) {
        match Filter::parse(topic) {
            Err(message) => found.add("select.topics", message),
            Ok(filter) if filter.group.is_some() => found.add(
                "select.topics",
                format!("`{topic}`: a share belongs to mqtt.share_group, not to a rule"),
            ),
            Ok(_) => {}
        }
    }
}

/// Keys that mean nothing for this kind, and keys it cannot do without.
fn keys_of_other_kinds(rule: &RuleConfig, found: &mut Found) {
    use RuleKind::{Absence, Count, Rate, Threshold};
    let kind = rule.kind;
    let uses: [(&str, bool, &[RuleKind]); 20] = [
        ("op", rule.op.is_some(), &[Threshold, Rate, Count]),
        ("value", rule.value.is_some(), &[Threshold, Rate, Count]),
        ("low", rule.low.is_some(), &[Threshold, Rate, Count]),
        ("high", rule.high.is_some(), &[Threshold, Rate, Count]),
        ("at", rule.at.is_some(), &[Threshold, Rate]),
        ("clear", rule.clear.is_some(), &[Threshold, Rate]),
        ("band", rule.band.is_some(), &[Threshold, Rate]),
        ("per", rule.per.is_some(), &[Rate]),
        ("window", rule.window.is_some(), &[Rate, Count]),
        ("min_span", rule.min_span.is_some(), &[Rate]),
        ("mode", rule.mode.is_some(), &[Rate]),
        ("counter", rule.counter, &[Rate]),
        ("at_least", rule.at_least.is_some(), &[Count]),
        ("clear_n", rule.clear_n.is_some(), &[Count]),
        (
            "allowed_lateness",
            rule.allowed_lateness.is_some(),
            &[Count],
        ),
        ("target", rule.target.is_some(), &[Absence]),
        ("timeout", rule.timeout.is_some(), &[Absence]),
        ("grace", !rule.grace.0.is_zero(), &[Absence]),
        ("presence", rule.presence != Presence::default(), &[Absence]),
        (
            "backfill",
            rule.backfill != Backfill::default(),
            &[Threshold, Rate, Count],
        ),
    ];
    for (key, given, kinds) in uses {
        if given && !kinds.contains(&kind) {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            found.add(
                key,
                format!(
                    "means nothing for kind = {:?}, only for {}",
                    kind.name(),
                    names.join(", ")
                ),
            );
        }
    }
    for (key, given, kinds) in [
        ("op", rule.op.is_some(), &[Threshold, Rate, Count][..]),
        ("per", rule.per.is_some(), &[Rate]),
        ("window", rule.window.is_some(), &[Rate, Count]),
        ("timeout", rule.timeout.is_some(), &[Absence]),
    ] {
        if !given && kinds.contains(&kind) {
            found.add(key, format!("is missing: {} needs it", kind.name()));
        }
    }
    if !rule.levels.is_empty() {
        let short: [(&str, bool); 7] = [
            ("severity", rule.severity.is_some()),
            ("at", rule.at.is_some()),
            ("clear", rule.clear.is_some()),
            ("band", rule.band.is_some()),
            ("at_least", rule.at_least.is_some()),
            ("clear_n", rule.clear_n.is_some()),
            (
                "value",
                rule.operand().is_some() && matches!(kind, Threshold | Rate),
            ),
        ];
        for (key, _) in short.iter().filter(|(_, given)| *given) {
            found.add(*key, "belongs into the levels where there are any");
        }
    } else if rule.at.is_some() && rule.operand().is_some() {
        found.add(
            "at",
            "is given twice: `value` or `low` and `high` say it too",
        );
    }
}

/// The field, and what `count` counts.
fn condition(rule: &RuleConfig, found: &mut Found) {
    let named = !rule.field.is_empty();
    match (rule.kind, rule.target()) {
        (RuleKind::Absence, AbsenceTarget::Device) if named => {
            found.add("field", "is given, but target = \"device\" looks at none");
        }
        (RuleKind::Absence, AbsenceTarget::Device) => {}
        (RuleKind::Absence, AbsenceTarget::Field) if !named => {
            found.add("field", "is missing: target = \"field\" needs it");
        }
        (RuleKind::Absence, AbsenceTarget::Field) => {}
        (kind, _) if !named => {
            found.add("field", format!("is missing: {} needs it", kind.name()));
        }
        _ => {}
    }
    match (rule.low, rule.high) {
        (Some(_), None) => found.add("high", "is missing: `low` is given"),
        (None, Some(_)) => found.add("low", "is missing: `high` is given"),
        (Some(_), Some(_)) if rule.value.is_some() => {
            found.add("value", "is given beside `low` and `high`: one of the two");
        }
        _ => {}
    }
    if !rule.epsilon.is_finite() || rule.epsilon < 0.0 {
        found.add(
            "epsilon",
            format!("is {}: expected 0 or more", rule.epsilon),
        );
    }
    if rule.epsilon != 0.0 && !rule.op.is_some_and(Op::takes_any) {
        found.add("epsilon", "is for `==` and `!=` only");
    }
    if rule.kind == RuleKind::Count
        && let Some(op) = rule.op
    {
        match rule.operand() {
            None => found.add("value", "is missing: what shall be counted?"),
            Some(operand) => ladder::operand(op, &operand, "value", found),
        }
    }
    if rule.max_instances == 0 {
        found.add("max_instances", "is 0: expected at least 1");
    }
}

fn times(rule: &RuleConfig, found: &mut Found) {
    let resolve_after = match rule.on_no_data {
        OnNoData::Keep => None,
        OnNoData::ResolveAfter(span) => Some(span),
    };
    let second = Duration::from_secs(1);
    for (key, span, least, most) in [
        (
            "expected_interval",
            rule.expected_interval,
            Duration::from_millis(1),
            MAX_SPAN,
        ),
        ("max_gap", rule.max_gap, Duration::from_millis(1), MAX_SPAN),
        ("stale_after", rule.stale_after, second, MAX_SPAN),
        ("on_no_data.resolve_after", resolve_after, second, MAX_SPAN),
        ("per", rule.per, Duration::from_millis(1), MAX_SPAN),
        ("window", rule.window, second, MAX_WINDOW),
        (
            "min_span",
            rule.min_span,
            Duration::from_millis(1),
            MAX_WINDOW,
        ),
        (
            "allowed_lateness",
            rule.allowed_lateness,
            Duration::ZERO,
            MAX_WINDOW,
        ),
        ("timeout", rule.timeout, second, MAX_SPAN),
        ("grace", Some(rule.grace), Duration::ZERO, MAX_SPAN),
        ("max_age", Some(rule.max_age), second, MAX_SPAN),
        ("for", Some(rule.hold), Duration::ZERO, MAX_SPAN),
        (
            "recover_for",
            Some(rule.recover_for),
            Duration::ZERO,
            MAX_SPAN,
        ),
        ("cooldown", rule.cooldown, Duration::ZERO, MAX_SPAN),
    ] {
        if let Some(span) = span.filter(|span| !(least..=most).contains(&span.0)) {
            let (least, most) = (Span(least), Span(most));
            found.add(key, format!("is {span}: expected {least} to {most}"));
        }
    }
    for (severity, every) in &rule.repeat {
        if every.0 < Duration::from_secs(60) {
            let key = format!("repeat.{severity}");
            found.add(key, format!("is {every}: expected at least 1m"));
        }
    }
    if let (Some(min), Some(window)) = (rule.min_span, rule.window)
        && min > window
    {
        found.add(
            "min_span",
            format!("is {min}: no two readings of a window of {window} are that far apart"),
        );
    }
    if let (Some(gap), Some(every)) = (rule.effective_max_gap(), rule.expected_interval)
        && gap <= every
        && rule.on_gap == OnGap::Restart
        && rule.kind != RuleKind::Absence
        && holds(rule).any(|hold| !hold.0.is_zero())
    {
        found.add(
            "max_gap",
            format!(
                "is {gap}, but readings are {every} apart: `for` would start again with each and never end"
            ),
        );
    }
    if let (Some(stale), Some(end)) = (rule.stale_after, resolve_after)
        && stale > end
    {
        found.add(
            "stale_after",
            format!("is {stale}, after the episode has ended at {end}"),
        );
    }
}

pub(super) fn holds(rule: &RuleConfig) -> impl Iterator<Item = Span> {
    rule.ladder().into_values().filter_map(|level| level.hold)
}

fn texts(rule: &RuleConfig, found: &mut Found) {
    if rule.name.chars().count() > 256 {
        found.add("name", "is longer than 256 characters");
    }
    for (key, map, limit) in [
        ("labels", &rule.labels, 1_024),
        ("annotations", &rule.annotations, 8_192),
    ] {
        if map.len() > 64 {
            found.add(key, format!("are {}: at most 64", map.len()));
        }
        for (name, text) in map {
            let sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(sound) {
                let key = format!("{key}.{name}");
                found.add(key, "has a name that is not made of A-Z a-z 0-9 _");
            } else if text.len() > limit {
                let key = format!("{key}.{name}");
                found.add(key, format!("is longer than {limit} bytes"));
            }
        }
    }
}

/// How many a level of `count` asks for, if it is a count.
pub(super) fn count_of(operand: Option<&Operand>) -> Option<u64> {
    match operand? {
        Operand::Integer(count) => u64::try_from(*count).ok(),
        Operand::Number(count) if count.fract() == 0.0 && *count >= 0.0 => {
            Some((*count).min(MAX_WINDOW_ENTRIES as f64 * 2.0) as u64)
        }
        _ => None,
    }
}

/// The level's key: `levels.warning.at`, or `at` in the short form.
pub(super) fn level_key(rule: &RuleConfig, severity: Severity, key: &str) -> String {
    if rule.levels.is_empty() {
        match (rule.kind, key) {
            (RuleKind::Count, "at") => "at_least".into(),
            (RuleKind::Count, "clear") => "clear_n".into(),
            _ => key.into(),
        }
    } else {
        format!("levels.{severity}.{key}")
    }
}

/// Whether a level says nothing but for how long.
pub(super) fn is_level_plain(level: &LevelConfig) -> bool {
    level.at.is_none() && level.clear.is_none() && level.band.is_none()
}
