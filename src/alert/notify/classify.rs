//! What an attempt's end means: one table from answer or failure to a verdict.
//!
//! A row that is in no line of it: other 2xx are yes, other 3xx and 4xx and 5xx fall to the line
//! of their hundred, and anything else counts as passing, because trying again loses nothing.

use std::time::Duration;

use super::retry::MOST_ASKED;
use crate::config::ReceiverKind;
use crate::model::Timestamp;

/// What is to be done; a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The receiver has it.
    Ok,
    /// Try again.
    Transient,
    /// Try again, and leave the receiver alone until then.
    Throttled,
    /// It does not like this message: once more with the minimal body, then never.
    Message,
    /// Somebody has to change something: address, key, certificate.
    Configuration,
    /// The address will never work again.
    Gone,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 6] = [
        Self::Ok,
        Self::Transient,
        Self::Throttled,
        Self::Message,
        Self::Configuration,
        Self::Gone,
    ];

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Message => "message",
            Self::Configuration => "configuration",
            Self::Gone => "gone",
        }
    }
}

/// An HTTP answer, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The beginning of the body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No connection: name look-up, TCP, TLS. Nothing was sent.
    Connect(String),
    /// The connection broke, or time ran out, after the request may have been read.
    Lost(String),
    /// The certificate is not to be trusted.
    Certificate(String),
    /// The address is one that requests may not go to.
    Denied(String),
    /// Secrets, certificates or the address itself cannot be used.
    Setup(String),
}

/// What an attempt's end means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is to be done.
    pub class: Class,
    /// Whether the receiver may have accepted it although it did not say so.
    pub ambiguous: bool,
    /// What it asked for.
    pub pause: Option<Duration>,
    /// The status, if there was one.
    pub status: Option<u16>,
    /// For people. May hold what the receiver said: to be redacted before it is stored.
    pub why: String,
}

/// The verdict on an answer.
pub fn answer(kind: ReceiverKind, answer: &Answer, now: Timestamp) -> Verdict {
    let status = answer.status;
    let asked = || retry_after(answer, now);
    let (class, ambiguous, pause) = match status {
        // It says yes by status and no by body.
        200..=299 if kind == ReceiverKind::Slack && !slack_agrees(&answer.body) => {
            (Class::Message, true, None)
        }
        200..=299 => (Class::Ok, false, None),
        429 => (Class::Throttled, false, asked()),
        503 if answer.retry_after.is_some() => (Class::Throttled, false, asked()),
        408 | 425 => (Class::Transient, false, asked()),
        410 => (Class::Gone, false, None),
        401 | 403 | 404 | 300..=399 => (Class::Configuration, false, None),
        400..=499 | 501 | 505 => (Class::Message, false, None),
        // A gateway that has lost sight of what is behind it.
        502 | 504 => (Class::Transient, true, asked()),
        _ => (Class::Transient, false, asked()),
    };
    let said = String::from_utf8_lossy(&answer.body);
    let said = super::text::line(&said, 1_024);
    Verdict {
        class,
        ambiguous,
        pause,
        status: Some(status),
        why: if said.is_empty() || class == Class::Ok {
            format!("HTTP {status}")
        } else {
            format!("HTTP {status}: {said}")
        },
    }
}

/// The verdict on a failure.
pub fn failure(failure: &Failure) -> Verdict {
    let (class, ambiguous, why) = match failure {
        Failure::Connect(why) => (Class::Transient, false, format!("no connection: {why}")),
        Failure::Lost(why) => (Class::Transient, true, format!("no answer: {why}")),
        Failure::Certificate(why) => (Class::Configuration, false, format!("certificate: {why}")),
        Failure::Denied(why) | Failure::Setup(why) => (Class::Configuration, false, why.clone()),
    };
    Verdict {
        class,
        ambiguous,
        pause: None,
        status: None,
        why,
    }
}

/// Slack says `ok`; those who imitate it say so in JSON, or nothing at all.
fn slack_agrees(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("ok") {
        return true;
    }
    let json: Option<serde_json::Value> = serde_json::from_str(text).ok();
    json.is_some_and(|json| {
        json["ok"].as_bool().or(json["success"].as_bool()) != Some(false) && json.is_object()
    })
}

