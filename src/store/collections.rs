//! Handles to everything the gateway keeps.

use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};
use mongodb::{Client, ClientSession, Collection, Database};

use super::client::{ConnectError, connect};
use super::series::Series;
use crate::config::streams::WriteConcernConfig;
use crate::config::{MongodbConfig, StreamConfig};

/// The gateway's database.
#[derive(Clone)]
pub struct Store {
    client: Client,
    database: Database,
    dead_letters: String,
}

impl Store {
    /// Makes a client for `writers` writers and the handles; see [`connect`].
    ///
    /// # Errors
    /// Those of [`connect`].
    pub async fn connect(config: &MongodbConfig, writers: usize) -> Result<Self, ConnectError> {
        let client = connect(config, writers).await?;
        let database = client.database(&config.database);
        Ok(Self {
            client,
            database,
            dead_letters: config.dead_letters.clone(),
        })
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
        let options = CollectionOptions::builder()
            .write_concern(write_concern(&WriteConcernConfig::default()))
            .build();
        self.database
            .collection_with_options(&self.dead_letters, options)
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
