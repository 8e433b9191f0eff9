//! Routing, subscriptions, and what an operator is told about a bad stream.
//!
//! Each mistake is one change to a good stream, so that a message cannot come from another rule.

use super::*;
use crate::config::streams::{Codec, PivotConfig};

fn stream(name: &str, topic: &str) -> StreamConfig {
    StreamConfig {
        name: name.into(),
        topics: vec![topic.into()],
        ..StreamConfig::default()
    }
}

fn ignoring(name: &str, topic: &str) -> StreamConfig {
    StreamConfig {
        action: Action::Ignore,
        ..stream(name, topic)
    }
}

fn build(streams: &[StreamConfig]) -> Result<Router, Vec<StreamProblem>> {
    Router::build(streams, Unrouted::Ignore)
}

#[test]
fn the_first_stream_in_file_order_takes_a_topic() {
    let th = StreamConfig {
        template: "s/th-{deviceId}".into(),
        ..stream("th", "s/+")
    };
    let router = build(&[th, stream("dev", "$share/g/x/dev"), stream("all", "s/#")]).unwrap();
    let name = |topic: &str| router.route(topic).map(|s| s.name().to_owned());
    assert_eq!(name("s/th-1").as_deref(), Some("th"));
    assert_eq!(name("s/pm-1").as_deref(), Some("all"));
    assert_eq!(name("x/dev").as_deref(), Some("dev"));
    assert_eq!(name("$SYS/x"), None);
}

#[test]
fn many_streams_are_asked_in_file_order_too() {
    let mut streams: Vec<StreamConfig> = (0..20)
        .map(|n| stream(&format!("s{n}"), &format!("site{n}/+/x")))
        .collect();
    streams.insert(3, ignoring("debug", "+/debug/#"));
    streams.push(ignoring("rest", "#"));
    let router = build(&streams).unwrap();
    for (topic, expected) in [
        ("site1/a/x", Some("s1")),
        ("site1/debug/x", Some("s1")),
        ("site7/debug/x", Some("debug")),
        ("site7/a/y", Some("rest")),
        ("elsewhere", Some("rest")),
        ("$SYS/a", None),
    ] {
        assert_eq!(router.route(topic).map(|s| s.name()), expected, "{topic}");
    }
}

#[test]
fn the_smallest_covering_set_is_subscribed() {
    for (streams, expected) in [
        (
            vec![stream("a", "s/dev18"), stream("b", "s/+")],
            &["s/+"][..],
        ),
        (vec![stream("a", "s/+"), stream("b", "s/+")], &["s/+"]),
        (vec![stream("a", "$share/g/s/+")], &["$share/g/s/+"]),
        (vec![ignoring("i", "s/+/set"), stream("a", "s/#")], &["s/#"]),
        (
            vec![ignoring("i", "+/+/set"), stream("a", "s/+/+")],
            &["s/+/+"],
        ),
        (vec![ignoring("i", "cmnd/#")], &[]),
        (
            vec![
                stream("a", "s/+/a"),
                stream("b", "s/x/+"),
                ignoring("i", "s/#"),
            ],
            &["s/#"],
        ),
    ] {
        assert_eq!(build(&streams).unwrap().filters(), expected);
    }
}

#[test]
fn partly_overlapping_filters_are_refused_with_the_way_out() {
    let problems = build(&[stream("a", "s/+/a"), stream("b", "s/x/+")]).unwrap_err();
    assert_eq!((problems.len(), problems[0].stream), (1, 1));
    let message = &problems[0].message;
    assert!(
        ["`s/x/+`", "`s/+/a`", "`s/#`"]
            .iter()
            .all(|part| message.contains(part)),
        "{message}"
    );
    let problems = build(&[stream("a", "s/+"), stream("b", "$share/g/s/x")]).unwrap_err();
    assert!(problems[0].message.contains("one group"));
}

#[test]
fn the_shipped_stream_is_good() {
    let router = build(&[StreamConfig::telemetry()]).unwrap();
    assert_eq!(router.filters(), ["devices/+/telemetry"]);
    assert_eq!(router.streams()[0].index(), 0);
}

/// One change to a good stream, and the problem it makes.
fn problem(change: impl FnOnce(&mut StreamConfig)) -> (String, String) {
    let mut config = StreamConfig {
        template: "s/{deviceId}".into(),
        ..stream("good", "s/+")
    };
    change(&mut config);
    let problems = build(&[config]).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    (problems[0].key.clone(), problems[0].message.clone())
}

