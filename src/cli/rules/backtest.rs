//! `tidegate rules backtest`: what rules would have told over stored readings, and what another
//! version of them would have told instead.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::files;
use super::past::Past;
use crate::alert::rules::backtest::{Backtest as Report, Told, backtest, compare};
use crate::alert::rules::{RuleSet, Sample};
use crate::cli::words::printable;
use crate::cli::{ConfigArgs, block_on};
use crate::config::{RuleConfig, Span};
use crate::model::Timestamp;
use crate::runtime::now;
use crate::store::Store;

/// Readings read ahead of the evaluation.
const AHEAD: usize = 1_000;

/// Run rules over stored readings: episodes, pages a day, flaps
#[derive(Debug, Args)]
pub struct Backtest {
    /// Files with [[rules]]; otherwise those of the configuration
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Only this rule; may be repeated
    #[arg(long = "rule", value_name = "ID")]
    only: Vec<String>,
    /// From this RFC 3339 time [default: a week before the end]
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Until before this time [default: now]
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
    /// Only this device
    #[arg(long)]
    device: Option<String>,
    /// Files with other versions of the rules, to be compared: what they tell more, less and alike
    #[arg(long, value_name = "FILE")]
    compare: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Backtest {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.prepare()?.loaded.config;
        let rules = match self.rules.is_empty() {
            true => config.rules.clone(),
            false => files::sound(&self.rules)?,
        };
        let rules = self.compile(rules)?;
        let others = match self.compare.is_empty() {
            true => None,
            false => Some(self.compile(files::sound(&self.compare)?)?),
        };
        let to = self.to.unwrap_or_else(now);
        let week = Duration::from_secs(7 * 86_400);
        let from = self.from.unwrap_or_else(|| to.minus(week));
        let runs: Vec<_> = std::iter::once(rules).chain(others).collect();
        let reports = block_on(async {
            let store = Store::connect(&config).await?;
            let past = Past::open(&store, &config, from, to, self.device.as_deref()).await?;
            over(past, runs).await
        })?;
        self.show(&reports)?;
        Ok(ExitCode::SUCCESS)
    }

    fn compile(&self, mut rules: Vec<RuleConfig>) -> anyhow::Result<Arc<RuleSet>> {
        if !self.only.is_empty() {
            rules.retain(|rule| self.only.contains(&rule.id));
        }
        if rules.is_empty() {
            bail!("there is no such rule");
        }
        let (set, problems) = RuleSet::compile(&rules);
        if let Some(problem) = problems.first() {
            bail!(
                "rule {:?}: {}: {}",
                problem.rule,
                problem.key,
                problem.message
            );
        }
        Ok(Arc::new(set))
    }

    fn show(&self, reports: &[Report]) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let report = reports.first().context("one run was made")?;
        let difference = reports.get(1).map(|other| compare(report, other));
        if self.json {
            let json = serde_json::json!({ "report": report, "compared": difference });
            writeln!(out, "{json}")?;
            return Ok(());
        }
        for told in &report.episodes {
            writeln!(out, "{}", line(told, report.to))?;
        }
        summary(&mut out, "", report)?;
        if let (Some(difference), Some(other)) = (difference, reports.get(1)) {
            for (name, told) in [("gone", &difference.gone), ("new", &difference.new)] {
                for told in told {
                    writeln!(out, "{name:5} {}", line(told, other.to))?;
                }
            }
            summary(&mut out, "compared: ", other)?;
            writeln!(
                out,
                "{} alike, {} gone, {} new",
                difference.both.len(),
                difference.gone.len(),
                difference.new.len()
            )?;
        }
        Ok(())
    }
}

/// Runs each rule set over the same readings, side by side.
async fn over(mut past: Past, runs: Vec<Arc<RuleSet>>) -> anyhow::Result<Vec<Report>> {
    let mut channels: Vec<SyncSender<Sample>> = Vec::new();
    let mut running = Vec::new();
    for rules in runs {
        let (send, receive): (_, Receiver<Sample>) = sync_channel(AHEAD);
        channels.push(send);
        running.push(tokio::task::spawn_blocking(move || {
            backtest(rules, receive)
        }));
    }
    while let Some(sample) = past.next().await? {
        // A run does not end before its channel does, so it takes everything; while it is behind,
        // this thread waits for it, which nothing else needs.
        tokio::task::block_in_place(|| {
            for channel in &channels {
                let _ = channel.send(sample.clone());
            }
        });
    }
    drop(channels);
    let mut reports = Vec::new();
    for run in running {
        reports.push(run.await.context("an evaluation ended unexpectedly")?);
    }
    Ok(reports)
}

fn line(told: &Told, to: Option<Timestamp>) -> String {
    let end = match (told.ended_at, told.reason) {
        (Some(at), Some(reason)) => format!("{at} {}", reason.name()),
        _ => "still firing".to_owned(),
    };
    let long = told.duration(to.unwrap_or(told.fired_at));
    let peak = told
        .peak
        .map_or_else(String::new, |peak| format!("  peak {peak}"));
    format!(
        "{}  {:8}  {}  {}  to {end}{peak}",
        told.fired_at,
        told.severity,
        printable(&told.key),
        Span(Duration::from_secs(long.as_secs())),
    )
}

fn summary(out: &mut impl Write, before: &str, report: &Report) -> std::io::Result<()> {
    let days = report
        .pages_per_day()
        .map_or_else(|| "-".to_owned(), |pages| format!("{pages:.1}"));
    let longest = report.longest().map_or_else(String::new, |told| {
        let long = told.duration(report.to.unwrap_or(told.fired_at));
        let long = Span(Duration::from_secs(long.as_secs()));
        format!(", longest {long} ({})", printable(&told.key))
    });
    writeln!(
        out,
        "{before}{} readings, {} episodes, {} pages, {days} a day, {} flaps{longest}",
        report.readings,
        report.episodes.len(),
        report.pages(),
        report.flaps,
    )
}
