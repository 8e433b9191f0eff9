//! What is said of a connection, and when it is rebuilt.

use super::*;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A connection in use whose canaries come back.
fn healthy() -> Facts {
    Facts {
        watched: true,
        proven: true,
        heard: true,
        quiet: secs(1),
        ..Facts::default()
    }
}

#[test]
fn verdicts() {
    let out = |secs_out, quiet| Facts {
        out: Some(secs(secs_out)),
        quiet: secs(quiet),
        ..healthy()
    };
    let unproven = |facts: Facts| Facts {
        proven: false,
        ..facts
    };
    let table = [
        ("in use", healthy(), Verdict::Fine),
        ("on its way", out(3, 3), Verdict::Fine),
        ("nothing comes any more", out(9, 9), Verdict::Stalled),
        ("behind a backlog", out(60, 0), Verdict::Late),
        ("a pause in the backlog", out(60, 5), Verdict::Late),
        (
            "the broker's window may be full",
            Facts {
                unacked: 20,
                ..out(60, 60)
            },
            Verdict::Late,
        ),
        ("none came ever", unproven(out(9, 9)), Verdict::Denied),
        ("first one, backlog", unproven(out(60, 0)), Verdict::Late),
        (
            "first one, no backlog takes that long",
            unproven(out(301, 0)),
            Verdict::Denied,
        ),
        (
            "first one, messages pass it",
            unproven(out(9, 3)),
            Verdict::Denied,
        ),
        (
            "messages flow beside it",
            Facts {
                was_denied: true,
                ..unproven(out(60, 0))
            },
            Verdict::Denied,
        ),
        (
            "the broker says no",
            Facts {
                denied: true,
                ..healthy()
            },
            Verdict::Denied,
        ),
        (
            "no line, but messages",
            Facts {
                line_down: Some(secs(60)),
                ..healthy()
            },
            Verdict::Fine,
        ),
        (
            "no line and no messages",
            Facts {
                line_down: Some(secs(60)),
                quiet: secs(11),
                ..healthy()
            },
            Verdict::Blind,
        ),
        (
            "the write takes long",
            Facts {
                held: secs(11),
                unacked: 3,
                ..out(60, 60)
            },
            Verdict::Held,
        ),
        (
            "the socket takes nothing",
            Facts {
                unsent: secs(11),
                held: secs(11),
                ..healthy()
            },
            Verdict::Unsent,
        ),
        (
            "just rebuilt",
            Facts {
                rebuilt: true,
                heard: false,
                ..healthy()
            },
            Verdict::Mending,
        ),
        (
            "mended",
            Facts {
                rebuilt: true,
                ..healthy()
            },
            Verdict::Fine,
        ),
        (
            "switched off, quiet",
            Facts {
                watched: false,
                quiet: secs(999),
                ..Facts::default()
            },
            Verdict::Fine,
        ),
        (
            "switched off, the write takes long",
            Facts {
                held: secs(11),
                ..Facts::default()
            },
            Verdict::Held,
        ),
    ];
    for (what, facts, verdict) in table {
        assert_eq!(judge(&facts), verdict, "{what}: {facts:?}");
    }
}

#[test]
fn rebuilds_get_rarer_until_messages_flow() {
    let start = Instant::now();
    let mut rebuilds = Rebuilds::default();
    let taken: Vec<_> = (0..3_600)
        .filter(|second| rebuilds.take(start + secs(*second), 0.0))
        .collect();
    assert_eq!(taken[..6], [0, 10, 30, 70, 150, 310]);
    assert!(taken.len() < 18, "{taken:?}");
    rebuilds.reset();
    assert!(rebuilds.take(start + secs(4_000), 0.0));
    assert!(rebuilds.take(start + secs(4_010), 0.0));
}

#[test]
fn a_front_ages_while_it_is_the_same() {
    let start = Instant::now();
    let mut front = Front::default();
    assert_eq!(front.age(Some(1), start), secs(0));
    assert_eq!(front.age(Some(1), start + secs(9)), secs(9));
    assert_eq!(front.age(Some(2), start + secs(10)), secs(0));
    assert_eq!(front.age(None, start + secs(11)), secs(0));
    assert_eq!(front.age(Some(2), start + secs(12)), secs(0));
}
