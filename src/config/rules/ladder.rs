//! Whether the levels of a rule make a ladder: what a level compares with fits the operator,
//! thresholds get worse with the severity, and `clear` lies on the safe side of `at`.

use super::check::{Found, count_of, is_level_plain, level_key};
use super::{LevelConfig, MAX_WINDOW_ENTRIES, Op, Operand, RuleConfig, RuleKind};
use crate::model::Severity;

pub(super) fn ladder(rule: &RuleConfig, found: &mut Found) {
    let levels = rule.ladder();
    match rule.kind {
        RuleKind::Absence => {
            for (severity, level) in &levels {
                if !is_level_plain(level) {
                    let key = level_key(rule, *severity, "at");
                    found.add(key, "means nothing for kind = \"absence\": say `for`");
                }
            }
        }
        RuleKind::Count => counts(rule, &levels.into_iter().collect::<Vec<_>>(), found),
        RuleKind::Threshold | RuleKind::Rate => {
            let Some(op) = rule.op else {
                return;
            };
            if rule.kind == RuleKind::Rate && op.takes_any() {
                found.add(
                    "op",
                    format!(
                        "is {:?}: a rate is compared with > >= < <= inside outside",
                        op.symbol()
                    ),
                );
                return;
            }
            let before = found.len();
            for (severity, level) in &levels {
                let key = |key| level_key(rule, *severity, key);
                match &level.at {
                    None => found.add(key("at"), "is missing: what does it fire at?"),
                    Some(at) => {
                        operand(op, at, &key("at"), found);
                        safe_side(op, level, at, &key, found);
                    }
                }
            }
            // Only what is sound by itself can be compared with its neighbours.
            if found.len() == before && !op.takes_any() {
                let levels: Vec<_> = levels.iter().collect();
                for pair in levels.windows(2) {
                    ascending(rule, op, pair[0], pair[1], found);
                }
            }
        }
    }
}

/// Whether `value` is what `op` compares with.
pub(super) fn operand(op: Op, value: &Operand, key: &str, found: &mut Found) {
    match value {
        Operand::Pair([low, high]) if op.takes_pair() => {
            if !(low.is_finite() && high.is_finite() && low < high) {
                found.add(
                    key,
                    format!("is [{low}, {high}]: expected [low, high], low first"),
                );
            }
        }
        Operand::Number(number) if !op.takes_pair() => {
            if !number.is_finite() {
                found.add(key, format!("is {number}: expected a finite number"));
            }
        }
        Operand::Integer(_) if !op.takes_pair() => {}
        Operand::Text(_) | Operand::Bool(_) if op.takes_any() => {}
        other => {
            let expected = match op {
                Op::Eq | Op::Ne => "a number, text or a truth value",
                Op::Inside | Op::Outside => "[low, high]",
                _ => "a number",
            };
            found.add(
                key,
                format!("is {}: {:?} takes {expected}", other.noun(), op.symbol()),
            );
        }
    }
}

/// Whether `clear` or `band` describe a state that is better than `at`.
fn safe_side(
    op: Op,
    level: &LevelConfig,
    at: &Operand,
    key: &dyn Fn(&'static str) -> String,
    found: &mut Found,
) {
    if level.band.is_some() && !op.takes_pair() {
        found.add(key("band"), "is for `inside` and `outside`: say `clear`");
        return;
    }
    if level.band.is_some() && level.clear.is_some() {
        found.add(key("band"), "is given beside `clear`: one of the two");
        return;
    }
    if let (Some(band), Operand::Pair([low, high])) = (level.band, at) {
        let most = match op {
            Op::Outside => (high - low) / 2.0,
            _ => f64::MAX,
        };
        if !(0.0..=most).contains(&band) {
            found.add(
                key("band"),
                format!("is {band}: expected 0 to {most}, or nothing would ever be clear"),
            );
        }
    }
    let Some(clear) = &level.clear else {
        return;
    };
    if op.takes_any() {
        found.add(
            key("clear"),
            format!(
                "means nothing for {:?}: what is not equal is clear",
                op.symbol()
            ),
        );
        return;
    }
    let before = found.len();
    operand(op, clear, &key("clear"), found);
    if found.len() > before {
        return;
    }
    let wrong = match (op, at, clear) {
        (Op::Outside, Operand::Pair(at), Operand::Pair(clear)) => {
            (clear[0] < at[0] || clear[1] > at[1]).then_some("within")
        }
        (Op::Inside, Operand::Pair(at), Operand::Pair(clear)) => {
            (clear[0] > at[0] || clear[1] < at[1]).then_some("around")
        }
        _ => match (op, at.number(), clear.number()) {
            (Op::Gt | Op::Ge, Some(at), Some(clear)) => (clear > at).then_some("at or below"),
            (Op::Lt | Op::Le, Some(at), Some(clear)) => (clear < at).then_some("at or above"),
            _ => None,
        },
    };
    if let Some(side) = wrong {
        found.add(
            key("clear"),
            format!("is on the wrong side: expected {side} `at`, or it would clear while it fires"),
        );
    }
}

/// Whether what breaches `worse` breaches `milder` too.
fn ascending(
    rule: &RuleConfig,
    op: Op,
    (milder, low): (&Severity, &LevelConfig),
    (worse, high): (&Severity, &LevelConfig),
    found: &mut Found,
) {
    let (Some(a), Some(b)) = (&low.at, &high.at) else {
        return;
    };
    let wrong = match (op, a, b) {
        (Op::Outside, Operand::Pair(a), Operand::Pair(b)) => {
            (b[0] > a[0] || b[1] < a[1]).then_some("around")
        }
        (Op::Inside, Operand::Pair(a), Operand::Pair(b)) => {
            (b[0] < a[0] || b[1] > a[1]).then_some("within")
        }
        _ => match (op, a.number(), b.number()) {
            (Op::Gt | Op::Ge, Some(a), Some(b)) => (b < a).then_some("at or above"),
            (Op::Lt | Op::Le, Some(a), Some(b)) => (b > a).then_some("at or below"),
            _ => None,
        },
    };
    if let Some(side) = wrong {
        found.add(
            level_key(rule, *worse, "at"),
            format!("expected {side} that of {milder}: thresholds get worse with the severity"),
        );
    }
}

fn counts(rule: &RuleConfig, levels: &[(Severity, LevelConfig)], found: &mut Found) {
    let mut milder: Option<(Severity, u64)> = None;
    for (severity, level) in levels {
        let key = |key| level_key(rule, *severity, key);
        if level.band.is_some() {
            found.add(key("band"), "means nothing for kind = \"count\"");
        }
        let Some(at) = count_of(level.at.as_ref()) else {
            found.add(key("at"), "is missing or no whole number: how many fire?");
            continue;
        };
        if !(1..=MAX_WINDOW_ENTRIES).contains(&at) {
            found.add(
                key("at"),
                format!("is {at}: expected 1 to {MAX_WINDOW_ENTRIES}"),
            );
        }
        if level.clear.is_some() && count_of(level.clear.as_ref()).is_none_or(|n| n >= at) {
            found.add(
                key("clear"),
                format!("expected a whole number below {at}, or it would clear while it fires"),
            );
        }
        if let Some((below, count)) = milder
            && at < count
        {
            found.add(
                key("at"),
                format!("is {at}, fewer than the {count} of {below}: more is worse"),
            );
        }
        milder = Some((*severity, at));
    }
}
