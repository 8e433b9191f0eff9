//! MQTT 3.1.1 through `rumqttc`.
//!
//! This client leaves its socket open to us, so acknowledgements are written directly, many to
//! one flush, whenever everything read so far has been handled. None is ever queued inside the
//! library, so none can outlive its connection there.

use std::time::Duration;

use bytes::Bytes;
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, Error as WireError, Event, EventLoop,
    Incoming, MqttOptions, NetworkOptions, Outgoing, PubAck, PubRec, QoS as WireQoS, Request,
    StateError, SubscribeFilter, SubscribeReasonCode, TlsConfiguration, Transport,
};

use super::acks::Ack;
use super::link::{AckOutbox, Delivery, Link, LinkError, LinkErrorKind, LinkEvent, Publisher};
use super::options::{Attempt, ConnectionOptions, MAX_PACKET_BYTES};
use super::window::Window;
use crate::model::QoS;

/// Only canaries are published, one now and then for each of at most 64 connections.
const OUTGOING_INFLIGHT: u16 = 128;

/// Room in the request channel: subscriptions, canaries and the goodbye.
const REQUESTS: usize = 160;

/// How long acknowledgements may take to leave before the link counts as dead.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// See the module's head.
pub struct LinkV311 {
    client: AsyncClient,
    events: EventLoop,
}

impl Link for LinkV311 {
    fn new(options: &ConnectionOptions) -> Self {
        let config = &options.config;
        let mut mqtt = MqttOptions::new(
            &options.client_id,
            &options.broker.host,
            options.broker.port,
        );
        let packet = MAX_PACKET_BYTES as usize;
        mqtt.set_clean_session(options.clean)
            .set_manual_acks(true)
            .set_keep_alive(config.keep_alive.0)
            .set_max_packet_size(packet, packet)
            .set_inflight(OUTGOING_INFLIGHT)
            .set_pending_throttle(Duration::ZERO);
        let (client, mut events) = AsyncClient::new(mqtt, REQUESTS);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        network.set_connection_timeout(config.connect_timeout.0.as_secs());
        events.set_network_options(network);
        Self { client, events }
    }

    fn prepare(&mut self, attempt: Attempt) {
        if let Some((user, password)) = attempt.credentials {
            self.events.mqtt_options.set_credentials(user, password);
        }
        if let Some(tls) = attempt.tls {
            let transport = Transport::tls_with_config(TlsConfiguration::Rustls(tls));
            self.events.mqtt_options.set_transport(transport);
        }
    }

    async fn next(&mut self, window: Option<&Window>) -> Result<LinkEvent, LinkError> {
        loop {
            let (Some(window), true) = (window, self.events.network.is_some()) else {
                let polled = self.events.poll().await;
                return polled.map(event).map_err(|error| failure(&error));
            };
            // Between two reads: everything read so far was handled, answers share one flush.
            if self.events.state.events.is_empty() {
                let due = window.take_due();
                if !due.is_empty() {
                    self.write(&due).await?;
                    return Ok(LinkEvent::Acked(due.len()));
                }
            }
            tokio::select! {
                biased;
                // Dropped when acknowledgements fall due. Safe in this version: what was read is
                // kept by the codec or in `state.events`, what was written is in the codec's
                // buffer, and of what the request channel carries a lost SUBSCRIBE is noticed and
                // sent again, and a lost UNSUBSCRIBE leaves messages that are counted as unclaimed.
                polled = self.events.poll() => return polled.map(event).map_err(|error| failure(&error)),
                () = window.changed() => {}
            }
        }
    }

    fn keep_alive(&self) -> Duration {
        self.events.mqtt_options.keep_alive()
    }

    fn subscribe(&mut self, filters: &[String]) -> Result<(), LinkError> {
        let filters = filters.iter().map(|path| SubscribeFilter {
            path: path.clone(),
            qos: WireQoS::AtLeastOnce,
        });
        self.client
            .try_subscribe_many(filters)
            .map_err(|error| LinkError {
                kind: LinkErrorKind::Protocol,
                message: format!("cannot queue the subscription: {error}"),
            })
    }

    fn unsubscribe(&mut self, filters: &[String]) {
        for filter in filters {
            // A full queue means a busy link; the filter's messages are then counted as unclaimed.
            drop(self.client.try_unsubscribe(filter.clone()));
        }
    }

    fn sever(&mut self) {
        self.events.clean();
        // Everything worth sending is made anew for the next connection.
        self.events.pending.clear();
        // Else publishes read before the end appear after the next CONNACK.
        self.events.state.events.clear();
        self.events.state.collision = None;
    }

    fn disconnect(&mut self) {
        // With no room left the broker sees the socket close, which ends nothing that matters.
        drop(self.client.try_disconnect());
    }

    fn outbox(&self) -> Option<Box<dyn AckOutbox>> {
        None
    }

    fn publisher(&self) -> Box<dyn Publisher> {
        Box::new(Outbox(self.client.clone()))
    }
}

struct Outbox(AsyncClient);

