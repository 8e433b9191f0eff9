//! Makes what the gateway writes to, and says where the server differs from the configuration.
//!
//! Idempotent: run at every start and by `tidegate provision`. Nothing that exists is changed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::{CreateCollectionOptions, IndexOptions, TimeseriesOptions};
use mongodb::results::{CollectionSpecification, CollectionType};

use super::Store;
use super::client::hello;
use super::document::names;
use super::drift::{granularity, series_drift};
use super::ordinary::Ordinary;
use super::outbox::outbox_indexes;
use super::words::words;
use crate::config::streams::Action;
use crate::config::{Config, FeedMode, StreamConfig};

/// Server error codes that are branched on.
mod codes {
    pub const UNAUTHORIZED: i32 = 13;
    pub const NAMESPACE_EXISTS: i32 = 48;
    pub const INDEX_OPTIONS_CONFLICT: i32 = 85;
    pub const INDEX_KEY_SPECS_CONFLICT: i32 = 86;
    /// BadValue, FailedToParse, TypeMismatch, CannotCreateIndex, InvalidOptions,
    /// InvalidNamespace, CommandNotSupported: about what was asked for.
    pub const LASTING: [i32; 7] = [2, 9, 14, 67, 72, 73, 115];
}

/// What was found or done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Made just now.
    Created(String),
    /// There already, as configured.
    Present(String),
    /// The server differs from the configuration; nothing was changed.
    Drift(String),
    /// Works, but not as it should in production.
    Warning(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created(what) => write!(f, "created   {what}"),
            Self::Present(what) => write!(f, "present   {what}"),
            Self::Drift(what) => write!(f, "drift     {what}"),
            Self::Warning(what) => write!(f, "warning   {what}"),
        }
    }
}

/// Everything that was found or done.
pub type Provisioned = Vec<Finding>;

/// Why the gateway cannot work with this database.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// A collection of that name exists but is of another kind.
    #[error(
        "collection {collection:?} exists but is {found}, not {wanted}. Use another name ({key}), or move its content and drop it: db.getCollection({collection:?}).drop()"
    )]
    WrongKind {
        /// Its name.
        collection: String,
        /// What it is.
        found: String,
        /// What it should be.
        wanted: &'static str,
        /// The key that names it.
        key: String,
    },
    /// The user may not do what is needed.
    #[error(
        "the MongoDB user may not {action} in database {database:?}. Grant it: db.getSiblingDB(\"admin\").grantRolesToUser(\"<user>\", [{{ role: \"readWrite\", db: {database:?} }}])"
    )]
    Unauthorized {
        /// What was tried.
        action: String,
        /// Where.
        database: String,
    },
    /// Unreachable, or about to change primaries. Worth another try.
    #[error("{}", words(.0))]
    Passing(mongodb::error::Error),
    /// The server will say the same again.
    #[error("MongoDB refuses to {action}: {}", words(.error))]
    Refused {
        /// What was tried.
        action: &'static str,
        /// The server's words.
        error: mongodb::error::Error,
    },
}

impl ProvisionError {
    /// Whether trying again can help without somebody changing something.
    pub fn transient(&self) -> bool {
        matches!(self, Self::Passing(_))
    }
}

/// Creates series, ordinary collections and indexes, and reports drift.
///
/// # Errors
/// See [`ProvisionError`]; what was made before stays.
pub async fn provision(store: &Store, config: &Config) -> Result<Provisioned, ProvisionError> {
    let mut findings = Vec::new();
    let hello = hello(store.client())
        .await
        .map_err(ProvisionError::Passing)?;
    if let Some(warning) = deployment_warning(&hello) {
        findings.push(Finding::Warning(warning.to_owned()));
    }
    let existing = collections(store).await?;
    let mut done: Vec<(&str, String)> = Vec::new();
    for (index, stream) in config.streams.iter().enumerate() {
        let name = stream.collection.as_str();
        if stream.action == Action::Ignore || done.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let key = format!("streams.{index}.collection");
        series(store, stream, &key, existing.get(name), &mut findings).await?;
        done.push((name, key));
    }
    for wanted in Ordinary::all(config, store.names()) {
        let there = existing.get(&wanted.name);
        ordinary(store, wanted, there, &mut findings).await?;
    }
    if config.feed.mode != FeedMode::Off {
        let (outbox, keep) = (&store.names().outbox, config.alerts.dead_ttl.0);
        outbox_indexes(store, outbox, keep, &mut findings).await?;
    }
    // A collection dropped since the first look was made anew, but ordinary, by its index.
    let existing = collections(store).await?;
    for (name, key) in done {
        if let Some(found) = existing.get(name) {
            time_series(name, found, &key)?;
        }
    }
    Ok(findings)
}

fn time_series(
    name: &str,
    found: &CollectionSpecification,
    key: &str,
) -> Result<(), ProvisionError> {
    if found.collection_type == CollectionType::Timeseries {
        return Ok(());
    }
    Err(ProvisionError::WrongKind {
        collection: name.to_owned(),
        found: kind(found).to_owned(),
        wanted: "a time-series collection",
        key: key.to_owned(),
    })
}

/// A standalone server loses acknowledged writes with its disk and has no change streams.
fn deployment_warning(hello: &Document) -> Option<&'static str> {
    let routed = hello.get_str("msg") == Ok("isdbgrid");
    let replicated = hello.contains_key("setName");
    (!routed && !replicated).then_some(
        "the server is a standalone: enough to store readings, but nothing survives the loss of its disk and alerts need a replica set. Start mongod with --replSet rs0 and run rs.initiate()",
    )
}

