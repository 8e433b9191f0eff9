//! A device: publishes and waits until the broker has acknowledged everything.

use std::time::Duration;

use rumqttc::{AsyncClient, Event, MqttOptions, Outgoing, Packet, QoS};

use super::unique;

#[derive(Debug, Clone)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: QoS,
    pub retain: bool,
}

impl Message {
    /// QoS 1, not retained.
    pub fn new(topic: impl Into<String>, payload: impl Into<Vec<u8>>) -> Message {
        Message {
            topic: topic.into(),
            payload: payload.into(),
            qos: QoS::AtLeastOnce,
            retain: false,
        }
    }

    pub fn qos(self, qos: QoS) -> Message {
        Message { qos, ..self }
    }

    pub fn retained(self) -> Message {
        Message {
            retain: true,
            ..self
        }
    }
}

/// Publishes `(topic, payload)` pairs at QoS 1 and returns when every one is acknowledged by the broker.
pub async fn publish_all<T, P>(port: u16, messages: impl IntoIterator<Item = (T, P)>) -> usize
where
    T: Into<String>,
    P: Into<Vec<u8>>,
{
    let messages = messages
        .into_iter()
        .map(|(topic, payload)| Message::new(topic, payload));
    publish_messages(port, messages.collect()).await
}

/// Publishes all messages over one connection, in order, and returns how many: those of QoS 1 and 2 acknowledged, those
/// of QoS 0 written to the connection. Panics on the first connection error.
pub async fn publish_messages(port: u16, messages: Vec<Message>) -> usize {
    const STALLED: Duration = Duration::from_secs(30);

    let mut options = MqttOptions::new(unique("publisher"), "127.0.0.1", port);
    options.set_inflight(1_000);
    options.set_max_packet_size(16 << 20, 16 << 20);
    let (client, mut connection) = AsyncClient::new(options, 100);

    let total = messages.len();
    let send = async move {
        for message in messages {
            client
                .publish(message.topic, message.qos, message.retain, message.payload)
                .await
                .expect("the connection below outlives the client");
        }
        client
    };
    let confirm = async {
        let (mut sent, mut acknowledged, mut without) = (0, 0, 0);
        while sent < total || acknowledged + without < total {
            let Ok(event) = tokio::time::timeout(STALLED, connection.poll()).await else {
                panic!("publishing stalled: {acknowledged} of {total} acknowledged");
            };
            match event.unwrap_or_else(|error| {
                panic!("publishing failed after {acknowledged} of {total}: {error}")
            }) {
                // Number 0 is QoS 0, which nobody acknowledges.
                Event::Outgoing(Outgoing::Publish(0)) => (sent, without) = (sent + 1, without + 1),
                Event::Outgoing(Outgoing::Publish(_)) => sent += 1,
                Event::Incoming(Packet::PubAck(_) | Packet::PubComp(_)) => acknowledged += 1,
                _ => {}
            }
        }
    };
    let (client, ()) = tokio::join!(send, confirm);
    client
        .disconnect()
        .await
        .expect("the connection is still there");
    while let Ok(event) = connection.poll().await {
        if event == Event::Outgoing(Outgoing::Disconnect) {
            break;
        }
    }
    total
}
