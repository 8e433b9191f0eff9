//! Handles to everything the gateway keeps.

use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};

use super::client::{ConnectError, connect};
use super::predecessor::Author;
use super::series::Series;
use crate::config::streams::WriteConcernConfig;
use crate::config::{Config, StreamConfig};

/// The gateway's database.
#[derive(Clone)]
pub struct Store {
    client: Client,
    pub(super) author: Author,
    database: Database,
    names: Names,
}

/// What the collections are called, those of the streams apart.
#[derive(Debug, Clone)]
pub struct Names {
    /// Messages that could not be stored.
    pub dead_letters: String,
    /// Readings for change streams.
    pub feed: String,
    /// The registry.
    pub devices: String,
    /// Who does what only one may do.
    pub leases: String,
    /// Rules kept in the database.
    pub rules: String,
    /// Alerts that are more than `ok`.
    pub state: String,
    /// What is remembered of all others, packed.
    pub marks: String,
    /// What receivers were told and are owed.
    pub notices: String,
    /// Requests to receivers.
    pub outbox: String,
    /// What happened.
    pub history: String,
    /// What is not to be told.
    pub silences: String,
    /// What operators ask of the leader.
    pub requests: String,
}

impl Names {
    /// The names a configuration asks for.
    pub fn of(config: &Config) -> Self {
        let alerts = config.alerts.collections.clone();
        Self {
            dead_letters: config.mongodb.dead_letters.clone(),
            feed: config.feed.collection.clone(),
            devices: config.devices.collection.clone(),
            leases: alerts.leases,
            rules: alerts.rules,
            state: alerts.state,
            marks: alerts.marks,
            notices: alerts.notices,
            outbox: alerts.outbox,
            history: alerts.history,
            silences: alerts.silences,
            requests: alerts.requests,
        }
    }
}

impl Store {
    /// Makes a client for the configured writers and the handles; see [`connect`].
    ///
    /// # Errors
    /// Those of [`connect`].
    pub async fn connect(config: &Config) -> Result<Self, ConnectError> {
        let writers = config.sink.writers;
        let (client, author) = connect(&config.mongodb, writers, &config.mqtt.client_id).await?;
        let database = client.database(&config.mongodb.database);
        Ok(Self {
            client,
            author,
            database,
            names: Names::of(config),
        })
    }

    /// What the collections are called.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The client, for commands to the whole deployment.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// A session for writes whose order matters.
    ///
    /// # Errors
    /// The driver's.
    pub async fn session(&self) -> mongodb::error::Result<ClientSession> {
        self.client.start_session().causal_consistency(false).await
    }

    /// The time-series collection of a stream, with its write concern.
    pub fn series(&self, stream: &StreamConfig) -> Series {
        let write_concern = write_concern(&stream.write_concern);
        let options = CollectionOptions::builder()
            .write_concern(write_concern.clone())
            .build();
        let collection = self
            .database
            .collection_with_options(&stream.collection, options);
        Series::new(collection, write_concern)
    }

    /// The dead letters as raw documents; always written with majority and journal.
    pub fn dead_letters_raw(&self) -> Collection<RawDocumentBuf> {
        self.dead_letters_as()
    }

    /// The dead letters as documents.
    pub fn dead_letters(&self) -> Collection<Document> {
        self.dead_letters_as()
    }

    fn dead_letters_as<T: Send + Sync>(&self) -> Collection<T> {
        self.kept(&self.names.dead_letters)
    }

    /// The feed as raw documents.
    pub fn feed(&self) -> Collection<RawDocumentBuf> {
        self.kept(&self.names.feed)
    }

    /// A collection of the gateway's own, always written with majority and journal.
    pub(super) fn kept<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        let options = CollectionOptions::builder()
            .write_concern(write_concern(&WriteConcernConfig::default()))
            .build();
        self.database.collection_with_options(name, options)
    }
}

/// The driver's form of a stream's write concern; the configuration has been validated.
pub(super) fn write_concern(config: &WriteConcernConfig) -> WriteConcern {
    let w = match config.w.parse::<u32>() {
        Ok(nodes) => Acknowledgment::Nodes(nodes),
        Err(_) => Acknowledgment::Majority,
    };
    WriteConcern::builder()
        .w(w)
        .journal(config.journal)
        .w_timeout(config.wtimeout.0)
        .build()
}
