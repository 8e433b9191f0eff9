//! What each receiver is sent: shapes, limits, and that neither a device nor a template can do harm.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::testing::{episode, group, notice, resolved, storm};
use super::*;
use crate::alert::{Notice, NoticeKind};
use crate::model::Severity;

fn config(kind: ReceiverKind) -> ReceiverConfig {
    ReceiverConfig {
        name: "r".into(),
        kind,
        topic: Some("alarms".into()),
        body: Some(json!({
            "msg": "{{ summary }} @ {{ device.id }}", "deep": [{ "level": "{{ severity }}", "n": 1 }],
        })),
        ..ReceiverConfig::default()
    }
}

fn sent(kind: ReceiverKind, notice: &Notice) -> Value {
    let rendered = render(&config(kind), notice, "plant");
    assert_eq!(rendered.flaws, Vec::<String>::new());
    serde_json::from_str(&rendered.body).unwrap()
}

/// Every kind of notice, once alone, once as a group, once as a storm.
fn all() -> Vec<Notice> {
    let mut all = Vec::new();
    for kind in NoticeKind::ALL {
        for make in [notice as fn(NoticeKind) -> Notice, group, storm] {
            all.push(make(kind));
        }
    }
    all
}

#[test]
fn generic_carries_the_whole_context() {
    let body = sent(ReceiverKind::Generic, &notice(NoticeKind::Firing));
    assert_eq!(body["type"], "alert.firing");
    assert_eq!(body["timestamp"], "2026-03-14T09:20:00.000Z");
    let data = &body["data"];
    for (pointer, value) in [
        ("/schema", json!(1)),
        ("/event_id", json!("00112233445566778899aabbccddeeff")),
        ("/key", json!("plant:cold-room-high:cr-7")),
        ("/seq", json!(3)),
        ("/status", json!("firing")),
        ("/severity", json!("critical")),
        ("/reason", json!(null)),
        ("/rule/id", json!("cold-room-high")),
        ("/rule/name", json!("Cold room too warm")),
        ("/device/id", json!("cr-7")),
        ("/device/type", json!("cold_room_probe")),
        ("/device/tags/site", json!("ams1")),
        ("/field", json!("temperature")),
        ("/unit", json!("degC")),
        ("/op", json!(">")),
        ("/value", json!(11.2)),
        ("/peak", json!(11.4)),
        ("/threshold", json!(10.0)),
        ("/clear", json!(8.0)),
        ("/started_at", json!("2026-03-14T09:13:00.000Z")),
        ("/fired_at", json!("2026-03-14T09:15:00.000Z")),
        ("/ended_at", json!(null)),
        ("/duration", json!(300)),
        ("/labels/team", json!("refrigeration")),
        ("/annotations/summary", json!("cr-7 at 11.2 degC")),
        ("/links/runbook", json!("https://wiki.example/cold")),
        ("/summary", json!("cr-7 at 11.2 degC")),
        ("/group/firing", json!(1)),
        ("/storm", json!(null)),
    ] {
        assert_eq!(data.pointer(pointer), Some(&value), "{pointer} in {data:#}");
    }
    assert!(data.get("alerts").is_none());

    let body = sent(ReceiverKind::Generic, &notice(NoticeKind::Resolved));
    assert_eq!(body["type"], "alert.resolved");
    assert_eq!(body["data"]["status"], "resolved");
    assert_eq!(body["data"]["reason"], "condition_cleared");
    assert_eq!(body["data"]["ended_at"], "2026-03-14T09:19:00.000Z");
    assert_eq!(body["data"]["duration"], 240);

    let body = sent(ReceiverKind::Generic, &group(NoticeKind::Update));
    assert_eq!(body["type"], "alert.updated");
    assert_eq!(body["data"]["alerts"].as_array().unwrap().len(), 3);
    assert_eq!(body["data"]["group"]["labels"]["rule"], "cold-room-high");
    assert_eq!(body["data"]["group"]["truncated"], 2);
    let body = sent(ReceiverKind::Generic, &storm(NoticeKind::Firing));
    assert_eq!(body["data"]["storm"]["total"], 10_000);
    assert_eq!(body["data"]["storm"]["top"][0]["value"], "ams1");
}

#[test]
fn whole_numbers_too_large_for_a_double_are_texts() {
    let mut one = notice(NoticeKind::Firing);
    one.episodes[0].value = Some(json!(9_007_199_254_740_993_i64));
    let body = sent(ReceiverKind::Generic, &one);
    assert_eq!(body["data"]["value"], "9007199254740993");
}

