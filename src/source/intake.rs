//! Takes deliveries in: stamp, count, hand over to the spool or to the lanes. Never waits.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use super::Surroundings;
use super::acks::{Admission, Arrival};
use super::dispatch::Dispatch;
use super::link::Delivery;
use super::window::{NO_ACK, Window};
use crate::model::{Message, Outcome, QoS, Receipt, Settle, Spooled, Ticket};
use crate::runtime::now;
use crate::telemetry::Ledger;

/// One connection's way into the lanes.
pub struct Intake {
    surroundings: Surroundings,
    dispatch: Dispatch,
}

impl Intake {
    pub fn new(surroundings: Surroundings) -> Self {
        Self {
            dispatch: surroundings.dispatch(),
            surroundings,
        }
    }

    /// Takes a delivery in; `false`: it repeats one that is on its way or stored.
    pub fn take(&self, delivery: Delivery, window: &Arc<Window>) -> bool {
        let weight = weight(&delivery);
        let sequence = match admit(&delivery, window) {
            Admission::New(sequence) => sequence,
            Admission::Folded => return false,
        };
        let message = Message {
            topic: delivery.topic,
            payload: delivery.payload,
            cut_from: None,
            qos: delivery.qos,
            retain: delivery.retain,
            dup: delivery.dup,
            spooled: Spooled::No,
            received_at: now(),
        };
        self.hand_over(message, sequence, weight, window);
        true
    }

    /// A delivery that is no message of a device: acknowledged in its turn, and not counted.
    pub fn pass(delivery: &Delivery, window: &Window) {
        match admit(delivery, window) {
            Admission::New(NO_ACK) | Admission::Folded => {}
            Admission::New(sequence) => window.pass(sequence, weight(delivery)),
        }
    }

    /// Counts a QoS 0 delivery that comes too late to be stored.
    pub fn turn_away(&self) {
        self.surroundings.ledger.received(Ledger::NONE);
        self.surroundings
            .ledger
            .ended(Ledger::NONE, Some(Outcome::Dropped));
    }

    /// Into the spool, where there is one, to be decoded when it is read from there; else decoded
    /// here and now.
    fn hand_over(&self, message: Message, sequence: u64, weight: usize, window: &Arc<Window>) {
        let owner: Arc<dyn Settle> = Arc::<Window>::clone(window);
        let ticket = |stream, decoded| Ticket {
            sequence,
            stream,
            weight: weight + decoded,
        };
        if let Some(spool) = &self.surroundings.spool {
            let (config, stream) = self.surroundings.routes.get().claim(&message);
            self.surroundings.ledger.received(stream);
            let name = config.as_ref().map(|config| config.name.as_str());
            spool.keep(message, name, Receipt::new(ticket(stream, 0), owner));
            return;
        }
        self.dispatch.hand_over(message, |stream, decoded| {
            self.surroundings.ledger.received(stream);
            if sequence != NO_ACK {
                window.grew(decoded);
            }
            Receipt::new(ticket(stream, decoded), owner)
        });
    }
}

/// Gives a delivery its place in the order of acknowledgements.
fn admit(delivery: &Delivery, window: &Window) -> Admission {
    match delivery.qos {
        QoS::AtMostOnce => Admission::New(NO_ACK),
        qos => window.arrived(Arrival {
            packet: delivery.packet,
            qos,
            dup: delivery.dup,
            fingerprint: fingerprint(delivery),
            weight: weight(delivery),
            at: Instant::now(),
        }),
    }
}

fn weight(delivery: &Delivery) -> usize {
    delivery.topic.len() + delivery.payload.len()
}

/// Tells whether a repeated packet id carries the same message.
fn fingerprint(delivery: &Delivery) -> u64 {
    let mut hasher = DefaultHasher::new();
    delivery.topic.hash(&mut hasher);
    delivery.payload.hash(&mut hasher);
    hasher.finish()
}
