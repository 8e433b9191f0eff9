//! What is counted of evaluation, state and stream; delivery counts for itself.

use prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::episode::Change;
use super::notice::NoticeKind;
use super::notify::plan::RemarkKind;
use crate::model::Severity;
use crate::store::FeedStreamError;
use crate::telemetry::{Registry, buckets};

/// Why the stream was opened anew; a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    HistoryLost,
    Invalidated,
    Oversize,
    Passing,
}

impl Restart {
    const ALL: [Restart; 4] = [
        Self::HistoryLost,
        Self::Invalidated,
        Self::Oversize,
        Self::Passing,
    ];

    /// The cause of a stream's end.
    pub const fn of(error: &FeedStreamError) -> Self {
        match error {
            FeedStreamError::HistoryLost(_) => Self::HistoryLost,
            FeedStreamError::Invalidated => Self::Invalidated,
            FeedStreamError::Oversize(_) => Self::Oversize,
            FeedStreamError::Passing(_) => Self::Passing,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::HistoryLost => "history_lost",
            Self::Invalidated => "invalidated",
            Self::Oversize => "oversize",
            Self::Passing => "passing",
        }
    }
}

/// The families.
pub struct AlertMetrics {
    pub(super) leader: IntGauge,
    pub(super) term: IntGauge,
    pub(super) rules: IntGauge,
    pub(super) rules_refused: IntGauge,
    pub(super) evaluations: IntCounterVec,
    pub(super) skipped: IntCounterVec,
    pub(super) instances: IntGaugeVec,
    pub(super) firing: IntGaugeVec,
    pub(super) rule_firing: IntGaugeVec,
    pub(super) transitions: IntCounterVec,
    pub(super) notices: IntCounterVec,
    pub(super) remarks: IntCounterVec,
    pub(super) storms: IntGauge,
    pub(super) lag: Gauge,
    pub(super) checkpoint_age: Gauge,
    pub(super) restarts: IntCounterVec,
    pub(super) gaps: IntCounter,
    pub(super) undecodable: IntCounter,
    pub(super) catching_up: IntGauge,
    pub(super) blind: IntGauge,
    pub(super) commit_seconds: Histogram,
    pub(super) commits_failed: IntCounter,
    pub(super) events: IntCounter,
}

/// Results of an evaluation; a closed set.
pub(super) const RESULTS: [&str; 4] = ["breach", "clear", "held", "unknown"];

/// Why a sample was not applied; a closed set.
pub(super) const SKIPS: [&str; 6] = [
    "late",
    "duplicate",
    "historical",
    "nonfinite",
    "type",
    "missing",
];

/// What keeps a message back; a closed set, see [`super::notify::plan::By`].
const HELD_BY: [&str; 10] = [
    "min_severity",
    "catch_up",
    "silence",
    "quiet",
    "cooldown",
    "group",
    "storm",
    "acked",
    "refused",
    "pace",
];

/// States of an instance; a closed set.
pub(super) const STATES: [&str; 3] = ["pending", "firing", "recovering"];

