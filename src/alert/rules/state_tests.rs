//! The transition table, walked row by row: every row is reached by some situation, and no state
//! and reading is without one.

use std::collections::BTreeSet;

use super::*;
use Severity::{Critical, Error, Warning};

/// A situation in words: state, level, input, then changes to "nothing known".
fn at(
    state: State,
    level: Option<Severity>,
    input: Input,
    change: impl FnOnce(&mut Situation),
) -> Situation {
    let mut situation = Situation::new(state, level, input);
    change(&mut situation);
    situation
}

#[test]
fn every_row_is_taken_by_the_situation_it_is_for() {
    use Effect as E;
    use Input as I;
    let quiet = |_: &mut Situation| {};
    let firing = Some(Warning);
    let cases: Vec<(u8, &str, Situation, State, Effect)> = vec![
        (
            1,
            "ok, nothing breached",
            at(Ok, None, I::Reading, quiet),
            Ok,
            E::Nothing,
        ),
        (
            2,
            "ok, breached without a for",
            at(Ok, None, I::Reading, |s| {
                s.breach = true;
                s.qualified = Some(Critical);
            }),
            Firing,
            E::Open(Critical),
        ),
        (
            3,
            "ok, breached with a for",
            at(Ok, None, I::Reading, |s| s.breach = true),
            Pending,
            E::Timers,
        ),
        (
            3,
            "pending, still breached, not for long enough",
            at(Pending, None, I::Reading, |s| s.breach = true),
            Pending,
            E::Timers,
        ),
        (
            4,
            "pending, no longer breached",
            at(Pending, None, I::Reading, quiet),
            Ok,
            E::DropTimers,
        ),
        (
            5,
            "pending, for long enough",
            at(Pending, None, I::Reading, |s| {
                s.breach = true;
                s.qualified = Some(Warning);
            }),
            Firing,
            E::Open(Warning),
        ),
        (
            6,
            "pending, after a gap",
            at(Pending, None, I::Reading, |s| {
                s.breach = true;
                s.gap = true;
            }),
            Pending,
            E::Timers,
        ),
        (
            7,
            "firing, a worse level qualifies",
            at(Firing, firing, I::Reading, |s| {
                s.breach = true;
                s.qualified = Some(Critical);
            }),
            Firing,
            E::Escalate(Critical),
        ),
        (
            7,
            "firing, a worse level's for runs out",
            at(Firing, firing, I::Deadline, |s| {
                s.qualified = Some(Critical)
            }),
            Firing,
            E::Escalate(Critical),
        ),
        (
            8,
            "firing, in the band between at and clear",
            at(Firing, firing, I::Reading, quiet),
            Firing,
            E::Remember,
        ),
        (
            8,
            "firing, the same level qualifies",
            at(Firing, firing, I::Reading, |s| {
                s.breach = true;
                s.qualified = Some(Warning);
            }),
            Firing,
            E::Remember,
        ),
        (
            8,
            "firing, edited, still breaching",
            at(Firing, firing, I::Edit, quiet),
            Firing,
            E::Remember,
        ),
        (
            9,
            "firing, clear, but a milder level is not",
            at(Firing, Some(Critical), I::Reading, |s| {
                s.clear = true;
                s.fallback = Some(Error);
            }),
            Firing,
            E::Deescalate(Error),
        ),
        (
            9,
            "firing, edited, milder now",
            at(Firing, Some(Critical), I::Edit, |s| {
                s.clear = true;
                s.fallback = Some(Error);
            }),
            Firing,
            E::Deescalate(Error),
        ),
        (
            10,
            "firing, clear",
            at(Firing, firing, I::Reading, |s| s.clear = true),
            Ok,
            E::Resolve(EndReason::ConditionCleared),
        ),
        (
            11,
            "firing, clear, recovers with a delay",
            at(Firing, firing, I::Reading, |s| {
                s.clear = true;
                s.delayed = true;
            }),
            Recovering,
            E::Recover,
        ),
        (
            11,
            "recovering, still clear",
            at(Recovering, firing, I::Reading, |s| {
                s.clear = true;
                s.delayed = true;
            }),
            Recovering,
            E::Recover,
        ),
        (
            12,
            "recovering, a worse level qualifies",
            at(Recovering, firing, I::Reading, |s| {
                s.breach = true;
                s.qualified = Some(Critical);
            }),
            Firing,
            E::Escalate(Critical),
        ),
        (
            13,
            "recovering, not clear after all",
            at(Recovering, firing, I::Reading, quiet),
            Firing,
            E::Refire,
        ),
        (
            14,
            "recovering, clear for long enough",
            at(Recovering, firing, I::Reading, |s| {
                s.clear = true;
                s.recovered = true;
            }),
            Ok,
            E::Resolve(EndReason::ConditionCleared),
        ),
        (
            14,
            "recovering, clear for long enough, but a milder level is not",
            at(Recovering, Some(Critical), I::Reading, |s| {
                s.clear = true;
                s.recovered = true;
                s.fallback = Some(Warning);
            }),
            Firing,
            E::Deescalate(Warning),
        ),
        (
            15,
            "firing, no data",
            at(Firing, firing, I::Silence(false), quiet),
            Firing,
            E::Stale,
        ),
        (
            15,
            "recovering, no data, and the rule says what then",
            at(Recovering, firing, I::Silence(true), quiet),
            Ok,
            E::Resolve(EndReason::NoData),
        ),
        (
            16,
            "ok, unknown",
            at(Ok, None, I::Unknown, quiet),
            Ok,
            E::Nothing,
        ),
        (
            16,
            "firing, unknown",
            at(Firing, firing, I::Unknown, quiet),
            Firing,
            E::Nothing,
        ),
        (
            17,
            "pending, the for runs out on the clock of receipt",
            at(Pending, None, I::Deadline, |s| s.qualified = Some(Error)),
            Firing,
            E::Open(Error),
        ),
        (
            18,
            "firing, edited, no longer breaching",
            at(Firing, firing, I::Edit, |s| s.clear = true),
            Ok,
            E::Resolve(EndReason::RuleChanged),
        ),
        (
            18,
            "recovering, out of scope",
            at(Recovering, firing, I::Retire(EndReason::OutOfScope), quiet),
            Ok,
            E::Resolve(EndReason::OutOfScope),
        ),
        (
            19,
            "firing, rule deleted",
            at(Firing, firing, I::Retire(EndReason::RuleDeleted), quiet),
            Ok,
            E::Resolve(EndReason::RuleDeleted),
        ),
        (
            19,
            "pending, device deleted",
            at(Pending, None, I::Retire(EndReason::DeviceDeleted), quiet),
            Ok,
            E::DropTimers,
        ),
        (
            20,
            "firing, ended by hand",
            at(Firing, firing, I::Manual, quiet),
            Ok,
            E::Resolve(EndReason::Manual),
        ),
        (
            20,
            "ended by hand, still breached",
            at(Ok, None, I::Reading, |s| {
                s.latched = true;
                s.breach = true;
                s.qualified = Some(Critical);
            }),
            Ok,
            E::Nothing,
        ),
        (
            1,
            "ended by hand, clear",
            at(Ok, None, I::Reading, |s| s.latched = true),
            Ok,
            E::Release,
        ),
    ];
    let mut covered = BTreeSet::new();
    for (row, what, situation, state, effect) in cases {
        let decision = decide(&situation);
        let expected = Decision { row, state, effect };
        assert_eq!(decision, Some(expected), "{what}");
        covered.insert(row);
    }
    assert_eq!(covered, (1..=ROWS).collect(), "rows without a case");
}

