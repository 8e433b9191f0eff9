//! Delivery in numbers. Receivers come from the configuration, the other labels from this program.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::classify::Class;
use super::queue::Standing;
use crate::telemetry::{Registry, buckets};

/// Where rows that are owed may be.
const STATES: [&str; 2] = ["queued", "in_flight"];

/// Counts of one process.
#[derive(Debug, Clone)]
pub struct DeliveryMetrics {
    attempts: IntCounterVec,
    /// Seconds from request to answer.
    pub seconds: Histogram,
    /// Seconds from the decision to tell until the receiver has accepted.
    pub fire_to_accept: Histogram,
    rows: IntGaugeVec,
    oldest: IntGauge,
    breaker: IntGaugeVec,
    /// Seconds for which receivers asked to be left alone.
    pub throttled: IntCounter,
    dead: IntCounterVec,
    /// Alerts that fired and that a receiver certainly never heard of.
    pub never_notified: IntCounter,
    /// Requests repeated although the receiver may have accepted one before.
    pub duplicates_possible: IntCounter,
    ended_retried: IntCounter,
}

impl DeliveryMetrics {
    /// Registers the families, with every series of these receivers at zero.
    pub fn register(registry: &Registry, receivers: &[&str]) -> Self {
        let classes = Class::ALL.map(Class::name);
        Self {
            attempts: registry.counters_by_two(
                "tidegate_alert_delivery_attempts_total",
                "Requests to receivers by what their end means",
                ["receiver", "class"],
                (receivers, &classes),
            ),
            seconds: registry.histogram(
                "tidegate_alert_delivery_seconds",
                "From a request to its answer",
                buckets::SECONDS,
            ),
            fire_to_accept: registry.histogram(
                "tidegate_alert_fire_to_accept_seconds",
                "From the decision to tell a receiver that something fires until it has accepted",
                buckets::SECONDS,
            ),
            rows: registry.gauges_by_two(
                "tidegate_alert_outbox_rows",
                "Messages that are owed",
                ["receiver", "state"],
                (receivers, &STATES),
            ),
            oldest: registry.gauge(
                "tidegate_alert_outbox_oldest_seconds",
                "Age of the oldest message that is owed",
            ),
            breaker: registry.gauges(
                "tidegate_alert_breaker_state",
                "Whether a receiver is asked: 0 yes, 1 one request to see, 2 not for now, 3 not until it is configured anew",
                "receiver",
                receivers,
            ),
            throttled: registry.counter(
                "tidegate_alert_throttled_seconds_total",
                "Seconds for which receivers asked to be left alone",
            ),
            dead: registry.counters(
                "tidegate_alert_dead_total",
                "Messages given up",
                "receiver",
                receivers,
            ),
            never_notified: registry.counter(
                "tidegate_alert_never_notified_total",
                "Messages that something fires which were given up, and certainly never accepted",
            ),
            duplicates_possible: registry.counter(
                "tidegate_alert_duplicates_possible_total",
                "Requests repeated although the receiver may have accepted one before",
            ),
            ended_retried: registry.counter(
                "tidegate_alert_outbox_write_retries_total",
                "Writes to the outbox that had to be repeated",
            ),
        }
    }

    /// Makes the series of a receiver that is new in the configuration.
    pub fn receiver(&self, name: &str) {
        for class in Class::ALL {
            self.attempts.with_label_values(&[name, class.name()]);
        }
        for state in STATES {
            self.rows.with_label_values(&[name, state]);
        }
        self.breaker.with_label_values(&[name]);
        self.dead.with_label_values(&[name]);
    }

    /// An attempt has ended.
    pub fn attempt(&self, receiver: &str, class: Class, took: Duration) {
        let labels = [receiver, class.name()];
        self.attempts.with_label_values(&labels).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// A message was given up.
    pub fn dead(&self, receiver: &str) {
        self.dead.with_label_values(&[receiver]).inc();
    }

    /// The outbox did not answer as it should.
    pub fn write_retried(&self) {
        self.ended_retried.inc();
    }

    /// How things stand.
    pub fn standing(&self, standing: &[Standing], oldest: Duration) {
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for one in standing {
            let name = one.receiver.as_str();
            let rows = |state| self.rows.with_label_values(&[name, state]);
            rows("queued").set(whole(one.waiting));
            rows("in_flight").set(whole(one.flying));
            self.breaker.with_label_values(&[name]).set(one.breaker);
        }
        self.oldest
            .set(i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX));
    }
}
