//! Quiet hours against the calendar: overnight, over the weekend, over a change of the clocks.

use super::*;

fn quiet(tz: &str, windows: &[&str]) -> Quiet {
    let config = QuietConfig {
        name: "q".into(),
        tz: tz.into(),
        windows: windows.iter().map(|w| w.parse().unwrap()).collect(),
        ..QuietConfig::default()
    };
    Quiet::new(&config).unwrap()
}

#[test]
fn windows_hold_from_their_start_up_to_their_end() {
    // 2026-03-13 is a Friday. Berlin is at +01:00 until 2026-03-29, 01:00 UTC.
    let night = &["mon-fri 22:00-06:00"][..];
    let weekend = &["sat,sun 00:00-24:00"][..];
    for (tz, windows, now, until) in [
        ("UTC", night, "2026-03-13T21:59:59.999Z", None),
        (
            "UTC",
            night,
            "2026-03-13T22:00:00Z",
            Some("2026-03-14T06:00:00Z"),
        ),
        (
            "UTC",
            night,
            "2026-03-14T05:59:59.999Z",
            Some("2026-03-14T06:00:00Z"),
        ),
        ("UTC", night, "2026-03-14T06:00:00Z", None),
        // Begins on Friday, not on Saturday; on Sunday evening it does not begin either.
        ("UTC", night, "2026-03-14T22:30:00Z", None),
        ("UTC", night, "2026-03-16T05:00:00Z", None),
        (
            "UTC",
            night,
            "2026-03-16T22:30:00Z",
            Some("2026-03-17T06:00:00Z"),
        ),
        ("UTC", weekend, "2026-03-13T23:59:59Z", None),
        (
            "UTC",
            weekend,
            "2026-03-14T00:00:00Z",
            Some("2026-03-15T00:00:00Z"),
        ),
        (
            "UTC",
            weekend,
            "2026-03-15T23:59:59Z",
            Some("2026-03-16T00:00:00Z"),
        ),
        ("UTC", weekend, "2026-03-16T00:00:00Z", None),
        (
            "Europe/Berlin",
            night,
            "2026-03-13T21:00:00Z",
            Some("2026-03-14T05:00:00Z"),
        ),
        ("Europe/Berlin", night, "2026-03-13T20:59:59Z", None),
        // Two windows at once: the longer one counts.
        (
            "UTC",
            &["12:00-13:00", "12:30-14:00"],
            "2026-03-13T12:45:00Z",
            Some("2026-03-13T14:00:00Z"),
        ),
    ] {
        let now: Timestamp = now.parse().unwrap();
        let until = until.map(|text| text.parse().unwrap());
        assert_eq!(
            quiet(tz, windows).until(now),
            until,
            "{tz} {windows:?} {now}"
        );
    }
}

#[test]
fn clocks_that_change_are_followed() {
    let berlin = |windows: &[&str], now: &str, until: Option<&str>| {
        let at: Timestamp = now.parse().unwrap();
        let until = until.map(|text| text.parse().unwrap());
        assert_eq!(
            quiet("Europe/Berlin", windows).until(at),
            until,
            "{windows:?} {now}"
        );
    };
    // 2026-03-29: 02:00 becomes 03:00 at 01:00 UTC. The night is an hour shorter.
    let night = &["22:00-06:00"];
    berlin(night, "2026-03-28T21:00:00Z", Some("2026-03-29T04:00:00Z"));
    berlin(night, "2026-03-29T03:59:59Z", Some("2026-03-29T04:00:00Z"));
    berlin(night, "2026-03-29T04:00:00Z", None);
    // 02:30 does not exist: it moves to 03:30, as does the end.
    berlin(&["02:30-05:00"], "2026-03-29T01:29:59Z", None);
    berlin(
        &["02:30-05:00"],
        "2026-03-29T01:30:00Z",
        Some("2026-03-29T03:00:00Z"),
    );
    berlin(
        &["01:00-02:30"],
        "2026-03-29T01:29:59Z",
        Some("2026-03-29T01:30:00Z"),
    );
    // 2026-10-25: 03:00 becomes 02:00 at 01:00 UTC. 02:30 comes twice, and both belong to it.
    berlin(&["02:30-05:00"], "2026-10-25T00:29:59Z", None);
    berlin(
        &["02:30-05:00"],
        "2026-10-25T00:30:00Z",
        Some("2026-10-25T04:00:00Z"),
    );
    berlin(
        &["01:00-02:30"],
        "2026-10-25T01:29:59Z",
        Some("2026-10-25T01:30:00Z"),
    );
    berlin(&["01:00-02:30"], "2026-10-25T01:30:00Z", None);
    berlin(night, "2026-10-25T04:59:59Z", Some("2026-10-25T05:00:00Z"));
}
