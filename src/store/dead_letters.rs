//! Messages that could not be stored, with everything needed to understand and repeat them:
//! `{_id, at, topic, qos, retained, payload, reason, detail, stream, deviceId, gateway, attempts}`,
//! and once replayed `replayedAt`. `deviceId` is a list where several readings of one message were
//! refused for the same reason. A letter stays until its time to live is over, replayed or not.

use bytes::Bytes;
use futures_util::{TryStream, TryStreamExt};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::raw::{RawArrayBuf, RawDocumentBuf};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use mongodb::error::Error;

use super::Store;
use crate::model::{DeviceId, Message, QoS, Timestamp};

const DEVICE: &str = "deviceId";
pub(super) const REPLAYED_AT: &str = "replayedAt";

/// One dead letter.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// Its id.
    pub id: ObjectId,
    /// When the gateway received the message.
    pub at: Timestamp,
    /// The topic; broken UTF-8 is replaced here and kept in `topic_bytes`.
    pub topic: String,
    /// The topic's bytes, where they are not UTF-8.
    pub topic_bytes: Option<Vec<u8>>,
    /// Delivery QoS.
    pub qos: QoS,
    /// Replayed from the broker's retained store.
    pub retained: bool,
    /// The exact payload, cut only where no document could hold it.
    pub payload: Bytes,
    /// Size of the payload as received.
    pub payload_bytes: usize,
    /// The closed code.
    pub reason: String,
    /// A sentence.
    pub detail: String,
    /// The stream that claimed the topic, if one did.
    pub stream: Option<String>,
    /// The devices it is about, as far as they are known.
    pub devices: Vec<String>,
    /// The gateway that received it.
    pub gateway: String,
    /// Replays that did not succeed.
    pub attempts: i32,
    /// Why the last one did not.
    pub last_replay: Option<String>,
    /// When everything in it was stored after all.
    pub replayed_at: Option<Timestamp>,
}

/// How many devices one letter names.
const MOST_DEVICES: usize = 100;

impl DeadLetter {
    /// A new one for `message`.
    pub fn new(
        message: &Message,
        reason: &str,
        detail: &str,
        stream: Option<&str>,
        device: Option<&DeviceId>,
        gateway: &str,
    ) -> Self {
        let broken = std::str::from_utf8(&message.topic).is_err();
        let kept = message.payload.len().min(Message::MOST_KEPT);
        Self {
            id: ObjectId::new(),
            at: message.received_at,
            topic: message.topic_lossy().into_owned(),
            topic_bytes: broken.then(|| message.topic.to_vec()),
            qos: message.qos,
            retained: message.retain,
            payload: message.payload.slice(..kept),
            payload_bytes: message.cut_from.unwrap_or(message.payload.len()),
            reason: reason.to_owned(),
            detail: detail.to_owned(),
            stream: stream.map(str::to_owned),
            devices: device.iter().map(|device| device.to_string()).collect(),
            gateway: gateway.to_owned(),
            attempts: 0,
            last_replay: None,
            replayed_at: None,
        }
    }

    /// It is about this device too.
    pub fn concerns(&mut self, device: String) {
        if self.devices.len() < MOST_DEVICES && !self.devices.contains(&device) {
            self.devices.push(device);
        }
    }

    /// As stored.
    pub fn encode(&self) -> RawDocumentBuf {
        let binary = |bytes: &[u8]| Binary {
            subtype: BinarySubtype::Generic,
            bytes: bytes.to_vec(),
        };
        let mut document = RawDocumentBuf::new();
        document.append("_id", self.id);
        document.append("at", DateTime::from_millis(self.at.millis()));
        document.append("topic", self.topic.as_str());
        if let Some(bytes) = &self.topic_bytes {
            document.append("topicBytes", binary(bytes));
        }
        document.append("qos", self.qos as i32);
        document.append("retained", self.retained);
        document.append("payload", binary(&self.payload));
        if self.payload.len() < self.payload_bytes {
            document.append(
                "payloadBytes",
                i64::try_from(self.payload_bytes).unwrap_or(i64::MAX),
            );
        }
        document.append("reason", self.reason.as_str());
        document.append("detail", self.detail.as_str());
        if let Some(stream) = &self.stream {
            document.append("stream", stream.as_str());
        }
        match &self.devices[..] {
            [] => {}
            [device] => document.append(DEVICE, device.as_str()),
            devices => {
                let mut list = RawArrayBuf::new();
                for device in devices {
                    list.push(device.as_str());
                }
                document.append(DEVICE, list);
            }
        }
        document.append("gateway", self.gateway.as_str());
        document.append("attempts", self.attempts);
        document
    }

