//! What the spool counts.

use prometheus::{Gauge, Histogram, IntCounter, IntGauge, Opts};

use crate::telemetry::{Registry, buckets};

/// Its families.
pub struct SpoolMetrics {
    /// Messages in it that are not known to be stored.
    pub messages: IntGauge,
    /// Bytes of messages on disk.
    pub bytes: IntGauge,
    /// Bytes of its file.
    pub file_bytes: IntGauge,
    /// Age of the oldest message.
    pub oldest: Gauge,
    /// Seconds until it is full.
    pub to_full: Gauge,
    /// 1 while nothing more is taken.
    pub full: IntGauge,
    /// Messages in one commit.
    pub group: Histogram,
    /// What a commit took.
    pub commit_seconds: Histogram,
    /// Messages put there.
    pub taken: IntCounter,
    /// Bytes of them.
    pub taken_bytes: IntCounter,
    /// Messages found there at start.
    pub recovered: IntCounter,
    /// Messages that left it.
    pub drained: IntCounter,
    /// Messages lost on their way to MongoDB, to be read again.
    pub again: IntCounter,
    /// Records that are no messages any more.
    pub damaged: IntCounter,
    /// Commits and reads that failed.
    pub failures: IntCounter,
}

impl SpoolMetrics {
    /// Registers the families.
    pub fn register(registry: &Registry) -> Self {
        let gauge = |name: &str, help: &str| {
            let options = Opts::new(name, help);
            let gauge = Gauge::with_opts(options).expect("the name is a literal in the source");
            registry.add(gauge)
        };
        let metrics = Self {
            messages: registry.gauge(
                "tidegate_spool_messages",
                "Messages in the spool that are not stored yet",
            ),
            bytes: registry.gauge(
                "tidegate_spool_bytes",
                "Bytes of messages in the spool, which spool.max_bytes bounds",
            ),
            file_bytes: registry.gauge(
                "tidegate_spool_file_bytes",
                "Bytes the spool's file takes on disk; it keeps its size until the spool is empty",
            ),
            oldest: gauge(
                "tidegate_spool_oldest_seconds",
                "Age of the oldest message in the spool that is not stored yet",
            ),
            to_full: gauge(
                "tidegate_spool_time_to_full_seconds",
                "Time until the spool is full at the present pace; infinite while it does not fill",
            ),
            full: registry.gauge(
                "tidegate_spool_full",
                "1 while the spool takes nothing more: full, or its disk cannot be written",
            ),
            group: registry.histogram(
                "tidegate_spool_group_messages",
                "Messages put on disk with one fsync",
                buckets::COUNTS,
            ),
            commit_seconds: registry.histogram(
                "tidegate_spool_commit_seconds",
                "Time to put a group on disk, fsync included",
                buckets::SECONDS,
            ),
            taken: registry.counter("tidegate_spool_taken_total", "Messages put on disk"),
            taken_bytes: registry.counter(
                "tidegate_spool_taken_bytes_total",
                "Bytes of messages put on disk",
            ),
            recovered: registry.counter(
                "tidegate_spool_recovered_total",
                "Messages of an earlier run found in the spool at start",
            ),
            drained: registry.counter(
                "tidegate_spool_drained_total",
                "Messages of the spool that reached an end",
            ),
            again: registry.counter(
                "tidegate_spool_read_again_total",
                "Messages of the spool that were lost on their way to MongoDB and are read again",
            ),
            damaged: registry.counter(
                "tidegate_spool_damaged_total",
                "Records that cannot be read as messages, set aside in the spool's file",
            ),
            failures: registry.counter(
                "tidegate_spool_failures_total",
                "Writes and reads of the spool's file that failed",
            ),
        };
        metrics.to_full.set(f64::INFINITY);
        metrics
    }
    /// Tells how many messages are in it, and the bytes of what is on disk.
    pub fn set_held(&self, messages: u64, bytes: u64) {
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.messages.set(gauge(messages));
        self.bytes.set(gauge(bytes));
    }
}
