//! What the writers count, per batch.

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::classify::Cause;
use crate::model::Reason;
use crate::telemetry::{Registry, buckets};

/// The sink's families.
pub struct SinkMetrics {
    pub(super) stored: IntCounterVec,
    pub(super) already_stored: IntCounterVec,
    pub(super) conflicts: IntCounterVec,
    pub(super) dead_letters: IntCounterVec,
    pub(super) batch_readings: Histogram,
    pub(super) readings_per_device: Histogram,
    pub(super) insert_seconds: Histogram,
    pub(super) attempts_failed: IntCounterVec,
    pub(super) look_ups: IntCounter,
    pub(super) looked_up: IntCounter,
    pub(super) fed: IntCounter,
    pub(super) feed_refused: IntCounter,
}

impl SinkMetrics {
    /// Registers the families, with a series at zero for each stream.
    pub fn register(registry: &Registry, streams: &[&str]) -> Self {
        let reasons: Vec<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        let causes: Vec<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        Self {
            stored: registry.counters(
                "tidegate_sink_readings_stored_total",
                "Readings written and acknowledged",
                "stream",
                streams,
            ),
            already_stored: registry.counters(
                "tidegate_sink_readings_already_stored_total",
                "Repeated readings that were found stored, and not stored again",
                "stream",
                streams,
            ),
            conflicts: registry.counters(
                "tidegate_sink_readings_conflicting_total",
                "Repeated readings stored beside others of the same device and time",
                "stream",
                streams,
            ),
            dead_letters: registry.counters(
                "tidegate_sink_dead_letters_total",
                "Dead letters written",
                "reason",
                &reasons,
            ),
            batch_readings: registry.histogram(
                "tidegate_sink_batch_readings",
                "Readings in one insert",
                buckets::COUNTS,
            ),
            readings_per_device: registry.histogram(
                "tidegate_sink_batch_readings_per_device",
                "Readings a device contributes to one insert, on average: the higher, the cheaper",
                buckets::PER_DEVICE,
            ),
            insert_seconds: registry.histogram(
                "tidegate_sink_insert_seconds",
                "Time for MongoDB to acknowledge one insert",
                buckets::SECONDS,
            ),
            attempts_failed: registry.counters(
                "tidegate_sink_attempts_failed_total",
                "Writes that failed and are tried again",
                "cause",
                &causes,
            ),
            look_ups: registry.counter(
                "tidegate_sink_look_ups_total",
                "Queries for what the series holds already: of readings, or of devices met first",
            ),
            looked_up: registry.counter(
                "tidegate_sink_readings_looked_up_total",
                "Readings that might have been stored already, and were looked up",
            ),
            fed: registry.counter(
                "tidegate_sink_readings_fed_total",
                "Readings written to the feed",
            ),
            feed_refused: registry.counter(
                "tidegate_sink_feed_documents_refused_total",
                "Documents of the feed that MongoDB refused: rules did not see their readings",
            ),
        }
    }
}
