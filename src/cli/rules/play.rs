//! A story is played: through the engine that runs in the gateway, on a clock that only the story
//! moves.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, anyhow};

use super::fixture::{Case, Fixture, Told};
use super::generate::{Event, events};
use super::telling::{Happened, notifications};
use crate::alert::rules::{Device, Engine, ROWS, RuleSet, State, key};
use crate::alert::{Change, Transition};
use crate::config::RuleConfig;
use crate::model::{DeviceId, Timestamp};

/// Rows of the transition table taken, by rule.
pub(super) type Coverage = BTreeMap<String, [u64; ROWS as usize + 1]>;

/// What became of a story.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// What was told, in order.
    pub told: Vec<Transition>,
    /// Expectations that did not hold, a paragraph each.
    pub failures: Vec<String>,
    /// Rows taken.
    pub coverage: Coverage,
}

/// Plays one story.
pub(super) fn play(fixture: &Fixture, case: &Case) -> anyhow::Result<Played> {
    let start = fixture.start;
    let named = |rule: &&RuleConfig| case.only.is_empty() || case.only.contains(&rule.id);
    let rules: Vec<RuleConfig> = fixture.rules.iter().filter(named).cloned().collect();
    for id in &case.only {
        if !rules.iter().any(|rule| rule.id == *id) {
            return Err(anyhow!("only: there is no rule {id:?}"));
        }
    }
    let mut timeline = Vec::new();
    for (n, step) in case.steps.iter().enumerate() {
        timeline.extend(events(step, start).with_context(|| format!("steps.{n}"))?);
    }
    timeline.sort_by_key(|(at, _)| *at);
    let mut stage = Stage::new(rules, start)?;
    for known in &case.devices {
        let id = DeviceId::new(&known.id).context("a device has no id")?;
        let device = Device {
            kind: known.kind.as_deref().map(Into::into),
            tags: known.tags.clone().into_iter().collect(),
            enabled: known.enabled,
            expected_interval: known.expected_interval.map(|span| span.0),
            first_seen: Some(start),
            ..Device::new(id)
        };
        stage.engine.device_changed(device, start, &mut stage.told);
    }
    let mut checks: Vec<_> = case
        .expect
        .iter()
        .map(|expected| (expected.at.from(start), expected))
        .collect();
    checks.sort_by_key(|(at, _)| *at);
    let mut checks = checks.into_iter().peekable();
    let mut failures = Vec::new();
    let mut check = |stage: &mut Stage, until: Option<Timestamp>| {
        while let Some((at, expected)) = checks.next_if(|(at, _)| until.is_none_or(|t| *at < t)) {
            stage.pass(at);
            let found = stage.state(&expected.rule, &expected.device);
            if found.0 != expected.state || expected.level.is_some_and(|l| found.1 != Some(l)) {
                let level = |level: Option<crate::model::Severity>| {
                    level.map_or_else(String::new, |level| format!(" {level}"))
                };
                failures.push(format!(
                    "at {} {} {}: expected {}{}, found {}{}",
                    offset(at, start),
                    expected.rule,
                    expected.device,
                    expected.state.name(),
                    level(expected.level),
                    found.0.name(),
                    level(found.1),
                ));
            }
        }
    };
    for (at, event) in timeline {
        check(&mut stage, Some(at));
        stage.pass(at);
        stage.happen(at, event)?;
    }
    check(&mut stage, None);
    let end = case.until.map_or(stage.now, |until| until.from(start));
    stage.pass(end);
    let happened = stage.happened();
    let told = stage.told;
    let engine = &mut stage.engine;
    let mut coverage = Coverage::new();
    for (rule, counts) in engine.take_counts() {
        let all = coverage.entry(rule.to_string()).or_default();
        all.iter_mut()
            .zip(counts.rows)
            .for_each(|(all, n)| *all += n);
    }
    failures.extend(transitions(case, &told, start));
    failures.extend(never(case, &told, start));
    failures.extend(notifications(fixture, case, &happened, end));
    Ok(Played {
        failures,
        coverage,
        told,
    })
}

/// The engine, its clock and its rules.
struct Stage {
    engine: Engine,
    rules: Vec<RuleConfig>,
    told: Vec<Transition>,
    /// When each of them was told.
    moments: Vec<Timestamp>,
    now: Timestamp,
    blind_until: Option<Timestamp>,
}

impl Stage {
    fn new(rules: Vec<RuleConfig>, start: Timestamp) -> anyhow::Result<Self> {
        let mut engine = Engine::new(compile(&rules)?).assuming_topics();
        let mut told = Vec::new();
        engine.tick(start, false, &mut told);
        Ok(Self {
            engine,
            rules,
            told,
            moments: Vec::new(),
            now: start,
            blind_until: None,
        })
    }

    /// Lets time pass. What is told meanwhile was told at its own time.
    fn pass(&mut self, to: Timestamp) {
        self.let_pass(to);
        let (from, to) = (self.now, to.max(self.now));
        for transition in &self.told[self.moments.len()..] {
            self.moments.push(transition.at.clamp(from, to));
        }
        self.now = to;
    }

    /// What was told, and when.
    fn happened(&self) -> Vec<Happened> {
        let told = self.told.iter().cloned();
        self.moments.iter().copied().zip(told).collect()
    }

    fn let_pass(&mut self, to: Timestamp) {
        if let Some(end) = self.blind_until {
            if to < end {
                self.engine.tick(to, true, &mut self.told);
                return;
            }
            self.blind_until = None;
            self.engine.tick(end, false, &mut self.told);
        }
        self.engine.advance(to, &mut self.told);
    }

