//! `[alerts]`: when what fires is told, and what holds a message back.

use serde::{Deserialize, Serialize};

use super::mongodb::collection_name;
use super::quiet::QuietConfig;
use super::units::Span;
use super::{Problems, TTL_SECONDS};

/// Evaluation and notification as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertsConfig {
    /// Whether this process may evaluate rules and tell receivers. Of several that may, one does.
    pub enabled: bool,
    /// Names this installation in the keys that receivers see. Part of an incident's identity:
    /// two installations that share a receiver need two names.
    pub environment: String,
    /// How long a new group gathers before it is told; not for `critical`.
    pub group_wait: Span,
    /// Time between two messages about a group.
    pub group_interval: Span,
    /// Time between reminders of what still fires, from the last that was accepted; 0: none.
    pub repeat: Span,
    /// Time after an end that was told in which a new episode is not, unless it is worse.
    pub cooldown: Span,
    /// Tell also what was over before anybody could be told, where an incident is one alert.
    pub notify_short_lived: bool,
    /// After a gap: what is older than this is told only once the backlog is done, if it still
    /// fires then.
    pub max_alert_age: Span,
    /// The longest a silence may last.
    pub silence_max: Span,
    /// How long history is kept.
    pub history_ttl: Span,
    /// How long requests that were given up are kept for a replay.
    pub dead_ttl: Span,
    /// How often the place in the feed is saved when nothing else is.
    pub checkpoint_every: Span,
    /// How long a leader that says nothing still leads; renewed three times in that time.
    pub lease: Span,
    /// When many alerts become one.
    pub storm: StormConfig,
    /// When an alert that comes and goes is held.
    pub flap: FlapConfig,
    /// Hours in which only the worst is told.
    pub quiet: Vec<QuietConfig>,
    /// Where it is all kept.
    pub collections: AlertCollections,
}

/// Many alerts told as one incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StormConfig {
    /// More new incidents of one rule at one receiver within `window` than this: one for all.
    pub open: usize,
    /// Time in which they are counted.
    pub window: Span,
    /// It is over when no more members than this fire ...
    pub close: usize,
    /// ... for so long.
    pub calm: Span,
    /// More new incidents of all rules at one receiver within `window` than this: one for all.
    pub umbrella: usize,
}

/// An alert that comes and goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlapConfig {
    /// Time in which its beginnings and ends are counted.
    pub window: Span,
    /// So many: it flaps. It is held as firing and told as flapping. 0: never.
    pub high: usize,
    /// So few: it does no longer. What is different from what was told is told.
    pub low: usize,
    /// The longest it is held.
    pub max_hold: Span,
}

/// Names of collections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertCollections {
    /// Rules beside those in the configuration.
    pub rules: String,
    /// Alerts that are more than at rest.
    pub state: String,
    /// What rules remember of devices at rest, packed, and the place in the feed.
    pub marks: String,
    /// What receivers were told and are owed.
    pub notices: String,
    /// Requests to receivers.
    pub outbox: String,
    /// What happened.
    pub history: String,
    /// Silences.
    pub silences: String,
    /// What operators ask of the leader.
    pub requests: String,
    /// Who evaluates.
    pub leases: String,
}

impl Default for AlertsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            environment: "tidegate".into(),
            group_wait: Span::secs(10),
            group_interval: Span::secs(60),
            repeat: Span::secs(4 * 3_600),
            cooldown: Span::secs(300),
            notify_short_lived: false,
            max_alert_age: Span::secs(3_600),
            silence_max: Span::days(30),
            history_ttl: Span::days(90),
            dead_ttl: Span::days(30),
            checkpoint_every: Span::secs(5),
            lease: Span::secs(15),
            storm: StormConfig::default(),
            flap: FlapConfig::default(),
            quiet: Vec::new(),
            collections: AlertCollections::default(),
        }
    }
}

impl Default for StormConfig {
    fn default() -> Self {
        Self {
            open: 30,
            window: Span::secs(60),
            close: 10,
            calm: Span::secs(300),
            umbrella: 100,
        }
    }
}

impl Default for FlapConfig {
    fn default() -> Self {
        Self {
            window: Span::secs(3_600),
            high: 5,
            low: 1,
            max_hold: Span::secs(2 * 3_600),
        }
    }
}

impl Default for AlertCollections {
    fn default() -> Self {
        Self {
            rules: "alert_rules".into(),
            state: "alert_state".into(),
            marks: "alert_marks".into(),
            notices: "alert_notices".into(),
            outbox: "alert_outbox".into(),
            history: "alert_history".into(),
            silences: "alert_silences".into(),
            requests: "alert_requests".into(),
            leases: "leases".into(),
        }
    }
}

