//! What travels on a lane.

use std::sync::Arc;

use crate::config::StreamConfig;
use crate::model::{DeviceId, Message, QoS, Reading, Reason, Receipt, Spooled};

/// A reading or a dead letter on its way to MongoDB, with its claim on the message's delivery.
pub struct Load {
    /// The delivery it came from: a refused document becomes a dead letter with these bytes.
    pub message: Arc<Message>,
    /// The stream that claimed it; `None`: no stream did.
    pub stream: Option<Arc<StreamConfig>>,
    /// What is to be written.
    pub cargo: Cargo,
    /// Settled when it is written.
    pub receipt: Receipt,
}

/// What is to be written.
pub enum Cargo {
    /// One document of the stream's time-series collection.
    Reading(Reading),
    /// One document of the dead letters.
    DeadLetter {
        /// The closed code.
        reason: Reason,
        /// A sentence a person can act on.
        detail: String,
        /// The device, where it is known.
        device: Option<DeviceId>,
    },
}

impl Load {
    /// Whether it may be dropped under pressure.
    pub fn lossy(&self) -> bool {
        // What the spool holds is safe whatever it was sent as, and bounded there.
        self.message.qos == QoS::AtMostOnce && self.message.spooled == Spooled::No
    }

    /// Bytes it takes in memory, and at most in a write command; the message, which all its
    /// readings share, is not among them.
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match &self.cargo {
                Cargo::Reading(reading) => reading.weight(),
                // Becomes a document with the whole payload.
                Cargo::DeadLetter { detail, .. } => self.message.weight() + detail.len(),
            }
    }
}
