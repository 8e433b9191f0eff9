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
    /// The exact payload, unless it was cut.
    pub payload: Bytes,
    /// Where only the beginning of the payload is here: its size as delivered.
    pub cut_from: Option<usize>,
    /// Delivery QoS.
    pub qos: QoS,
    /// Replayed from the broker's retained store.
    pub retain: bool,
    /// The broker has sent it before. Says nothing about whether we stored it.
    pub dup: bool,
    /// Whether it comes from the spool.
    pub spooled: Spooled,
    /// The gateway's clock at receipt.
    pub received_at: Timestamp,
}

/// Whether a message comes from the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spooled {
    /// Straight from the broker.
    #[default]
    No,
    /// Read from the spool for the first time since it was put there.
    First,
    /// Read from the spool before, maybe by an earlier process: may be stored, and has the receive
    /// time it had then.
    Again,
}

impl Message {
    /// The most payload a dead letter keeps; the server's limit for a document is 16 MiB.
    pub const MOST_KEPT: usize = 15 * 1024 * 1024;

    /// Bytes held in memory on behalf of this message.
    pub fn weight(&self) -> usize {
        self.topic.len() + self.payload.len()
    }

    /// The same with at most `most` bytes of payload, and nothing else kept in memory: of a message
    /// beyond every limit the beginning is enough to tell what it was.
    pub fn cut(self, most: usize) -> Self {
        if self.payload.len() <= most {
            return self;
        }
        Self {
            cut_from: Some(self.payload.len()),
            payload: Bytes::copy_from_slice(&self.payload[..most]),
            ..self
        }
    }

    /// The topic as text for logs and dead letters; broken bytes become escapes.
    pub fn topic_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_message_knows_how_long_it_was() {
        let message = Message {
            topic: Bytes::from_static(b"t"),
            payload: Bytes::from_static(b"0123456789"),
            cut_from: None,
            qos: QoS::AtLeastOnce,
            retain: false,
            dup: false,
            spooled: Spooled::No,
            received_at: Timestamp::from_millis(0),
        };
        assert_eq!(message.clone().cut(10).cut_from, None);
        let cut = message.cut(4);
        assert_eq!(
            (cut.payload.as_ref(), cut.cut_from),
            (b"0123".as_slice(), Some(10))
        );
    }
}
