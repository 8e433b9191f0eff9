//! What can be wrong with a receiver, seen without a network and without showing a secret.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{ReceiverConfig, ReceiverKind};
use crate::config::Problems;
use crate::config::secret::{Secret, SecretSource};
use crate::config::units::Span;

/// Headers that the request itself decides.
const OWN_HEADERS: [&str; 9] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "user-agent",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

impl ReceiverConfig {
    pub(in crate::config) fn validate_all(receivers: &[ReceiverConfig], problems: &mut Problems) {
        let mut names = BTreeSet::new();
        for (index, receiver) in receivers.iter().enumerate() {
            let mut found = Found {
                place: format!("receivers.{index}"),
                problems: &mut *problems,
            };
            receiver.check_name(&mut names, &mut found);
            receiver.check_address(&mut found);
            receiver.check_secrets(&mut found);
            receiver.check_headers(&mut found);
            receiver.check_texts(&mut found);
            receiver.check_connection(&mut found);
        }
    }

    fn check_name<'a>(&'a self, names: &mut BTreeSet<&'a str>, found: &mut Found<'_>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            found.add("name", "expected 1 to 64 letters, digits, _ . or -");
        } else if !names.insert(&self.name) {
            found.add(
                "name",
                format!("{:?} is the name of another receiver", self.name),
            );
        }
        if !(1..=1_000).contains(&self.max_alerts) {
            let message = format!("is {}: expected 1 to 1000", self.max_alerts);
            found.add("max_alerts", message);
        }
    }

    fn check_address(&self, found: &mut Found<'_>) {
        let source = self.url_source();
        match found.read(source) {
            Some(url) => {
                if let Err(message) = check_url(url.expose(), self.allow_http) {
                    found.add(&source.set_key(), message);
                }
            }
            None if !source.is_set() && self.kind.default_url().is_none() => {
                let kind = self.kind.name();
                found.add(
                    "url",
                    format!("is needed for kind = {kind:?} (or url_file, url_env)"),
                );
            }
            None => {}
        }
        check_cidrs(&found.place, &self.allow_cidrs, found.problems);
    }

    fn check_secrets(&self, found: &mut Found<'_>) {
        use ReceiverKind::{Opsgenie, Pagerduty, Slack};
        let kind = self.kind;
        for source in [self.secret_source(), self.previous_secret_source()] {
            if source.is_set() && !kind.signs() {
                found.add(
                    &source.set_key(),
                    "is used by kinds generic, alertmanager and template only",
                );
            }
            if let Some(secret) = found.read(source)
                && let Err(message) = check_signing_secret(secret.expose())
            {
                found.add(&source.set_key(), message);
            }
        }
        if self.previous_secret_source().is_set() && !self.secret_source().is_set() {
            found.add("previous_secret", "is set without a secret that follows it");
        }
        if self.previous_until.is_some() && !self.previous_secret_source().is_set() {
            found.add("previous_until", "is set without a previous_secret");
        }
        let token = self.token_source();
        found.read(token);
        match kind {
            Opsgenie if !token.is_set() => {
                found.add("token", "is needed: the API key (or token_file, token_env)");
            }
            Pagerduty | Slack if token.is_set() => {
                let message = format!("is not used by kind = {:?}", kind.name());
                found.add(&token.set_key(), message);
            }
            _ => {}
        }
        let routing = self.routing_key_source();
        found.read(routing);
        match kind {
            Pagerduty if !routing.is_set() => found.add(
                "routing_key",
                "is needed: the integration key (or routing_key_file, routing_key_env)",
            ),
            Pagerduty => {}
            _ if routing.is_set() => {
                found.add(&routing.set_key(), "is used by kind = \"pagerduty\" only");
            }
            _ => {}
        }
    }

    fn check_headers(&self, found: &mut Found<'_>) {
        let mut seen = BTreeSet::new();
        for (group, name, source) in self.header_sources() {
            let key = format!("{group}.{name}");
            let lower = name.to_ascii_lowercase();
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(token) {
                found.add(&key, "is not the name of a header");
            } else if OWN_HEADERS.contains(&lower.as_str()) {
                found.add(&key, "is set by Tidegate itself");
            } else if lower == "authorization" && self.token_source().is_set() {
                found.add(&key, "is set by token already");
            } else if !seen.insert(lower) {
                found.add(&key, "is set twice");
            }
            match source.read() {
                Ok(Some(text)) if !header_value(text.expose()) => {
                    found.add(&key, "holds control characters");
                }
                Ok(_) => {}
                Err(message) => found.add(&key, message),
            }
        }
    }

    fn check_texts(&self, found: &mut Found<'_>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        match (&self.topic, self.kind) {
            (None, ReceiverKind::Ntfy) => found.add("topic", "is needed for kind = \"ntfy\""),
            (Some(topic), ReceiverKind::Ntfy) => {
                if topic.is_empty() || topic.len() > 64 || !topic.chars().all(plain) {
                    found.add("topic", "expected 1 to 64 letters, digits, _ or -");
                }
            }
            (Some(_), _) => found.add("topic", "is used by kind = \"ntfy\" only"),
            (None, _) => {}
        }
        match (&self.body, self.kind) {
            (None, ReceiverKind::Template) => {
                found.add("body", "is needed for kind = \"template\": a table");
            }
            (Some(body), ReceiverKind::Template) => {
                if !body.is_object() && !body.is_array() {
                    found.add(
                        "body",
                        "expected a table, such as { text = \"{{ summary }}\" }",
                    );
                }
            }
            (Some(_), _) => found.add("body", "is used by kind = \"template\" only"),
            (None, _) => {}
        }
    }

    fn check_connection(&self, found: &mut Found<'_>) {
        for (key, path) in [
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
        ] {
            let key = found.key(key);
            found.problems.file(&key, path);
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => found.add("key_file", "is needed with cert_file"),
            (None, Some(_)) => found.add("cert_file", "is needed with key_file"),
            _ => {}
        }
        if !(Span::secs(1)..=Span::secs(60)).contains(&self.timeout) {
            let message = format!("is {}: expected 1s to 1m", self.timeout);
            found.add("timeout", message);
        }
        if !(Span::millis(100)..=self.timeout).contains(&self.connect_timeout) {
            found.add(
                "connect_timeout",
                format!(
                    "is {}: expected 100ms to timeout, which is {}",
                    self.connect_timeout, self.timeout
                ),
            );
        }
        if self
            .rate
            .is_some_and(|rate| !(0.001..=1_000.0).contains(&rate))
        {
            found.add("rate", "expected 0.001 to 1000 requests a second");
        }
    }
}

