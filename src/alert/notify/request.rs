//! From a row to the request that is made: address, method, headers, exact bytes. Secrets are put
//! in here, at the last moment, and nowhere else. Pure.

use reqwest::Url;
use serde_json::{Map, Value};

use super::row::Row;
use super::sign;
use crate::alert::NoticeKind;
use crate::config::{ReceiverKind, Secret};
use crate::model::Timestamp;

/// A receiver's secrets, read.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// What it speaks.
    pub kind: ReceiverKind,
    /// Where requests go.
    pub url: Secret,
    /// Signing secrets, the present one first.
    pub signing: Vec<Secret>,
    /// Until when the second one signs.
    pub previous_until: Option<Timestamp>,
    /// Bearer token or API key.
    pub token: Option<Secret>,
    /// PagerDuty's integration key.
    pub routing_key: Option<Secret>,
    /// Further headers.
    pub headers: Vec<(String, Secret)>,
}

/// A request, ready to be made.
#[derive(Clone, PartialEq)]
pub struct Outgoing {
    /// Where.
    pub url: Url,
    /// Name and value.
    pub headers: Vec<(String, String)>,
    /// What.
    pub body: String,
}

/// Why no request can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The address.
    #[error("the url is not an address")]
    Url,
    /// A signing secret.
    #[error("the signing secret is not whsec_ and base64")]
    Secret,
    /// The stored body.
    #[error("the stored body is not a JSON object")]
    Body,
}

/// The webhook id of a row: the same in every attempt, another one for the minimal body, because no
/// id is ever sent with two bodies.
pub fn webhook_id(row: &Row) -> String {
    let suffix = if row.use_minimal { "m" } else { "" };
    format!("msg_{}{suffix}", row.id)
}

/// The request for `row` at `now`.
///
/// # Errors
/// Where the configuration or the row is not what it was checked to be.
pub fn outgoing(row: &Row, secrets: &Secrets, now: Timestamp) -> Result<Outgoing, Unusable> {
    let stored = match &row.minimal {
        Some(minimal) if row.use_minimal => minimal,
        _ => &row.body,
    };
    let (url, body) = completed(stored, row, secrets)?;
    let mut headers: Vec<(String, String)> = Vec::new();
    let mut header = |name: &str, value: String| headers.push((name.to_owned(), value));
    header("content-type", "application/json".into());
    header(
        "user-agent",
        concat!("tidegate/", env!("CARGO_PKG_VERSION")).into(),
    );
    let id = webhook_id(row);
    if secrets.kind.signs() {
        let seconds = now.millis().div_euclid(1_000);
        header(sign::headers::ID, id.clone());
        header(sign::headers::TIMESTAMP, seconds.to_string());
        let keys = keys(secrets, now)?;
        if !keys.is_empty() {
            let signature = sign::sign(&keys, &id, seconds, body.as_bytes());
            header(sign::headers::SIGNATURE, signature);
        }
    }
    if let Some(token) = &secrets.token {
        let scheme = match secrets.kind {
            ReceiverKind::Opsgenie => "GenieKey",
            _ => "Bearer",
        };
        header("authorization", format!("{scheme} {}", token.expose()));
    }
    for (name, value) in &secrets.headers {
        header(name, value.expose().to_owned());
    }
    Ok(Outgoing { url, headers, body })
}

/// What is stored, with what a kind needs in another place: PagerDuty's key in the body, and
/// Opsgenie's alias in the address, where an alert is closed.
fn completed(stored: &str, row: &Row, secrets: &Secrets) -> Result<(Url, String), Unusable> {
    let mut url = Url::parse(secrets.url.expose()).map_err(|_| Unusable::Url)?;
    let closes = row.notice.kind == NoticeKind::Resolved;
    match secrets.kind {
        ReceiverKind::Pagerduty => {
            let mut event = object(stored)?;
            let key = secrets.routing_key.as_ref().map_or("", Secret::expose);
            event.insert("routing_key".into(), key.into());
            Ok((url, Value::Object(event).to_string()))
        }
        ReceiverKind::Opsgenie if closes => {
            let mut close = object(stored)?;
            let alias = close.remove("alias").unwrap_or_default();
            let alias = alias.as_str().ok_or(Unusable::Body)?;
            url.path_segments_mut()
                .map_err(|()| Unusable::Url)?
                .pop_if_empty()
                .push(alias)
                .push("close");
            url.query_pairs_mut().append_pair("identifierType", "alias");
            Ok((url, Value::Object(close).to_string()))
        }
        _ => Ok((url, stored.to_owned())),
    }
}