/// What the receiver asked for: seconds or a date in the header, else `retry_after` in the body.
fn retry_after(answer: &Answer, now: Timestamp) -> Option<Duration> {
    let header = answer.retry_after.as_deref().map(str::trim);
    let asked = match header {
        Some(text) => seconds(text).or_else(|| {
            let date = jiff::fmt::rfc2822::DateTimeParser::new()
                .parse_timestamp(text)
                .ok()?;
            Some(Timestamp::from_millis(date.as_millisecond()).since(now))
        }),
        None => {
            let json: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
            let asked = &json["retry_after"];
            asked
                .as_f64()
                .and_then(|number| seconds(&number.to_string()))
                .or_else(|| asked.as_str().and_then(seconds))
        }
    };
    asked.map(|asked| asked.min(MOST_ASKED))
}

fn seconds(text: &str) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    (0.0..=1e9)
        .contains(&number)
        .then(|| Duration::from_secs_f64(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-03-14T09:00:00Z".parse().unwrap()
    }

    fn verdict(status: u16, retry_after: Option<&str>, body: &str) -> Verdict {
        let given = Answer {
            status,
            retry_after: retry_after.map(str::to_owned),
            body: body.as_bytes().to_vec(),
        };
        answer(ReceiverKind::Generic, &given, now())
    }

    #[test]
    fn the_table() {
        for (statuses, class) in [
            (&[200, 201, 202, 204, 299][..], Class::Ok),
            (
                &[408, 425, 500, 502, 503, 504, 507, 520, 599, 100, 999],
                Class::Transient,
            ),
            (&[429], Class::Throttled),
            (
                &[400, 402, 405, 406, 409, 413, 414, 415, 422, 451, 501, 505],
                Class::Message,
            ),
            (
                &[401, 403, 404, 301, 302, 304, 307, 308],
                Class::Configuration,
            ),
            (&[410], Class::Gone),
        ] {
            for status in statuses {
                assert_eq!(verdict(*status, None, "").class, class, "{status}");
            }
        }
        assert_eq!(verdict(503, Some("3"), "").class, Class::Throttled);
        assert_eq!(verdict(400, None, "bad\u{7} <x>").why, "HTTP 400: bad <x>");
    }

    #[test]
    fn only_what_may_have_arrived_is_ambiguous() {
        for status in 100..600 {
            let ambiguous = matches!(status, 502 | 504);
            assert_eq!(verdict(status, None, "").ambiguous, ambiguous, "{status}");
        }
        let text = || "x".to_owned();
        for (given, class, ambiguous) in [
            (Failure::Connect(text()), Class::Transient, false),
            (Failure::Lost(text()), Class::Transient, true),
            (Failure::Certificate(text()), Class::Configuration, false),
            (Failure::Denied(text()), Class::Configuration, false),
            (Failure::Setup(text()), Class::Configuration, false),
        ] {
            let verdict = failure(&given);
            assert_eq!(
                (verdict.class, verdict.ambiguous),
                (class, ambiguous),
                "{given:?}"
            );
        }
    }

    #[test]
    fn retry_after_in_every_form() {
        let asked = |header, body| {
            verdict(429, header, body)
                .pause
                .map(|pause| pause.as_secs_f64())
        };
        assert_eq!(asked(Some("7"), ""), Some(7.0));
        assert_eq!(asked(Some(" 1.5 "), ""), Some(1.5));
        assert_eq!(asked(Some("Sat, 14 Mar 2026 09:00:30 GMT"), ""), Some(30.0));
        assert_eq!(asked(Some("Sat, 14 Mar 2026 08:00:30 GMT"), ""), Some(0.0));
        assert_eq!(asked(Some("86400"), ""), Some(3_600.0));
        assert_eq!(asked(None, r#"{"retry_after": 0.25}"#), Some(0.25));
        assert_eq!(asked(None, r#"{"retry_after": "12"}"#), Some(12.0));
        for nonsense in ["soon", "-1", "NaN", "inf", ""] {
            assert_eq!(asked(Some(nonsense), ""), None, "{nonsense}");
        }
        assert_eq!(asked(None, "<html>"), None);
    }

    #[test]
    fn slack_must_agree_in_words() {
        for (body, class) in [
            ("ok", Class::Ok),
            ("", Class::Ok),
            (r#"{"ok":true}"#, Class::Ok),
            (r#"{"success":true}"#, Class::Ok),
            (r#"{"ok":false,"error":"x"}"#, Class::Message),
            ("<html>Please sign in", Class::Message),
        ] {
            let given = Answer {
                status: 200,
                retry_after: None,
                body: body.into(),
            };
            let verdict = answer(ReceiverKind::Slack, &given, now());
            assert_eq!(verdict.class, class, "{body}");
        }
    }
}
