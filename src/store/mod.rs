//! The only folder that knows how MongoDB is laid out: names, shapes, indexes, write concerns.
//!
//! Stages get handles from here and never spell a field or collection name themselves.

mod client;
mod collections;
mod dead_letters;
mod document;
mod drift;
mod outbox;
mod probe;
mod provision;
mod series;
mod words;

pub use client::ConnectError;
pub use collections::Store;
pub use dead_letters::{DeadLetter, DeadLetterFilter};
pub use mongodb::error::Result as StoreResult;

pub use document::{EncodeError, MAX_MEASUREMENT_BYTES, encode_reading};
pub use outbox::{
    Last, Lease, Leased, OUTBOX, Outbox, OutboxFilter, OutboxRow, Progress, RowState,
    outbox_indexes,
};
pub use probe::probe;
pub use provision::{Finding, ProvisionError, Provisioned, provision};
pub use series::{Found, Key, Series};
pub use words::words;
