//! One reading and one rule: what the reading says to the rule's kind, whether it is new to this
//! device, and the step that follows.

use super::counts::RuleCounts;
use super::evaluate::{Levels, Scalar, Unknown, Verdict, lookup, scalar};
use super::instance::Instance;
use super::rule::{Condition, Rule};
use super::sample::Sample;
use super::state::Input;
use super::step::{Cause, Judged, Stepped, Who, event, reading};
use super::watermark::Standing;
use super::window::{Presence, Rating};
use crate::alert::Transition;

/// What a reading did to an instance.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Touched {
    /// It must be stored with this round.
    pub urgent: bool,
    /// It is not what it was.
    pub changed: bool,
}

impl Touched {
    fn add(&mut self, stepped: Stepped, counts: &mut RuleCounts, out: &mut Vec<Transition>) {
        self.urgent |= stepped.urgent;
        self.changed |= stepped.row.is_some();
        note(stepped, counts, out);
    }
}

/// Counts a step and passes on what it has to tell.
pub(super) fn note(stepped: Stepped, counts: &mut RuleCounts, out: &mut Vec<Transition>) {
    if let Some(row) = stepped.row {
        counts.rows[usize::from(row)] += 1;
    }
    counts.limited += u64::from(stepped.limited);
    if let Some(transition) = stepped.transition {
        counts.changes[transition.change as usize] += 1;
        out.push(transition);
    }
}

/// Judges one reading by one rule. `room`: the rule may have one more instance that is not ok.
pub(super) fn judge(
    who: &Who<'_>,
    instance: &mut Instance,
    sample: &Sample,
    hash: i64,
    room: bool,
    counts: &mut RuleCounts,
    out: &mut Vec<Transition>,
) -> Touched {
    let rule = who.rule;
    if let Condition::Absence { field, fresh, .. } = rule.condition {
        return present(who, instance, sample, (field, fresh), counts, out);
    }
    let value = match lookup_scalar(rule, sample) {
        Ok(value) => value,
        Err(why) => {
            counts.note_unknown(why);
            return Touched::default();
        }
    };
    let age = sample.received.millis().saturating_sub(sample.at.millis());
    if !rule.takes_age(age) {
        counts.historical += 1;
        return Touched::default();
    }
    let mut touched = Touched::default();
    let late = match instance.mark.standing(sample.at, hash) {
        Standing::New => false,
        Standing::Duplicate => {
            counts.duplicate += 1;
            return touched;
        }
        Standing::Late => true,
    };
    let (shown, verdict) = match &rule.condition {
        Condition::Count {
            counted,
            window_ms,
            lateness_ms,
        } => {
            let Some(counts_in) = counted.holds(&value) else {
                counts.note_unknown(Unknown::Type);
                return touched;
            };
            let now = instance.mark.at.max(sample.at.millis());
            let oldest = now.saturating_sub(*window_ms.min(lateness_ms));
            if late && (sample.at.millis() <= oldest || !counts_in) {
                counts.late += 1;
                return touched;
            }
            let window = instance.count_window();
            if counts_in && !window.insert(sample.at.millis(), hash) {
                counts.duplicate += 1;
                return touched;
            }
            window.prune(now, *window_ms);
            let count = Scalar::Int(i64::try_from(window.len()).unwrap_or(i64::MAX));
            let verdict = rule.judge(&count);
            (count, verdict)
        }
        _ if late => {
            counts.late += 1;
            return touched;
        }
        Condition::Rate { .. } => {
            let (Some(number), Some(how)) = (value.number(), rating(rule, who.gap_ms)) else {
                counts.note_unknown(Unknown::Type);
                return touched;
            };
            let rate = instance
                .rate_window()
                .push(sample.at.millis(), number, &how);
            let Some(rate) = rate else {
                // Too short a span to say anything: applied, but not judged.
                counts.unknown += 1;
                counts.rows[16] += 1;
                instance.mark.apply(sample.at, sample.received, hash);
                touched.changed = true;
                return touched;
            };
            let rate = Scalar::Double(rate);
            let verdict = rule.judge(&rate);
            (rate, verdict)
        }
        Condition::Threshold | Condition::Absence { .. } => {
            let verdict = rule.judge(&value);
            (value, verdict)
        }
    };
    let Some(verdict) = verdict else {
        counts.note_unknown(Unknown::Type);
        return touched;
    };
    if !late {
        instance.mark.apply(sample.at, sample.received, hash);
    }
    touched.changed = true;
    overdue(
        who,
        instance,
        sample.received.millis(),
        &mut touched,
        counts,
        out,
    );
    match verdict {
        v if !v.trigger.is_empty() => counts.breach += 1,
        v if v.clear == rule.all_levels() => counts.clear += 1,
        _ => counts.held += 1,
    }
    let now = match rule.wall {
        true => sample.received.millis(),
        false => instance.mark.at,
    };
    let judged = Judged {
        now,
        received: sample.received.millis(),
        verdict,
        value: Some(shown),
        cause: Cause::Reading(sample.at.millis(), hash),
    };
    touched.add(reading(who, instance, judged, room), counts, out);
    touched
}

