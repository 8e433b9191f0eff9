//! One time-series collection: unordered inserts, and the look-up that tells what is there already.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use mongodb::{ClientSession, Collection};

use super::document::names;
use crate::model::Timestamp;

/// Devices asked for in one query; keeps the filter well below the server's limits.
const DEVICES_PER_QUERY: usize = 2_000;

/// Alternatives in one query: the server tries each on every row of the buckets it opens.
const GATHERED_PER_QUERY: usize = 16;

/// Distinct times that a filter names; the server makes conditions on buckets of each, and with
/// thousands of them it does not come to an end. Beyond, everything in the range is read.
const TIMES_PER_QUERY: usize = 32;

/// Times that are near each other: what lies within an hour is in few buckets.
const NEAR: i64 = 3_600_000;

/// A stream's collection.
#[derive(Clone)]
pub struct Series {
    collection: Collection<RawDocumentBuf>,
    write_concern: WriteConcern,
}

/// What a look-up looks for.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// `metadata.deviceId`.
    pub device: &'a str,
    /// The reading's time.
    pub timestamp: Timestamp,
    /// The reading as it is or would be stored.
    pub document: &'a RawDocumentBuf,
}

/// What a look-up found at a key's device and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// Rows of another type, or with other fields: what devices send piece by piece.
    Beside,
    /// A row that says something else of the same fields.
    OtherContent,
    /// A row that says the same under another id.
    SameContent,
    /// The row itself.
    SameId,
}

impl Series {
    pub(super) fn new(collection: Collection<RawDocumentBuf>, write_concern: WriteConcern) -> Self {
        Self {
            collection,
            write_concern,
        }
    }

    /// The collection's name.
    pub fn name(&self) -> &str {
        self.collection.name()
    }

    /// What the server must confirm.
    pub fn write_concern(&self) -> WriteConcern {
        self.write_concern.clone()
    }

    /// How long the server may take for it.
    pub fn wtimeout(&self) -> Duration {
        self.write_concern.w_timeout.unwrap_or_default()
    }

    /// Inserts all documents with one unordered command. The caller keeps a batch below what one
    /// command takes; the future must be run to its end.
    ///
    /// # Errors
    /// The driver's, which names refused documents by position where that is the trouble.
    pub async fn insert(
        &self,
        documents: &[RawDocumentBuf],
        session: &mut ClientSession,
    ) -> mongodb::error::Result<()> {
        self.collection
            .insert_many(documents)
            .ordered(false)
            .session(session)
            .await
            .map(drop)
    }

    /// What is in the collection for each of `keys`, as far as it is confirmed.
    ///
    /// # Errors
    /// The driver's.
    pub async fn find(&self, keys: &[Key<'_>]) -> mongodb::error::Result<Vec<Found>> {
        let mut by_device: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for key in keys {
            let times = by_device.entry(key.device).or_default();
            times.push(key.timestamp.millis());
        }
        let filters: Vec<Bson> = gather(by_device).into_iter().map(Bson::Document).collect();
        let mut rows: HashMap<(String, i64), Vec<Document>> = HashMap::new();
        for some in filters.chunks(GATHERED_PER_QUERY) {
            let mut cursor = self
                .collection
                .clone_with_type::<Document>()
                .find(doc! { "$or": some.to_vec() })
                .read_concern(self.read_concern())
                .await?;
            while let Some(row) = cursor.try_next().await? {
                let device = row
                    .get_document(names::METADATA)
                    .and_then(|m| m.get_str(names::DEVICE));
                let time = row.get_datetime(names::TIMESTAMP);
                if let (Ok(device), Ok(time)) = (device, time) {
                    let key = (device.to_owned(), time.timestamp_millis());
                    rows.entry(key).or_default().push(row);
                }
            }
        }
        let found = |key: &Key<'_>| {
            let there = rows.get(&(key.device.to_owned(), key.timestamp.millis()));
            compare(key.document, there.map_or(&[], Vec::as_slice))
        };
        Ok(keys.iter().map(found).collect())
    }

