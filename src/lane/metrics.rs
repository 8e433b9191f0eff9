//! Depth and losses of the lanes.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::telemetry::Registry;

/// Families of all lanes, labelled by lane number.
pub struct LaneMetrics {
    depth: IntGaugeVec,
    dropped: IntCounterVec,
}

/// One lane's series.
pub struct LaneSeries {
    pub(super) depth: IntGauge,
    pub(super) dropped: IntCounter,
}

impl LaneMetrics {
    /// Registers the families.
    pub fn register(registry: &Registry) -> Self {
        Self {
            depth: registry.gauges(
                "tidegate_lane_depth_loads",
                "Readings and dead letters waiting for a writer",
                "lane",
                &[],
            ),
            dropped: registry.counters(
                "tidegate_lane_qos0_dropped_total",
                "QoS 0 loads pushed out of a full lane, oldest first",
                "lane",
                &[],
            ),
        }
    }

    pub(super) fn lane(&self, index: usize) -> LaneSeries {
        let lane = index.to_string();
        LaneSeries {
            depth: self.depth.with_label_values(&[&lane]),
            dropped: self.dropped.with_label_values(&[&lane]),
        }
    }
}
