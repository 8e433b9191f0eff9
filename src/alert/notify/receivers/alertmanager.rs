//! The payload that Alertmanager sends to webhooks, version 4, for tools that read that.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::text;
use super::view::View;
use crate::alert::Episode;

/// Bytes of a body about many alerts.
const MOST: usize = 256 << 10;
/// An alert that has not ended, in Go's words.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

type Labels = BTreeMap<String, String>;

/// One entry of `alerts`.
struct Entry {
    labels: Labels,
    annotations: Labels,
    resolved: bool,
    starts: String,
    ends: String,
    link: String,
    fingerprint: String,
}

pub fn body(view: &View<'_>) -> Value {
    let entries: Vec<Entry> = if view.notice.storm.is_some() {
        vec![storm(view)]
    } else {
        entries(view)
    };
    let shown = fitting(&entries);
    let truncated = view.notice.truncated + entries.len() - shown
        + if view.notice.storm.is_some() {
            0
        } else {
            view.notice.episodes.len() - entries.len()
        };
    let entries = &entries[..shown];
    let group: Labels = if view.notice.group.is_empty() {
        let named =
            |name: &str| Some((name.to_owned(), entries.first()?.labels.get(name)?.clone()));
        ["alertname", "device"]
            .into_iter()
            .filter_map(named)
            .collect()
    } else {
        sound(&view.notice.group)
    };
    json!({
        "version": "4",
        "groupKey": view.key,
        "truncatedAlerts": truncated,
        "status": if view.resolved() { "resolved" } else { "firing" },
        "receiver": view.notice.receiver,
        "groupLabels": group,
        "commonLabels": in_all(entries.iter().map(|entry| &entry.labels)),
        "commonAnnotations": in_all(entries.iter().map(|entry| &entry.annotations)),
        "externalURL": "",
        "alerts": entries.iter().map(Entry::json).collect::<Vec<_>>(),
    })
}

impl Entry {
    fn json(&self) -> Value {
        json!({
            "status": if self.resolved { "resolved" } else { "firing" },
            "labels": self.labels,
            "annotations": self.annotations,
            "startsAt": self.starts,
            "endsAt": self.ends,
            "generatorURL": self.link,
            "fingerprint": self.fingerprint,
        })
    }
}

fn entries(view: &View<'_>) -> Vec<Entry> {
    let pairs = view.alerts.iter().zip(&view.notice.episodes);
    pairs
        .map(|(alert, episode)| {
            let mut annotations = Labels::new();
            if !view.brief {
                annotations.extend(
                    alert
                        .annotations
                        .iter()
                        .map(|(name, value)| (name.clone(), value.clone())),
                );
            }
            annotations.insert("summary".into(), alert.summary.clone());
            if !view.many() && !view.brief {
                annotations
                    .entry("description".into())
                    .or_insert_with(|| view.text.clone());
            }
            let annotations = sound(&annotations);
            // What the whole message says of its end is true of each: a group is closed as one.
            let ended = episode
                .ended
                .map(|ended| ended.at)
                .or(view.resolved().then_some(view.notice.at));
            Entry {
                labels: labels(episode, view.brief),
                annotations,
                resolved: ended.is_some(),
                starts: episode.fired_at.to_string(),
                ends: ended.map_or(ZERO_TIME.into(), |at| at.to_string()),
                link: alert.runbook.clone().unwrap_or_default(),
                // Of all labels also where some are left out: it is what the end is matched by.
                fingerprint: fingerprint(&labels(episode, false)),
            }
        })
        .collect()
}

/// A storm is one alert: its members come and go without being told.
fn storm(view: &View<'_>) -> Entry {
    let notice = view.notice;
    let mut labels = sound(&notice.group);
    labels.insert("alertname".into(), "tidegate_storm".into());
    labels.insert("storm".into(), text::line(&notice.key, 256));
    labels.insert("severity".into(), notice.severity.name().into());
    let mut annotations = Labels::from([("summary".into(), view.summary.clone())]);
    if !view.brief {
        annotations.insert("description".into(), view.text.clone());
    }
    let fingerprint = fingerprint(&labels);
    let since = notice.storm.as_ref().map_or(notice.at, |storm| storm.since);
    Entry {
        labels,
        annotations,
        resolved: view.resolved(),
        starts: since.to_string(),
        ends: if view.resolved() {
            notice.at.to_string()
        } else {
            ZERO_TIME.into()
        },
        link: String::new(),
        fingerprint,
    }
}

fn labels(episode: &Episode, brief: bool) -> Labels {
    let mut labels = Labels::new();
    if !brief {
        labels.extend(sound(&episode.tags));
        labels.extend(sound(&episode.labels));
        if let Some(kind) = &episode.device_type {
            labels.insert("type".into(), text::line(kind, 256));
        }
    }
    if let Some(field) = &episode.field {
        labels.insert("field".into(), text::line(field, 256));
    }
    labels.insert("alertname".into(), text::line(&episode.rule, 256));
    labels.insert("device".into(), text::line(&episode.device, 256));
    labels.insert("severity".into(), episode.severity.name().into());
    labels
}

/// With names that Prometheus takes.
fn sound(labels: &Labels) -> Labels {
    labels
        .iter()
        .take(64)
        .map(|(name, value)| {
            let mut name: String = text::cut(name, 64)
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect();
            if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
                name.insert(0, '_');
            }
            (name, text::lines(value, 1_024))
        })
        .collect()
}

/// How many of them fit.
fn fitting(entries: &[Entry]) -> usize {
    let mut size = 2_048;
    let fits = |entry: &&Entry| {
        size += entry.json().to_string().len() + 1;
        size <= MOST
    };
    entries
        .iter()
        .take_while(fits)
        .count()
        .max(entries.len().min(1))
}

/// What all of them have, with the same value.
fn in_all<'a>(mut all: impl Iterator<Item = &'a Labels>) -> Labels {
    let Some(mut common) = all.next().cloned() else {
        return Labels::new();
    };
    for labels in all {
        common.retain(|name, value| labels.get(name) == Some(value));
    }
    common
}

/// 16 hex digits of the labels, FNV-1a as in Prometheus. The level is left out: an alert that
/// changes it stays the same alert, or its end would not be found.
fn fingerprint(labels: &Labels) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0xff]) {
            hash ^= u64::from(*byte);
            hash = hash.wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (name, value) in labels.iter().filter(|(name, _)| *name != "severity") {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    format!("{hash:016x}")
}
