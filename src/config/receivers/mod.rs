//! `[[receivers]]`: who is told, and how.

pub(super) mod check;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::secret::{Secret, SecretSource};
use super::units::Span;
use crate::model::{Severity, Timestamp};

/// One receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReceiverConfig {
    /// Its name, in rules, rows and metrics.
    pub name: String,
    /// What it speaks.
    pub kind: ReceiverKind,
    /// The mildest level it is told about.
    pub min_severity: Severity,
    /// What an alert must have, by label: `rule`, `severity`, `device`, `type`, `field`, a tag or a
    /// label of the rule; any of the values, with `*` and `?`. A rule that names its receivers
    /// passes this by.
    #[serde(rename = "match")]
    pub matches: BTreeMap<String, Vec<String>>,
    /// Whether each alert is told for itself, or all of a group in one message. By default what
    /// the kind can do best.
    pub incident: Option<Incident>,
    /// Labels whose values make a group.
    pub group_by: Vec<String>,
    /// How long a new group gathers before it is told; not for `critical`.
    pub group_wait: Option<Span>,
    /// Time between two messages about a group.
    pub group_interval: Option<Span>,
    /// Time between reminders of what still fires.
    pub repeat: Option<Span>,
    /// Episodes in one message at the most.
    pub max_alerts: usize,
    /// Where requests go, or `url_file`, `url_env`. It may hold a key, so only its host is ever
    /// shown. PagerDuty and Opsgenie have an address of their own.
    pub url: Option<Secret>,
    /// File that holds it.
    pub url_file: Option<PathBuf>,
    /// Environment variable that holds it.
    pub url_env: Option<String>,
    /// Signs requests as Standard Webhooks: `whsec_` and 24 to 64 bytes in base64.
    pub secret: Option<Secret>,
    /// File that holds it.
    pub secret_file: Option<PathBuf>,
    /// Environment variable that holds it.
    pub secret_env: Option<String>,
    /// The secret before, while receivers change over: requests carry both signatures.
    pub previous_secret: Option<Secret>,
    /// File that holds it.
    pub previous_secret_file: Option<PathBuf>,
    /// Environment variable that holds it.
    pub previous_secret_env: Option<String>,
    /// Until when the previous secret signs too; `None`: as long as it stands here.
    pub previous_until: Option<Timestamp>,
    /// Bearer token; for Opsgenie the API key.
    pub token: Option<Secret>,
    /// File that holds it.
    pub token_file: Option<PathBuf>,
    /// Environment variable that holds it.
    pub token_env: Option<String>,
    /// PagerDuty's integration key. It goes into requests, never into stored rows.
    pub routing_key: Option<Secret>,
    /// File that holds it.
    pub routing_key_file: Option<PathBuf>,
    /// Environment variable that holds it.
    pub routing_key_env: Option<String>,
    /// Further headers; their values are kept secret.
    pub headers: BTreeMap<String, Secret>,
    /// Headers whose values are in files.
    pub headers_file: BTreeMap<String, PathBuf>,
    /// Headers whose values are in environment variables.
    pub headers_env: BTreeMap<String, String>,
    /// ntfy: the topic.
    pub topic: Option<String>,
    /// Template of the one-line summary, instead of the rule's own or the built-in one.
    pub title: Option<String>,
    /// Template of the longer text.
    pub text: Option<String>,
    /// Kind `template`: the JSON body; every text in it is a template.
    pub body: Option<serde_json::Value>,
    /// Whether `http://` is good enough.
    pub allow_http: bool,
    /// Private, loopback or link-local networks that requests may go to.
    pub allow_cidrs: Vec<String>,
    /// PEM file with further authorities to trust, beside the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file with a client certificate chain.
    pub cert_file: Option<PathBuf>,
    /// PEM file with its private key.
    pub key_file: Option<PathBuf>,
    /// Time for one request, the answer included.
    pub timeout: Span,
    /// Time to be connected, TLS included.
    pub connect_timeout: Span,
    /// Requests a second at the most; by default what the kind is known to take.
    pub rate: Option<f64>,
}

/// What a receiver speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReceiverKind {
    /// Tidegate's own JSON, signed as Standard Webhooks.
    #[default]
    Generic,
    /// PagerDuty Events v2.
    Pagerduty,
    /// A Slack incoming webhook.
    Slack,
    /// Alertmanager's webhook payload, version 4.
    Alertmanager,
    /// Opsgenie alerts.
    Opsgenie,
    /// ntfy.
    Ntfy,
    /// A JSON body of the operator's own.
    Template,
}