#[test]
fn pagerduty_triggers_and_resolves_by_the_same_key() {
    let firing = sent(ReceiverKind::Pagerduty, &notice(NoticeKind::Firing));
    assert_eq!(firing["event_action"], "trigger");
    assert_eq!(firing["dedup_key"], "plant:cold-room-high:cr-7");
    assert_eq!(firing["payload"]["severity"], "critical");
    assert_eq!(firing["payload"]["source"], "cr-7");
    assert_eq!(firing["payload"]["component"], "temperature");
    assert_eq!(firing["payload"]["timestamp"], "2026-03-14T09:15:00.000Z");
    assert_eq!(firing["payload"]["custom_details"]["value"], 11.2);
    assert_eq!(firing["links"][0]["href"], "https://wiki.example/cold");
    let end = sent(ReceiverKind::Pagerduty, &notice(NoticeKind::Resolved));
    assert_eq!(
        end,
        json!({ "event_action": "resolve", "dedup_key": firing["dedup_key"] })
    );
    let many = sent(ReceiverKind::Pagerduty, &group(NoticeKind::Firing));
    assert_eq!(many["payload"]["source"], "plant");
    assert_eq!(
        many["payload"]["custom_details"]["alerts"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn slack_cannot_be_made_to_call_anybody() {
    let mut one = notice(NoticeKind::Firing);
    one.episodes[0].device = "<!channel> & <@U1>".into();
    one.episodes[0].annotations.clear();
    let body = sent(ReceiverKind::Slack, &one).to_string();
    assert!(!body.contains('<') && !body.contains("& "), "{body}");
    assert!(
        body.contains("&lt;!channel&gt; &amp; &lt;@U1&gt;"),
        "{body}"
    );
    // Also where the operator's own template uses Slack's markup.
    let mut own = config(ReceiverKind::Slack);
    own.title = Some("<https://h|{{ device.id }}>".into());
    own.text = Some("{{ summary }}".into());
    let body: Value = serde_json::from_str(&render(&own, &one, "e").body).unwrap();
    let text = "<https://h|&lt;!channel&gt; &amp; &lt;@U1&gt;>";
    assert_eq!(body["text"], format!("[CRITICAL] {text}"));
    assert_eq!(body["attachments"][0]["text"], text);
    let end = sent(ReceiverKind::Slack, &notice(NoticeKind::Resolved));
    assert_eq!(end["attachments"][0]["color"], "#2eb67d");
    assert!(
        end["attachments"][0]["text"]
            .as_str()
            .unwrap()
            .contains("Ended after 4m")
    );
}

#[test]
fn alertmanager_fields_follow_the_format() {
    let firing = sent(ReceiverKind::Alertmanager, &notice(NoticeKind::Firing));
    assert_eq!(firing["version"], "4");
    assert_eq!(firing["status"], "firing");
    assert_eq!(firing["truncatedAlerts"], 0);
    assert_eq!(
        firing["groupLabels"],
        json!({ "alertname": "cold-room-high", "device": "cr-7" })
    );
    let alert = &firing["alerts"][0];
    assert_eq!(alert["status"], "firing");
    assert_eq!(alert["labels"]["alertname"], "cold-room-high");
    assert_eq!(alert["labels"]["severity"], "critical");
    assert_eq!(alert["labels"]["site"], "ams1");
    assert_eq!(alert["startsAt"], "2026-03-14T09:15:00.000Z");
    assert_eq!(alert["endsAt"], "0001-01-01T00:00:00Z");
    assert_eq!(firing["commonLabels"], alert["labels"]);
    let print = alert["fingerprint"].as_str().unwrap();
    assert!(
        print.len() == 16 && print.chars().all(|c| c.is_ascii_hexdigit()),
        "{print}"
    );

    let mut end = notice(NoticeKind::Resolved);
    end.episodes[0].severity = Severity::Warning;
    let end = sent(ReceiverKind::Alertmanager, &end);
    assert_eq!(end["status"], "resolved");
    assert_eq!(end["alerts"][0]["endsAt"], "2026-03-14T09:19:00.000Z");
    assert_eq!(
        end["alerts"][0]["fingerprint"], print,
        "whatever the level was"
    );

    let mut mixed = group(NoticeKind::Update);
    resolved(&mut mixed.episodes[2]);
    let mixed = sent(ReceiverKind::Alertmanager, &mixed);
    assert_eq!(mixed["status"], "firing");
    assert_eq!(mixed["alerts"][2]["status"], "resolved");
    assert_eq!(mixed["truncatedAlerts"], 2);
    assert!(mixed["commonLabels"].get("device").is_none());

    let storm = sent(ReceiverKind::Alertmanager, &storm(NoticeKind::Firing));
    assert_eq!(storm["alerts"].as_array().unwrap().len(), 1);
    for body in [&firing, &end, &mixed, &storm] {
        assert!(body["alerts"].is_array());
        for map in ["groupLabels", "commonLabels", "commonAnnotations"] {
            let map = body[map].as_object().unwrap();
            assert!(map.values().all(Value::is_string), "{map:?}");
        }
    }
}

#[test]
fn opsgenie_and_ntfy_keep_to_their_limits() {
    let mut one = notice(NoticeKind::Firing);
    one.episodes[0]
        .annotations
        .insert("summary".into(), "温".repeat(900));
    for number in 0..200 {
        let value = "v".repeat(300);
        one.episodes[0].labels.insert(format!("l{number}"), value);
    }
    let body = sent(ReceiverKind::Opsgenie, &one);
    assert_eq!(body["message"].as_str().unwrap().chars().count(), 130);
    assert_eq!(body["priority"], "P1");
    assert_eq!(body["alias"], "plant:cold-room-high:cr-7");
    let details = body["details"].as_object().unwrap();
    assert!(details.values().all(Value::is_string));
    assert!(body["details"].to_string().len() < 9_000);
    let body = sent(ReceiverKind::Ntfy, &one);
    assert!(body["title"].as_str().unwrap().len() <= 250);
    assert_eq!(
        (&body["priority"], &body["topic"]),
        (&json!(5), &json!("alarms"))
    );
    assert_eq!(body["click"], "https://wiki.example/cold");
    let end = sent(ReceiverKind::Ntfy, &notice(NoticeKind::Resolved));
    assert_eq!(
        (&end["priority"], &end["tags"][0]),
        (&json!(2), &json!("white_check_mark"))
    );
}

#[test]
fn a_template_stays_json_whatever_a_device_sends() {
    let mut one = notice(NoticeKind::Firing);
    one.episodes[0].device = "\"}]{{ 1/0 }}\u{202e}".into();
    let body = sent(ReceiverKind::Template, &one);
    assert_eq!(body["msg"], "\"}]{{ 1/0 }} at 11.2 degC @ \"}]{{ 1/0 }}");
    assert_eq!(body["deep"], json!([{ "level": "critical", "n": 1 }]));
}

#[test]
fn a_bad_template_never_keeps_a_message_back() {
    let mut one = notice(NoticeKind::Firing);
    let annotations = &mut one.episodes[0].annotations;
    annotations.insert("summary".into(), "{{ value | nofilter }}".into());
    annotations.insert("why".into(), "{{ device.tags.nowhere }}".into());
    let mut own = config(ReceiverKind::Generic);
    own.title = Some("{% for %}".into());
    let rendered = render(&own, &one, "e");
    let body: Value = serde_json::from_str(&rendered.body).unwrap();
    assert_eq!(
        body["data"]["summary"],
        "Cold room too warm: cr-7 temperature 11.2 degC"
    );
    assert_eq!(body["data"]["annotations"]["why"], "n/a");
    assert_eq!(body["data"]["template_error"], true);
    assert_eq!(rendered.flaws.len(), 3, "{:?}", rendered.flaws);
}

#[test]
fn every_kind_renders_everything_and_the_minimal_body_is_small() {
    for kind in ReceiverKind::ALL {
        for mut notice in all() {
            for episode in &mut notice.episodes {
                for number in 0..30 {
                    let value = "x".repeat(500);
                    episode.labels.insert(format!("l{number}"), value.clone());
                    episode.annotations.insert(format!("a{number}"), value);
                }
            }
            let rendered = render(&config(kind), &notice, "plant");
            serde_json::from_str::<Value>(&rendered.body).unwrap();
            assert!(
                rendered.body.len() < 300 << 10,
                "{kind:?} {}",
                rendered.body.len()
            );
            if let Some(minimal) = rendered.minimal {
                serde_json::from_str::<Value>(&minimal).unwrap();
                assert!(minimal.len() < 3_000, "{kind:?} {minimal}");
                assert!(minimal.len() < rendered.body.len());
            }
            // Again gives the same, to the byte.
            assert_eq!(render(&config(kind), &notice, "plant").body, rendered.body);
        }
    }
}

#[test]
fn many_alerts_are_cut_from_the_end_and_counted() {
    let mut many = group(NoticeKind::Firing);
    many.episodes = (0..1_000)
        .map(|number| {
            let mut one = episode();
            one.device = format!("cr-{number}");
            one.annotations = BTreeMap::from([("text".into(), "y".repeat(1_000))]);
            one
        })
        .collect();
    for kind in [ReceiverKind::Generic, ReceiverKind::Alertmanager] {
        let body = sent(kind, &many);
        let (shown, left_out) = match kind {
            ReceiverKind::Generic => (
                body["data"]["alerts"].as_array().unwrap().len(),
                body["data"]["group"]["truncated"].as_u64().unwrap(),
            ),
            _ => (
                body["alerts"].as_array().unwrap().len(),
                body["truncatedAlerts"].as_u64().unwrap(),
            ),
        };
        assert!(shown > 20 && shown < 1_000, "{shown}");
        assert_eq!(shown as u64 + left_out, 1_002);
        assert!(body.to_string().len() <= 256 << 10);
    }
}
