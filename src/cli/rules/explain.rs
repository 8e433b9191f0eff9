//! `tidegate rules explain`: why a rule does or does not fire for a device, told from its stored
//! or recorded readings.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;

use super::files;
use super::fixture::field_value;
use super::past::Past;
use crate::alert::rules::{Engine, Match, Rule, RuleSet, Sample, Track, View, key};
use crate::alert::standing;
use crate::cli::alerts::standing_line;
use crate::cli::{ConfigArgs, block_on};
use crate::config::Span;
use crate::model::{DeviceId, Timestamp};
use crate::runtime::now;
use crate::store::Store;

/// How far back stored readings are looked at, unless told.
const DAY: Duration = Duration::from_secs(86_400);

/// Say why a rule does or does not fire for a device, from its stored or recorded readings
#[derive(Debug, Args)]
pub struct Explain {
    /// The rule's id
    rule: String,
    /// The device
    #[arg(long)]
    device: String,
    /// Readings, a JSON object on each line, in order of receipt: deviceId, timestamp, fields;
    /// type, tags, topic, stream, received. Without it, those stored in MongoDB
    #[arg(long, value_name = "FILE")]
    readings: Option<PathBuf>,
    /// Stored readings from this time on [default: a day ago]
    #[arg(long, value_name = "TIME", conflicts_with = "readings")]
    since: Option<Timestamp>,
    /// Files with [[rules]]; otherwise those of the configuration
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// As of this moment [default: the last reading]
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// A recorded reading, as `tidegate explain --json` and exports have it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    #[serde(alias = "device")]
    device_id: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(alias = "ts")]
    timestamp: Timestamp,
    received: Option<Timestamp>,
    topic: Option<String>,
    stream: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    fields: BTreeMap<String, serde_json::Value>,
}

impl Recorded {
    fn sample(self) -> Option<Sample> {
        let field = |(name, value): (String, serde_json::Value)| (name, field_value(&value));
        Some(Sample {
            device: DeviceId::new(&self.device_id)?,
            kind: self.kind.map(Into::into),
            stream: self.stream.unwrap_or_else(|| "telemetry".into()).into(),
            topic: self.topic.map(Into::into),
            tags: self.tags.into_iter().collect(),
            at: self.timestamp,
            received: self.received.unwrap_or(self.timestamp),
            fields: self.fields.into_iter().map(field).collect(),
        })
    }
}