#[test]
fn a_reading_finds_a_row_in_every_state() {
    let truths = [false, true];
    for state in State::ALL {
        for level in [None, Some(Warning), Some(Critical)] {
            for qualified in [None, Some(Warning), Some(Critical)] {
                for bits in 0..64_u8 {
                    let bit = |n: u8| truths[usize::from(bits >> n & 1)];
                    let situation = at(state, level, Input::Reading, |s| {
                        s.breach = bit(0);
                        s.qualified = qualified;
                        s.clear = bit(1);
                        s.delayed = bit(2);
                        s.recovered = bit(3);
                        s.gap = bit(4);
                        s.latched = bit(5);
                    });
                    assert!(decide(&situation).is_some(), "{situation:?}");
                }
            }
        }
    }
}

#[test]
fn silence_is_never_recovery_unless_the_rule_says_so() {
    for state in [Firing, Recovering] {
        for input in [Input::Deadline, Input::Silence(false), Input::Unknown] {
            let decision = decide(&Situation::new(state, Some(Warning), input));
            let resolves = |d: Decision| matches!(d.effect, Effect::Resolve(_));
            assert!(!decision.is_some_and(resolves), "{state:?} {input:?}");
        }
    }
}

#[test]
fn what_is_not_open_cannot_be_ended_or_go_stale() {
    for input in [
        Input::Manual,
        Input::Silence(true),
        Input::Silence(false),
        Input::Edit,
    ] {
        for state in [Ok, Pending] {
            assert_eq!(decide(&Situation::new(state, None, input)), None);
        }
    }
}
