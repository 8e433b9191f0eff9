//! Notices for tests: a cold room that is too warm, alone, in a group and in a storm.

use std::collections::BTreeMap;

use serde_json::json;

use crate::alert::{EndReason, Ended, Episode, Notice, NoticeKind, Storm, Wishes};
use crate::model::{Severity, Timestamp};

/// A time on the day of the tests.
pub fn at(clock: &str) -> Timestamp {
    format!("2026-03-14T{clock}Z")
        .parse()
        .expect("tests write times that are times")
}

fn words(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// An episode that fires.
pub fn episode() -> Episode {
    Episode {
        key: "cold-room-high:cr-7".into(),
        id: "e1".into(),
        sequence: 3,
        rule: "cold-room-high".into(),
        name: "Cold room too warm".into(),
        kind: "threshold".into(),
        device: "cr-7".into(),
        device_type: Some("cold_room_probe".into()),
        tags: words(&[("site", "ams1")]),
        field: Some("temperature".into()),
        unit: Some("degC".into()),
        op: Some(">".into()),
        severity: Severity::Critical,
        value: Some(json!(11.2)),
        peak: Some(11.4),
        threshold: Some(10.0),
        clear: Some(8.0),
        started_at: at("09:13:00"),
        fired_at: at("09:15:00"),
        ended: None,
        labels: words(&[("team", "refrigeration")]),
        annotations: words(&[
            ("summary", "{{ device.name }} at {{ value }} {{ unit }}"),
            ("runbook", "https://wiki.example/cold"),
        ]),
        receivers: Vec::new(),
        wishes: Wishes::default(),
        flags: Vec::new(),
    }
}

/// Ends it.
pub fn resolved(episode: &mut Episode) {
    episode.ended = Some(Ended {
        at: at("09:19:00"),
        reason: EndReason::ConditionCleared,
    });
}

/// About one alert.
pub fn notice(kind: NoticeKind) -> Notice {
    let mut episode = episode();
    if kind == NoticeKind::Resolved {
        resolved(&mut episode);
    }
    Notice {
        id: "00112233445566778899aabbccddeeff".into(),
        receiver: "r".into(),
        key: format!("plant:{}", episode.key),
        sequence: 3,
        kind,
        severity: episode.severity,
        at: at("09:20:00"),
        episodes: vec![episode],
        truncated: 0,
        group: BTreeMap::new(),
        storm: None,
    }
}

/// About a group of five, three of which are shown.
pub fn group(kind: NoticeKind) -> Notice {
    let mut notice = notice(kind);
    let one = notice.episodes.remove(0);
    for device in ["cr-7", "cr-8", "cr-9"] {
        let mut member = one.clone();
        device.clone_into(&mut member.device);
        member.key = format!("cold-room-high:{device}");
        notice.episodes.push(member);
    }
    notice.key = "group:plant:r:rule=cold-room-high".into();
    notice.truncated = 2;
    notice.group = words(&[("rule", "cold-room-high")]);
    notice
}

/// About very many.
pub fn storm(kind: NoticeKind) -> Notice {
    let mut notice = group(kind);
    notice.key = "storm:r:cold-room-high".into();
    notice.storm = Some(Storm {
        total: 10_000,
        firing: 9_990,
        top: vec![("site".into(), "ams1".into(), 6_000)],
        since: at("09:10:00"),
    });
    notice
}
