//! What the sources count.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts,
};

use super::link::LinkErrorKind;
use super::stall::Rebuild;
use crate::model::IgnoreReason;
use crate::telemetry::{Registry, buckets};

/// Families of all connections; `connection` is the connection's number.
pub struct SourceMetrics {
    pub(super) ignored: IntCounterVec,
    pub(super) disconnects: IntCounterVec,
    pub(super) rebuilds: IntCounterVec,
    pub(super) canary_disconnected: IntGauge,
    subscribed: IntGaugeVec,
    connects: IntCounterVec,
    sessions_lost: IntCounterVec,
    refusals: IntCounterVec,
    folded: IntCounterVec,
    stale_acks: IntCounterVec,
    acked: IntCounterVec,
    parked: IntCounterVec,
    unacked: IntGaugeVec,
    window: IntGaugeVec,
    bytes: IntGaugeVec,
    oldest: GaugeVec,
    ack_seconds: HistogramVec,
    canary_seconds: HistogramVec,
    canary_overdue: IntGaugeVec,
}

/// One connection's series.
#[derive(Clone)]
pub struct ConnectionSeries {
    /// 1 while every filter is granted.
    pub subscribed: IntGauge,
    /// Accepted connections.
    pub connects: IntCounter,
    /// Accepted without the session that was there before.
    pub sessions_lost: IntCounter,
    /// Filters the broker refused.
    pub refusals: IntCounter,
    /// Repeated deliveries folded.
    pub folded: IntCounter,
    /// Acknowledgements dropped because their connection had ended.
    pub stale_acks: IntCounter,
    /// Acknowledgements on the wire.
    pub acked: IntCounter,
    /// Times the link was closed because too many bytes were on their way.
    pub parked: IntCounter,
    /// Un-acknowledged deliveries.
    pub unacked: IntGauge,
    /// How many there may be.
    pub window: IntGauge,
    /// Their bytes.
    pub bytes: IntGauge,
    /// Age of the oldest.
    pub oldest: Gauge,
    /// From arrival to acknowledgement.
    pub ack_seconds: Histogram,
    /// From publishing a canary to its return.
    pub canary_seconds: Histogram,
    /// 1 while one is out for too long.
    pub canary_overdue: IntGauge,
}

impl SourceMetrics {
    /// Registers the families.
    pub fn register(registry: &Registry, connections: usize) -> Self {
        let ignored: Vec<_> = IgnoreReason::ALL.iter().map(|r| r.code()).collect();
        let kinds: Vec<_> = LinkErrorKind::ALL.iter().map(|k| k.name()).collect();
        let by_connection =
            |name: &str, help: &str| registry.counters(name, help, "connection", &[]);
        let gauge = |name: &str, help: &str| registry.gauges(name, help, "connection", &[]);
        let literal = "name and labels are literals in the source";
        let metrics = Self {
            ignored: registry.counters(
                "tidegate_messages_ignored_total",
                "Messages left out under a named rule",
                "reason",
                &ignored,
            ),
            disconnects: registry.counters(
                "tidegate_source_disconnects_total",
                "Connections that ended or could not be had",
                "cause",
                &kinds,
            ),
            rebuilds: registry.counters(
                "tidegate_source_rebuilds_total",
                "Connections ended by the gateway because nothing moved on them",
                "reason",
                &Rebuild::ALL.map(Rebuild::name),
            ),
            canary_disconnected: registry.gauge(
                "tidegate_source_canary_disconnected",
                "1 while the connection that canaries are published on is down",
            ),
            subscribed: gauge(
                "tidegate_source_subscribed",
                "1 while connected with every filter granted",
            ),
            connects: by_connection(
                "tidegate_source_connects_total",
                "Connections the broker accepted",
            ),
            sessions_lost: by_connection(
                "tidegate_source_sessions_lost_total",
                "Reconnects at which the broker had forgotten the session: queued messages are gone",
            ),
            refusals: by_connection(
                "tidegate_source_refused_filters_total",
                "Filters the broker refused to subscribe",
            ),
            folded: by_connection(
                "tidegate_source_redeliveries_folded_total",
                "Repeated deliveries of a message on its way or just stored",
            ),
            stale_acks: by_connection(
                "tidegate_source_stale_acks_total",
                "Acknowledgements dropped because their connection had ended",
            ),
            acked: by_connection(
                "tidegate_source_acks_total",
                "Acknowledgements put on the wire",
            ),
            parked: by_connection(
                "tidegate_source_parked_total",
                "Times the link was closed until held bytes were written",
            ),
            unacked: gauge(
                "tidegate_source_unacked_messages",
                "Deliveries not yet acknowledged",
            ),
            window: gauge(
                "tidegate_source_window_messages",
                "Deliveries the broker may have outstanding (MQTT 5)",
            ),
            bytes: gauge(
                "tidegate_source_inflight_bytes",
                "Bytes of messages on their way to MongoDB",
            ),
            oldest: registry.add(
                GaugeVec::new(
                    Opts::new(
                        "tidegate_source_oldest_unacked_seconds",
                        "Age of the oldest un-acknowledged delivery",
                    ),
                    &["connection"],
                )
                .expect(literal),
            ),
            ack_seconds: registry.add(
                HistogramVec::new(
                    HistogramOpts::new(
                        "tidegate_source_ack_seconds",
                        "From a delivery's arrival to its acknowledgement",
                    )
                    .buckets(buckets::SECONDS.to_vec()),
                    &["connection"],
                )
                .expect(literal),
            ),
            canary_seconds: registry.add(
                HistogramVec::new(
                    HistogramOpts::new(
                        "tidegate_source_canary_seconds",
                        "From publishing a canary to its return through the subscription",
                    )
                    .buckets(buckets::SECONDS.to_vec()),
                    &["connection"],
                )
                .expect(literal),
            ),
            canary_overdue: gauge(
                "tidegate_source_canary_overdue",
                "1 while a canary that the broker took has not come back for too long",
            ),
        };
        for index in 0..connections {
            metrics.connection(index);
        }
        metrics
    }

    /// The series of one connection, at zero.
    pub(super) fn connection(&self, index: usize) -> ConnectionSeries {
        let connection = index.to_string();
        let label = &[connection.as_str()];
        ConnectionSeries {
            subscribed: self.subscribed.with_label_values(label),
            connects: self.connects.with_label_values(label),
            sessions_lost: self.sessions_lost.with_label_values(label),
            refusals: self.refusals.with_label_values(label),
            folded: self.folded.with_label_values(label),
            stale_acks: self.stale_acks.with_label_values(label),
            acked: self.acked.with_label_values(label),
            parked: self.parked.with_label_values(label),
            unacked: self.unacked.with_label_values(label),
            window: self.window.with_label_values(label),
            bytes: self.bytes.with_label_values(label),
            oldest: self.oldest.with_label_values(label),
            ack_seconds: self.ack_seconds.with_label_values(label),
            canary_seconds: self.canary_seconds.with_label_values(label),
            canary_overdue: self.canary_overdue.with_label_values(label),
        }
    }
}