    /// From a stored document; what is missing reads as empty, so that an odd row can be shown.
    pub fn decode(document: &Document) -> Self {
        let text = |key: &str| document.get_str(key).unwrap_or_default().to_owned();
        let bytes = |key: &str| document.get_binary_generic(key).ok().cloned();
        let payload = Bytes::from(bytes("payload").unwrap_or_default());
        let kept = payload.len();
        Self {
            id: document.get_object_id("_id").unwrap_or_default(),
            at: Timestamp::from_millis(
                document
                    .get_datetime("at")
                    .map_or(0, |at| at.timestamp_millis()),
            ),
            topic: text("topic"),
            topic_bytes: bytes("topicBytes"),
            qos: match document.get_i32("qos") {
                Ok(0) => QoS::AtMostOnce,
                Ok(2) => QoS::ExactlyOnce,
                _ => QoS::AtLeastOnce,
            },
            retained: document.get_bool("retained").unwrap_or_default(),
            payload,
            payload_bytes: document
                .get_i64("payloadBytes")
                .ok()
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(kept),
            reason: text("reason"),
            detail: text("detail"),
            stream: document.get_str("stream").ok().map(str::to_owned),
            devices: match document.get(DEVICE) {
                Some(Bson::String(device)) => vec![device.clone()],
                Some(Bson::Array(devices)) => devices
                    .iter()
                    .filter_map(|device| device.as_str().map(str::to_owned))
                    .collect(),
                _ => Vec::new(),
            },
            gateway: text("gateway"),
            attempts: document.get_i32("attempts").unwrap_or_default(),
            last_replay: document.get_document("lastReplay").ok().map(|last| {
                let text = |key| last.get_str(key).unwrap_or_default();
                format!("{}: {}", text("reason"), text("detail"))
            }),
            replayed_at: document
                .get_datetime(REPLAYED_AT)
                .ok()
                .map(|at| Timestamp::from_millis(at.timestamp_millis())),
        }
    }

    /// Whether the payload was cut, so that the message cannot be repeated.
    pub fn cut(&self) -> bool {
        self.payload.len() < self.payload_bytes
    }
}

/// Which dead letters.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    /// Only this one.
    pub id: Option<ObjectId>,
    /// Only of this stream.
    pub stream: Option<String>,
    /// Only with this reason.
    pub reason: Option<String>,
    /// Only about this device.
    pub device: Option<String>,
    /// Leaves out those that were replayed.
    pub open: bool,
    /// Received at or after.
    pub since: Option<Timestamp>,
    /// Received before.
    pub until: Option<Timestamp>,
}

impl DeadLetterFilter {
    /// One letter, whatever its state.
    pub fn one(id: ObjectId) -> Self {
        Self {
            id: Some(id),
            ..Self::default()
        }
    }

    /// Whether it names anything at all.
    pub fn is_empty(&self) -> bool {
        self.id.is_none()
            && self.stream.is_none()
            && self.reason.is_none()
            && self.device.is_none()
            && self.since.is_none()
            && self.until.is_none()
    }

    fn query(&self) -> Document {
        let mut query = Document::new();
        if let Some(id) = self.id {
            query.insert("_id", id);
        }
        if let Some(stream) = &self.stream {
            query.insert("stream", stream);
        }
        if let Some(reason) = &self.reason {
            query.insert("reason", reason);
        }
        if let Some(device) = &self.device {
            query.insert(DEVICE, device);
        }
        if self.open {
            query.insert(REPLAYED_AT, doc! { "$exists": false });
        }
        let mut at = Document::new();
        let date = |time: Timestamp| Bson::DateTime(DateTime::from_millis(time.millis()));
        if let Some(since) = self.since {
            at.insert("$gte", date(since));
        }
        if let Some(until) = self.until {
            at.insert("$lt", date(until));
        }
        if !at.is_empty() {
            query.insert("at", at);
        }
        query
    }
}

impl Store {
    /// Dead letters that match, oldest first, at most `limit` (0: all).
    ///
    /// # Errors
    /// The driver's.
    pub async fn find_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        limit: i64,
    ) -> mongodb::error::Result<Vec<DeadLetter>> {
        self.stream_dead_letters(filter, limit)
            .await?
            .try_collect()
            .await
    }

    /// The same, one after the other.
    ///
    /// # Errors
    /// The driver's.
    pub async fn stream_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        limit: i64,
    ) -> mongodb::error::Result<impl TryStream<Ok = DeadLetter, Error = Error> + Unpin + use<>>
    {
        let cursor = self
            .dead_letters()
            .find(filter.query())
            .sort(doc! { "_id": 1 })
            .limit(limit)
            .await?;
        Ok(cursor.map_ok(|document| DeadLetter::decode(&document)))
    }

    /// Their ids, oldest first: small enough to hold however many there are.
    ///
    /// # Errors
    /// The driver's.
    pub async fn dead_letter_ids(
        &self,
        filter: &DeadLetterFilter,
    ) -> mongodb::error::Result<Vec<ObjectId>> {
        let letters = self.dead_letters();
        let cursor = letters
            .find(filter.query())
            .projection(doc! { "_id": 1 })
            .sort(doc! { "_id": 1 })
            .await?;
        let ids =
            cursor.try_filter_map(|letter| async move { Ok(letter.get_object_id("_id").ok()) });
        ids.try_collect().await
    }

    /// How many match.
    ///
    /// # Errors
    /// The driver's.
    pub async fn count_dead_letters(
        &self,
        filter: &DeadLetterFilter,
    ) -> mongodb::error::Result<u64> {
        self.dead_letters().count_documents(filter.query()).await
    }

    /// Removes those that match; how many there were.
    ///
    /// # Errors
    /// The driver's.
    pub async fn drop_dead_letters(
        &self,
        filter: &DeadLetterFilter,
    ) -> mongodb::error::Result<u64> {
        Ok(self
            .dead_letters()
            .delete_many(filter.query())
            .await?
            .deleted_count)
    }
}
