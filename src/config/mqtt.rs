//! `[mqtt]`: the broker, the session and what happens at its edges.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Problems;
use super::secret::Secret;
use super::streams::Unrouted;
use super::units::{ByteSize, Span};

/// The MQTT side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MqttConfig {
    /// `mqtt://host[:1883]` or `mqtts://host[:8883]`.
    pub url: String,
    /// MQTT 5 where the broker speaks it; 3.1.1 for older brokers.
    pub protocol: Protocol,
    /// Names the session at the broker; must be stable and used by one gateway only. With several
    /// connections each adds `-0`, `-1`, ...
    pub client_id: String,
    /// Connections to the broker; more than one needs `share_group`.
    pub connections: usize,
    /// Subscribes as `$share/<group>/<filter>`, so that connections and gateways share the load.
    pub share_group: String,
    /// User name, if the broker asks for one.
    pub username: Option<String>,
    /// Password, or `password_file`.
    pub password: Option<Secret>,
    /// File that holds the password; read again at every connection attempt.
    pub password_file: Option<PathBuf>,
    /// Certificates; only with `mqtts://`.
    pub tls: MqttTlsConfig,
    /// Time between pings; silence is noticed within twice this.
    pub keep_alive: Span,
    /// How long the broker keeps the session, and with it unacknowledged messages, while the
    /// gateway is away (MQTT 5; a 3.1.1 broker decides alone).
    pub session_expiry: Span,
    /// Messages the broker may send before the first is acknowledged (MQTT 5; the window of a
    /// 3.1.1 broker is the broker's setting).
    pub receive_maximum: u16,
    /// Bytes held in memory for unacknowledged messages of one connection, readings included;
    /// beyond it the link is closed until half of them are written, and the broker holds the rest.
    pub max_inflight: ByteSize,
    /// Time to reach the broker: name look-up, TCP, TLS and the broker's answer.
    pub connect_timeout: Span,
    /// Longest pause between attempts to reach the broker; 30 s where it refuses.
    pub reconnect_max: Span,
    /// How often a message of our own goes the whole way through the broker and back on each
    /// connection; "0s": never.
    pub canary: Span,
    /// It goes to `<this>/<client id>`; whatever arrives below it is never taken for a reading.
    pub canary_topic: String,
    /// Messages the broker queues for us while we take none, as far as the operator knows; 0: not
    /// known. Where it is less than an outage of `spool.outage` needs, a warning says so.
    pub broker_queue: u64,
    /// Messages on topics that no stream claims.
    pub unrouted: Unrouted,
}

/// Certificates for `mqtts://`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MqttTlsConfig {
    /// PEM file with the authorities to trust; the system's if unset.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the gateway's certificate chain.
    pub cert_file: Option<PathBuf>,
    /// PEM file with its private key.
    pub key_file: Option<PathBuf>,
}

/// The protocol spoken to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// MQTT 5.
    #[serde(rename = "5")]
    V5,
    /// MQTT 3.1.1.
    #[serde(rename = "3.1.1")]
    V311,
}

impl Default for MqttConfig {
    fn default() -> Self {
        Self {
            url: "mqtt://127.0.0.1:1883".into(),
            protocol: Protocol::V5,
            client_id: "tidegate".into(),
            connections: 1,
            share_group: String::new(),
            username: None,
            password: None,
            password_file: None,
            tls: MqttTlsConfig::default(),
            keep_alive: Span::secs(7),
            session_expiry: Span::days(7),
            receive_maximum: 20_000,
            max_inflight: ByteSize::mib(64),
            connect_timeout: Span::secs(5),
            reconnect_max: Span::secs(2),
            canary: Span::secs(5),
            canary_topic: "tidegate/canary".into(),
            broker_queue: 0,
            unrouted: Unrouted::Ignore,
        }
    }
}

/// Where `mqtt.url` points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether to speak TLS.
    pub tls: bool,
}

impl BrokerAddress {
    /// Reads `mqtt://host[:port]` or `mqtts://host[:port]`.
    ///
    /// # Errors
    /// A sentence that says what is wrong; never repeats a password written into the address.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or("expected mqtt://host:port or mqtts://host:port")?;
        let tls = match scheme {
            "mqtt" | "tcp" => false,
            "mqtts" | "ssl" | "tls" => true,
            other => return Err(format!("unknown scheme {other:?}: use mqtt:// or mqtts://")),
        };
        if rest.contains('@') {
            return Err(
                "holds a user name or password: use mqtt.username and mqtt.password_file".into(),
            );
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6
                    .split_once(']')
                    .ok_or("the bracket of an IPv6 address is not closed")?;
                (host, after.strip_prefix(':'))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        if host.is_empty() || host.contains('/') {
            return Err("expected mqtt://host:port with nothing after the port".into());
        }
        let port = match port {
            None => {
                if tls {
                    8883
                } else {
                    1883
                }
            }
            Some(text) => text
                .parse()
                .ok()
                .filter(|p| *p != 0)
                .ok_or_else(|| format!("{text:?} is not a port: 1 to 65535"))?,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
        })
    }
}

