//! From a delivery to loads on lanes: stamp, count, decode, hand over. Never waits.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use super::Surroundings;
use super::acks::{Admission, Arrival};
use super::link::Delivery;
use super::window::{NO_ACK, Window};
use crate::decode::{Decoded, decode};
use crate::lane::{Cargo, Load};
use crate::model::{Message, Outcome, QoS, Receipt, Settle, Ticket};
use crate::runtime::now;
use crate::telemetry::Ledger;

/// One connection's way into the lanes.
pub struct Intake {
    surroundings: Surroundings,
}

impl Intake {
    pub fn new(surroundings: Surroundings) -> Self {
        Self { surroundings }
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
            suspect: false,
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

    fn hand_over(&self, message: Message, sequence: u64, weight: usize, window: &Arc<Window>) {
        let routes = self.surroundings.routes.get();
        let Decoded {
            stream,
            readings,
            refused,
            ignored,
        } = decode(&routes.router, &message);
        let position = stream.as_ref().map(|stream| stream.index());
        let ledger_index = position.map_or(Ledger::NONE, |position| routes.ledger[position]);
        self.surroundings.ledger.received(ledger_index);
        // Readings take many times the bytes of a dense payload.
        let decoded: usize = readings
            .iter()
            .map(|reading| size_of::<Load>() + reading.weight())
            .sum();
        if sequence != NO_ACK {
            window.grew(decoded);
        }
        let ticket = Ticket {
            sequence,
            stream: ledger_index,
            weight: weight + decoded,
        };
        let owner: Arc<dyn Settle> = Arc::<Window>::clone(window);
        let receipt = Receipt::new(ticket, owner);
        if let Some(reason) = ignored {
            self.surroundings
                .metrics
                .ignored
                .with_label_values(&[reason.code()])
                .inc();
            receipt.settle(Outcome::Ignored);
            return;
        }
        let config = position.map(|position| Arc::clone(&routes.configs[position]));
        let message = Arc::new(message);
        for reading in readings {
            let device = reading.device.clone();
            let load = Load {
                message: Arc::clone(&message),
                stream: config.clone(),
                cargo: Cargo::Reading(reading),
                receipt: receipt.clone(),
            };
            self.surroundings.lanes.push(device.as_str(), load);
        }
        match refused {
            Some(refusal) => {
                let topic = message.topic_lossy().into_owned();
                let device = stream.and_then(|stream| stream.device_of(&topic));
                // Unless some of its readings need all of it, no more is held than will be kept.
                let message = match Arc::try_unwrap(message) {
                    Ok(message) => Arc::new(message.cut(Message::MOST_KEPT)),
                    Err(shared) => shared,
                };
                let cargo = Cargo::DeadLetter {
                    reason: refusal.reason,
                    detail: refusal.detail,
                    device,
                };
                self.surroundings.lanes.push(
                    &topic,
                    Load {
                        message,
                        stream: config,
                        cargo,
                        receipt,
                    },
                );
            }
            // The receipt's own part, which stood for the message while its parts were made.
            None => receipt.settle(Outcome::Ignored),
        }
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
