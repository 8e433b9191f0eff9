//! One term of leadership: everything that is known is read, then each document of the feed is
//! judged, what changed is told to the planner, and what is decided is written in one transaction.
//!
//! The place in the feed is written with it, unless much would have to be written along: then it
//! follows within seconds. It may trail what is known of alerts, because readings that were applied
//! are told by their time when they come again; it never leads it. If the process dies here, the
//! next leader reads what was committed and goes on from that place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::clock::StreamClock;
use super::controls::{Controls, Listening};
use super::draft::Draft;
use super::episode::{Change, EndReason, Transition};
use super::metrics::{AlertMetrics, Restart, gauge};
use super::notice::{Delivery, NoticeKind, Settled};
use super::own::{Own, OwnAlerts};
use super::watch::{News, watch};
use crate::config::Config;
use crate::devices::Devices;
use crate::model::Timestamp;
use crate::runtime::{Backoff, Condition, now};
use crate::store::{
    Checkpoint, Commit, CommitError, DeviceChange, FeedDocument, FeedEvent, FeedStreamError, From,
    Lease, Place, Request, Store, words,
};
