//! `tidegate simulate`: a fleet of devices, for trying things out and for measuring.

mod fleet;
mod log;
mod publisher;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{ConfigArgs, Usage, block_on};
use crate::config::streams::{Action, StreamConfig};
use crate::runtime::{Signal, Signals};
use fleet::Fleet;
use log::PublishedLog;
use publisher::{Publisher, Workload};

/// Publish readings like a fleet of devices, and say how many the broker confirmed
///
/// Uses the broker and the first stream of the configuration. Every reading holds its time and a
/// sequence number `seq`, so that what was stored can be compared with what was confirmed.
#[derive(Debug, Args)]
pub struct Simulate {
    #[command(flatten)]
    config: ConfigArgs,
    /// Stream whose topics and payloads to imitate [default: the first one that stores JSON]
    #[arg(long)]
    stream: Option<String>,
    /// Devices, named sim-00000 and so on
    #[arg(long, default_value_t = 100)]
    devices: u32,
    /// Messages per second over all devices; 0: as fast as the broker confirms
    #[arg(long, default_value_t = 100)]
    rate: u64,
    /// How long to publish, such as 30s or 5m
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "count", default_value = "10s")]
    duration: Duration,
    /// How many messages to publish, instead of a duration
    #[arg(long)]
    count: Option<u64>,
    /// QoS of the publishes: 0 or 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Connections to publish over
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,
    /// Number fields in each reading
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    fields: u32,
    /// Share of payloads that cannot be stored, of all kinds in turn (0 to 1)
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    bad: f64,
    /// Share of readings that are up to an hour late (0 to 1)
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    late: f64,
    /// Share of readings that are a few seconds out of order (0 to 1)
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    out_of_order: f64,
    /// Let the first device's temperature rise from 4 to 10 and fall back, over and over, each time
    /// within this span: something for rules to see
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    warming: Option<Duration>,
    /// Un-confirmed messages per connection
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// Write device and time of every sound reading that the broker confirmed, one JSON object a
    /// line: for `reconcile --published`
    #[arg(long, value_name = "FILE")]
    published_log: Option<PathBuf>,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1".into()),
    }
}

/// What all publishers count together.
#[derive(Default)]
struct Totals {
    sent: AtomicU64,
    acked: AtomicU64,
    bad: AtomicU64,
}

impl Simulate {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.qos == 0 && self.published_log.is_some() {
            return Err(
                Usage("--published-log needs --qos 1: at QoS 0 nothing is confirmed").into(),
            );
        }
        let config = self.config.prepare()?.loaded.config;
        let stream = self.pick(&config.streams)?.clone();
        let fleet = Arc::new(Fleet::new(
            &stream,
            self.devices.max(1),
            self.fields,
            (self.bad, self.late, self.out_of_order),
            self.warming,
        )?);
        block_on(async {
            let totals = Arc::new(Totals::default());
            let log = self.published_log.as_deref();
            let log = log.map(PublishedLog::create).transpose()?.map(Arc::new);
            let stop = CancellationToken::new();
            let started = Instant::now();
            let mut publishers = tokio::task::JoinSet::new();
            let share = u64::from(self.connections);
            for index in 0..self.connections {
                let extra = u64::from(u64::from(index) < self.count.unwrap_or(0) % share);
                let workload = Workload {
                    rate: (self.rate > 0).then(|| self.rate as f64 / f64::from(self.connections)),
                    count: self.count.map(|count| count / share + extra),
                    qos: self.qos,
                    window: self.window,
                };
                let publisher = Publisher::new(
                    &config.mqtt,
                    workload,
                    Arc::clone(&fleet),
                    Arc::clone(&totals),
                    log.clone(),
                )?;
                publishers.spawn(publisher.run(stop.clone()));
            }
            if self.count.is_none() {
                let (stop, duration) = (stop.clone(), self.duration);
                tokio::spawn(async move {
                    tokio::time::sleep(duration).await;
                    stop.cancel();
                });
            }
            let interrupt = stop.clone();
            let mut signals = Signals::install()?;
            tokio::spawn(async move {
                while signals.next().await != Signal::Stop {}
                interrupt.cancel();
            });
            let progress = self.progress();
            let mut failure = None;
            loop {
                tokio::select! {
                    // `join_next` is cancel safe; the sleep only paces the progress bar.
                    joined = publishers.join_next() => match joined {
                        None => break,
                        Some(outcome) => {
                            if let Err(error) = outcome.context("a publisher ended unexpectedly")? {
                                failure.get_or_insert(error);
                                stop.cancel();
                            }
                        }
                    },
                    () = tokio::time::sleep(Duration::from_millis(200)) => self.show(&progress, &totals, started),
                }
            }
            progress.finish_and_clear();
            if let Some(log) = &log {
                log.flush()?;
            }
            self.report(&totals, started.elapsed());
            match failure {
                Some(error) => Err(error),
                None => Ok(ExitCode::SUCCESS),
            }
        })
    }

    fn pick<'a>(&self, streams: &'a [StreamConfig]) -> anyhow::Result<&'a StreamConfig> {
        let found = match &self.stream {
            Some(name) => streams.iter().find(|stream| &stream.name == name),
            None => streams
                .iter()
                .find(|stream| stream.action == Action::Store && fleet::imitates(stream)),
        };
        let Some(stream) = found else {
            bail!("no such stream to imitate: name one with --stream that stores JSON");
        };
        if !fleet::imitates(stream) {
            bail!(
                "stream {:?} is not JSON: only JSON streams are imitated",
                stream.name
            );
        }
        Ok(stream)
    }

    fn progress(&self) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let length = self.count.unwrap_or(self.duration.as_millis() as u64);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(length).with_style(style)
    }

    fn show(&self, progress: &ProgressBar, totals: &Totals, started: Instant) {
        let acked = totals.acked.load(Ordering::Relaxed);
        let elapsed = started.elapsed();
        progress.set_position(if self.count.is_some() {
            acked
        } else {
            elapsed.as_millis() as u64
        });
        progress.set_message(format!(
            "{acked} confirmed, {:.0}/s",
            acked as f64 / elapsed.as_secs_f64()
        ));
    }

    fn report(&self, totals: &Totals, elapsed: Duration) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (sent, acked, bad) = (load(&totals.sent), load(&totals.acked), load(&totals.bad));
        let seconds = elapsed.as_secs_f64();
        if self.json {
            println!(
                "{}",
                serde_json::json!({ "sent": sent, "acked": acked, "bad": bad, "seconds": seconds })
            );
        } else {
            println!(
                "{sent} sent, {acked} confirmed (PUBACK), {bad} of them bad on purpose, {seconds:.1} s, {:.0}/s",
                acked as f64 / seconds
            );
        }
    }
}
