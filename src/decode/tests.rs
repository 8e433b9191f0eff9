//! Whole messages: what is stored, refused or left out.
//!
//! Tables for the promises of the entry point, and a property: every message has an outcome, and
//! nothing panics, whatever the bytes.

use proptest::prelude::*;

use super::*;
use crate::config::streams::{Codec, NonFinite, PivotConfig, StreamConfig};
use crate::model::{FieldValue, QoS, Spooled, TimeSource, Timestamp};

const TOPIC: &str = "devices/d1/telemetry";

fn message(topic: &str, payload: &[u8]) -> Message {
    Message {
        topic: topic.as_bytes().to_vec().into(),
        payload: payload.to_vec().into(),
        cut_from: None,
        qos: QoS::AtLeastOnce,
        retain: false,
        dup: false,
        spooled: Spooled::No,
        received_at: Timestamp::from_millis(1_773_479_730_250),
    }
}

fn router(change: impl FnOnce(&mut StreamConfig)) -> Router {
    let mut config = StreamConfig::telemetry();
    change(&mut config);
    Router::build(&[config], Unrouted::DeadLetter).unwrap()
}

fn run(router: &Router, payload: &str) -> Decoded {
    decode(router, &message(TOPIC, payload.as_bytes()))
}

/// The names of the fields of each reading.
fn names(decoded: &Decoded) -> Vec<Vec<&str>> {
    let readings = decoded.readings.iter();
    readings
        .map(|r| r.fields.iter().map(|(n, _)| n.as_str()).collect())
        .collect()
}

fn reason(decoded: &Decoded) -> Option<Reason> {
    decoded.refused.as_ref().map(|r| r.reason)
}

#[test]
fn a_plain_reading() {
    let decoded = run(
        &router(|_| {}),
        r#"{"ts":1773479729120,"t":21.4,"timestamp":null}"#,
    );
    let reading = &decoded.readings[0];
    assert_eq!(reading.device.as_str(), "d1");
    assert_eq!(reading.timestamp.millis(), 1_773_479_729_120);
    assert_eq!(reading.time_source, TimeSource::Device);
    assert_eq!(reading.fields, [("t".into(), FieldValue::Double(21.4))]);
    assert_eq!(decoded.stream.unwrap().name(), "telemetry");
}

#[test]
fn messages_that_are_left_out() {
    let store = router(|c| c.retained = Retained::Store);
    let plain = router(|_| {});
    let retained = |payload: &[u8]| Message {
        retain: true,
        ..message(TOPIC, payload)
    };
    for (router, message, expected) in [
        (&plain, message(TOPIC, b""), IgnoreReason::EmptyPayload),
        (
            &plain,
            message(TOPIC, b" \r\n\0\0"),
            IgnoreReason::EmptyPayload,
        ),
        (&plain, retained(b"{\"t\":1}"), IgnoreReason::RetainedReplay),
        (&store, retained(b"{\"t\":1}"), IgnoreReason::RetainedReplay),
        (
            &plain,
            message("$SYS/uptime", b"1"),
            IgnoreReason::DollarTopic,
        ),
    ] {
        let decoded = decode(router, &message);
        assert_eq!(decoded.ignored, Some(expected));
        assert!(decoded.readings.is_empty() && decoded.refused.is_none());
    }
    assert_eq!(
        decode(&store, &retained(b"{\"ts\":1773479729,\"t\":1}"))
            .readings
            .len(),
        1
    );
}

#[test]
fn messages_that_are_refused() {
    let plain = router(|c| {
        c.limits.payload = crate::config::units::ByteSize(200);
        c.limits.readings = 3;
    });
    for (topic, payload, expected) in [
        ("other", "1", Reason::NoRoute),
        ("devices//telemetry", "{\"t\":1}", Reason::NoDeviceId),
        (TOPIC, "{}", Reason::NoValues),
        (TOPIC, "[]", Reason::NoValues),
        (TOPIC, "null", Reason::NoValues),
        (TOPIC, "{\"ts\":1773479729}", Reason::NoValues),
        (TOPIC, "{\"a_b\":1,\"a\":{\"b\":2}}", Reason::KeyCollision),
        (TOPIC, "{\"ts\":true,\"t\":1}", Reason::BadTime),
        (
            TOPIC,
            "{\"_type\":\"encrypted\",\"t\":1}",
            Reason::Unsupported,
        ),
        (TOPIC, "[{},{},{},{}]", Reason::TooManyReadings),
        (
            TOPIC,
            &format!("[{}]", " ".repeat(200)),
            Reason::PacketTooLarge,
        ),
    ] {
        let decoded = decode(&plain, &message(topic, payload.as_bytes()));
        assert_eq!(reason(&decoded), Some(expected), "{payload}");
        assert!(decoded.readings.is_empty() && decoded.ignored.is_none());
    }
    let collision = run(&plain, "{\"a_b\":1,\"a\":{\"b\":2}}")
        .refused
        .unwrap()
        .detail;
    assert!(collision.contains("`a_b` and `a/b`"), "{collision}");
    let bad_topic = Message {
        topic: b"s/\xff"[..].into(),
        ..message("", b"1")
    };
    assert_eq!(reason(&decode(&plain, &bad_topic)), Some(Reason::BadTopic));
}

#[test]
fn items_of_an_array_fare_one_by_one() {
    let decoded = run(
        &router(|_| {}),
        r#"[{"t":1},7,{"ts":"soon","t":2},{"t":3}]"#,
    );
    assert_eq!(names(&decoded), [["t"], ["t"]]);
    let refusal = decoded.refused.unwrap();
    assert_eq!(refusal.reason, Reason::NotAnObject);
    assert!(
        refusal
            .detail
            .starts_with("2 of 4 readings refused: item 1: a number")
    );
    assert!(
        refusal.detail.contains("item 2: `soon` at `ts`"),
        "{}",
        refusal.detail
    );
}

