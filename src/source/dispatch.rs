//! From a message to loads on lanes: decode by the routes in force, and a part of the message's
//! receipt for each load. Used by connections and by the spool alike. Never waits.

use std::sync::Arc;

use super::metrics::SourceMetrics;
use super::routes::RoutesHandle;
use crate::decode::{Decoded, decode};
use crate::lane::{Cargo, Lanes, Load};
use crate::model::{Message, Outcome, Receipt};
use crate::telemetry::Ledger;

/// The way onto the lanes.
#[derive(Clone)]
pub struct Dispatch {
    pub(super) routes: RoutesHandle,
    pub(super) lanes: Lanes,
    pub(super) metrics: Arc<SourceMetrics>,
}

impl Dispatch {
    /// Puts everything a message holds onto lanes. `receipt` makes the message's receipt from the
    /// place of its stream in the ledger and the bytes that its readings take.
    pub fn hand_over(&self, message: Message, receipt: impl FnOnce(usize, usize) -> Receipt) {
        let routes = self.routes.get();
        let Decoded {
            stream,
            readings,
            refused,
            ignored,
        } = decode(&routes.router, &message);
        let position = stream.as_ref().map(|stream| stream.index());
        let ledger_index = position.map_or(Ledger::NONE, |position| routes.ledger[position]);
        // Readings take many times the bytes of a dense payload.
        let decoded: usize = readings
            .iter()
            .map(|reading| size_of::<Load>() + reading.weight())
            .sum();
        let receipt = receipt(ledger_index, decoded);
        if let Some(reason) = ignored {
            self.metrics
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
            self.lanes.push(device.as_str(), load);
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
                self.lanes.push(
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
