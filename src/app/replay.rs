//! A dead letter's second chance: decoded again with today's configuration, as if it arrived when
//! it did.

use bytes::Bytes;
use mongodb::bson::RawDocumentBuf;
use mongodb::bson::oid::ObjectId;
use mongodb::error::ErrorKind;

use super::Prepared;
use crate::decode::{Decoded, Router, decode};
use crate::devices::Devices;
use crate::model::{Message, Reading, Reason, Spooled};
use crate::store::{DeadLetter, Found, Key, Store, encode_reading};
use crate::telemetry::Registry;

/// What became of a letter.
#[derive(Debug, PartialEq, Eq)]
pub enum Replayed {
    /// Every reading of it is stored now.
    Stored,
    /// It stays, and why.
    Kept {
        /// The closed code.
        reason: String,
        /// A sentence.
        detail: String,
    },
}

impl Replayed {
    fn kept(reason: &str, detail: impl Into<String>) -> Self {
        Self::Kept {
            reason: reason.to_owned(),
            detail: detail.into(),
        }
    }
}

/// Stores letters with today's configuration.
pub struct Replay<'a> {
    router: &'a Router,
    store: &'a Store,
    devices: Devices,
}

impl<'a> Replay<'a> {
    /// Reads the registry of devices, where readings get what it says of them.
    ///
    /// # Errors
    /// The driver's.
    pub async fn new(prepared: &'a Prepared, store: &'a Store) -> mongodb::error::Result<Self> {
        let devices = Devices::new(&prepared.loaded.config.devices, &Registry::default());
        if devices.enriches() {
            devices.look(store).await?;
        }
        Ok(Self {
            router: &prepared.router,
            store,
            devices,
        })
    }

    /// Stores one letter's readings, or says why not.
    ///
    /// The letter holds the whole message, of which some readings may have been stored when it
    /// came; what is in the series already, by device, time and content, is not stored again. Ids
    /// follow from the letter's, so that a replay that was cut off can be repeated.
    ///
    /// # Errors
    /// Where the database does not answer; the letter stays as it is.
    pub async fn store(&self, letter: &DeadLetter) -> mongodb::error::Result<Replayed> {
        if letter.cut() {
            let detail = "the payload was cut when it was kept; it cannot be decoded";
            return Ok(Replayed::kept(&letter.reason, detail));
        }
        let Decoded {
            stream,
            mut readings,
            refused,
            ignored,
        } = decode(self.router, &message(letter));
        if let Some(refusal) = refused {
            return Ok(Replayed::kept(refusal.reason.code(), refusal.detail));
        }
        let Some(stream) = stream.filter(|_| !readings.is_empty()) else {
            let reason = ignored.map_or(Reason::NoValues.code(), |reason| reason.code());
            return Ok(Replayed::kept(
                reason,
                "today's configuration leaves this message out",
            ));
        };
        self.devices.enrich(&mut readings);
        let documents = match documents(letter, &readings) {
            Ok(documents) => documents,
            Err(detail) => return Ok(Replayed::kept(Reason::TooLarge.code(), detail)),
        };
        let series = self.store.series(stream.config());
        let keys: Vec<_> = readings
            .iter()
            .zip(&documents)
            .map(|(reading, document)| Key {
                device: reading.device.as_str(),
                timestamp: reading.timestamp,
                document,
            })
            .collect();
        let found = series.find(&keys).await?;
        let there = |found: &Found| matches!(found, Found::SameId | Found::SameContent);
        let missing: Vec<RawDocumentBuf> = documents
            .iter()
            .zip(&found)
            .filter(|(_, found)| !there(found))
            .map(|(document, _)| document.clone())
            .collect();
        if missing.is_empty() {
            return Ok(Replayed::Stored);
        }
        match series
            .insert(&missing, &mut self.store.session().await?)
            .await
        {
            Ok(()) => Ok(Replayed::Stored),
            Err(error) => match refusal(&error) {
                Some(words) => Ok(Replayed::kept(Reason::MongoRejected.code(), words)),
                None => Err(error),
            },
        }
    }
}

fn message(letter: &DeadLetter) -> Message {
    let topic = letter
        .topic_bytes
        .clone()
        .unwrap_or_else(|| letter.topic.clone().into_bytes());
    Message {
        topic: Bytes::from(topic),
        payload: letter.payload.clone(),
        cut_from: None,
        qos: letter.qos,
        // Asked for by a person now: not a replay that should be skipped.
        retain: false,
        dup: false,
        spooled: Spooled::No,
        received_at: letter.at,
    }
}

fn documents(letter: &DeadLetter, readings: &[Reading]) -> Result<Vec<RawDocumentBuf>, String> {
    (0u32..)
        .zip(readings)
        .map(|(position, reading)| {
            let id = derived_id(letter.id, position);
            encode_reading(id, reading).map_err(|error| error.to_string())
        })
        .collect()
}

/// The letter's id for its first reading, and neighbours of it for the others.
fn derived_id(letter: ObjectId, position: u32) -> ObjectId {
    let mut bytes = letter.bytes();
    for (byte, add) in bytes[4..8].iter_mut().zip(position.to_be_bytes()) {
        *byte ^= add;
    }
    ObjectId::from_bytes(bytes)
}

/// The server's words, where it refuses a document for what it is.
fn refusal(error: &mongodb::error::Error) -> Option<String> {
    match error.kind.as_ref() {
        ErrorKind::InsertMany(insert) => {
            let first = insert.write_errors.as_ref()?.first()?;
            Some(format!("MongoDB error {}: {}", first.code, first.message))
        }
        _ => None,
    }
}