fn lookup_scalar(rule: &Rule, sample: &Sample) -> Result<Scalar, Unknown> {
    let field = rule.field().unwrap_or_default();
    scalar(lookup(&sample.fields, field), rule.config.coerce)
}

/// How this rule measures a rate.
fn rating(rule: &Rule, max_gap_ms: Option<i64>) -> Option<Rating> {
    match rule.condition {
        Condition::Rate {
            per_ms,
            window_ms,
            min_span_ms,
            mode,
            counter,
        } => Some(Rating {
            per_ms,
            window_ms,
            min_span_ms,
            max_gap_ms,
            mode,
            counter,
        }),
        _ => None,
    }
}

/// Deadlines on the clock of receipt that lie before a reading come before it, whether or not a
/// tick has passed them: the outcome must not depend on when ticks happen to be.
fn overdue(
    who: &Who<'_>,
    instance: &mut Instance,
    received: i64,
    touched: &mut Touched,
    counts: &mut RuleCounts,
    out: &mut Vec<Transition>,
) {
    // Each pass moves the level up, of which there are four.
    while let Some(track) = &instance.track
        && let Some((at, level)) = track.wall_deadline(who.rule, who.gap_ms)
        && at < received
    {
        let stepped = event(who, instance, Input::Deadline, at, Some(level));
        if stepped.row.is_none() {
            break;
        }
        touched.add(stepped, counts, out);
    }
}

/// A reading that may prove that the device, or its field, is there.
fn present(
    who: &Who<'_>,
    instance: &mut Instance,
    sample: &Sample,
    (field, fresh): (bool, bool),
    counts: &mut RuleCounts,
    out: &mut Vec<Transition>,
) -> Touched {
    let rule = who.rule;
    let received = sample.received.millis();
    let mut touched = Touched::default();
    if field && let Err(why) = lookup_scalar(rule, sample) {
        counts.note_unknown(why);
        return touched;
    }
    if fresh && received.saturating_sub(sample.at.millis()) > rule.max_age_ms {
        counts.historical += 1;
        return touched;
    }
    let before = instance.presence();
    if before.and_then(|presence| presence.last) >= Some(received) {
        counts.duplicate += 1;
        return touched;
    }
    let since = before.map_or(received, |presence| presence.since.max(received));
    instance.set_presence(Presence {
        since,
        last: Some(received),
    });
    touched.changed = true;
    counts.clear += 1;
    let judged = Judged {
        now: received,
        received,
        verdict: Verdict {
            trigger: Levels::NONE,
            clear: rule.all_levels(),
        },
        value: None,
        cause: Cause::Silence(since),
    };
    touched.add(reading(who, instance, judged, true), counts, out);
    touched
}
