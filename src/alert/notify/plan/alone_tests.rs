//! The table of suppression, row by row: what is known, what is the case, what speaks against it,
//! and what is done.

use std::collections::BTreeMap;

use super::super::told::{Line, Retry, Row, Told};
use super::*;
use crate::alert::{EndReason, Ended, Wishes};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(NOW.millis() + seconds * 1_000)
}

/// One situation; the defaults are an alert that has just begun, and nothing against it.
struct Case {
    told: Option<(&'static str, Option<Severity>)>,
    told_flapping: bool,
    row: Option<(NoticeKind, &'static str, Severity)>,
    recalling: bool,
    retry: Option<(i64, Severity, bool)>,
    ended: bool,
    severity: Severity,
    waiting: bool,
    flapping: bool,
    ends_only: bool,
    short_lived: bool,
    min_severity: Severity,
    repeat_at: Option<i64>,
    acked: bool,
    cool_at: Option<i64>,
    hold: bool,
    muted: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            told: None,
            told_flapping: false,
            row: None,
            recalling: false,
            retry: None,
            ended: false,
            severity: Severity::Warning,
            waiting: true,
            flapping: false,
            ends_only: false,
            short_lived: false,
            min_severity: Severity::Info,
            repeat_at: Some(100),
            acked: false,
            cool_at: None,
            hold: false,
            muted: false,
        }
    }
}

fn episode(case: &Case) -> Episode {
    Episode {
        key: "r:d".into(),
        id: "e2".into(),
        sequence: 3,
        rule: "r".into(),
        name: "r".into(),
        kind: "threshold".into(),
        device: "d".into(),
        device_type: None,
        tags: BTreeMap::new(),
        field: None,
        unit: None,
        op: None,
        severity: case.severity,
        value: None,
        peak: None,
        threshold: None,
        clear: None,
        started_at: NOW,
        fired_at: NOW,
        ended: case.ended.then_some(Ended {
            at: NOW,
            reason: EndReason::ConditionCleared,
        }),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        receivers: Vec::new(),
        wishes: Wishes::default(),
        flags: Vec::new(),
    }
}

fn step(case: Case) -> Step {
    let mut line = Line::new("k".into());
    line.told = case.told.map(|(episode, severity)| Told {
        episode: Some(episode.into()),
        severity,
        worst: Severity::Warning,
        sequence: 1,
        at: at(-100),
        flapping: case.told_flapping,
        sure: severity.is_some(),
    });
    line.row = case.row.map(|(kind, episode, severity)| Row {
        id: "row".into(),
        sequence: 2,
        kind,
        severity,
        episode: Some(episode.into()),
        recalling: case.recalling,
    });
    line.retry = case.retry.map(|(seconds, severity, resolved)| Retry {
        at: at(seconds),
        severity,
        resolved,
    });
    let muted = Held {
        by: By::Silence("s".into()),
        until: Some(at(50)),
    };
    let view = View {
        line: &line,
        episode: &episode(&case),
        flapping: case.flapping,
        ends_only: case.ends_only,
        waiting: case.waiting,
        short_lived: case.short_lived,
        min_severity: case.min_severity,
        repeat_at: case.repeat_at.map(at),
        acked_until: case.acked.then(|| at(70)),
        cool_at: case.cool_at.map(at),
        hold_until: case.hold.then(|| at(60)),
        muted: &|| case.muted.then(|| muted.clone()),
    };
    decide(&view, NOW)
}

fn check(rows: Vec<(&str, Case, Step)>) {
    for (name, case, expected) in rows {
        assert_eq!(step(case), expected, "{name}");
    }
}

fn kept(by: By, seconds: i64) -> Step {
    held(by, Some(at(seconds)))
}

fn silenced() -> Step {
    kept(By::Silence("s".into()), 50)
}

macro_rules! case {
    ($($field:ident: $value:expr),* $(,)?) => {
        Case { $($field: $value,)* ..Case::default() }
    };
}

#[test]
fn what_is_not_known() {
    let rejected = |seconds| Some((seconds, Severity::Warning, false));
    check(vec![
        ("begins", case! {}, Step::Open),
        ("silenced", case! { muted: true }, silenced()),
        (
            "cooldown",
            case! { cool_at: Some(5) },
            kept(By::Cooldown, 5),
        ),
        ("cooldown over", case! { cool_at: Some(0) }, Step::Open),
        ("backlog", case! { hold: true }, kept(By::CatchUp, 60)),
        (
            "too mild",
            case! { min_severity: Severity::Error },
            held(By::MinSeverity, None),
        ),
        (
            "mild and silenced: only worse helps",
            case! { min_severity: Severity::Error, muted: true },
            held(By::MinSeverity, None),
        ),
        (
            "refused",
            case! { retry: rejected(9) },
            kept(By::Refused, 9),
        ),
        (
            "refused, time to try again",
            case! { retry: rejected(0) },
            Step::Open,
        ),
        (
            "refused, but now it is worse",
            case! { retry: rejected(9), severity: Severity::Critical },
            Step::Open,
        ),
        ("over", case! { ended: true }, Step::Idle),
        (
            "over, but wanted all the same",
            case! { ended: true, short_lived: true },
            Step::Open,
        ),
        ("told and closed", case! { waiting: false }, Step::Idle),
        ("receiver gone", case! { ends_only: true }, Step::Idle),
    ]);
}