    /// The greatest time that each device has stored, from the time asked for on; `None` where
    /// there is nothing. Position by position.
    ///
    /// # Errors
    /// The driver's.
    pub async fn greatest(
        &self,
        devices: &[(String, Timestamp)],
    ) -> mongodb::error::Result<Vec<Option<Timestamp>>> {
        let mut greatest: HashMap<String, Timestamp> = HashMap::new();
        let mut by_slot: BTreeMap<i64, Vec<&(String, Timestamp)>> = BTreeMap::new();
        for device in devices {
            by_slot
                .entry(slot(device.1.millis()))
                .or_default()
                .push(device);
        }
        let near = by_slot.values();
        for some in near.flat_map(|devices| devices.chunks(DEVICES_PER_QUERY)) {
            let names: Vec<&str> = some.iter().map(|(device, _)| device.as_str()).collect();
            let earliest = some.iter().map(|(_, earliest)| earliest.millis()).min();
            let since = DateTime::from_millis(earliest.unwrap_or_default());
            let since =
                doc! { device_path(): { "$in": names }, names::TIMESTAMP: { "$gte": since } };
            let time = format!("${}", names::TIMESTAMP);
            let pipeline = [
                doc! { "$match": since },
                doc! { "$group": { "_id": format!("${}", device_path()), "greatest": { "$max": time } } },
            ];
            let mut cursor = self
                .collection
                .aggregate(pipeline)
                .read_concern(self.read_concern())
                .await?;
            while let Some(row) = cursor.try_next().await? {
                if let (Ok(device), Ok(time)) = (row.get_str("_id"), row.get_datetime("greatest")) {
                    let time = Timestamp::from_millis(time.timestamp_millis());
                    greatest.insert(device.to_owned(), time);
                }
            }
        }
        let one = |(device, earliest): &(String, Timestamp)| {
            let greatest = greatest.get(device).copied();
            greatest.filter(|greatest| greatest >= earliest)
        };
        Ok(devices.iter().map(one).collect())
    }

    /// A write that fewer than a majority confirmed is not in a majority's view.
    fn read_concern(&self) -> ReadConcern {
        match self.write_concern.w {
            Some(Acknowledgment::Majority) | None => ReadConcern::majority(),
            Some(_) => ReadConcern::local(),
        }
    }
}

/// The hour of a time.
fn slot(millis: i64) -> i64 {
    millis.div_euclid(NEAR)
}

fn device_path() -> String {
    format!("{}.{}", names::METADATA, names::DEVICE)
}

/// Filters that together let every row of these devices and times through, and few others. An
/// alternative for each device would make the server try all of them on every row, so devices
/// asked about the same hour share one; a device asked about more than that has its own.
fn gather(by_device: BTreeMap<&str, Vec<i64>>) -> Vec<Document> {
    let mut near: BTreeMap<i64, (Vec<&str>, Vec<i64>)> = BTreeMap::new();
    let mut gathered = Vec::new();
    for (device, times) in by_device {
        let first = times.iter().min().copied().unwrap_or_default();
        let last = times.iter().max().copied().unwrap_or_default();
        if last - first > NEAR {
            gathered.push((vec![device], times));
            continue;
        }
        let (devices, all) = near.entry(slot(first)).or_default();
        devices.push(device);
        all.extend(times);
    }
    for (devices, times) in near.into_values() {
        for some in devices.chunks(DEVICES_PER_QUERY) {
            gathered.push((some.to_vec(), times.clone()));
        }
    }
    let filter = |(devices, mut times): (Vec<&str>, Vec<i64>)| {
        times.sort_unstable();
        times.dedup();
        let date = |millis: i64| Bson::DateTime(DateTime::from_millis(millis));
        let first = date(times.first().copied().unwrap_or_default());
        let last = date(times.last().copied().unwrap_or_default());
        // The range is what finds the buckets.
        let mut range = doc! { "$gte": first, "$lte": last };
        if times.len() <= TIMES_PER_QUERY {
            range.insert("$in", times.into_iter().map(date).collect::<Vec<_>>());
        }
        doc! { device_path(): { "$in": devices }, names::TIMESTAMP: range }
    };
    gathered.into_iter().map(filter).collect()
}

/// The closest match of `document` among `rows` of its device and time.
fn compare(document: &RawDocumentBuf, rows: &[Document]) -> Found {
    let Ok(wanted) = Document::try_from(document.as_ref()) else {
        return Found::Nothing;
    };
    let relations = rows.iter().map(|row| relation(&wanted, row));
    relations.max().unwrap_or(Found::Nothing)
}

