//! The ordinary collections: what each is called, which key names it, and what is indexed. Pure.

use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::Names;
use crate::config::{Config, FeedMode};

/// One collection as it should be.
pub(super) struct Ordinary {
    pub name: String,
    /// The key that names it.
    pub key: &'static str,
    /// Keys, and how long after the first of them a document is kept.
    pub indexes: Vec<(Document, Option<Duration>)>,
}

impl Ordinary {
    /// All that a configuration needs.
    pub fn all(config: &Config, names: &Names) -> Vec<Self> {
        let mut all = vec![
            Self {
                name: names.dead_letters.clone(),
                key: "mongodb.dead_letters",
                indexes: vec![
                    (doc! { "at": 1 }, Some(config.mongodb.dead_letters_ttl.0)),
                    (doc! { "stream": 1, "reason": 1, "at": 1 }, None),
                ],
            },
            Self {
                name: names.devices.clone(),
                key: "devices.collection",
                indexes: Vec::new(),
            },
        ];
        if config.feed.mode != FeedMode::Off {
            all.push(Self {
                name: names.feed.clone(),
                key: "feed.collection",
                indexes: vec![(doc! { "at": 1 }, Some(config.feed.ttl.0))],
            });
            all.extend(Self::of_alerts(config, names));
        }
        all
    }

    fn of_alerts(config: &Config, names: &Names) -> Vec<Self> {
        let plain = |name: &String, key| Self {
            name: name.clone(),
            key,
            indexes: Vec::new(),
        };
        vec![
            plain(&names.leases, "alerts.collections.leases"),
            plain(&names.rules, "alerts.collections.rules"),
            plain(&names.state, "alerts.collections.state"),
            plain(&names.marks, "alerts.collections.marks"),
            plain(&names.notices, "alerts.collections.notices"),
            plain(&names.silences, "alerts.collections.silences"),
            plain(&names.requests, "alerts.collections.requests"),
            Self {
                indexes: vec![
                    (doc! { "at": 1 }, Some(config.alerts.history_ttl.0)),
                    (doc! { "key": 1, "at": 1 }, None),
                ],
                ..plain(&names.history, "alerts.collections.history")
            },
        ]
    }
}
