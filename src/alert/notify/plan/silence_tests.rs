//! What silences match and which are refused.

use super::super::world_tests::{START, episode};
use super::*;
use crate::model::Severity;

#[test]
fn matchers_read_print_and_match() {
    for (text, printed, value, fits) in [
        ("site=north", "site=\"north\"", "north", true),
        ("site=north", "site=\"north\"", "north-2", false),
        (
            "site = \"cold hall\"",
            "site=\"cold hall\"",
            "cold hall",
            true,
        ),
        ("site!=north", "site!=\"north\"", "south", true),
        ("site!=north", "site!=\"north\"", "", true),
        ("rule=~cold-.*", "rule=~\"cold-.*\"", "cold-1", true),
        ("rule=~cold-.*", "rule=~\"cold-.*\"", "very-cold-1", false),
        ("rule=~a|b", "rule=~\"a|b\"", "ab", false),
        ("rule=~a|b", "rule=~\"a|b\"", "b", true),
        ("rule!~cold-.*", "rule!~\"cold-.*\"", "hot", true),
        ("rule!~cold-.*", "rule!~\"cold-.*\"", "cold-", false),
        ("site=a=b", "site=\"a=b\"", "a=b", true),
        ("site=", "site=\"\"", "", true),
    ] {
        let matcher: Matcher = text.parse().unwrap();
        assert_eq!(matcher.to_string(), printed);
        assert_eq!(printed.parse::<Matcher>().unwrap(), matcher);
        assert_eq!(matcher.matches(value), fits, "{text} {value:?}");
    }
    for bad in [
        "",
        "site",
        "=north",
        "!=x",
        "site!north",
        "rule=~(",
        "rule=~a{9999}{9999}",
    ] {
        assert!(bad.parse::<Matcher>().is_err(), "{bad}");
    }
}

fn silence(matchers: &[&str]) -> Silence {
    Silence {
        id: "s".into(),
        matchers: matchers.iter().map(|m| m.parse().unwrap()).collect(),
        starts: Timestamp::from_millis(START),
        ends: Timestamp::from_millis(START + 1_000),
        author: "me".into(),
        comment: "works".into(),
    }
}

#[test]
fn covers_by_every_label_and_for_half_open_time() {
    let mut alert = episode(
        "cold-1",
        "d",
        Severity::Warning,
        Timestamp::from_millis(START),
    );
    alert.labels.insert("team".into(), "ops".into());
    for (matchers, covered) in [
        (&["rule=cold-1"][..], true),
        (
            &[
                "rule=cold-1",
                "device=d",
                "type=sensor",
                "field=temperature",
            ],
            true,
        ),
        (
            &[
                "severity=warning",
                "site=north",
                "team=ops",
                "receiver=oncall",
            ],
            true,
        ),
        (&["rule=cold-1", "site=south"], false),
        (&["nothing=", "rule=~.+"], true),
        (&["receiver=chat"], false),
    ] {
        assert_eq!(
            silence(matchers).covers(&alert, "oncall"),
            covered,
            "{matchers:?}"
        );
    }
    let silence = silence(&["rule=cold-1"]);
    for (millis, active) in [(-1, false), (0, true), (999, true), (1_000, false)] {
        let now = Timestamp::from_millis(START + millis);
        assert_eq!(silence.active(now), active, "{millis}");
    }
    let text = serde_json::to_string(&silence).unwrap();
    assert_eq!(serde_json::from_str::<Silence>(&text).unwrap(), silence);
}

#[test]
fn refuses_what_is_too_wide_too_long_or_unsigned() {
    let longest = Duration::from_secs(60);
    let with = |edit: fn(&mut Silence)| {
        let mut silence = silence(&["site=north"]);
        edit(&mut silence);
        silence.check(longest)
    };
    assert_eq!(with(|_| {}), Ok(()));
    let wrong: [fn(&mut Silence); 7] = [
        |s| s.matchers.clear(),
        |s| s.matchers = vec!["site=~.*".parse().unwrap()],
        |s| s.matchers = vec!["site!=north".parse().unwrap()],
        |s| s.ends = s.starts,
        |s| s.ends = s.starts.plus(Duration::from_secs(61)),
        |s| s.author.clear(),
        |s| s.comment = " ".into(),
    ];
    for (index, edit) in wrong.into_iter().enumerate() {
        assert!(with(edit).is_err(), "{index}");
    }
}