fn object(stored: &str) -> Result<Map<String, Value>, Unusable> {
    serde_json::from_str(stored).map_err(|_| Unusable::Body)
}

fn keys(secrets: &Secrets, now: Timestamp) -> Result<Vec<sign::Key>, Unusable> {
    let previous = secrets.previous_until.is_none_or(|until| now < until);
    let taken = if previous { usize::MAX } else { 1 };
    secrets
        .signing
        .iter()
        .take(taken)
        .map(|secret| sign::Key::parse(secret.expose()).map_err(|_| Unusable::Secret))
        .collect()
}

impl Secrets {
    /// `text` without any of the secrets: a receiver may repeat what it was sent.
    pub fn redact(&self, text: &str) -> String {
        let url = self.url.expose();
        let parsed = Url::parse(url).ok();
        // The host may be shown, what follows it may not.
        let path = parsed.as_ref().map_or("", |url| url.path());
        let query = parsed.as_ref().and_then(|url| url.query()).unwrap_or("");
        let mut hidden: Vec<&str> = self
            .signing
            .iter()
            .chain(&self.token)
            .chain(&self.routing_key)
            .chain(self.headers.iter().map(|(_, value)| value))
            .map(Secret::expose)
            .filter(|secret| secret.len() >= 4)
            .collect();
        // Short words of an address are no secrets, and without them there is nothing to read.
        let parts = path.split('/').chain(query.split(['&', '=']));
        let parts = parts.chain([url, path, query]);
        hidden.extend(parts.filter(|part| part.len() >= 8));
        let mut text = text.to_owned();
        hidden.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in hidden {
            text = text.replace(secret, "***");
        }
        text
    }

