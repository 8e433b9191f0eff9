//! What rules would have told: a run over readings of the past, and what two versions of them
//! differ in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::engine::Engine;
use super::sample::Sample;
use super::set::RuleSet;
use crate::alert::{Change, EndReason, Transition};
use crate::model::{Severity, Timestamp};

/// A new episode that soon after the end of the last one is a flap.
const FLAP: Duration = Duration::from_secs(3_600);

/// What a run came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backtest {
    /// How many readings were looked at.
    pub readings: u64,
    /// When the first was received.
    pub from: Option<Timestamp>,
    /// When the last was received.
    pub to: Option<Timestamp>,
    /// In the order in which they began to fire.
    pub episodes: Vec<Told>,
    /// Episodes that began within an hour after the end of the last one of the same alert.
    pub flaps: u64,
}

/// One episode of the past.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The alert's key.
    pub key: String,
    /// The rule's id.
    pub rule: String,
    /// The device.
    pub device: String,
    /// When the condition began to hold.
    pub started_at: Timestamp,
    /// When it fired.
    pub fired_at: Timestamp,
    /// When it ended; `None`: it still fires.
    pub ended_at: Option<Timestamp>,
    /// Why.
    pub reason: Option<EndReason>,
    /// The worst level.
    pub severity: Severity,
    /// The worst number.
    pub peak: Option<f64>,
    /// Messages that page: the first, and each escalation.
    pub pages: u64,
}

impl Told {
    /// How long it fired, up to `now` if it still does.
    pub fn duration(&self, now: Timestamp) -> Duration {
        self.ended_at.unwrap_or(now).since(self.fired_at)
    }
}

/// Runs rules over readings in the order in which they were received.
pub fn backtest(rules: Arc<RuleSet>, samples: impl IntoIterator<Item = Sample>) -> Backtest {
    let mut engine = Engine::new(rules).assuming_topics();
    let mut run = Run::default();
    let mut out = Vec::new();
    for sample in samples {
        run.report.from.get_or_insert(sample.received);
        let to = run
            .report
            .to
            .map_or(sample.received, |to| to.max(sample.received));
        run.report.to = Some(to);
        run.report.readings += 1;
        engine.advance(to, &mut out);
        engine.sample(&sample, &mut out);
        out.drain(..).for_each(|transition| run.note(&transition));
    }
    run.report
}

/// A run under way.
#[derive(Default)]
struct Run {
    report: Backtest,
    /// Place of each alert's last episode.
    last: BTreeMap<String, usize>,
}

impl Run {
    fn note(&mut self, transition: &Transition) {
        let episode = &transition.episode;
        if transition.change == Change::Fired {
            let before = self
                .last
                .get(&episode.key)
                .map(|n| &self.report.episodes[*n]);
            let ended = before.and_then(|told| told.ended_at);
            if ended.is_some_and(|ended| transition.at.since(ended) < FLAP) {
                self.report.flaps += 1;
            }
            self.last
                .insert(episode.key.clone(), self.report.episodes.len());
            self.report.episodes.push(Told {
                key: episode.key.clone(),
                rule: episode.rule.clone(),
                device: episode.device.clone(),
                started_at: episode.started_at,
                fired_at: episode.fired_at,
                ended_at: None,
                reason: None,
                severity: episode.severity,
                peak: episode.peak,
                pages: 1,
            });
            return;
        }
        let Some(place) = self.last.get(&episode.key) else {
            return;
        };
        let told = &mut self.report.episodes[*place];
        told.severity = told.severity.max(episode.severity);
        told.peak = episode.peak;
        told.pages += u64::from(transition.change == Change::Escalated);
        if let Some(ended) = episode.ended {
            told.ended_at = Some(ended.at);
            told.reason = Some(ended.reason);
        }
    }
}

impl Backtest {
    /// Days between the first and the last reading.
    pub fn days(&self) -> f64 {
        match (self.from, self.to) {
            (Some(from), Some(to)) => to.since(from).as_secs_f64() / 86_400.0,
            _ => 0.0,
        }
    }

    /// Messages that page, in all.
    pub fn pages(&self) -> u64 {
        self.episodes.iter().map(|told| told.pages).sum()
    }

