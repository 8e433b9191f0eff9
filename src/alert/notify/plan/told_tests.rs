//! What the end of a row means for the line it was on, by kind of request and outcome.

use super::super::world_tests::{START, episode};
use super::*;

const REPEAT: Duration = Duration::from_secs(600);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(START + seconds * 1_000)
}

fn words(kind: NoticeKind) -> Words {
    let mut episode = episode("r", "d", Severity::Warning, at(0));
    if kind == NoticeKind::Resolved {
        episode = super::super::alert::over(episode, at(0));
    }
    Words {
        kind,
        severity: Severity::Warning,
        episodes: vec![episode],
        truncated: 0,
        alone: true,
    }
}

fn dead(ambiguous: bool) -> Delivery {
    let reason = "400".into();
    Delivery::Dead { reason, ambiguous }
}

fn recalled(ambiguous: bool) -> Delivery {
    Delivery::Recalled { ambiguous }
}

fn end(line: &mut Line, notice: &Notice, outcome: Delivery, seconds: i64) -> Meaning {
    let settled = Settled {
        notice: notice.clone(),
        outcome,
        at: at(seconds),
    };
    line.settle(&settled, REPEAT, Some(at(0)))
}

#[test]
fn the_table_of_outcomes() {
    use Meaning::{Closed, Doubt, Open, Refused, Unsaid};
    use NoticeKind::{Firing, Repeat, Resolved, Update};
    // Kind, known before, asked back, outcome; meaning, known after (`Some(None)`: in doubt), put off.
    let warning = Some(Some(Severity::Warning));
    let rows = [
        (
            Firing,
            false,
            false,
            Delivery::Accepted,
            Open,
            warning,
            false,
        ),
        (Firing, false, false, dead(false), Refused, None, true),
        (Firing, false, false, dead(true), Refused, Some(None), true),
        (Firing, false, true, recalled(false), Unsaid, None, false),
        (
            Firing,
            false,
            true,
            recalled(true),
            Doubt,
            Some(None),
            false,
        ),
        // Taken back by somebody else: not sent again at once.
        (Firing, false, false, recalled(false), Unsaid, None, true),
        (
            Firing,
            false,
            true,
            Delivery::Accepted,
            Open,
            warning,
            false,
        ),
        (
            Update,
            true,
            false,
            Delivery::Accepted,
            Open,
            warning,
            false,
        ),
        (Update, true, true, recalled(false), Unsaid, warning, false),
        (Update, true, true, recalled(true), Doubt, Some(None), false),
        (Repeat, true, false, dead(false), Refused, warning, true),
        (Repeat, true, false, dead(true), Refused, Some(None), true),
        (
            Resolved,
            true,
            false,
            Delivery::Accepted,
            Closed,
            None,
            false,
        ),
        (Resolved, true, false, dead(false), Refused, warning, true),
        (Resolved, true, false, dead(true), Refused, warning, true),
        (Resolved, true, false, recalled(false), Closed, None, false),
    ];
    for (kind, known, asked, outcome, meaning, told, put_off) in rows {
        let mut line = Line::new("k".into());
        if known {
            let first = line.say("r", words(Firing), 1, at(0));
            end(&mut line, &first, Delivery::Accepted, 1);
        }
        let notice = line.say("r", words(kind), 2, at(2));
        if asked {
            assert_eq!(line.recall(), Some(notice.id.clone()));
            assert_eq!(line.recall(), None);
        }
        let name = format!("{kind:?} {known} {asked} {outcome:?}");
        assert_eq!(end(&mut line, &notice, outcome, 3), meaning, "{name}");
        assert_eq!(line.told.as_ref().map(|t| t.severity), told, "{name}");
        assert_eq!(line.retry.is_some(), put_off, "{name}");
        assert!(line.row.is_none(), "{name}");
        if let Some(retry) = line.retry {
            assert_eq!(retry.at, at(603), "{name}");
        }
    }
}

#[test]
fn an_end_refused_for_three_days_is_given_up() {
    let mut line = Line::new("k".into());
    let first = line.say("r", words(NoticeKind::Firing), 1, at(0));
    end(&mut line, &first, Delivery::Accepted, 0);
    let resolved = line.say("r", words(NoticeKind::Resolved), 2, at(0));
    let days = 72 * 3_600;
    assert_eq!(
        end(&mut line, &resolved, dead(false), days - 1),
        Meaning::Refused
    );
    let resolved = line.say("r", words(NoticeKind::Resolved), 3, at(0));
    assert_eq!(
        end(&mut line, &resolved, dead(false), days),
        Meaning::GaveUp
    );
    assert!(line.is_idle());
}

#[test]
fn rows_sent_again_by_hand() {
    let mut line = Line::new("k".into());
    let first = line.say("r", words(NoticeKind::Firing), 1, at(0));
    end(&mut line, &first, dead(false), 1);
    // Accepted after all: its end is owed.
    assert_eq!(end(&mut line, &first, Delivery::Accepted, 2), Meaning::Open);
    assert!(line.told.is_some() && line.retry.is_none());
    // Reported twice.
    assert_eq!(
        end(&mut line, &first, Delivery::Accepted, 2),
        Meaning::Nothing
    );
    // An older one changes nothing of what is known by now.
    let update = line.say("r", words(NoticeKind::Update), 2, at(3));
    end(&mut line, &update, Delivery::Accepted, 3);
    assert_eq!(end(&mut line, &first, dead(true), 4), Meaning::Nothing);
    // An end that was refused, and is accepted on the second try.
    let resolved = line.say("r", words(NoticeKind::Resolved), 3, at(5));
    end(&mut line, &resolved, dead(false), 5);
    assert_eq!(
        end(&mut line, &resolved, Delivery::Accepted, 6),
        Meaning::Closed
    );
    assert_eq!(
        end(&mut line, &resolved, Delivery::Accepted, 6),
        Meaning::Nothing
    );
    assert!(line.is_idle());
}

#[test]
fn a_refusal_puts_off_the_same_words_only() {
    let mut line = Line::new("k".into());
    let first = line.say("r", words(NoticeKind::Firing), 1, at(0));
    end(&mut line, &first, dead(false), 0);
    let when = Some(at(600));
    for (severity, resolved, expected) in [
        (Severity::Info, false, when),
        (Severity::Warning, false, when),
        (Severity::Critical, false, None),
        (Severity::Warning, true, None),
    ] {
        assert_eq!(
            line.free_at(severity, resolved),
            expected,
            "{severity} {resolved}"
        );
    }
}
