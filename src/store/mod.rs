//! The only folder that knows how MongoDB is laid out: names, shapes, indexes, write concerns.
//!
//! Stages get handles from here and never spell a field or collection name themselves.

mod alerts;
mod client;
mod collections;
mod commit;
mod controls;
mod dead_letters;
mod devices;
mod document;
mod drift;
mod feed;
mod feed_stream;
mod history;
mod lease;
mod ordinary;
mod outbox;
mod predecessor;
mod probe;
mod provision;
mod replays;
mod series;
mod stored_times;
mod words;

pub use alerts::{Checkpoint, Commit, Kept, Line, NoDocument};
pub use client::ConnectError;
pub use collections::{Names, Store};
pub use commit::{CommitError, Fence};
pub use controls::{Control, Controls, Request, SilenceRecord};
pub use dead_letters::{DeadLetter, DeadLetterFilter};
pub use devices::{DeviceChange, DeviceChanges, Seen};
pub use document::{EncodeError, MAX_MEASUREMENT_BYTES, encode_reading};
pub use feed::{
    Beat, FeedAuthor, FeedDocument, FeedError, FeedReading, decode_feed, encode_beat,
    encode_feed_reading, feed_documents,
};
pub use feed_stream::{FeedEvent, FeedStream, FeedStreamError, From, Place};
pub use history::{PastFeed, PastSeries};
pub use lease::Lease;
pub use outbox::{
    Last, Lease as RowLease, Leased, Outbox, OutboxFilter, OutboxRow, Progress, RowState,
    outbox_indexes,
};
pub use probe::probe;
pub use provision::{Finding, ProvisionError, Provisioned, provision};
pub use replays::Claim;
pub use series::{Found, Key, Series};
pub use stored_times::{Alike, LetterCount, StoredTimes};
pub use words::words;

/// What a call of the driver gives, for those who only pass an error on or log its [`words`].
pub type DriverResult<T> = mongodb::error::Result<T>;
