//! MQTT 5 through `rumqttc::v5`.
//!
//! Acknowledgements go through the client's request channel, one write each: the library keeps
//! the socket to itself. Never advertised: topic aliases (events show the topic before the alias
//! is resolved) and a packet size below the protocol's own (the broker would drop silently).

use std::time::Duration;

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::{
    ConnectProperties, ConnectReturnCode, DisconnectReasonCode, Filter, PubAckReason, Publish,
    PublishProperties, RetainForwardRule, SubscribeReasonCode,
};
use rumqttc::v5::mqttbytes::{Error as WireError, QoS as WireQoS};
use rumqttc::v5::{
    AsyncClient, ConnectionError, Event, EventLoop, Incoming, MqttOptions, StateError,
};
use rumqttc::{NetworkOptions, Outgoing, TlsConfiguration, Transport};

use super::acks::Ack;
use super::link::{AckOutbox, Delivery, Link, LinkError, LinkErrorKind, LinkEvent, Publisher};
use super::options::{Attempt, ConnectionOptions, MAX_PACKET_BYTES};
use super::window::Window;
use crate::model::QoS;

/// Room in the request channel beside one acknowledgement for each delivery of a full window.
const SPARE_REQUESTS: usize = 32;

/// Only canaries are published, one now and then for each of at most 64 connections.
const OUTGOING_INFLIGHT: u16 = 128;

/// How long the broker keeps a canary for a session that is away.
const CANARY_EXPIRY_SECONDS: u32 = 60;

/// See the module's head.
pub struct LinkV5 {
    client: AsyncClient,
    events: EventLoop,
    /// As configured: the library overwrites its options with what the broker says.
    keep_alive: Duration,
    session_expiry: u32,
}

impl Link for LinkV5 {
    fn new(options: &ConnectionOptions) -> Self {
        let config = &options.config;
        let mut mqtt = MqttOptions::new(
            &options.client_id,
            &options.broker.host,
            options.broker.port,
        );
        let expiry = match options.clean {
            true => 0,
            false => u32::try_from(config.session_expiry.0.as_secs()).unwrap_or(u32::MAX),
        };
        let mut properties = ConnectProperties::new();
        properties.session_expiry_interval = Some(expiry);
        properties.receive_maximum = Some(config.receive_maximum);
        properties.max_packet_size = Some(MAX_PACKET_BYTES);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        mqtt.set_connect_properties(properties)
            .set_clean_start(options.clean)
            .set_manual_acks(true)
            .set_keep_alive(config.keep_alive.0)
            .set_connection_timeout(config.connect_timeout.0.as_secs())
            .set_network_options(network)
            .set_outgoing_inflight_upper_limit(OUTGOING_INFLIGHT)
            .set_pending_throttle(Duration::ZERO);
        let room = usize::from(config.receive_maximum) + SPARE_REQUESTS;
        let (client, events) = AsyncClient::new(mqtt, room);
        Self {
            client,
            events,
            keep_alive: config.keep_alive.0,
            session_expiry: expiry,
        }
    }

    fn prepare(&mut self, attempt: Attempt) {
        self.events.options.set_keep_alive(self.keep_alive);
        self.events
            .options
            .set_session_expiry_interval(Some(self.session_expiry));
        if let Some((user, password)) = attempt.credentials {
            self.events.options.set_credentials(user, password);
        }
        if let Some(tls) = attempt.tls {
            let transport = Transport::tls_with_config(TlsConfiguration::Rustls(tls));
            self.events.options.set_transport(transport);
        }
    }

    async fn next(&mut self, _window: Option<&Window>) -> Result<LinkEvent, LinkError> {
        match self.events.poll().await {
            Ok(Event::Incoming(incoming)) => {
                if matches!(incoming, Incoming::ConnAck(_)) && self.keep_alive().is_zero() {
                    // The broker wants no pings; without them a dead link looks like a quiet one.
                    self.events.options.set_keep_alive(self.keep_alive);
                }
                Ok(incoming_event(incoming))
            }
            Ok(Event::Outgoing(Outgoing::PubAck(_) | Outgoing::PubRec(_))) => {
                Ok(LinkEvent::Acked(1))
            }
            Ok(Event::Outgoing(Outgoing::Publish(packet))) => Ok(LinkEvent::Published(packet)),
            Ok(Event::Outgoing(_)) => Ok(LinkEvent::Other),
            Err(error) => Err(failure(&error)),
        }
    }

    fn keep_alive(&self) -> Duration {
        self.events.options.keep_alive()
    }

