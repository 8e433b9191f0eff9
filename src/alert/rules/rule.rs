//! One rule, compiled: numbers instead of texts, milliseconds instead of spans, and the prints
//! that say, when a rule is edited, which part of it changed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::episodes::Telling;
use super::evaluate::{Levels, Scalar, Test, Verdict};
use super::hash;
use super::select::Selector;
use crate::config::rules::{
    AbsenceTarget, Backfill, Clock, OnGap, OnNoData, Operand, Presence, RateMode, RuleKind,
};
use crate::config::{RuleConfig, Span};
use crate::model::Severity;

/// How late a reading may come and still be counted, unless a rule says otherwise.
const LATENESS_MS: i64 = 30_000;

/// A compiled rule.
#[derive(Debug)]
pub struct Rule {
    /// Its id.
    pub id: Arc<str>,
    /// As written.
    pub config: RuleConfig,
    /// Which readings.
    pub selector: Selector,
    /// How they become a verdict.
    pub condition: Condition,
    /// The ladder, by severity.
    pub levels: [Option<Level>; 4],
    /// The longest pause a `for` runs on through, in milliseconds.
    pub max_gap_ms: Option<i64>,
    /// Whether `for` runs on the time of receipt.
    pub wall: bool,
    /// Silence after which an episode is stale, in milliseconds.
    pub stale_after_ms: Option<i64>,
    /// Silence after which an episode ends, in milliseconds.
    pub resolve_after_ms: Option<i64>,
    /// Readings older than this on receipt are history, in milliseconds.
    pub max_age_ms: i64,
    /// Whether history is judged too.
    pub backfill: bool,
    /// What it says of its episodes.
    pub telling: Arc<Telling>,
    /// What an edit is judged by.
    pub prints: Prints,
}

/// One level.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Holds: breached. Unused for absence, which the clock decides.
    pub trigger: Option<Test>,
    /// Holds: not yet clear.
    pub holding: Option<Test>,
    /// How long the trigger must hold, in milliseconds.
    pub for_ms: i64,
    /// How long it must be clear, in milliseconds.
    pub recover_ms: i64,
}

/// How readings become a verdict.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// The value itself.
    Threshold,
    /// Its change over time.
    Rate {
        /// Change is expressed per so many milliseconds.
        per_ms: i64,
        /// How far back the baseline may lie.
        window_ms: i64,
        /// How far back it must lie.
        min_span_ms: i64,
        /// Which direction counts.
        mode: RateMode,
        /// A drop is a restart.
        counter: bool,
    },
    /// How many readings satisfy `counted` within the window.
    Count {
        /// What is counted.
        counted: Test,
        /// How far back.
        window_ms: i64,
        /// How late a reading may come.
        lateness_ms: i64,
    },
    /// Silence.
    Absence {
        /// Of the field; else of the device.
        field: bool,
        /// Time-out and grace, in milliseconds.
        silence_ms: i64,
        /// The time-out alone, in milliseconds.
        timeout_ms: i64,
        /// Whether only fresh readings prove presence.
        fresh: bool,
    },
}

/// Hashes of the parts of a rule that an edit may change; stored with every instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Prints {
    /// Kind, field and what windows hold: other state altogether.
    pub subject: i64,
    /// Which readings.
    pub select: i64,
    /// Levels, times and so on: the same state, judged otherwise.
    pub meaning: i64,
    /// Names, labels, texts, receivers: told otherwise.
    pub looks: i64,
}

impl Prints {
    fn of(config: &RuleConfig) -> Self {
        let looks = RuleConfig {
            name: config.name.clone(),
            unit: config.unit.clone(),
            cooldown: config.cooldown,
            repeat: config.repeat.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            receivers: config.receivers.clone(),
            ..RuleConfig::default()
        };
        let counted = config.kind == RuleKind::Count;
        let subject = RuleConfig {
            kind: config.kind,
            field: config.field.clone(),
            target: Some(config.target()),
            op: config.op.filter(|_| counted),
            value: config.operand().filter(|_| counted),
            window: config.window,
            mode: config.mode,
            per: config.per,
            counter: config.counter,
            ..RuleConfig::default()
        };
        let select = RuleConfig {
            select: config.select.clone(),
            ..RuleConfig::default()
        };
        let meaning = RuleConfig {
            id: String::new(),
            enabled: true,
            select: Default::default(),
            name: String::new(),
            unit: None,
            cooldown: None,
            repeat: Default::default(),
            labels: Default::default(),
            annotations: Default::default(),
            receivers: Vec::new(),
            max_instances: 0,
            ..config.clone()
        };
        // Only compared with itself: any text that differs where the rule differs would do.
        let print = |part: &RuleConfig| {
            hash::print(&serde_json::to_string(part).unwrap_or_else(|_| format!("{part:?}")))
        };
        Self {
            subject: print(&subject),
            select: print(&select),
            meaning: print(&meaning),
            looks: print(&looks),
        }
    }
}

fn millis(span: Span) -> i64 {
    i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX)
}

