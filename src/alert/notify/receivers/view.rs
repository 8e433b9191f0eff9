//! One message, ready to be put in any receiver's format: its key, its texts, its alerts and the
//! data that templates see. [`View::brief`] is the same message cut to what no receiver can refuse.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::{sandbox, text};
use super::context::{Alert, kind_name, storm_data};
use crate::alert::{Notice, NoticeKind};
use crate::config::{ReceiverConfig, ReceiverKind};
use crate::model::{Severity, Timestamp};

/// One message.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// Whom it is for.
    pub config: &'a ReceiverConfig,
    /// What it is about.
    pub notice: &'a Notice,
    /// The installation.
    pub environment: &'a str,
    /// What the receiver knows the incident by.
    pub key: String,
    /// One line.
    pub summary: String,
    /// The rest, several lines.
    pub text: String,
    /// Its alerts, worst first.
    pub alerts: Vec<Alert>,
    /// What templates see, and what the generic payload carries.
    pub data: Map<String, Value>,
    /// Cut to the least.
    pub brief: bool,
    /// What is wrong with the templates involved.
    pub flaws: Vec<String>,
}

impl<'a> View<'a> {
    /// Of `notice`, for the receiver `config`.
    pub fn new(config: &'a ReceiverConfig, notice: &'a Notice, environment: &'a str) -> Self {
        let mut flaws = Vec::new();
        let alerts: Vec<Alert> = notice
            .episodes
            .iter()
            .map(|episode| Alert::new(episode, notice, &mut flaws))
            .collect();
        let mut view = Self {
            config,
            notice,
            environment,
            key: notice.key.clone(),
            summary: String::new(),
            text: String::new(),
            alerts,
            data: Map::new(),
            brief: false,
            flaws,
        };
        view.summary = view.built_in_summary();
        view.text = view.built_in_text();
        view.data = view.gather();
        view.apply_templates();
        if !view.flaws.is_empty() {
            view.data.insert("template_error".into(), json!(true));
        }
        view
    }

    /// The same with texts cut and everything left out that can be.
    pub fn brief(&self) -> Self {
        let mut brief = self.clone();
        brief.brief = true;
        brief.summary = text::cut(&self.summary, 120);
        brief.text = String::new();
        brief.alerts.truncate(1);
        for alert in &mut brief.alerts {
            alert.summary = text::cut(&alert.summary, 120);
            alert.description = None;
            alert.annotations.clear();
            strip(&mut alert.data);
        }
        strip(&mut brief.data);
        brief.data.insert("summary".into(), json!(brief.summary));
        brief.data.insert("text".into(), json!(""));
        brief
    }

    /// Whether nothing of it fires any more.
    pub fn resolved(&self) -> bool {
        self.notice.kind == NoticeKind::Resolved
    }

    /// Whether it stands for several alerts, also while there is one only.
    pub fn many(&self) -> bool {
        self.notice.storm.is_some() || self.notice.key.starts_with("group:")
    }

    /// The summary with what has happened before it, for where nothing else shows that.
    pub fn headline(&self) -> String {
        let level = self.notice.severity.name().to_uppercase();
        let prefix = match self.notice.kind {
            NoticeKind::Firing | NoticeKind::Update => level,
            NoticeKind::Repeat => format!("{level}, STILL FIRING"),
            NoticeKind::Resolved => "RESOLVED".into(),
            NoticeKind::Test => "TEST".into(),
        };
        format!("[{prefix}] {}", self.summary)
    }

    /// A page about what to do.
    pub fn runbook(&self) -> Option<&str> {
        self.alerts
            .iter()
            .find_map(|alert| alert.runbook.as_deref())
    }

    /// When what it is about began, or ended.
    pub fn happened(&self) -> Timestamp {
        let Some(worst) = self.notice.episodes.first().filter(|_| !self.many()) else {
            return self.notice.at;
        };
        match (self.resolved(), worst.ended) {
            (true, Some(ended)) => ended.at,
            (true, None) => self.notice.at,
            (false, _) => worst.fired_at,
        }
    }

    /// Its level: the worst among its alerts.
    pub fn severity(&self) -> Severity {
        self.notice.severity
    }

