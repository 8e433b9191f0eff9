//! What is allowed in a rule but hardly meant: told when it is checked, never refused.

use super::check::{Found, holds};
use super::{Clock, OnNoData, Op, Operand, RuleConfig, RuleKind, Span};

/// What a gateway may be away for without anybody taking it for blind.
const RESTART: Span = Span::secs(15);

/// What is allowed but hardly meant.
pub(super) fn oddities(rule: &RuleConfig) -> Vec<(String, String)> {
    let mut found = Found::default();
    if let Some(every) = rule.expected_interval {
        if rule.kind != RuleKind::Absence && rule.clock == Clock::Event {
            let short = |hold: &Span| !hold.0.is_zero() && *hold < every;
            if let Some(hold) = holds(rule).find(short) {
                found.add(
                    "for",
                    format!(
                        "is {hold}, less than the {every} between readings: it means \"the second such reading\""
                    ),
                );
            }
        }
        if let Some(timeout) = rule.timeout.filter(|timeout| *timeout <= every) {
            found.add(
                "timeout",
                format!("is {timeout}, but readings are {every} apart: it tells of every one"),
            );
        }
    }
    if let Some(timeout) = rule.timeout.filter(|timeout| *timeout < RESTART) {
        found.add(
            "timeout",
            format!(
                "is {timeout}: a gateway that starts again is away for that long, and may tell of devices that were there; {RESTART} is safe"
            ),
        );
    }
    if rule.kind == RuleKind::Count && rule.on_no_data == OnNoData::Keep {
        found.add(
            "on_no_data",
            "is \"keep\": where events stop, no reading comes to clear the count; { resolve_after = \"1h\" } would",
        );
    }
    if rule.op.is_some_and(Op::takes_any)
        && rule.epsilon == 0.0
        && rule
            .ladder()
            .values()
            .any(|level| matches!(level.at, Some(Operand::Number(n)) if n.fract() != 0.0))
    {
        found.add(
            "epsilon",
            "is 0: measured fractions are hardly ever exactly equal",
        );
    }
    found.0
}