    /// Pages a day; `None` where the readings span no time.
    pub fn pages_per_day(&self) -> Option<f64> {
        let days = self.days();
        (days > 0.0).then(|| self.pages() as f64 / days)
    }

    /// The episode that fired longest.
    pub fn longest(&self) -> Option<&Told> {
        let to = self.to?;
        self.episodes.iter().max_by_key(|told| told.duration(to))
    }
}

/// What two runs over the same readings differ in. Episodes of one alert that overlap in time are
/// the same one, told by both.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Only the old version told of.
    pub gone: Vec<Told>,
    /// Only the new one does.
    pub new: Vec<Told>,
    /// Both do; the old one first.
    pub both: Vec<(Told, Told)>,
}

/// Compares two runs.
pub fn compare(old: &Backtest, new: &Backtest) -> Comparison {
    let mut comparison = Comparison::default();
    let mut taken = vec![false; old.episodes.len()];
    for told in &new.episodes {
        let overlaps = |(place, before): &(usize, &Told)| {
            !taken[*place]
                && before.key == told.key
                && before.ended_at.is_none_or(|ended| ended >= told.fired_at)
                && told.ended_at.is_none_or(|ended| ended >= before.fired_at)
        };
        match old.episodes.iter().enumerate().find(overlaps) {
            Some((place, before)) => {
                comparison.both.push((before.clone(), told.clone()));
                taken[place] = true;
            }
            None => comparison.new.push(told.clone()),
        }
    }
    let left = old
        .episodes
        .iter()
        .zip(&taken)
        .filter(|(_, taken)| !**taken);
    comparison.gone = left.map(|(told, _)| told.clone()).collect();
    comparison
}

#[cfg(test)]
mod tests {
    use super::super::engine::tests::{at, rules, sample};
    use super::*;
    use crate::model::FieldValue;

    fn history() -> Vec<Sample> {
        let values = [1.0, 6.0, 9.0, 6.0, 1.0, 7.0, 1.0, 1.0, 12.0];
        let reading = |(n, value): (usize, &f64)| {
            let secs = n as f64 * 600.0;
            sample("d", secs, secs, &[("t", FieldValue::Double(*value))])
        };
        values.iter().enumerate().map(reading).collect()
    }

    fn run(ladder: &str) -> Backtest {
        let toml = format!(
            "[[rules]]\nid = 'r'\nselect = {{ topics = ['x'] }}\nfield = 't'\nop = '>'\nlevels = {{ {ladder} }}"
        );
        let untold = history().into_iter().map(|sample| Sample {
            topic: None,
            ..sample
        });
        backtest(rules(&toml), untold)
    }

    #[test]
    fn episodes_pages_and_flaps() {
        let report = run("warning = { at = 5 }, critical = { at = 8 }");
        assert_eq!(report.readings, 9);
        let told: Vec<_> = report
            .episodes
            .iter()
            .map(|told| {
                (
                    told.fired_at,
                    told.ended_at,
                    told.severity,
                    told.peak,
                    told.pages,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (
                    at(600.0),
                    Some(at(2_400.0)),
                    Severity::Critical,
                    Some(9.0),
                    2
                ),
                (
                    at(3_000.0),
                    Some(at(3_600.0)),
                    Severity::Warning,
                    Some(7.0),
                    1
                ),
                (at(4_800.0), None, Severity::Critical, Some(12.0), 1),
            ]
        );
        assert_eq!((report.pages(), report.flaps), (4, 2));
        assert_eq!(report.pages_per_day(), Some(4.0 / (4_800.0 / 86_400.0)));
        assert_eq!(report.longest().map(|told| told.fired_at), Some(at(600.0)));
    }

    #[test]
    fn two_versions_are_compared_by_what_overlaps() {
        let old = run("warning = { at = 5 }");
        let new = run("warning = { at = 8 }");
        let comparison = compare(&old, &new);
        assert_eq!(comparison.both.len(), 2);
        assert_eq!(comparison.both[0].1.fired_at, at(1_200.0));
        assert_eq!(comparison.gone.len(), 1);
        assert_eq!(comparison.gone[0].fired_at, at(3_000.0));
        assert_eq!(comparison.new, []);
    }
}
