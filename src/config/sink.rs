//! `[sink]`: how readings are gathered and written.

use serde::{Deserialize, Serialize};

use super::Problems;
use super::units::{ByteSize, Span};

/// Writers and their batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SinkConfig {
    /// Writers, each with its own lane; a device always uses the same one.
    pub writers: usize,
    /// Readings in one batch at the most.
    pub batch_readings: usize,
    /// Bytes in one batch at the most.
    pub batch_bytes: ByteSize,
    /// How long a free writer waits for more readings: 0 stores at once; more trades latency for
    /// fewer, fuller writes (a write costs per device in it, not per reading).
    pub min_linger: Span,
    /// Which readings with a time of their own are looked up before they are written.
    pub dedup: Dedup,
    /// QoS 0 readings held per lane, the oldest are dropped beyond it, counted.
    pub qos0_messages: usize,
    /// Bytes of them per lane.
    pub qos0_bytes: ByteSize,
    /// Longest pause before a failed write is tried again.
    pub retry_max: Span,
    /// How long stopping may take: finish writes, send acknowledgements, see them flushed.
    pub drain_timeout: Span,
}

/// Which readings are looked up, by device and time, before they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedup {
    /// None: what the broker delivers twice is stored twice.
    Off,
    /// Those that may be stored already: not later than what this gateway knows of their device
    /// (by topic), or repeated by the broker.
    Redelivered,
    /// All: for gateways that are handed each other's messages. Costs a query for each batch.
    Always,
}

impl Default for SinkConfig {
    fn default() -> Self {
        Self {
            writers: 4,
            batch_readings: 10_000,
            batch_bytes: ByteSize::mib(8),
            min_linger: Span::secs(0),
            dedup: Dedup::Redelivered,
            qos0_messages: 10_000,
            qos0_bytes: ByteSize::mib(8),
            retry_max: Span::secs(10),
            drain_timeout: Span::secs(20),
        }
    }
}

impl SinkConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        if !(1..=256).contains(&self.writers) {
            problems.add(
                "sink.writers",
                format!("is {}: expected 1 to 256", self.writers),
            );
        }
        if !(1..=100_000).contains(&self.batch_readings) {
            problems.add(
                "sink.batch_readings",
                format!(
                    "is {}: expected 1 to 100000, the most one write command takes",
                    self.batch_readings
                ),
            );
        }
        let bytes = self.batch_bytes.0;
        if !(64 << 10..=32 << 20).contains(&bytes) {
            problems.add(
                "sink.batch_bytes",
                format!(
                    "is {}: expected 64KiB to 32MiB, so that a batch fits one write command",
                    self.batch_bytes
                ),
            );
        }
        if self.min_linger > Span::secs(10) {
            problems.add(
                "sink.min_linger",
                format!("is {}: expected at most 10s", self.min_linger),
            );
        }
        if self.qos0_messages == 0 {
            problems.add("sink.qos0_messages", "is 0: expected at least 1");
        }
        if self.retry_max < Span::millis(100) {
            problems.add(
                "sink.retry_max",
                format!("is {}: expected at least 100ms", self.retry_max),
            );
        }
        if self.drain_timeout < Span::secs(1) {
            problems.add(
                "sink.drain_timeout",
                format!("is {}: expected at least 1s", self.drain_timeout),
            );
        }
    }
}
