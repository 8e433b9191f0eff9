//! The registry: `{_id: deviceId, type, tags: {…}, unit: {field: unit}, expectedInterval, enabled,
//! firstSeen, lastSeen}`. Operators edit it; the gateway enters devices and writes `lastSeen`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType};
use mongodb::options::{FullDocumentType, ReadConcern};

use super::Store;
use crate::model::{Device, DeviceId, Timestamp};

/// Entries in one command.
const IN_ONE_COMMAND: usize = 1_000;

/// When a device was heard from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Who.
    pub device: DeviceId,
    /// Its type, for a new entry.
    pub kind: Option<Arc<str>>,
    /// First.
    pub first: Timestamp,
    /// Last.
    pub last: Timestamp,
}

/// What happened to the registry.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceChange {
    /// Entered or edited.
    Put(Device),
    /// Deleted.
    Gone(DeviceId),
}

impl Store {
    fn devices(&self) -> Collection<Document> {
        self.kept(&self.names().devices)
    }

    /// All entries.
    ///
    /// # Errors
    /// The driver's.
    pub async fn all_devices(&self) -> mongodb::error::Result<Vec<Device>> {
        let cursor = self.devices().find(doc! {}).await?;
        cursor
            .try_filter_map(|document| std::future::ready(Ok(decode(&document))))
            .try_collect()
            .await
    }

    /// Enters when devices were heard from; unknown ones are left out unless `register`.
    ///
    /// # Errors
    /// The driver's; some may have been entered.
    pub async fn note_seen(&self, seen: &[Seen], register: bool) -> mongodb::error::Result<()> {
        let date = |time: Timestamp| DateTime::from_millis(time.millis());
        for some in seen.chunks(IN_ONE_COMMAND) {
            let updates: Vec<Bson> = some
                .iter()
                .map(|seen| {
                    let mut first = doc! { "firstSeen": date(seen.first), "enabled": true };
                    if let Some(kind) = &seen.kind {
                        first.insert("type", kind.as_ref());
                    }
                    Bson::Document(doc! {
                        "q": { "_id": seen.device.as_str() },
                        "u": { "$max": { "lastSeen": date(seen.last) }, "$setOnInsert": first },
                        "upsert": register,
                    })
                })
                .collect();
            let command =
                doc! { "update": &self.names().devices, "updates": updates, "ordered": false };
            self.database().run_command(command).await?;
        }
        Ok(())
    }

    /// Follows the registry: what changes from now on, `lastSeen` left out.
    ///
    /// # Errors
    /// The driver's.
    pub async fn watch_devices(&self) -> mongodb::error::Result<DeviceChanges> {
        // Our own notes of when a device was seen are most of what happens here.
        let pipeline = [doc! { "$match": { "$or": [
            { "operationType": { "$ne": "update" } },
            { "updateDescription.updatedFields.lastSeen": { "$exists": false } },
        ] } }];
        let stream = self
            .devices()
            .watch()
            .pipeline(pipeline)
            .full_document(FullDocumentType::UpdateLookup)
            .read_concern(ReadConcern::majority())
            .await?;
        Ok(DeviceChanges(stream))
    }
}

/// The registry's changes as they happen.
pub struct DeviceChanges(ChangeStream<ChangeStreamEvent<Document>>);

impl DeviceChanges {
    /// The next one; `None`: the stream has ended and must be opened anew.
    ///
    /// # Errors
    /// The driver's.
    pub async fn next(&mut self) -> mongodb::error::Result<Option<DeviceChange>> {
        while let Some(event) = self.0.next().await {
            let event = event?;
            let id = event
                .document_key
                .as_ref()
                .and_then(|key| key.get_str("_id").ok())
                .and_then(DeviceId::new);
            match (event.operation_type, event.full_document, id) {
                (OperationType::Delete, _, Some(id)) => return Ok(Some(DeviceChange::Gone(id))),
                (OperationType::Invalidate, ..) => return Ok(None),
                (_, Some(document), _) => {
                    if let Some(device) = decode(&document) {
                        return Ok(Some(DeviceChange::Put(device)));
                    }
                }
                // Deleted since, which is an event of its own; or one that names no device.
                _ => {}
            }
        }
        Ok(None)
    }
}

/// An entry; `None` where the id names no device.
fn decode(document: &Document) -> Option<Device> {
    let texts = |key: &str| -> BTreeMap<String, String> {
        let Ok(inner) = document.get_document(key) else {
            return BTreeMap::new();
        };
        let text = |value: &Bson| match value {
            Bson::String(text) => Some(text.clone()),
            Bson::Int32(number) => Some(number.to_string()),
            Bson::Int64(number) => Some(number.to_string()),
            Bson::Double(number) => Some(number.to_string()),
            Bson::Boolean(truth) => Some(truth.to_string()),
            _ => None,
        };
        inner
            .iter()
            .filter(|(name, _)| !name.is_empty() && !name.contains(['.', '\0']))
            .filter_map(|(name, value)| Some((name.clone(), text(value)?)))
            .collect()
    };
    let date = |key: &str| {
        let date = document.get_datetime(key).ok()?;
        Some(Timestamp::from_millis(date.timestamp_millis()))
    };
    Some(Device {
        id: DeviceId::new(document.get_str("_id").ok()?)?,
        kind: document.get_str("type").ok().map(Arc::from),
        tags: texts("tags"),
        units: texts("unit"),
        expected_interval: document.get("expectedInterval").and_then(interval),
        enabled: document.get_bool("enabled").unwrap_or(true),
        first_seen: date("firstSeen"),
        last_seen: date("lastSeen"),
    })
}

/// `"60s"`, or a number of seconds.
fn interval(value: &Bson) -> Option<Duration> {
    let seconds = |number: f64| Duration::try_from_secs_f64(number).ok();
    match value {
        Bson::String(text) => humantime::parse_duration(text.trim()).ok(),
        Bson::Int32(number) => seconds((*number).into()),
        #[expect(clippy::cast_precision_loss, reason = "seconds")]
        Bson::Int64(number) => seconds(*number as f64),
        Bson::Double(number) => seconds(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_operators_write_is_read_leniently() {
        let device = decode(&doc! {
            "_id": "d1", "type": "probe", "tags": { "site": "north", "floor": 3, "odd": [1] },
            "unit": { "t": "degC" }, "expectedInterval": "1m", "lastSeen": DateTime::from_millis(5),
        })
        .unwrap();
        assert_eq!(device.kind.as_deref(), Some("probe"));
        assert_eq!(device.tags["floor"], "3");
        assert_eq!(device.tags.len(), 2);
        assert_eq!(device.expected_interval, Some(Duration::from_secs(60)));
        assert!(device.enabled);
        assert_eq!(device.last_seen, Some(Timestamp::from_millis(5)));
        assert_eq!(decode(&doc! { "_id": "" }), None);
        assert_eq!(decode(&doc! { "_id": 7 }), None);
        assert_eq!(
            interval(&Bson::Double(1.5)),
            Some(Duration::from_millis(1_500))
        );
        assert_eq!(interval(&Bson::Int32(-1)), None);
    }
}