    /// The alerts as a list, at most as many as fit `most` bytes when `whole` puts them in.
    pub fn fit(&self, most: usize, whole: impl Fn(&[Alert], usize) -> Value) -> Value {
        let mut shown = self.alerts.len();
        loop {
            let left_out = self.notice.truncated + self.alerts.len() - shown;
            let body = whole(&self.alerts[..shown], left_out);
            let size = body.to_string().len();
            if size <= most || shown <= 1 {
                return body;
            }
            shown = (shown * most / size).clamp(1, shown - 1);
        }
    }

    /// What templates see: the worst alert's data, the message's own over it.
    fn gather(&self) -> Map<String, Value> {
        let notice = self.notice;
        let mut data = match self.alerts.first() {
            Some(alert) => alert.data.clone(),
            None => Map::new(),
        };
        let firing = self.alerts.iter().filter(|alert| !alert.resolved).count();
        let own = json!({
            "schema": 1,
            "type": kind_name(notice.kind),
            "event_id": notice.id,
            "seq": notice.sequence,
            "key": self.key,
            "environment": self.environment,
            "receiver": notice.receiver,
            "status": if self.resolved() { "resolved" } else { "firing" },
            "severity": notice.severity.name(),
            "at": notice.at,
            "summary": self.summary,
            "text": self.text,
            "group": {
                "key": self.key,
                "labels": notice.group,
                "firing": notice.storm.as_ref().map_or(firing, |storm| storm.firing),
                "resolved": self.alerts.len() - firing,
                "truncated": notice.truncated,
            },
            "storm": notice.storm.as_ref().map(storm_data),
        });
        if let Value::Object(own) = own {
            data.extend(own);
        }
        if self.many() {
            let all = self
                .alerts
                .iter()
                .map(|alert| Value::Object(alert.data.clone()));
            data.insert("alerts".into(), all.collect());
        }
        data
    }

    /// The receiver's own templates, over what is built in.
    fn apply_templates(&mut self) {
        for (key, source) in [("title", &self.config.title), ("text", &self.config.text)] {
            let Some(source) = source else { continue };
            let data = Value::Object(self.data.clone());
            // The operator may use a receiver's markup; what devices send may not.
            let data = if self.escapes() { escaped(data) } else { data };
            match sandbox::render(source, &data) {
                Ok(made) => {
                    if made.missing {
                        self.flaws.push(format!("{key} asks for what is not there"));
                    }
                    if key == "title" {
                        self.summary = text::line(&made.text, 1_024);
                        self.data.insert("summary".into(), json!(self.summary));
                    } else {
                        self.text = text::lines(&made.text, sandbox::MOST_OUTPUT);
                        self.data.insert("text".into(), json!(self.text));
                    }
                }
                Err(error) => self.flaws.push(format!("{key}: {error}")),
            }
        }
    }

    fn escapes(&self) -> bool {
        self.config.kind == ReceiverKind::Slack
    }

    /// Text in which nothing is markup to the receiver.
    pub(super) fn safe(&self, text: &str) -> String {
        if self.escapes() {
            escape(text)
        } else {
            text.to_owned()
        }
    }
}

/// Slack's markup begins with these three.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn escaped(value: Value) -> Value {
    match value {
        Value::String(own) => Value::String(escape(&own)),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(entries) => entries
            .into_iter()
            .map(|(key, value)| {
                // These are safe already.
                let done = key == "summary" || key == "text";
                let value = if done { value } else { escaped(value) };
                (key, value)
            })
            .collect(),
        other => other,
    }
}

/// Leaves out what grows.
fn strip(data: &mut Map<String, Value>) {
    for key in ["labels", "annotations", "alerts", "storm", "links"] {
        data.remove(key);
    }
    if let Some(Value::Object(device)) = data.get_mut("device") {
        device.remove("tags");
    }
    if let Some(Value::Object(group)) = data.get_mut("group") {
        group.remove("labels");
    }
    if let Some(Value::String(value)) = data.get_mut("value") {
        *value = text::cut(value, 120);
    }
}

/// `site = ams1, tier = 2`.
pub(super) fn listed(pairs: &BTreeMap<String, String>) -> String {
    let shown: Vec<String> = pairs
        .iter()
        .take(8)
        .map(|(name, value)| format!("{} = {}", text::line(name, 64), text::line(value, 64)))
        .collect();
    shown.join(", ")
}

/// A time for people.
pub fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    match text.get(..19) {
        Some(seconds) if text.ends_with('Z') => format!("{} UTC", seconds.replace('T', " ")),
        _ => text,
    }
}
