//! What the session needs from an MQTT client, whatever the protocol version.
//!
//! Both clients of the library hold requests and events across a lost connection, each in its own
//! way; an implementation cleans them in [`Link::sever`], so that nothing from one connection is
//! seen or sent on the next.

use std::time::Duration;

use bytes::Bytes;

use super::acks::Ack;
use super::options::{Attempt, ConnectionOptions};
use super::window::Window;
use crate::model::QoS;

/// A delivery as it comes off the wire.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Topic bytes; MQTT says UTF-8, the wire may say otherwise.
    pub topic: Bytes,
    /// The payload.
    pub payload: Bytes,
    /// Delivery QoS.
    pub qos: QoS,
    /// Packet id; 0 at QoS 0.
    pub packet: u16,
    /// Sent before.
    pub dup: bool,
    /// From the retained store.
    pub retain: bool,
}

/// What a poll can bring.
#[derive(Debug)]
pub enum LinkEvent {
    /// The broker accepted the connection.
    Connected {
        /// Whether it kept the session.
        session_present: bool,
        /// Whether it supports `$share` (MQTT 5 says so; older brokers are asked by trying).
        shared_available: bool,
        /// How long it keeps the session, where it says so.
        session_expiry: Option<Duration>,
    },
    /// The broker's answer to a subscribe: for each filter the granted QoS, or its refusal.
    Subscribed(Vec<Result<QoS, String>>),
    /// A message.
    Delivery(Delivery),
    /// What was given to [`Publisher`] is on the wire, under this packet id.
    Published(u16),
    /// The broker answered a publish: taken, or why not.
    Confirmed(u16, Result<(), String>),
    /// Acknowledgements put on the wire since the last event.
    Acked(usize),
    /// Anything else: pings and the like, a sign of life.
    Other,
}

/// Why a connection ended or could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkError {
    /// What the session does about it.
    pub kind: LinkErrorKind,
    /// A sentence.
    pub message: String,
}

/// Kinds of failures, as labels and for the decision how long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkErrorKind {
    /// Could not connect, or the connection broke.
    Network,
    /// The broker refused in a way that lasts until somebody changes something.
    Refused,
    /// Another client took the session over.
    TakenOver,
    /// The broker broke the protocol, or sent what the client cannot read.
    Protocol,
    /// The broker went silent.
    Silence,
}

impl LinkErrorKind {
    /// Every kind.
    pub const ALL: [LinkErrorKind; 5] = [
        Self::Network,
        Self::Refused,
        Self::TakenOver,
        Self::Protocol,
        Self::Silence,
    ];

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Refused => "refused",
            Self::TakenOver => "taken_over",
            Self::Protocol => "protocol",
            Self::Silence => "silence",
        }
    }
}

/// One client of one protocol version.
pub trait Link: Send + 'static {
    /// A client that is not connected; the first poll connects.
    fn new(options: &ConnectionOptions) -> Self;

    /// Takes secrets and certificates for the next attempt.
    fn prepare(&mut self, attempt: Attempt);

    /// The next event. Sends what `window` has ready, where this client cannot be sent to from
    /// outside; `None`: a connection that takes nothing in. Not to be dropped half way except together with the connection.
    fn next(
        &mut self,
        window: Option<&Window>,
    ) -> impl Future<Output = Result<LinkEvent, LinkError>> + Send;

    /// Asks for `filters` at QoS 1.
    fn subscribe(&mut self, filters: &[String]) -> Result<(), LinkError>;

    /// Ends the interest in `filters`.
    fn unsubscribe(&mut self, filters: &[String]);

    /// Time between pings: ours, or what the broker asks for on this connection.
    fn keep_alive(&self) -> Duration;

    /// Forgets the connection and everything queued for or read from it.
    fn sever(&mut self);

    /// Asks for an orderly goodbye after what is queued.
    fn disconnect(&mut self);

    /// Where acknowledgements can be queued from any task, if this client has such a place.
    fn outbox(&self) -> Option<Box<dyn AckOutbox>>;

    /// Where messages of our own can be queued from any task.
    fn publisher(&self) -> Box<dyn Publisher>;
}

/// A queue that takes messages and never blocks.
pub trait Publisher: Send + Sync {
    /// Queues a message at QoS 1 that the broker may forget after a minute, where the protocol
    /// can say so; `false`: no room now.
    fn publish(&self, topic: &str, payload: String) -> bool;
}

/// A queue that takes acknowledgements from any task and never blocks.
pub trait AckOutbox: Send + Sync {
    /// Queues one; `false`: no room now.
    fn send(&self, ack: Ack) -> bool;
}
