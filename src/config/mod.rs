//! What an operator can say: one section per file, each a plain struct with its defaults and its
//! checks. [`load`] lays files and environment over the defaults and reports every mistake at
//! once, with where it stands and what to write instead. Nothing here touches a network.

mod admin;
mod alerts;
mod devices;
mod feed;
mod load;
mod log;
mod mongodb;
mod mqtt;
mod quiet;
pub mod receivers;
pub mod rules;
pub mod secret;
mod sink;
mod spool;
pub mod streams;
pub mod units;
mod watchdog;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use admin::AdminConfig;
pub use alerts::{AlertCollections, AlertsConfig, FlapConfig, StormConfig};
pub use devices::DevicesConfig;
pub use feed::{FeedConfig, FeedMode};
pub use load::{Loaded, Sources, load, survey};
pub use log::{LogConfig, LogFormat};
pub use mongodb::MongodbConfig;
pub use mqtt::{BrokerAddress, MqttConfig, MqttTlsConfig, Protocol};
pub use quiet::{QuietConfig, WeekWindow};
pub use receivers::{Incident, ReceiverConfig, ReceiverKind};
pub use rules::RuleConfig;
pub use secret::Secret;
pub use sink::{Dedup, SinkConfig};
pub use spool::SpoolConfig;
use streams::Action;
pub use streams::StreamConfig;
pub use units::{ByteSize, Span};
pub use watchdog::{WatchdogConfig, WatchdogMethod};

/// What the server takes as `expireAfterSeconds`: less makes no sense, more it refuses.
const TTL_SECONDS: std::ops::RangeInclusive<u64> = 60..=i32::MAX as u64;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The broker and the session.
    pub mqtt: MqttConfig,
    /// Topics, payloads and collections. A file that names any stream replaces the shipped one.
    pub streams: Vec<StreamConfig>,
    /// The deployment.
    pub mongodb: MongodbConfig,
    /// Writers and batches.
    pub sink: SinkConfig,
    /// Messages on the gateway's own disk.
    pub spool: SpoolConfig,
    /// The feed that rules and others follow.
    pub feed: FeedConfig,
    /// The registry of devices.
    pub devices: DevicesConfig,
    /// When what fires is told.
    pub alerts: AlertsConfig,
    /// What readings are compared with.
    pub rules: Vec<RuleConfig>,
    /// Who is told.
    pub receivers: Vec<ReceiverConfig>,
    /// The sign of life to a service outside.
    pub watchdog: WatchdogConfig,
    /// HTTP for operators.
    pub admin: AdminConfig,
    /// Log output.
    pub log: LogConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mqtt: MqttConfig::default(),
            streams: vec![StreamConfig::telemetry()],
            mongodb: MongodbConfig::default(),
            sink: SinkConfig::default(),
            spool: SpoolConfig::default(),
            feed: FeedConfig::default(),
            devices: DevicesConfig::default(),
            alerts: AlertsConfig::default(),
            rules: Vec::new(),
            receivers: Vec::new(),
            watchdog: WatchdogConfig::default(),
            admin: AdminConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl Config {
    /// Checks everything that can be checked without a network. Streams are checked by the
    /// decoder, which knows what they mean.
    fn validate(&self, problems: &mut Problems) {
        self.mqtt.validate(problems);
        self.mongodb.validate(problems);
        self.sink.validate(problems);
        self.spool.validate(problems);
        self.feed.validate(problems);
        self.devices.validate(problems);
        self.alerts.validate(problems);
        self.validate_named_collections(problems);
        RuleConfig::validate_all(&self.rules, &self.receivers, problems);
        ReceiverConfig::validate_all(&self.receivers, problems);
        self.watchdog.validate(problems);
        self.admin.validate(problems);
        self.log.validate(problems);
        if self.streams.is_empty() {
            problems.add("streams", "at least one [[streams]] section is needed");
        }
        let storing = |(_, stream): &(usize, &StreamConfig)| stream.action == Action::Store;
        for (index, stream) in self.streams.iter().enumerate().filter(storing) {
            let key = format!("streams.{index}.collection");
            mongodb::collection_name(problems, &key, &stream.collection);
            let taken = self.named_collections();
            if let Some((other, _)) = taken.iter().find(|(_, name)| **name == stream.collection) {
                let message = format!("is also {other}: the two need collections of their own");
                problems.add(&key, message);
            }
            if stream
                .ttl
                .is_some_and(|ttl| !TTL_SECONDS.contains(&ttl.0.as_secs()))
            {
                let key = format!("streams.{index}.ttl");
                problems.add(
                    key,
                    "expected 1m to 68 years, which is what the server takes",
                );
            }
            self.validate_shared_collection(problems, index, stream);
        }
    }

    /// The collections beside the series, each with the key that names it.
    fn named_collections(&self) -> Vec<(&'static str, &String)> {
        let mut named = vec![
            ("mongodb.dead_letters", &self.mongodb.dead_letters),
            ("feed.collection", &self.feed.collection),
            ("devices.collection", &self.devices.collection),
        ];
        named.extend(self.alerts.collections.named());
        named
    }

    /// Each of them needs one of its own.
    fn validate_named_collections(&self, problems: &mut Problems) {
        let named = self.named_collections();
        for (index, (key, name)) in named.iter().enumerate() {
            if let Some((other, _)) = named[..index].iter().find(|(_, known)| known == name) {
                let message = format!("is also {other}: the two need collections of their own");
                problems.add(*key, message);
            }
        }
    }

    /// Streams may share a collection only if they agree on how it is made.
    fn validate_shared_collection(
        &self,
        problems: &mut Problems,
        index: usize,
        stream: &StreamConfig,
    ) {
        let earlier = self.streams[..index]
            .iter()
            .find(|s| s.action == Action::Store && s.collection == stream.collection);
        if let Some(other) = earlier
            && (other.granularity, other.ttl) != (stream.granularity, stream.ttl)
        {
            problems.add(
                format!("streams.{index}.collection"),
                format!(
                    "{:?} is shared with stream {:?}, but granularity or ttl differ: make them equal or use another collection",
                    stream.collection, other.name
                ),
            );
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, variable or flag it stands in; `None`: a default or the whole.
    pub source: Option<String>,
    /// Dotted key, list positions as numbers; empty for a file that cannot be read.
    pub key: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Every mistake found, in the order of the keys checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Notes one; where it stands is filled in by the loader.
    pub fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem {
            source: None,
            key: key.into(),
            message: message.into(),
        });
    }

    /// Notes a file that is named but cannot be read.
    fn file(&mut self, key: &str, path: &Option<PathBuf>) {
        if let Some(path) = path
            && let Err(error) = readable(path)
        {
            self.add(key, format!("cannot read {}: {error}", path.display()));
        }
    }
}

fn readable(path: &Path) -> std::io::Result<()> {
    std::fs::File::open(path).map(drop)
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        writeln!(
            f,
            "{count} configuration {}:",
            if count == 1 { "error" } else { "errors" }
        )?;
        for problem in &self.0 {
            writeln!(f, "  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