impl AlertMetrics {
    /// Registers the families, every series at zero.
    pub fn register(registry: &Registry) -> Self {
        let changes = Change::ALL.map(Change::name);
        let kinds = NoticeKind::ALL.map(NoticeKind::name);
        let levels = Severity::ALL.map(Severity::name);
        // What holds back, and what never came to be sent.
        let mut held = RemarkKind::ALL.map(RemarkKind::name).to_vec();
        held.extend(HELD_BY);
        let restarts = Restart::ALL.map(Restart::name);
        let seconds = |name: &str, help: &str| {
            registry.add(Gauge::new(name, help).expect("the name is a literal in the source"))
        };
        Self {
            leader: registry.gauge(
                "tidegate_alert_leader",
                "1 while this gateway evaluates the rules",
            ),
            term: registry.gauge(
                "tidegate_alert_term",
                "Term of this gateway's last leadership: the fencing token",
            ),
            rules: registry.gauge("tidegate_alert_rules", "Rules in force"),
            rules_refused: registry.gauge(
                "tidegate_alert_rules_refused",
                "Mistakes in rules: those rules are not in force, or a former version is",
            ),
            evaluations: registry.counters(
                "tidegate_alert_evaluations_total",
                "Evaluations of a rule on a reading",
                "result",
                &RESULTS,
            ),
            skipped: registry.counters(
                "tidegate_alert_samples_skipped_total",
                "Readings that a rule did not apply",
                "why",
                &SKIPS,
            ),
            instances: registry.gauges(
                "tidegate_alert_instances",
                "Rules times devices by state, those at rest left out",
                "state",
                &STATES,
            ),
            firing: registry.gauges(
                "tidegate_alert_firing",
                "Alerts that fire, by level",
                "severity",
                &levels,
            ),
            rule_firing: registry.gauges(
                "tidegate_alert_rule_firing",
                "Alerts that fire, by rule, of the first 500 rules in force",
                "rule",
                &[],
            ),
            transitions: registry.counters(
                "tidegate_alert_transitions_total",
                "Changes of alerts",
                "change",
                &changes,
            ),
            notices: registry.counters(
                "tidegate_alert_notices_total",
                "Requests to receivers that were decided",
                "kind",
                &kinds,
            ),
            remarks: registry.counters(
                "tidegate_alert_suppressed_total",
                "Messages held back or never sent",
                "by",
                &held,
            ),
            storms: registry.gauge(
                "tidegate_alert_storms_open",
                "Storms: many alerts told as one",
            ),
            lag: seconds(
                "tidegate_alert_stream_lag_seconds",
                "How far the last handled event of the feed is behind the server",
            ),
            checkpoint_age: seconds(
                "tidegate_alert_checkpoint_age_seconds",
                "Age of the kept place in the stream",
            ),
            restarts: registry.counters(
                "tidegate_alert_stream_restarts_total",
                "Times the change stream was opened anew",
                "cause",
                &restarts,
            ),
            gaps: registry.counter(
                "tidegate_alert_gaps_total",
                "Gaps in the stream that were evaluated by query",
            ),
            undecodable: registry.counter(
                "tidegate_alert_events_undecodable_total",
                "Documents of the feed that are none, and were passed over",
            ),
            catching_up: registry.gauge(
                "tidegate_alert_catching_up",
                "1 while evaluation is far behind: messages wait, absence is not judged",
            ),
            blind: registry.gauge(
                "tidegate_alert_blind",
                "1 while no gateway hears from the broker: absence is not judged",
            ),
            commit_seconds: registry.histogram(
                "tidegate_alert_commit_seconds",
                "Time for one transaction of state, outbox, history and place",
                buckets::SECONDS,
            ),
            commits_failed: registry.counter(
                "tidegate_alert_commits_failed_total",
                "Transactions that failed and were tried again",
            ),
            events: registry.counter(
                "tidegate_alert_events_total",
                "Documents of the feed that were evaluated",
            ),
        }
    }

    /// This gateway does not lead any more: what fires is for its successor to say.
    pub(super) fn rest(&self) {
        for gauge in [&self.leader, &self.storms, &self.blind, &self.catching_up] {
            gauge.set(0);
        }
        self.lag.set(0.0);
        self.checkpoint_age.set(0.0);
        for state in STATES {
            self.instances.with_label_values(&[state]).set(0);
        }
        for level in Severity::ALL {
            self.firing.with_label_values(&[level.name()]).set(0);
        }
        self.rule_firing.reset();
    }

    pub(super) fn rules(&self, in_force: usize, refused: usize) {
        self.rules.set(gauge(in_force));
        self.rules_refused.set(gauge(refused));
    }
}

/// A count as a gauge's value.
pub(super) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
