//! Once a second: what a term looks like from outside.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::metrics::{STATES, gauge};
use super::term::Term;
use crate::model::Severity;

/// Rules beyond this have no series of their own.
const RULES_SHOWN: usize = 500;

impl Term<'_> {
    /// Brings the metrics up to date.
    pub(super) fn publish(&mut self, deaf: bool) {
        let metrics = &self.setting.metrics;
        metrics.blind.set(i64::from(deaf));
        let holding = self.watching.holding.is_some();
        metrics.catching_up.set(i64::from(holding));
        let saved = self.reached.saved.elapsed().as_secs_f64();
        metrics.checkpoint_age.set(saved);
        metrics.lag.set(f64::from(self.behind()));
        metrics.storms.set(gauge(self.planner.storms_open()));
        for (_, counts) in self.engine.take_counts() {
            for (result, count) in counts.results() {
                let evaluations = &metrics.evaluations;
                evaluations.with_label_values(&[result]).inc_by(count);
            }
            for (why, count) in counts.skipped() {
                metrics.skipped.with_label_values(&[why]).inc_by(count);
            }
        }
        for (level, firing) in Severity::ALL.into_iter().zip(self.engine.firing()) {
            let level = metrics.firing.with_label_values(&[level.name()]);
            level.set(i64::try_from(firing).unwrap_or(i64::MAX));
        }
        self.publish_rules();
        self.ask_server_time();
    }

    /// Numbers of instances, in all and by rule.
    fn publish_rules(&mut self) {
        let metrics = &self.setting.metrics;
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let mut states = [0; 3];
        let mut shown = HashSet::new();
        for (rule, census) in self.engine.census() {
            states[0] += census.pending;
            states[1] += census.firing;
            states[2] += census.recovering;
            if shown.len() < RULES_SHOWN {
                let firing = whole(census.firing + census.recovering);
                metrics.rule_firing.with_label_values(&[rule]).set(firing);
                shown.insert(Arc::clone(rule));
            }
        }
        for gone in self.watching.shown.difference(&shown) {
            // One that is not there is as good as removed.
            let _ = metrics.rule_firing.remove_label_values(&[gone]);
        }
        self.watching.shown = shown;
        for (state, count) in STATES.into_iter().zip(states) {
            let instances = &metrics.instances;
            instances.with_label_values(&[state]).set(whole(count));
        }
    }

    /// The answer is used a second later.
    fn ask_server_time(&self) {
        let (store, known) = (
            self.setting.store.clone(),
            Arc::clone(&self.watching.server_seconds),
        );
        tokio::spawn(async move {
            if let Ok(seconds) = store.server_seconds().await {
                known.store(seconds, Ordering::Relaxed);
            }
        });
    }
}