/// How two documents of one device and time stand to each other. Type and tags count only where
/// both have them: the registry may have learned of the device in between.
fn relation(wanted: &Document, row: &Document) -> Found {
    if row.get(names::ID) == wanted.get(names::ID) {
        return Found::SameId;
    }
    let metadata = |document: &Document| document.get_document(names::METADATA).cloned();
    let (ours, theirs) = (metadata(wanted), metadata(row));
    let kind = |metadata: &Result<Document, _>| {
        let metadata = metadata.as_ref().ok()?;
        metadata.get(names::TYPE).cloned()
    };
    if let (Some(ours), Some(theirs)) = (kind(&ours), kind(&theirs))
        && ours != theirs
    {
        return Found::Beside;
    }
    let fields = |document: &Document| -> BTreeMap<String, Bson> {
        let known = [names::ID, names::TIMESTAMP, names::METADATA];
        let fields = document.iter();
        let fields = fields.filter(|(name, _)| !known.contains(&name.as_str()));
        fields
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let (wanted, there) = (fields(wanted), fields(row));
    let tags_agree = match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => ours
            .iter()
            .all(|(name, tag)| theirs.get(name).is_none_or(|other| other == tag)),
        _ => true,
    };
    if wanted == there && tags_agree {
        Found::SameContent
    } else if wanted.keys().any(|name| there.contains_key(name)) {
        Found::OtherContent
    } else {
        Found::Beside
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::oid::ObjectId;
    use mongodb::bson::rawdoc;

    use super::*;

    #[test]
    fn rows_are_compared_by_id_then_by_what_they_say() {
        let (id, other) = (ObjectId::new(), ObjectId::new());
        let document = rawdoc! { "_id": id, "timestamp": DateTime::MIN, "t": 1.5 };
        let row = |id: ObjectId, t: f64| doc! { "t": t, "_id": id, "timestamp": DateTime::MIN };
        assert_eq!(compare(&document, &[]), Found::Nothing);
        let piece = doc! { "_id": other, "timestamp": DateTime::MIN, "h": 40.0 };
        assert_eq!(compare(&document, &[piece]), Found::Beside);
        assert_eq!(compare(&document, &[row(other, 2.0)]), Found::OtherContent);
        assert_eq!(
            compare(&document, &[row(other, 2.0), row(other, 1.5)]),
            Found::SameContent
        );
        assert_eq!(
            compare(&document, &[row(other, 1.5), row(id, 1.5)]),
            Found::SameId
        );
    }

    #[test]
    fn devices_asked_about_the_same_hour_share_a_filter() {
        let hour = NEAR;
        let asked = [
            ("a", vec![5 * hour, 5 * hour + 1]),
            ("b", vec![5 * hour + 1]),
            ("c", vec![9 * hour]),
            ("wide", vec![5 * hour, 8 * hour]),
        ];
        let filters = gather(asked.into_iter().collect());
        let told: Vec<_> = filters
            .iter()
            .map(|filter| {
                let devices = filter.get_document("metadata.deviceId").unwrap();
                let times = filter.get_document("timestamp").unwrap();
                (
                    devices.get_array("$in").unwrap().len(),
                    times.get_array("$in").unwrap().len(),
                    times.get_datetime("$gte").unwrap().timestamp_millis() / hour,
                )
            })
            .collect();
        assert_eq!(told, [(1, 2, 5), (2, 2, 5), (1, 1, 9)]);
    }

    #[test]
    fn what_the_registry_adds_later_makes_no_other_reading() {
        let row =
            |metadata: Document| doc! { "_id": ObjectId::new(), "metadata": metadata, "t": 1.5 };
        let wanted = rawdoc! { "_id": ObjectId::new(), "metadata": { "deviceId": "d", "site": "n" }, "t": 1.5 };
        for (metadata, expected) in [
            (doc! { "deviceId": "d" }, Found::SameContent),
            (
                doc! { "deviceId": "d", "site": "n", "model": "m" },
                Found::SameContent,
            ),
            (doc! { "deviceId": "d", "site": "s" }, Found::OtherContent),
            (
                doc! { "deviceId": "d", "site": "n", "type": "x" },
                Found::SameContent,
            ),
        ] {
            assert_eq!(
                compare(&wanted, &[row(metadata.clone())]),
                expected,
                "{metadata}"
            );
        }
        let row = row(doc! { "deviceId": "d", "type": "x" });
        let other = rawdoc! { "_id": ObjectId::new(), "metadata": { "deviceId": "d", "type": "y" }, "t": 1.5 };
        assert_eq!(compare(&other, &[row]), Found::Beside);
    }
}