#[test]
fn readings_inside_a_payload_see_what_is_around_them() {
    let router = router(|c| {
        c.readings = "data".into();
        c.device = "{id}".into();
        c.tags = vec!["site".into()];
    });
    let decoded = run(
        &router,
        r#"{"id":"x","site":"N4","data":[{"t":1},{"t":2,"id":"y"}]}"#,
    );
    assert_eq!(names(&decoded), [["t"], ["t"]]);
    let devices: Vec<&str> = decoded.readings.iter().map(|r| r.device.as_str()).collect();
    assert_eq!(devices, ["x", "y"]);
    assert_eq!(decoded.readings[1].tags, [("site".into(), "N4".into())]);
    assert_eq!(
        reason(&run(&router, r#"{"id":"x"}"#)),
        Some(Reason::NoValues)
    );
}

#[test]
fn values_fallback_also_and_pivot() {
    let router = router(|c| {
        c.values = "object".into();
        c.also = vec!["rx/0/rssi".into()];
        c.fallback = "data".into();
        c.fields.rename.insert("rx/0/rssi".into(), "rssi".into());
    });
    let with = run(
        &router,
        r#"{"object":{"t":1},"data":"AQ==","rx":[{"rssi":-7}]}"#,
    );
    assert_eq!(names(&with), [["t", "rssi"]]);
    let without = run(&router, r#"{"data":"AQ==","rx":[{"rssi":-7}]}"#);
    assert_eq!(names(&without), [["data", "rssi"]]);
    let lone = run(&router, r#"{"object":5}"#);
    assert_eq!(names(&lone), [["object"]]);
    let inside = self::router(|c| c.also = vec!["a/b".into()]);
    assert_eq!(
        names(&run(&inside, r#"{"a":{"b":1,"c":2}}"#)),
        [["a_b", "a_c"]]
    );
    let pivot = self::router(|c| {
        c.pivot = Some(PivotConfig {
            path: "tags".into(),
            name: "n".into(),
            value: "v".into(),
        });
    });
    let decoded = run(
        &pivot,
        r#"{"g":1,"tags":[{"n":"a","v":1},{"n":"b"},{"n":"c","v":"x"}]}"#,
    );
    assert_eq!(names(&decoded), [["a", "c"]]);
    assert_eq!(
        reason(&run(&pivot, r#"{"tags":[{"v":1}]}"#)),
        Some(Reason::BadKey)
    );
    let twice = r#"{"tags":[{"n":"a","v":1},{"n":"a","v":2}]}"#;
    assert_eq!(reason(&run(&pivot, twice)), Some(Reason::KeyCollision));
}

#[test]
fn what_named_things_is_not_stored_again() {
    let router = router(|c| {
        c.device = "{id}".into();
        c.kind = "{meta/kind}".into();
        c.tags = vec!["meta/site".into()];
        c.static_tags.insert("fleet".into(), "a".into());
    });
    let text = r#"{"id":"x","meta":{"kind":"th","site":"N","extra":1},"ts":1773479729,"t":1}"#;
    let decoded = run(&router, text);
    assert_eq!(names(&decoded), [["meta_extra", "t"]]);
    let reading = &decoded.readings[0];
    assert_eq!(reading.kind.as_deref(), Some("th"));
    let tags = [("fleet", "a"), ("site", "N")].map(|(k, v)| (k.into(), v.into()));
    assert_eq!(reading.tags, tags);
}

#[test]
fn non_finite_values_can_be_left_out_with_a_flag() {
    let router = router(|c| c.non_finite = NonFinite::Drop);
    let decoded = run(&router, r#"{"a":nan,"b":2}"#);
    assert_eq!(names(&decoded), [["b"]]);
    assert_eq!(
        decoded.readings[0].flags.names().collect::<Vec<_>>(),
        ["non_finite"]
    );
    assert_eq!(
        reason(&run(&router, r#"{"a":nan}"#)),
        Some(Reason::NoValues)
    );
}

#[test]
fn too_large_a_document_is_refused_before_it_joins_a_batch() {
    let router = router(|c| c.limits.payload = crate::config::units::ByteSize::mib(8));
    let text = format!("{{\"img\":\"{}\"}}", "x".repeat(4 << 20));
    let refusal = run(&router, &text).refused.unwrap();
    assert_eq!(refusal.reason, Reason::TooLarge);
    assert!(refusal.detail.contains("4194304 bytes"));
}

proptest! {
    #[test]
    fn every_message_has_an_outcome(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[\\[\\]{}\":,0-9a-e.\\-nul tr\u{0}\\\\]{0,40}".prop_map(String::into_bytes),
        ],
        codec in prop::sample::select(vec![Codec::Json, Codec::JsonOrText, Codec::Text, Codec::Number]),
        gzip in any::<bool>(),
    ) {
        let router = router(|c| {
            c.codec = codec;
            c.non_finite = NonFinite::Drop;
            c.coerce_numbers = true;
            if matches!(codec, Codec::Text | Codec::Number) {
                c.time.path.0.clear();
            }
            if gzip {
                c.compression = Compression::Gzip;
            }
        });
        let decoded = decode(&router, &message(TOPIC, &bytes));
        prop_assert!(
            !decoded.readings.is_empty() || decoded.refused.is_some() || decoded.ignored.is_some()
        );
        for reading in &decoded.readings {
            prop_assert!(!reading.fields.is_empty());
            let mut names: Vec<&str> = reading.fields.iter().map(|(n, _)| n.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), reading.fields.len());
        }
    }
}