impl Explain {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let configs = match self.rules.is_empty() {
            true => self.config.prepare()?.loaded.config.rules,
            false => files::sound(&self.rules)?,
        };
        let Some(config) = configs.into_iter().find(|rule| rule.id == self.rule) else {
            bail!("there is no rule {:?}", self.rule);
        };
        let (set, problems) = RuleSet::compile(&[config]);
        if let Some(problem) = problems.first() {
            bail!("{}: {}", problem.key, problem.message);
        }
        let set = Arc::new(set);
        let rule = set.get(&self.rule).context("the rule was compiled")?;
        let device = DeviceId::new(&self.device).context("--device is empty")?;
        println!("rule      {}: {}", rule.id, rule.config.title());
        println!("device    {device}");
        if !rule.config.enabled {
            println!("state     never: the rule is disabled");
            return Ok(ExitCode::SUCCESS);
        }
        let samples = match &self.readings {
            Some(file) => recorded(file, &device)?,
            None => self.stored(&device)?,
        };
        let Some(last) = samples.last() else {
            println!("readings  none of this device");
            return Ok(ExitCode::SUCCESS);
        };
        let selected = match rule.selector.matches(&View::of(last)) {
            Match::Yes => "yes",
            Match::No => "no: its last reading is not among those selected",
            Match::Perhaps => "perhaps: it asks for a topic, which the reading does not have",
        };
        println!("selected  {selected}");
        let mut engine = Engine::new(Arc::clone(&set)).assuming_topics();
        let mut told = Vec::new();
        let mut now = samples[0].received;
        for sample in &samples {
            now = now.max(sample.received);
            engine.advance(now, &mut told);
            engine.sample(sample, &mut told);
        }
        let now = self.at.map_or(now, |at| at.max(now));
        engine.advance(now, &mut told);
        let track = engine
            .instance(&self.rule, &device)
            .and_then(|instance| instance.track.as_deref());
        state(rule, track);
        if let Some(at) = engine.next_deadline() {
            println!("deadline  looked at again by itself at {at}");
        }
        for (_, counts) in engine.take_counts() {
            let words = counts.results().into_iter().chain(counts.skipped());
            let words: Vec<_> = words
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            println!(
                "readings  {} of the device: {}",
                samples.len(),
                words.join(", ")
            );
        }
        for transition in &told {
            let episode = &transition.episode;
            let reason = episode
                .ended
                .map(|ended| format!(" ({})", ended.reason.name()));
            println!(
                "told      {} {} {}{}",
                transition.at,
                transition.change.name(),
                episode.severity,
                reason.unwrap_or_default()
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The device's readings in the series; then who was told, which is known there too.
    fn stored(&self, device: &DeviceId) -> anyhow::Result<Vec<Sample>> {
        let config = self.config.prepare()?.loaded.config;
        let to = self.at.unwrap_or_else(now);
        let since = self.since.unwrap_or_else(|| to.minus(DAY));
        block_on(async {
            let store = Store::connect(&config).await?;
            let until = to.plus(Duration::from_millis(1));
            let mut past = Past::open(&store, &config, since, until, Some(device.as_str())).await?;
            let mut samples = Vec::new();
            while let Some(sample) = past.next().await? {
                samples.push(sample);
            }
            let told = standing(&store, &config, &key(&self.rule, device)).await;
            for told in told.map_err(anyhow::Error::msg)? {
                println!("receiver  {}", standing_line(&told));
            }
            Ok(samples)
        })
    }
}

/// The device's readings of a file, in its order.
fn recorded(file: &Path, device: &DeviceId) -> anyhow::Result<Vec<Sample>> {
    let name = file.display();
    let file = std::fs::File::open(file).with_context(|| format!("cannot read {name}"))?;
    let mut samples = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| format!("cannot read {name}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let place = || format!("{name}: line {}", number + 1);
        let recorded: Recorded = serde_json::from_str(&line).with_context(place)?;
        let sample = recorded
            .sample()
            .context("deviceId is empty")
            .with_context(place)?;
        if sample.device == *device {
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// State, value, and each level with its timers.
fn state(rule: &Rule, track: Option<&Track>) {
    let Some(track) = track else {
        println!("state     ok");
        return;
    };
    let level = track
        .level
        .map_or_else(String::new, |level| format!(" {level}"));
    let latched = match track.latched {
        true => ", ended by hand: fires again after a clear reading",
        false => "",
    };
    println!("state     {}{level}{latched}", track.state.name());
    let Some(value) = &track.value else {
        return;
    };
    let unit = rule.config.unit.as_deref().unwrap_or_default();
    let at = Timestamp::from_millis(track.last_at);
    println!("value     {} {unit} at {at}", value.json());
    let Some(verdict) = rule.judge(value) else {
        return;
    };
    for (severity, level) in rule.ladder() {
        let mut words = Vec::new();
        words.push(match verdict.trigger.has(severity) {
            true => "breached".to_owned(),
            false if verdict.clear.has(severity) => "clear".to_owned(),
            false => "between at and clear".to_owned(),
        });
        if let Some(since) = track.since[severity as usize] {
            let held = track.last_at.saturating_sub(since);
            let left = level.for_ms.saturating_sub(held).max(0);
            words.push(format!("since {}", Timestamp::from_millis(since)));
            if Some(severity) > track.level {
                words.push(format!(
                    "{} of for = {} left",
                    span(left),
                    span(level.for_ms)
                ));
            }
        }
        if track.level == Some(severity)
            && let Some(since) = track.recover_since
        {
            let left = level.recover_ms - track.last_at.saturating_sub(since);
            words.push(format!("recovers in {} at the earliest", span(left.max(0))));
        }
        println!("level     {severity}: {}", words.join(", "));
    }
}

fn span(ms: i64) -> Span {
    Span::millis(u64::try_from(ms).unwrap_or_default())
}
