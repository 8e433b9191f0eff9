//! One MQTT delivery, kept until its fate is known: a dead letter needs the exact bytes.

use bytes::Bytes;

use super::Timestamp;

/// The quality of service a message was delivered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QoS {
    /// Fire and forget: may be dropped under pressure, counted.
    AtMostOnce = 0,
    /// Acknowledged when stored.
    AtLeastOnce = 1,
    /// Never asked for, but a broker may send it.
    ExactlyOnce = 2,
}

/// One MQTT publish as delivered to the gateway.
#[derive(Debug, Clone)]
pub struct Message {
    /// The topic's bytes; UTF-8 unless a client upstream is broken.
    pub topic: Bytes,
    /// The exact payload.
    pub payload: Bytes,
    /// Delivery QoS.
    pub qos: QoS,
    /// Replayed from the broker's retained store.
    pub retain: bool,
    /// The broker has sent it before. Says nothing about whether we stored it.
    pub dup: bool,
    /// The gateway's clock at receipt.
    pub received_at: Timestamp,
}

impl Message {
    /// Bytes held in memory on behalf of this message.
    pub fn weight(&self) -> usize {
        self.topic.len() + self.payload.len()
    }

    /// The topic as text for logs and dead letters; broken bytes become escapes.
    pub fn topic_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.topic)
    }
}