#[test]
fn what_is_known() {
    let known = Some(("e2", Some(Severity::Warning)));
    let refused = Some((9, Severity::Warning, false));
    check(vec![
        ("nothing new", case! { told: known }, Step::Wait(at(100))),
        (
            "no reminders",
            case! { told: known, repeat_at: None },
            Step::Idle,
        ),
        (
            "reminder",
            case! { told: known, repeat_at: Some(0) },
            Step::Say(NoticeKind::Repeat),
        ),
        (
            "somebody knows",
            case! { told: known, repeat_at: Some(0), acked: true },
            kept(By::Acked, 70),
        ),
        (
            "no reminder while silenced",
            case! { told: known, repeat_at: Some(0), muted: true },
            silenced(),
        ),
        (
            "worse",
            case! { told: known, severity: Severity::Critical },
            Step::Say(NoticeKind::Update),
        ),
        (
            "worse, though somebody knew",
            case! { told: known, severity: Severity::Critical, acked: true },
            Step::Say(NoticeKind::Update),
        ),
        (
            "better",
            case! { told: known, severity: Severity::Info },
            Step::Say(NoticeKind::Update),
        ),
        (
            "worse, silenced",
            case! { told: known, severity: Severity::Critical, muted: true },
            silenced(),
        ),
        (
            "worse, backlog",
            case! { told: known, severity: Severity::Critical, hold: true },
            kept(By::CatchUp, 60),
        ),
        (
            "level in doubt",
            case! { told: Some(("e2", None)) },
            Step::Say(NoticeKind::Update),
        ),
        (
            "level in doubt, refused",
            case! { told: Some(("e2", None)), retry: refused },
            Step::Wait(at(9)),
        ),
        (
            "nothing but ends to a receiver that is gone",
            case! { told: known, severity: Severity::Critical, ends_only: true },
            Step::Idle,
        ),
    ]);
}

#[test]
fn an_end_is_kept_back_by_nothing() {
    let known = Some(("e2", Some(Severity::Warning)));
    let everything = || {
        case! {
            told: known,
            ended: true,
            muted: true,
            hold: true,
            acked: true,
            ends_only: true,
            cool_at: Some(9),
            retry: Some((9, Severity::Critical, false)),
            min_severity: Severity::Critical,
        }
    };
    check(vec![
        ("everything against it", everything(), Step::Close),
        (
            "known in doubt",
            Case {
                told: Some(("e2", None)),
                ..everything()
            },
            Step::Close,
        ),
        (
            "an earlier episode is known, the next fires",
            case! { told: Some(("e1", Some(Severity::Warning))) },
            Step::Close,
        ),
        (
            "the end itself was refused",
            case! { told: known, ended: true, retry: Some((9, Severity::Info, true)) },
            Step::Wait(at(9)),
        ),
    ]);
}

#[test]
fn what_is_under_way() {
    let firing = Some((NoticeKind::Firing, "e2", Severity::Warning));
    let repeat = Some((NoticeKind::Repeat, "e2", Severity::Warning));
    let known = Some(("e2", Some(Severity::Warning)));
    check(vec![
        ("still right", case! { row: firing }, Step::Idle),
        ("over", case! { row: firing, ended: true }, Step::Recall),
        (
            "asked back once",
            case! { row: firing, ended: true, recalling: true },
            Step::Idle,
        ),
        (
            "over, but wanted all the same",
            case! { row: firing, ended: true, short_lived: true },
            Step::Idle,
        ),
        (
            "of an earlier episode",
            case! { row: Some((NoticeKind::Firing, "e1", Severity::Warning)) },
            Step::Recall,
        ),
        (
            "worse now",
            case! { row: firing, severity: Severity::Critical },
            Step::Recall,
        ),
        (
            "better now",
            case! { row: firing, severity: Severity::Info },
            Step::Idle,
        ),
        (
            "silenced now",
            case! { row: firing, muted: true },
            Step::Recall,
        ),
        (
            "receiver gone",
            case! { row: firing, ends_only: true },
            Step::Recall,
        ),
        (
            "reminder, over",
            case! { told: known, row: repeat, ended: true },
            Step::Recall,
        ),
        (
            "reminder, somebody knows",
            case! { told: known, row: repeat, acked: true },
            Step::Recall,
        ),
        (
            "news that is none any more",
            case! { told: known, row: Some((NoticeKind::Update, "e2", Severity::Critical)) },
            Step::Recall,
        ),
        (
            "an end is never asked back",
            case! { told: known, row: Some((NoticeKind::Resolved, "e1", Severity::Warning)) },
            Step::Idle,
        ),
    ]);
}

#[test]
fn what_comes_and_goes() {
    let known = Some(("e2", Some(Severity::Warning)));
    check(vec![
        (
            "said once",
            case! { told: known, flapping: true },
            Step::Say(NoticeKind::Update),
        ),
        (
            "said once, over at the moment",
            case! { told: known, flapping: true, ended: true },
            Step::Say(NoticeKind::Update),
        ),
        (
            "then held",
            case! { told: known, flapping: true, told_flapping: true, ended: true },
            Step::Idle,
        ),
        (
            "no reminders while over",
            case! { told: known, flapping: true, told_flapping: true, ended: true, repeat_at: Some(0) },
            Step::Idle,
        ),
        (
            "not known: told as usual",
            case! { flapping: true },
            Step::Open,
        ),
        (
            "not known, over",
            case! { flapping: true, ended: true },
            Step::Idle,
        ),
        (
            "silenced",
            case! { told: known, flapping: true, muted: true },
            silenced(),
        ),
    ]);
}