impl MqttConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        match BrokerAddress::parse(&self.url) {
            Err(message) => problems.add("mqtt.url", message),
            Ok(address) if !address.tls && self.tls != MqttTlsConfig::default() => {
                problems.add(
                    "mqtt.tls",
                    "certificates are set but the url is not mqtts://: use mqtts:// or remove them",
                );
            }
            Ok(_) => {}
        }
        if self.client_id.is_empty() {
            problems.add(
                "mqtt.client_id",
                "must not be empty: a persistent session needs a stable name",
            );
        }
        if !(1..=64).contains(&self.connections) {
            problems.add(
                "mqtt.connections",
                format!("is {}: expected 1 to 64", self.connections),
            );
        }
        if self.connections > 1 && self.share_group.is_empty() {
            problems.add("mqtt.share_group", "must be set with more than one connection, else each message arrives once per connection");
        }
        if self.share_group.contains(['/', '+', '#']) {
            problems.add("mqtt.share_group", "must not contain / + or #");
        }
        if self.password.is_some() && self.password_file.is_some() {
            problems.add(
                "mqtt.password_file",
                "set either mqtt.password or mqtt.password_file, not both",
            );
        }
        if (self.password.is_some() || self.password_file.is_some()) && self.username.is_none() {
            problems.add("mqtt.username", "must be set when a password is");
        }
        problems.file("mqtt.password_file", &self.password_file);
        problems.file("mqtt.tls.ca_file", &self.tls.ca_file);
        problems.file("mqtt.tls.cert_file", &self.tls.cert_file);
        problems.file("mqtt.tls.key_file", &self.tls.key_file);
        if self.tls.cert_file.is_some() != self.tls.key_file.is_some() {
            problems.add(
                "mqtt.tls.cert_file",
                "cert_file and key_file belong together: set both or neither",
            );
        }
        let keep_alive = self.keep_alive.0.as_secs();
        if !(5..=600).contains(&keep_alive) {
            problems.add(
                "mqtt.keep_alive",
                format!("is {}: expected 5s to 10m", self.keep_alive),
            );
        }
        if self.session_expiry.0.as_secs() == 0 {
            problems.add(
                "mqtt.session_expiry",
                "is zero: the broker would forget the session, and unacknowledged messages with it",
            );
        }
        if self.receive_maximum < 10 {
            problems.add(
                "mqtt.receive_maximum",
                format!("is {}: expected at least 10", self.receive_maximum),
            );
        }
        if self.max_inflight.0 < 1 << 20 {
            problems.add(
                "mqtt.max_inflight",
                format!("is {}: expected at least 1MiB", self.max_inflight),
            );
        }
        if self.connect_timeout.0.as_secs() == 0 {
            problems.add(
                "mqtt.connect_timeout",
                format!("is {}: expected at least 1s", self.connect_timeout),
            );
        }
        let canary = self.canary.0;
        if !canary.is_zero() && !(1..=60).contains(&canary.as_secs()) {
            problems.add(
                "mqtt.canary",
                format!("is {}: expected 1s to 60s, or 0s for never", self.canary),
            );
        }
        let topic = &self.canary_topic;
        if topic.is_empty()
            || topic.starts_with('$')
            || topic.ends_with('/')
            || topic.contains(['+', '#', '\0'])
        {
            problems.add(
                "mqtt.canary_topic",
                format!("is {topic:?}: expected a topic such as \"tidegate/canary\", without + or #, not below $"),
            );
        }
        if self.reconnect_max.0.as_secs() == 0 {
            problems.add(
                "mqtt.reconnect_max",
                format!("is {}: expected at least 1s", self.reconnect_max),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broker_addresses() {
        let ok = |url: &str| BrokerAddress::parse(url).map(|a| (a.host, a.port, a.tls));
        assert_eq!(ok("mqtt://h"), Ok(("h".into(), 1883, false)));
        assert_eq!(ok("mqtts://h/"), Ok(("h".into(), 8883, true)));
        assert_eq!(ok("mqtt://[::1]:1884"), Ok(("::1".into(), 1884, false)));
        for bad in [
            "h:1883",
            "http://h",
            "mqtt://",
            "mqtt://h:0",
            "mqtt://h:x",
            "mqtt://h/path",
        ] {
            assert!(ok(bad).is_err(), "{bad}");
        }
        let error = ok("mqtt://user:hunter2@h").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