    fn subscribe(&mut self, filters: &[String]) -> Result<(), LinkError> {
        let filters = filters.iter().map(|path| Filter {
            path: path.clone(),
            qos: WireQoS::AtLeastOnce,
            nolocal: false,
            preserve_retain: false,
            // A resumed subscription gets no second replay of what is retained.
            retain_forward_rule: RetainForwardRule::OnNewSubscribe,
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
        self.events.state.events.clear();
        self.events.state.collision = None;
    }

    fn disconnect(&mut self) {
        // With no room left the broker sees the socket close, which ends nothing that matters.
        drop(self.client.try_disconnect());
    }

    fn outbox(&self) -> Option<Box<dyn AckOutbox>> {
        Some(Box::new(Outbox(self.client.clone())))
    }

    fn publisher(&self) -> Box<dyn Publisher> {
        Box::new(Outbox(self.client.clone()))
    }
}

struct Outbox(AsyncClient);

impl AckOutbox for Outbox {
    fn send(&self, ack: Ack) -> bool {
        // The library takes a whole publish and looks at two of its fields.
        let mut publish = Publish::new("", wire(ack.qos), Bytes::new(), None);
        publish.pkid = ack.packet;
        self.0.try_ack(&publish).is_ok()
    }
}

impl Publisher for Outbox {
    fn publish(&self, topic: &str, payload: String) -> bool {
        let properties = PublishProperties {
            message_expiry_interval: Some(CANARY_EXPIRY_SECONDS),
            ..PublishProperties::default()
        };
        let qos = WireQoS::AtLeastOnce;
        self.0
            .try_publish_with_properties(topic, qos, false, payload, properties)
            .is_ok()
    }
}

fn wire(qos: QoS) -> WireQoS {
    match qos {
        QoS::AtMostOnce => WireQoS::AtMostOnce,
        QoS::AtLeastOnce => WireQoS::AtLeastOnce,
        QoS::ExactlyOnce => WireQoS::ExactlyOnce,
    }
}

fn model(qos: WireQoS) -> QoS {
    match qos {
        WireQoS::AtMostOnce => QoS::AtMostOnce,
        WireQoS::AtLeastOnce => QoS::AtLeastOnce,
        WireQoS::ExactlyOnce => QoS::ExactlyOnce,
    }
}

fn incoming_event(incoming: Incoming) -> LinkEvent {
    match incoming {
        Incoming::Publish(publish) => LinkEvent::Delivery(Delivery {
            topic: publish.topic,
            payload: publish.payload,
            qos: model(publish.qos),
            packet: publish.pkid,
            dup: publish.dup,
            retain: publish.retain,
        }),
        Incoming::ConnAck(ack) => {
            let properties = ack.properties.as_ref();
            let expiry = properties.and_then(|p| p.session_expiry_interval);
            LinkEvent::Connected {
                session_present: ack.session_present,
                shared_available: properties.and_then(|p| p.shared_subscription_available)
                    != Some(0),
                session_expiry: expiry.map(|secs| Duration::from_secs(u64::from(secs))),
            }
        }
        Incoming::SubAck(ack) => LinkEvent::Subscribed(
            ack.return_codes
                .into_iter()
                .map(|code| match code {
                    SubscribeReasonCode::Success(qos) => Ok(model(qos)),
                    refused => Err(format!("{refused:?}")),
                })
                .collect(),
        ),
        Incoming::PubAck(ack) => {
            let answer = match ack.reason {
                PubAckReason::Success | PubAckReason::NoMatchingSubscribers => Ok(()),
                refused => Err(format!("{refused:?}")),
            };
            LinkEvent::Confirmed(ack.pkid, answer)
        }
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
            | Code::ClientIdentifierNotValid
            | Code::Banned
            | Code::BadAuthenticationMethod
            | Code::RefusedProtocolVersion
            | Code::UnsupportedProtocolVersion,
        ) => LinkErrorKind::Refused,
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => {
            match reason_code {
                DisconnectReasonCode::SessionTakenOver => LinkErrorKind::TakenOver,
                DisconnectReasonCode::NotAuthorized => LinkErrorKind::Refused,
                DisconnectReasonCode::KeepAliveTimeout => LinkErrorKind::Silence,
                DisconnectReasonCode::MalformedPacket | DisconnectReasonCode::ProtocolError => {
                    LinkErrorKind::Protocol
                }
                _ => LinkErrorKind::Network,
            }
        }
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
        ConnectionError::Timeout(_) => "the broker did not answer in time".to_owned(),
        // The codec wraps what the socket says, such as an alert of the broker's TLS.
        ConnectionError::MqttState(StateError::Deserialization(WireError::Io(error))) => {
            error.to_string()
        }
        // A 3.1.1 broker answers an MQTT 5 CONNECT in its own form.
        ConnectionError::MqttState(StateError::Deserialization(detail)) => {
            format!(
                "unreadable packet ({detail}); if the broker speaks MQTT 3.1.1 only, set mqtt.protocol = \"3.1.1\""
            )
        }
        other => other.to_string(),
    };
    LinkError { kind, message }
}