impl Rule {
    /// Compiles a rule.
    ///
    /// # Errors
    /// Every mistake in it: key and message.
    pub fn compile(config: &RuleConfig) -> Result<Self, Vec<(String, String)>> {
        let mistakes = config.validate_one();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let missing = |key: &str| vec![(key.to_owned(), "is missing".to_owned())];
        let mut levels: [Option<Level>; 4] = [const { None }; 4];
        for (severity, level) in config.ladder() {
            let (trigger, holding) = match config.kind {
                RuleKind::Absence => (None, None),
                RuleKind::Count => count_tests(&level).ok_or_else(|| missing("at_least"))?,
                RuleKind::Threshold | RuleKind::Rate => {
                    value_tests(config, &level).ok_or_else(|| missing("at"))?
                }
            };
            levels[severity as usize] = Some(Level {
                trigger,
                holding,
                for_ms: level.hold.map_or(0, millis),
                recover_ms: level.recover_for.map_or(0, millis),
            });
        }
        let window_ms = config.window.map_or(0, millis);
        let condition = match config.kind {
            RuleKind::Threshold => Condition::Threshold,
            RuleKind::Rate => Condition::Rate {
                per_ms: config.per.map_or(1, millis),
                window_ms,
                min_span_ms: config.min_span.map_or(window_ms / 2, millis),
                mode: config.mode.unwrap_or_default(),
                counter: config.counter,
            },
            RuleKind::Count => Condition::Count {
                counted: config
                    .op
                    .zip(config.operand())
                    .and_then(|(op, value)| Test::new(op, &value, config.epsilon))
                    .ok_or_else(|| missing("value"))?,
                window_ms,
                lateness_ms: config.allowed_lateness.map_or(LATENESS_MS, millis),
            },
            RuleKind::Absence => {
                let timeout_ms = config.timeout.map_or(i64::MAX, millis);
                Condition::Absence {
                    field: config.target() == AbsenceTarget::Field,
                    silence_ms: timeout_ms.saturating_add(millis(config.grace)),
                    timeout_ms,
                    fresh: config.presence == Presence::Fresh,
                }
            }
        };
        Ok(Self {
            id: config.id.as_str().into(),
            selector: Selector::new(&config.select),
            condition,
            levels,
            max_gap_ms: config
                .effective_max_gap()
                .filter(|_| config.on_gap == OnGap::Restart)
                .map(millis),
            wall: config.clock == Clock::Wall || config.kind == RuleKind::Absence,
            stale_after_ms: config.stale_after.map(millis),
            resolve_after_ms: match config.on_no_data {
                OnNoData::Keep => None,
                OnNoData::ResolveAfter(span) => Some(millis(span)),
            },
            max_age_ms: millis(config.max_age),
            backfill: config.backfill == Backfill::Evaluate,
            telling: Arc::new(Telling::of(config)),
            prints: Prints::of(config),
            config: config.clone(),
        })
    }

    /// The field it looks at; `None`: any reading.
    pub fn field(&self) -> Option<&str> {
        Some(self.config.field.as_str()).filter(|field| !field.is_empty())
    }

    /// Whether it waits for readings that do not come.
    pub fn is_absence(&self) -> bool {
        matches!(self.condition, Condition::Absence { .. })
    }

    /// Whether it evaluates history for that device of readings received so long after their time.
    pub fn takes_age(&self, age_ms: i64) -> bool {
        self.backfill || age_ms <= self.max_age_ms
    }

    /// Its levels, mildest first.
    pub fn ladder(&self) -> impl DoubleEndedIterator<Item = (Severity, &Level)> {
        let level = |severity: Severity| {
            self.levels[severity as usize]
                .as_ref()
                .map(|level| (severity, level))
        };
        Severity::ALL.into_iter().filter_map(level)
    }

    /// That level.
    pub fn level(&self, severity: Severity) -> Option<&Level> {
        self.levels[severity as usize].as_ref()
    }

    /// Which levels a value (or rate, or count) breaches and for which it is clear; `None`: it is
    /// of a type that no level compares with.
    pub fn judge(&self, value: &Scalar) -> Option<Verdict> {
        let mut verdict = Verdict::default();
        let mut comparable = false;
        for (severity, level) in self.ladder() {
            let holds = |test: &Option<Test>| test.as_ref().and_then(|test| test.holds(value));
            let trigger = holds(&level.trigger);
            comparable |= trigger.is_some();
            if trigger == Some(true) {
                verdict.trigger = verdict.trigger.with(severity);
            }
            if holds(&level.holding) != Some(true) {
                verdict.clear = verdict.clear.with(severity);
            }
        }
        comparable.then_some(verdict)
    }

    /// Every level breached: silence has lasted.
    pub fn all_levels(&self) -> Levels {
        self.ladder()
            .fold(Levels::NONE, |levels, (severity, _)| levels.with(severity))
    }
}

/// Trigger, and what must stop holding before it is clear: the same comparison, with `clear` in
/// the place of `at`, so that both ends exclude what their operator excludes.
fn value_tests(
    config: &RuleConfig,
    level: &crate::config::rules::LevelConfig,
) -> Option<(Option<Test>, Option<Test>)> {
    use crate::config::rules::Op;
    let op = config.op?;
    let at = level.at.as_ref()?;
    let clear = match (op, at, level.band, &level.clear) {
        (Op::Outside, Operand::Pair([low, high]), Some(band), None) => {
            Operand::Pair([low + band, high - band])
        }
        (Op::Inside, Operand::Pair([low, high]), Some(band), None) => {
            Operand::Pair([low - band, high + band])
        }
        (_, _, _, Some(clear)) => clear.clone(),
        _ => at.clone(),
    };
    Some((
        Some(Test::new(op, at, config.epsilon)?),
        Some(Test::new(op, &clear, config.epsilon)?),
    ))
}

fn count_tests(level: &crate::config::rules::LevelConfig) -> Option<(Option<Test>, Option<Test>)> {
    use crate::config::rules::Op;
    let at = level.at.as_ref()?;
    let trigger = Test::new(Op::Ge, at, 0.0)?;
    let holding = match &level.clear {
        Some(clear) => Test::new(Op::Gt, clear, 0.0)?,
        None => trigger.clone(),
    };
    Some((Some(trigger), Some(holding)))
}
