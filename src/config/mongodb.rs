//! `[mongodb]`: the deployment and the names of what is kept in it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Problems;
use super::secret::Secret;
use super::units::Span;

/// The MongoDB side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MongodbConfig {
    /// Connection string; may hold a password and is never shown.
    pub uri: Secret,
    /// File that holds the connection string; wins over `uri`.
    pub uri_file: Option<PathBuf>,
    /// Database for everything the gateway keeps.
    pub database: String,
    /// Collection for messages that cannot be stored.
    pub dead_letters: String,
    /// How long dead letters are kept.
    pub dead_letters_ttl: Span,
    /// How long to look for a usable server before an operation fails (and is tried again).
    pub server_selection_timeout: Span,
    /// Time to open one connection.
    pub connect_timeout: Span,
}

impl Default for MongodbConfig {
    fn default() -> Self {
        Self {
            uri: Secret::new("mongodb://127.0.0.1:27017/?replicaSet=rs0"),
            uri_file: None,
            database: "tidegate".into(),
            dead_letters: "dead_letters".into(),
            dead_letters_ttl: Span::days(30),
            server_selection_timeout: Span::secs(5),
            connect_timeout: Span::secs(5),
        }
    }
}

impl MongodbConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        problems.file("mongodb.uri_file", &self.uri_file);
        let uri = self.uri.expose();
        if !uri.starts_with("mongodb://") && !uri.starts_with("mongodb+srv://") {
            problems.add(
                "mongodb.uri",
                "expected mongodb://host:port/ or mongodb+srv://name/",
            );
        }
        if self.database.is_empty()
            || self
                .database
                .contains(['/', '\\', '.', ' ', '"', '$', '\0'])
        {
            problems.add(
                "mongodb.database",
                format!(
                    "{:?} is not a database name: letters, digits, - and _",
                    self.database
                ),
            );
        }
        collection_name(problems, "mongodb.dead_letters", &self.dead_letters);
        if !super::TTL_SECONDS.contains(&self.dead_letters_ttl.0.as_secs()) {
            problems.add(
                "mongodb.dead_letters_ttl",
                format!("is {}: expected 1m to 68 years", self.dead_letters_ttl),
            );
        }
    }
}

/// Reports a name no collection can have.
pub(super) fn collection_name(problems: &mut Problems, key: &str, name: &str) {
    if name.is_empty()
        || name.contains(['$', '\0'])
        || name.starts_with("system.")
        || name.len() > 200
    {
        problems.add(
            key,
            format!("{name:?} is not a collection name: no $, not system.*, not empty"),
        );
    }
}