    /// The host that requests go to.
    pub fn host(&self) -> String {
        Url::parse(self.url.expose())
            .ok()
            .and_then(|url| url.host_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::receivers::render;
    use super::super::row::row;
    use super::super::testing::{at, notice};
    use super::*;
    use crate::config::ReceiverConfig;

    fn secrets(kind: ReceiverKind) -> Secrets {
        Secrets {
            kind,
            url: Secret::new("https://hooks.example/services/T0/B0/s3cr3t-path?key=q-s3cr3t"),
            signing: vec![
                Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
                Secret::new("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"),
            ],
            previous_until: Some(at("12:00:00")),
            token: Some(Secret::new("t0ken-s3cr3t")),
            routing_key: None,
            headers: vec![("X-Key".into(), Secret::new("h-s3cr3t"))],
        }
    }

    fn made(kind: ReceiverKind, notice_kind: NoticeKind) -> Row {
        let config = ReceiverConfig {
            kind,
            ..ReceiverConfig::default()
        };
        let notice = notice(notice_kind);
        let rendered = render(&config, &notice, "plant");
        row(&notice, rendered, None, notice.at)
    }

    fn header<'a>(request: &'a Outgoing, name: &str) -> Option<&'a str> {
        let found = request.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    #[test]
    fn an_attempt_has_its_own_time_and_signature_but_the_id_and_body_of_the_row() {
        let row = made(ReceiverKind::Generic, NoticeKind::Firing);
        let secrets = secrets(ReceiverKind::Generic);
        let first = outgoing(&row, &secrets, at("10:00:00")).unwrap();
        let second = outgoing(&row, &secrets, at("10:05:00")).unwrap();
        assert_eq!(first.body, second.body);
        assert_eq!(first.body, row.body);
        let id = "msg_00112233445566778899aabbccddeeff";
        for request in [&first, &second] {
            assert_eq!(header(request, "webhook-id"), Some(id));
            assert_eq!(
                header(request, "authorization"),
                Some("Bearer t0ken-s3cr3t")
            );
            assert_eq!(header(request, "X-Key"), Some("h-s3cr3t"));
        }
        assert_eq!(header(&first, "webhook-timestamp"), Some("1773482400"));
        let signature = header(&first, "webhook-signature").unwrap();
        assert_eq!(signature.split(' ').count(), 2);
        assert_ne!(Some(signature), header(&second, "webhook-signature"));
        for secret in &secrets.signing {
            let key = [sign::Key::parse(secret.expose()).unwrap()];
            let (time, body) = ("1773482400", first.body.as_bytes());
            sign::verify(&key, id, time, signature, body, at("10:00:00")).unwrap();
        }
        let late = outgoing(&row, &secrets, at("12:00:00")).unwrap();
        let signature = header(&late, "webhook-signature").unwrap();
        assert_eq!(signature.split(' ').count(), 1);
    }

    #[test]
    fn the_minimal_body_has_an_id_of_its_own() {
        let mut row = made(ReceiverKind::Generic, NoticeKind::Firing);
        row.use_minimal = true;
        let request = outgoing(&row, &secrets(ReceiverKind::Generic), at("10:00:00")).unwrap();
        assert_eq!(Some(request.body), row.minimal);
        assert_eq!(webhook_id(&row), "msg_00112233445566778899aabbccddeeffm");
    }

    #[test]
    fn pagerduty_gets_its_key_in_the_request_only() {
        let row = made(ReceiverKind::Pagerduty, NoticeKind::Resolved);
        let mut secrets = secrets(ReceiverKind::Pagerduty);
        secrets.token = None;
        secrets.routing_key = Some(Secret::new("r0uting-s3cr3t"));
        let request = outgoing(&row, &secrets, at("10:00:00")).unwrap();
        assert!(request.body.contains(r#""routing_key":"r0uting-s3cr3t""#));
        assert!(!row.body.contains("s3cr3t"));
        assert_eq!(header(&request, "webhook-signature"), None);
    }

    #[test]
    fn opsgenie_closes_by_alias_at_another_address() {
        let mut secrets = secrets(ReceiverKind::Opsgenie);
        secrets.url = Secret::new("https://api.opsgenie.com/v2/alerts");
        let firing = made(ReceiverKind::Opsgenie, NoticeKind::Firing);
        let request = outgoing(&firing, &secrets, at("10:00:00")).unwrap();
        assert_eq!(request.url.as_str(), "https://api.opsgenie.com/v2/alerts");
        assert_eq!(
            header(&request, "authorization"),
            Some("GenieKey t0ken-s3cr3t")
        );
        let end = made(ReceiverKind::Opsgenie, NoticeKind::Resolved);
        let request = outgoing(&end, &secrets, at("10:00:00")).unwrap();
        assert_eq!(
            request.url.as_str(),
            "https://api.opsgenie.com/v2/alerts/plant:cold-room-high:cr-7/close?identifierType=alias"
        );
        assert!(!request.body.contains("alias"), "{}", request.body);
    }

    #[test]
    fn what_a_receiver_repeats_is_redacted() {
        let mut secrets = secrets(ReceiverKind::Generic);
        secrets.routing_key = Some(Secret::new("r0uting-s3cr3t"));
        let said = "no /services/T0/B0/s3cr3t-path?key=q-s3cr3t for t0ken-s3cr3t, h-s3cr3t, \
            r0uting-s3cr3t, whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw at hooks.example s3cr3t-path";
        let redacted = secrets.redact(said);
        assert!(
            !redacted.contains("s3cr3t") && !redacted.contains("MfKQ9"),
            "{redacted}"
        );
        assert!(redacted.contains("hooks.example"), "{redacted}");
        assert_eq!(secrets.host(), "hooks.example");
    }
}