/// The mistakes of one section.
struct Found<'a> {
    place: String,
    problems: &'a mut Problems,
}

impl Found<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.place)
    }

    fn add(&mut self, key: &str, message: impl Into<String>) {
        self.problems.add(self.key(key), message);
    }

    /// The secret, once it is known to be given in one way only and can be read.
    fn read(&mut self, source: SecretSource<'_>) -> Option<Secret> {
        if source.count() > 1 {
            let key = source.key;
            let message = format!("set one of {key}, {key}_file and {key}_env");
            self.add(&source.set_key(), message);
            return None;
        }
        match source.read() {
            Ok(Some(secret)) if secret.expose().is_empty() => {
                self.add(&source.set_key(), "is empty");
                None
            }
            Ok(Some(secret)) if !header_value(secret.expose()) => {
                self.add(
                    &source.set_key(),
                    "holds line breaks or other control characters",
                );
                None
            }
            Ok(secret) => secret,
            Err(message) => {
                self.add(&source.set_key(), message);
                None
            }
        }
    }
}

/// What may stand in a header.
fn header_value(text: &str) -> bool {
    text.chars().all(|c| !c.is_control())
}

/// What may be sent to; the address is not repeated, for it may hold a key.
///
/// # Errors
/// A sentence.
pub(in crate::config) fn check_url(text: &str, allow_http: bool) -> Result<(), String> {
    let Ok(url) = reqwest::Url::parse(text) else {
        return Err("is not an address such as https://host/path".into());
    };
    match url.scheme() {
        "https" => {}
        "http" if allow_http => {}
        "http" => {
            return Err(
                "is http://, which anybody on the way can read: use https://, or set allow_http = true"
                    .into(),
            );
        }
        _ => return Err("expected https://".into()),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "holds a user name or password: use token, or a header \"Authorization\"".into(),
        );
    }
    if url.fragment().is_some() {
        return Err("ends in #..., which no server gets to see: remove it".into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".into());
    }
    Ok(())
}

/// `whsec_` and 24 to 64 bytes in base64.
fn check_signing_secret(text: &str) -> Result<(), String> {
    let bytes = text
        .strip_prefix("whsec_")
        .and_then(|encoded| STANDARD.decode(encoded).ok())
        .ok_or("expected whsec_ and base64: printf 'whsec_%s' \"$(openssl rand -base64 32)\"")?;
    if (24..=64).contains(&bytes.len()) {
        Ok(())
    } else {
        Err(format!("holds {} bytes: expected 24 to 64", bytes.len()))
    }
}

/// The three ways of a watchdog's address and a receiver's secrets share one set of checks.
pub(in crate::config) fn check_source(
    place: &str,
    source: SecretSource<'_>,
    problems: &mut Problems,
) -> Option<Secret> {
    let mut found = Found {
        place: place.to_owned(),
        problems,
    };
    found.read(source)
}

/// Checks networks written as text.
pub(in crate::config) fn check_cidrs(place: &str, cidrs: &[String], problems: &mut Problems) {
    for (index, cidr) in cidrs.iter().enumerate() {
        if cidr.parse::<ipnet::IpNet>().is_err() {
            problems.add(
                format!("{place}.allow_cidrs.{index}"),
                format!("{cidr:?} is not a network such as \"10.0.0.0/8\" or \"fd00::/8\""),
            );
        }
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