impl AlertsConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        // The first word of a key says what kind it is of.
        let reserved = ["group", "storm", "test"].contains(&self.environment.as_str());
        if self.environment.is_empty()
            || self.environment.len() > 64
            || reserved
            || !self.environment.chars().all(plain)
        {
            problems.add(
                "alerts.environment",
                format!(
                    "is {:?}: expected up to 64 of A-Z a-z 0-9 _ . - and not \"group\", \"storm\" or \"test\"",
                    self.environment
                ),
            );
        }
        let mut within = |key: &str, span: Span, from: Span, to: Span| {
            if !(from..=to).contains(&span) {
                let key = format!("alerts.{key}");
                problems.add(key, format!("is {span}: expected {from} to {to}"));
            }
        };
        let day = Span::days(1);
        within(
            "group_wait",
            self.group_wait,
            Span::secs(0),
            Span::secs(3_600),
        );
        within("group_interval", self.group_interval, Span::secs(1), day);
        within("cooldown", self.cooldown, Span::secs(0), day);
        within(
            "max_alert_age",
            self.max_alert_age,
            Span::secs(60),
            Span::days(30),
        );
        within(
            "silence_max",
            self.silence_max,
            Span::secs(60),
            Span::days(366),
        );
        within(
            "checkpoint_every",
            self.checkpoint_every,
            Span::millis(100),
            Span::secs(600),
        );
        within(
            "storm.window",
            self.storm.window,
            Span::secs(1),
            Span::secs(3_600),
        );
        within("lease", self.lease, Span::secs(1), Span::secs(600));
        within("storm.calm", self.storm.calm, Span::secs(1), day);
        within(
            "flap.window",
            self.flap.window,
            Span::secs(60),
            Span::days(7),
        );
        within(
            "flap.max_hold",
            self.flap.max_hold,
            Span::secs(60),
            Span::days(7),
        );
        if self.repeat != Span::secs(0) {
            within("repeat", self.repeat, Span::secs(60), Span::days(30));
        }
        for (key, ttl) in [
            ("history_ttl", self.history_ttl),
            ("dead_ttl", self.dead_ttl),
        ] {
            if !TTL_SECONDS.contains(&ttl.0.as_secs()) {
                problems.add(
                    format!("alerts.{key}"),
                    format!("is {ttl}: expected 1m to 68 years"),
                );
            }
        }
        self.storm.validate(problems);
        if self.flap.high > 0 && self.flap.low >= self.flap.high {
            problems.add(
                "alerts.flap.low",
                format!("is {}: expected less than alerts.flap.high", self.flap.low),
            );
        }
        for (index, quiet) in self.quiet.iter().enumerate() {
            quiet.validate(&format!("alerts.quiet.{index}"), problems);
            if self.quiet[..index].iter().any(|q| q.name == quiet.name) {
                problems.add(
                    format!("alerts.quiet.{index}.name"),
                    format!("{:?} is there twice", quiet.name),
                );
            }
        }
        self.collections.validate(problems);
    }
}

impl StormConfig {
    fn validate(&self, problems: &mut Problems) {
        for (key, count) in [("open", self.open), ("umbrella", self.umbrella)] {
            if !(1..=100_000).contains(&count) {
                problems.add(
                    format!("alerts.storm.{key}"),
                    format!("is {count}: expected 1 to 100000"),
                );
            }
        }
        if self.close > self.open {
            // Those left over are told one by one; more than opens a storm would open the next.
            problems.add(
                "alerts.storm.close",
                format!("is {}: expected at most alerts.storm.open", self.close),
            );
        }
    }
}

impl AlertCollections {
    /// Each with its key.
    pub(super) fn named(&self) -> [(&'static str, &String); 9] {
        [
            ("alerts.collections.rules", &self.rules),
            ("alerts.collections.state", &self.state),
            ("alerts.collections.marks", &self.marks),
            ("alerts.collections.notices", &self.notices),
            ("alerts.collections.outbox", &self.outbox),
            ("alerts.collections.history", &self.history),
            ("alerts.collections.silences", &self.silences),
            ("alerts.collections.requests", &self.requests),
            ("alerts.collections.leases", &self.leases),
        ]
    }

    fn validate(&self, problems: &mut Problems) {
        for (key, name) in self.named() {
            collection_name(problems, key, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named_with_their_keys() {
        type Edit = fn(&mut AlertsConfig);
        let check = |change: Edit| {
            let mut config = AlertsConfig::default();
            change(&mut config);
            let mut problems = Problems::default();
            config.validate(&mut problems);
            let keys: Vec<String> = problems.0.into_iter().map(|p| p.key).collect();
            keys.join(" ")
        };
        assert_eq!(check(|_| {}), "");
        assert_eq!(check(|c| c.repeat = Span::secs(0)), "");
        let wrong: [(Edit, &str); 9] = [
            (|c| c.environment = "group".into(), "alerts.environment"),
            (|c| c.environment = "a b".into(), "alerts.environment"),
            (|c| c.repeat = Span::secs(1), "alerts.repeat"),
            (|c| c.history_ttl = Span::secs(1), "alerts.history_ttl"),
            (|c| c.storm.close = 31, "alerts.storm.close"),
            (|c| c.storm.open = 0, "alerts.storm.open alerts.storm.close"),
            (|c| c.flap.low = 5, "alerts.flap.low"),
            (|c| c.lease = Span::millis(10), "alerts.lease"),
            (
                |c| {
                    c.quiet = vec![QuietConfig {
                        tz: "Mars/Base".into(),
                        ..QuietConfig::default()
                    }]
                },
                "alerts.quiet.0.name alerts.quiet.0.tz alerts.quiet.0.windows",
            ),
        ];
        for (change, keys) in wrong {
            assert_eq!(check(change), keys);
        }
    }
}