impl Publisher for Outbox {
    fn publish(&self, topic: &str, payload: String) -> bool {
        let qos = WireQoS::AtLeastOnce;
        self.0.try_publish(topic, qos, false, payload).is_ok()
    }
}

impl LinkV311 {
    async fn write(&mut self, acks: &[Ack]) -> Result<(), LinkError> {
        let dead = |error: &dyn std::fmt::Display| LinkError {
            kind: LinkErrorKind::Network,
            message: format!("cannot send acknowledgements: {error}"),
        };
        let Some(network) = &mut self.events.network else {
            return Err(dead(&"not connected"));
        };
        let all = async {
            for ack in acks {
                let request = match ack.qos {
                    QoS::ExactlyOnce => Request::PubRec(PubRec::new(ack.packet)),
                    _ => Request::PubAck(PubAck::new(ack.packet)),
                };
                if let Some(packet) = self.events.state.handle_outgoing_packet(request)? {
                    network.write(packet).await?;
                }
                // The library notes it as an event to poll; the caller is told at once instead.
                self.events.state.events.pop_back();
            }
            network.flush().await
        };
        match tokio::time::timeout(FLUSH_LIMIT, all).await {
            Ok(result) => result.map_err(|error| dead(&error)),
            Err(_) => Err(dead(&"the socket takes nothing")),
        }
    }
}

fn model(qos: WireQoS) -> QoS {
    match qos {
        WireQoS::AtMostOnce => QoS::AtMostOnce,
        WireQoS::AtLeastOnce => QoS::AtLeastOnce,
        WireQoS::ExactlyOnce => QoS::ExactlyOnce,
    }
}

fn event(event: Event) -> LinkEvent {
    match event {
        Event::Incoming(Incoming::Publish(publish)) => LinkEvent::Delivery(Delivery {
            topic: Bytes::from(publish.topic),
            payload: publish.payload,
            qos: model(publish.qos),
            packet: publish.pkid,
            dup: publish.dup,
            retain: publish.retain,
        }),
        Event::Incoming(Incoming::ConnAck(ack)) => LinkEvent::Connected {
            session_present: ack.session_present,
            shared_available: true,
            session_expiry: None,
        },
        Event::Incoming(Incoming::SubAck(ack)) => LinkEvent::Subscribed(
            ack.return_codes
                .into_iter()
                .map(|code| match code {
                    SubscribeReasonCode::Success(qos) => Ok(model(qos)),
                    SubscribeReasonCode::Failure => Err("refused".to_owned()),
                })
                .collect(),
        ),
        Event::Incoming(Incoming::PubAck(ack)) => LinkEvent::Confirmed(ack.pkid, Ok(())),
        Event::Outgoing(Outgoing::Publish(packet)) => LinkEvent::Published(packet),
        Event::Outgoing(Outgoing::PubAck(_) | Outgoing::PubRec(_)) => LinkEvent::Acked(1),
        _ => LinkEvent::Other,
    }
}

fn failure(error: &ConnectionError) -> LinkError {
    use ConnectReturnCode as Code;
    let kind = match error {
        ConnectionError::ConnectionRefused(
            Code::BadUserNamePassword
            | Code::NotAuthorized
            | Code::BadClientId
            | Code::RefusedProtocolVersion,
        ) => LinkErrorKind::Refused,
        ConnectionError::MqttState(StateError::AwaitPingResp) => LinkErrorKind::Silence,
        ConnectionError::MqttState(
            StateError::ConnectionAborted
            | StateError::Io(_)
            | StateError::Deserialization(WireError::Io(_)),
        ) => LinkErrorKind::Network,
        ConnectionError::MqttState(_) | ConnectionError::NotConnAck(_) => LinkErrorKind::Protocol,
        _ => LinkErrorKind::Network,
    };
    let message = match error {
        ConnectionError::ConnectionRefused(code) => {
            format!("the broker refused the connection: {code:?}")
        }
        ConnectionError::NetworkTimeout => "the broker did not answer in time".to_owned(),
        other => other.to_string(),
    };
    LinkError { kind, message }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_connection_that_breaks_is_no_packet_that_cannot_be_read() {
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        let state = ConnectionError::MqttState;
        for (error, kind) in [
            (state(StateError::ConnectionAborted), LinkErrorKind::Network),
            (state(StateError::Io(reset())), LinkErrorKind::Network),
            // While reading a packet.
            (
                state(StateError::Deserialization(WireError::Io(reset()))),
                LinkErrorKind::Network,
            ),
            (ConnectionError::Io(reset()), LinkErrorKind::Network),
            (
                state(StateError::Deserialization(WireError::MalformedPacket)),
                LinkErrorKind::Protocol,
            ),
            (state(StateError::AwaitPingResp), LinkErrorKind::Silence),
            (
                ConnectionError::ConnectionRefused(ConnectReturnCode::NotAuthorized),
                LinkErrorKind::Refused,
            ),
        ] {
            assert_eq!(failure(&error).kind, kind, "{error:?}");
        }
    }
}
