//! What flows through the gateway: plain values, no I/O.
//!
//! A [`Message`] is one MQTT delivery; it decodes into zero or more [`Reading`]s; each of them
//! carries a part of the message's [`Receipt`], and the message is acknowledged when the last
//! part is settled. Nothing here outlives the process.

mod device;
mod filter;
mod keep;
mod message;
mod reading;
mod reason;
mod receipt;
mod selection;
mod severity;
mod timestamp;

pub use device::{Device, DeviceId};
pub use filter::{Filter, Level};
pub use keep::Keep;
pub use message::{Message, QoS, Spooled};
pub use reading::{FieldValue, Flag, Flags, Reading, TimeSource};
pub use reason::{IgnoreReason, Reason};
pub use receipt::{Outcome, Receipt, Settle, Ticket};
pub use selection::Selection;
pub use severity::Severity;
pub use timestamp::Timestamp;