/// What one incident at the receiver stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Incident {
    /// One alert.
    Alert,
    /// A group of alerts.
    Group,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: ReceiverKind::Generic,
            min_severity: Severity::Info,
            matches: BTreeMap::new(),
            incident: None,
            group_by: vec!["rule".into()],
            group_wait: None,
            group_interval: None,
            repeat: None,
            max_alerts: 100,
            url: None,
            url_file: None,
            url_env: None,
            secret: None,
            secret_file: None,
            secret_env: None,
            previous_secret: None,
            previous_secret_file: None,
            previous_secret_env: None,
            previous_until: None,
            token: None,
            token_file: None,
            token_env: None,
            routing_key: None,
            routing_key_file: None,
            routing_key_env: None,
            headers: BTreeMap::new(),
            headers_file: BTreeMap::new(),
            headers_env: BTreeMap::new(),
            topic: None,
            title: None,
            text: None,
            body: None,
            allow_http: false,
            allow_cidrs: Vec::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            timeout: Span::secs(15),
            connect_timeout: Span::secs(5),
            rate: None,
        }
    }
}

impl ReceiverConfig {
    /// What one incident stands for.
    pub fn incident(&self) -> Incident {
        self.incident.unwrap_or(match self.kind {
            ReceiverKind::Slack | ReceiverKind::Alertmanager | ReceiverKind::Ntfy => {
                Incident::Group
            }
            _ => Incident::Alert,
        })
    }

    /// Where the address comes from.
    pub fn url_source(&self) -> SecretSource<'_> {
        SecretSource::new(
            "url",
            self.url.as_ref(),
            self.url_file.as_ref(),
            self.url_env.as_ref(),
        )
    }

    /// Where the signing secret comes from.
    pub fn secret_source(&self) -> SecretSource<'_> {
        SecretSource::new(
            "secret",
            self.secret.as_ref(),
            self.secret_file.as_ref(),
            self.secret_env.as_ref(),
        )
    }

    /// Where the signing secret before it comes from.
    pub fn previous_secret_source(&self) -> SecretSource<'_> {
        SecretSource::new(
            "previous_secret",
            self.previous_secret.as_ref(),
            self.previous_secret_file.as_ref(),
            self.previous_secret_env.as_ref(),
        )
    }

    /// Where the token comes from.
    pub fn token_source(&self) -> SecretSource<'_> {
        SecretSource::new(
            "token",
            self.token.as_ref(),
            self.token_file.as_ref(),
            self.token_env.as_ref(),
        )
    }

    /// Where PagerDuty's integration key comes from.
    pub fn routing_key_source(&self) -> SecretSource<'_> {
        SecretSource::new(
            "routing_key",
            self.routing_key.as_ref(),
            self.routing_key_file.as_ref(),
            self.routing_key_env.as_ref(),
        )
    }

    /// The further headers: the key each stands under, its name and where its value comes from.
    pub fn header_sources(&self) -> Vec<(&'static str, &str, SecretSource<'_>)> {
        let mut found: Vec<(&'static str, &str, SecretSource<'_>)> = Vec::new();
        for (name, value) in &self.headers {
            let source = SecretSource::new("", Some(value), None, None);
            found.push(("headers", name, source));
        }
        for (name, file) in &self.headers_file {
            let source = SecretSource::new("", None, Some(file), None);
            found.push(("headers_file", name, source));
        }
        for (name, variable) in &self.headers_env {
            let source = SecretSource::new("", None, None, Some(variable));
            found.push(("headers_env", name, source));
        }
        found
    }

    /// Requests a second, and how many may go at once after a pause.
    pub fn pace(&self) -> (f64, f64) {
        let (rate, burst) = match self.kind {
            ReceiverKind::Slack => (1.0, 1.0),
            // A stock server's limit: 60 at once, then one every 5 s.
            ReceiverKind::Ntfy => (0.2, 60.0),
            ReceiverKind::Pagerduty => (2.0, 10.0),
            _ => (10.0, 20.0),
        };
        match self.rate {
            Some(rate) => (rate, rate.max(1.0)),
            None => (rate, burst),
        }
    }
}

impl ReceiverKind {
    /// Every kind.
    pub const ALL: [ReceiverKind; 7] = [
        Self::Generic,
        Self::Pagerduty,
        Self::Slack,
        Self::Alertmanager,
        Self::Opsgenie,
        Self::Ntfy,
        Self::Template,
    ];

    /// As written in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Pagerduty => "pagerduty",
            Self::Slack => "slack",
            Self::Alertmanager => "alertmanager",
            Self::Opsgenie => "opsgenie",
            Self::Ntfy => "ntfy",
            Self::Template => "template",
        }
    }

    /// The vendor's address, where there is one for all.
    pub const fn default_url(self) -> Option<&'static str> {
        match self {
            Self::Pagerduty => Some("https://events.pagerduty.com/v2/enqueue"),
            Self::Opsgenie => Some("https://api.opsgenie.com/v2/alerts"),
            _ => None,
        }
    }

    /// Whether requests are signed where there is a secret.
    pub const fn signs(self) -> bool {
        matches!(self, Self::Generic | Self::Alertmanager | Self::Template)
    }
}