async fn collections(
    store: &Store,
) -> Result<BTreeMap<String, CollectionSpecification>, ProvisionError> {
    let cursor = store.database().list_collections().await;
    let listed: Result<Vec<_>, _> = match cursor {
        Ok(cursor) => cursor.try_collect().await,
        Err(error) => Err(error),
    };
    let listed = listed.map_err(|error| failure(store, "list collections", error))?;
    Ok(listed.into_iter().map(|c| (c.name.clone(), c)).collect())
}

async fn series(
    store: &Store,
    stream: &StreamConfig,
    key: &str,
    existing: Option<&CollectionSpecification>,
    findings: &mut Provisioned,
) -> Result<(), ProvisionError> {
    let name = &stream.collection;
    let what = format!("time-series collection {name:?}");
    match existing {
        Some(found) => {
            time_series(name, found, key)?;
            let drift = series_drift(stream, &found.options);
            if drift.is_empty() {
                findings.push(Finding::Present(what.clone()));
            }
            findings.extend(
                drift
                    .into_iter()
                    .map(|text| Finding::Drift(format!("{what}: {text}"))),
            );
        }
        None => {
            let options = CreateCollectionOptions::builder()
                .timeseries(
                    TimeseriesOptions::builder()
                        .time_field(names::TIMESTAMP)
                        .meta_field(names::METADATA.to_owned())
                        .granularity(granularity(stream.granularity))
                        .build(),
                )
                .expire_after_seconds(stream.ttl.map(|ttl| ttl.0))
                .build();
            match store
                .database()
                .create_collection(name)
                .with_options(options)
                .await
            {
                Ok(()) => findings.push(Finding::Created(what)),
                // Another gateway was faster; its options are looked at on the next run.
                Err(error) if code(&error) == Some(codes::NAMESPACE_EXISTS) => {}
                Err(error) => return Err(failure(store, "create collections", error)),
            }
        }
    }
    // Devices are looked up by id and time, here and by every dashboard. The index that newer
    // servers make by themselves covers the whole meta field and does not serve that.
    let keys = doc! { format!("{}.{}", names::METADATA, names::DEVICE): 1, names::TIMESTAMP: 1 };
    index(store, name, keys, None, findings).await
}

/// An ordinary collection and its indexes.
async fn ordinary(
    store: &Store,
    wanted: Ordinary,
    existing: Option<&CollectionSpecification>,
    findings: &mut Provisioned,
) -> Result<(), ProvisionError> {
    let name = &wanted.name;
    match existing {
        Some(found) if found.collection_type != CollectionType::Collection => {
            return Err(ProvisionError::WrongKind {
                collection: name.to_owned(),
                found: kind(found).to_owned(),
                wanted: "an ordinary collection",
                key: wanted.key.to_owned(),
            });
        }
        Some(_) => findings.push(Finding::Present(format!("collection {name:?}"))),
        None => match store.database().create_collection(name).await {
            Ok(()) => findings.push(Finding::Created(format!("collection {name:?}"))),
            Err(error) if code(&error) == Some(codes::NAMESPACE_EXISTS) => {}
            Err(error) => return Err(failure(store, "create collections", error)),
        },
    }
    for (keys, ttl) in wanted.indexes {
        index(store, name, keys, ttl, findings).await?;
    }
    Ok(())
}

pub(super) async fn index(
    store: &Store,
    collection: &str,
    keys: Document,
    ttl: Option<Duration>,
    findings: &mut Provisioned,
) -> Result<(), ProvisionError> {
    let options = IndexOptions::builder().expire_after(ttl).build();
    index_with(store, collection, keys, options, findings).await
}

pub(super) async fn index_with(
    store: &Store,
    collection: &str,
    keys: Document,
    options: IndexOptions,
    findings: &mut Provisioned,
) -> Result<(), ProvisionError> {
    let what = format!("index {keys} on {collection:?}");
    let ttl = options.expire_after;
    let model = IndexModel::builder().keys(keys).options(options).build();
    let handle = store.database().collection::<Document>(collection);
    let before = handle.list_index_names().await.unwrap_or_default();
    match handle.create_index(model).await {
        Ok(made) if before.contains(&made.index_name) => {}
        Ok(_) => findings.push(Finding::Created(what)),
        Err(error)
            if matches!(
                code(&error),
                Some(codes::INDEX_OPTIONS_CONFLICT | codes::INDEX_KEY_SPECS_CONFLICT)
            ) =>
        {
            findings.push(Finding::Drift(format!(
                "{what}: exists with other options, expireAfterSeconds should be {}; drop the index and provision again",
                ttl.map_or("unset".to_owned(), |ttl| ttl.as_secs().to_string())
            )));
        }
        Err(error) => return Err(failure(store, "create indexes", error)),
    }
    Ok(())
}

fn kind(found: &CollectionSpecification) -> &'static str {
    match found.collection_type {
        CollectionType::Timeseries => "a time-series collection",
        CollectionType::View => "a view",
        _ => "an ordinary collection",
    }
}

fn code(error: &mongodb::error::Error) -> Option<i32> {
    match error.kind.as_ref() {
        mongodb::error::ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

/// What a failure of the server means for us.
fn failure(store: &Store, action: &'static str, error: mongodb::error::Error) -> ProvisionError {
    match code(&error) {
        Some(codes::UNAUTHORIZED) => ProvisionError::Unauthorized {
            action: action.to_owned(),
            database: store.database().name().to_owned(),
        },
        Some(code) if codes::LASTING.contains(&code) => ProvisionError::Refused { action, error },
        _ => ProvisionError::Passing(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_standalone_is_warned_about() {
        assert!(deployment_warning(&doc! { "isWritablePrimary": true }).is_some());
        assert!(deployment_warning(&doc! { "setName": "rs0" }).is_none());
        assert!(deployment_warning(&doc! { "msg": "isdbgrid" }).is_none());
    }
}