#[test]
fn each_mistake_is_named_with_its_key() {
    type Change = fn(&mut StreamConfig);
    let cases: [(Change, &str, &str); 30] = [
        (|c| c.name = "Über".into(), "name", "a-z"),
        (|c| c.name.clear(), "name", "needs a name"),
        (
            |c| c.topics = vec!["s/#/x".into()],
            "topics[0]",
            "last level",
        ),
        (
            |c| c.topics = vec!["s/a+".into()],
            "topics[0]",
            "stand alone",
        ),
        (
            |c| c.topics = vec!["s/+/x".into()],
            "topics[0]",
            "fewer levels",
        ),
        (
            |c| c.topics = vec!["s/#".into()],
            "topics[0]",
            "deeper topics",
        ),
        (
            |c| c.template = "s/{deviceId".into(),
            "template",
            "not closed",
        ),
        (|c| c.device.clear(), "device", "is needed"),
        (|c| c.device = "{a//b}".into(), "device", "empty part"),
        (|c| c.kind = "x}".into(), "type", "doubled"),
        (
            |c| c.time.zone = "Europe/Atlantis".into(),
            "time.zone",
            "IANA",
        ),
        (
            |c| c.time.earliest = "long ago".into(),
            "time.earliest",
            "no date",
        ),
        (
            |c| c.time.path.0 = vec![String::new()],
            "time.path[0]",
            "empty path",
        ),
        (|c| c.values = "a..b".into(), "values", "empty part"),
        (|c| c.also = vec!["a/".into()], "also[0]", "empty part"),
        (
            |c| c.tags = vec!["type".into()],
            "tags: type",
            "place in `metadata`",
        ),
        (
            |c| c.tags = vec!["a/x".into(), "b/x".into()],
            "tags: b/x",
            "also given",
        ),
        (
            |c| drop(c.static_tags.insert("a.b".into(), "1".into())),
            "static_tags.a.b",
            "dot",
        ),
        (|c| c.codec = Codec::Bool, "booleans", "needs its words"),
        (
            |c| (c.codec, c.device) = (Codec::Number, "{id}".into()),
            "device",
            "no `{id}`",
        ),
        (
            |c| (c.codec, c.values) = (Codec::Text, "v".into()),
            "values",
            "without paths",
        ),
        (
            |c| {
                c.pivot = Some(PivotConfig {
                    path: "tags".into(),
                    name: String::new(),
                    value: "v".into(),
                });
            },
            "pivot.name",
            "empty path",
        ),
        (
            |c| drop(c.fields.rename.insert("a".into(), "_id".into())),
            "fields.rename.a",
            "cannot be a field name",
        ),
        (
            |c| {
                c.fields.rename.insert("a".into(), "x".into());
                c.fields.rename.insert("b".into(), "x".into());
            },
            "fields.rename.b",
            "share a name",
        ),
        (
            |c| {
                c.fields.rename.insert("a".into(), "x".into());
                c.fields.exclude.push("a".into());
            },
            "fields.rename.a",
            "also excluded",
        ),
        (
            |c| {
                c.fields.include.push("a".into());
                c.fields.exclude.push("a".into());
            },
            "fields.include",
            "also excluded",
        ),
        (|c| c.limits.depth = 99, "limits.depth", "100 deep"),
        (|c| c.limits.readings = 0, "limits.readings", "refuse every"),
        (
            |c| c.write_concern.w = "0".into(),
            "write_concern.w",
            "from 1",
        ),
        (
            |c| c.write_concern.w = "most".into(),
            "write_concern.w",
            "majority",
        ),
    ];
    for (change, key, part) in cases {
        let (found, message) = problem(change);
        assert_eq!(found, key, "{message}");
        assert!(message.contains(part), "{key}: {message}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let bad = StreamConfig {
        time: crate::config::streams::TimeConfig {
            zone: "Nowhere".into(),
            ..Default::default()
        },
        ..StreamConfig::default()
    };
    let problems = build(&[bad, stream("x", "a"), stream("x", "b")]).unwrap_err();
    let keys: Vec<(usize, &str)> = problems
        .iter()
        .map(|p| (p.stream, p.key.as_str()))
        .collect();
    assert_eq!(
        keys,
        [(0, "name"), (0, "topics"), (0, "time.zone"), (2, "name")]
    );
    assert!(problems[3].to_string().starts_with("streams[2].name: `x`"));
}