    fn happen(&mut self, at: Timestamp, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Reading(sample) => self.engine.sample(&sample, &mut self.told),
            Event::Blind(span) => {
                self.engine.tick(at, true, &mut self.told);
                self.blind_until = Some(at.plus(span));
            }
            Event::Edit(edit) => {
                let id = edit.get("id").and_then(toml::Value::as_str);
                let id = id.context("edit: id is missing: which rule?")?;
                let rule = self.rules.iter_mut().find(|rule| rule.id == id);
                let rule = rule.with_context(|| format!("edit: there is no rule {id:?}"))?;
                let mut table = toml::Table::try_from(&*rule)?;
                table.extend(edit.clone());
                *rule = table.try_into()?;
                self.replace(at)?;
            }
            Event::Delete(id) => {
                self.rules.retain(|rule| rule.id != id);
                self.replace(at)?;
            }
            Event::Remove(device) => self.engine.device_deleted(&device, at, &mut self.told),
            Event::Resolve(rule, device) => {
                let key = key(&rule, &device);
                self.engine.resolve(&key, at, &mut self.told);
            }
            Event::Ack(rule, device) => {
                let key = key(&rule, &device);
                self.engine.ack(&key, None, at, &mut self.told);
            }
        }
        self.moments.resize(self.told.len(), at);
        Ok(())
    }

    fn replace(&mut self, at: Timestamp) -> anyhow::Result<()> {
        let rules = compile(&self.rules)?;
        self.engine.replace(rules, at, &mut self.told);
        Ok(())
    }

    fn state(&self, rule: &str, device: &str) -> (State, Option<crate::model::Severity>) {
        let device = DeviceId::new(device);
        let instance = device.and_then(|device| self.engine.instance(rule, &device));
        let track = instance.and_then(|instance| instance.track.as_deref());
        track.map_or((State::Ok, None), |track| (track.state, track.level))
    }
}

fn compile(rules: &[RuleConfig]) -> anyhow::Result<Arc<RuleSet>> {
    let (set, problems) = RuleSet::compile(rules);
    match problems.first() {
        None => Ok(Arc::new(set)),
        Some(problem) => Err(anyhow!(
            "rule {:?}: {}: {}",
            problem.rule,
            problem.key,
            problem.message
        )),
    }
}

/// How long after the start.
pub(super) fn offset(at: Timestamp, start: Timestamp) -> String {
    let span = crate::config::Span(at.since(start));
    if at < start {
        at.to_string()
    } else {
        span.to_string()
    }
}

/// Compares what was told with what was expected, line by line.
fn transitions(case: &Case, told: &[Transition], start: Timestamp) -> Option<String> {
    let expected = case.transitions.as_ref()?;
    let updates = expected
        .iter()
        .any(|one| one.change == Some(Change::Updated));
    let told: Vec<&Transition> = told
        .iter()
        .filter(|t| updates || t.change != Change::Updated)
        .collect();
    let expected_lines: Vec<String> = expected.iter().map(|one| wish(one, start)).collect();
    let told_lines: Vec<String> = told.iter().map(|one| line(one, start)).collect();
    super::report::diff(&expected_lines, &told_lines, |e, t| {
        fits(&expected[e], told[t], start)
    })
    .map(|diff| format!("transitions differ (- expected, + found):\n{diff}"))
}

fn never(case: &Case, told: &[Transition], start: Timestamp) -> Vec<String> {
    let mut failures = Vec::new();
    for unwanted in &case.never {
        for transition in told.iter().filter(|t| fits(unwanted, t, start)) {
            failures.push(format!("was never to happen: {}", line(transition, start)));
        }
    }
    failures
}

fn fits(wanted: &Told, transition: &Transition, start: Timestamp) -> bool {
    let episode = &transition.episode;
    let reason = episode.ended.map(|ended| ended.reason.name());
    wanted.at.is_none_or(|at| at.from(start) == transition.at)
        && wanted
            .rule
            .as_ref()
            .is_none_or(|rule| *rule == episode.rule)
        && wanted
            .device
            .as_ref()
            .is_none_or(|device| *device == episode.device)
        && wanted
            .change
            .is_none_or(|change| change == transition.change)
        && wanted.level.is_none_or(|level| level == episode.severity)
        && wanted
            .reason
            .as_deref()
            .is_none_or(|wanted| Some(wanted) == reason)
}

/// A change on one line.
pub(super) fn line(transition: &Transition, start: Timestamp) -> String {
    let episode = &transition.episode;
    let reason = episode.ended.map(|ended| ended.reason.name());
    format!(
        "{} {} {} {} {}{}",
        offset(transition.at, start),
        episode.rule,
        episode.device,
        transition.change.name(),
        episode.severity,
        reason.map_or_else(String::new, |reason| format!(" {reason}")),
    )
}

fn wish(wanted: &Told, start: Timestamp) -> String {
    let any = || "*".to_owned();
    let mut words = vec![
        wanted
            .at
            .map_or_else(any, |at| offset(at.from(start), start)),
        wanted.rule.clone().unwrap_or_else(any),
        wanted.device.clone().unwrap_or_else(any),
        wanted.change.map_or_else(any, |c| c.name().to_owned()),
        wanted.level.map_or_else(any, |level| level.to_string()),
    ];
    words.extend(wanted.reason.clone());
    words.join(" ")
}
