//! `tidegate reconcile`: what was published, or is in the feed, against what is in the series, by
//! device and minute. Reads only. Works through the range in slices of time, so that memory follows
//! from the readings of one slice (some 60 bytes each) and the number of devices.

mod compare;
mod parts;
mod published;
mod report;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;

use super::{ConfigArgs, block_on, sentence};
use crate::config::streams::{Action, StreamConfig};
use crate::config::{Config, FeedMode};
use crate::model::Timestamp;
use crate::runtime::now;
use crate::store::Store;
use compare::{MINUTE, Row, Several, Source, compare, gather};
use parts::Parts;
use report::{Frame, Report, minute_of};

/// The shortest slice of time that is looked at.
const LEAST_SLICE: i64 = 5 * MINUTE;

/// Slices at the most: each has a buffer.
const MOST_SLICES: i64 = 4_500;

/// Rows under one time that are looked at more closely, over the whole range.
const MOST_LOOKED_AT: usize = 100_000;

/// Younger than this, a reading may still be under way.
const UNDER_WAY_MS: i64 = 60_000;

/// Compare what was published with what is stored, and say what is missing or doubled
///
/// With --published, a publisher's log is compared with the rows of the stream, reading by reading:
/// lines {"device": "d1", "time": RFC 3339 or milliseconds, "count": 1} or device,time. Without it,
/// the feed is, where it carries everything (feed.mode = "all"). In any case rows that say the same
/// at the same device and time are found, and devices with fewer rows than the registry's
/// expectedInterval promises. Exit code 0: clean; 1: something is missing that is no dead letter, or
/// doubled; 2: it could not be compared.
#[derive(Debug, Args)]
pub struct Reconcile {
    #[command(flatten)]
    config: ConfigArgs,
    /// The stream; may be left out where only one stores
    #[arg(long)]
    stream: Option<String>,
    /// Readings with a time at or after this RFC 3339 time
    #[arg(long, value_name = "TIME")]
    from: Timestamp,
    /// Readings with a time before this RFC 3339 time
    #[arg(long, value_name = "TIME")]
    to: Timestamp,
    /// A publisher's log, as `simulate --published-log` writes it; - for standard input
    #[arg(long, value_name = "FILE")]
    published: Option<PathBuf>,
    /// At most so many minutes, times and devices are listed; all are counted
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Reconcile {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // Exit code 1 is kept for what was found.
        let found = self.outcome();
        Ok(found.unwrap_or_else(|error| {
            eprintln!("tidegate: {}", sentence(&error));
            ExitCode::from(2)
        }))
    }

    fn outcome(self) -> anyhow::Result<ExitCode> {
        if self.from >= self.to {
            return Err(anyhow!("--from must be before --to"));
        }
        let prepared = self.config.prepare()?;
        let config = &prepared.loaded.config;
        let stream = pick(config, self.stream.as_deref())?;
        let run = Run {
            args: &self,
            config,
            stream,
        };
        let (report, frame) = block_on(run.compare())?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", report.json(&frame))?;
        } else {
            report.text(&frame, &mut out)?;
        }
        Ok(match report.clean() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

fn pick<'a>(config: &'a Config, name: Option<&str>) -> anyhow::Result<&'a StreamConfig> {
    let storing = config.streams.iter().filter(|s| s.action == Action::Store);
    let storing: Vec<_> = storing.collect();
    let names = || {
        let names: Vec<_> = storing.iter().map(|s| s.name.as_str()).collect();
        names.join(", ")
    };
    match (name, &storing[..]) {
        (None, [only]) => Ok(only),
        (None, _) => Err(anyhow!("say which --stream: {}", names())),
        (Some(name), all) => all
            .iter()
            .find(|stream| stream.name == name)
            .copied()
            .with_context(|| format!("no stream {name:?} stores anything; there are: {}", names())),
    }
}

/// One comparison.
struct Run<'a> {
    args: &'a Reconcile,
    config: &'a Config,
    stream: &'a StreamConfig,
}

/// What is expected, as far as it could be had.
struct Wanted {
    source: Source,
    parts: Option<Parts>,
    /// Slices before this have nothing to be compared with.
    begins: i64,
    /// Where the stream's readings have no time of their own: how many of each device.
    counts: Option<BTreeMap<u32, u64>>,
    notes: Vec<String>,
}

impl Run<'_> {
    async fn compare(&self) -> anyhow::Result<(Report, Frame)> {
        let (from, to) = (self.args.from, self.args.to);
        let store = Store::connect(self.config).await?;
        let mut report = Report::new(self.args.limit);
        let base = minute_of(from.millis());
        let slice = slice_of(base, to.millis());
        let mut wanted = self.wanted(&store, &mut report, base, slice).await?;
        if to.millis() > now().millis() - UNDER_WAY_MS {
            let note =
                "the range reaches into the last minute: what is under way counts as missing";
            wanted.notes.push(note.to_owned());
        }
        let mut looked_at = 0;
        let mut stored: BTreeMap<u32, u64> = BTreeMap::new();
        let mut start = base;
        for part in 0.. {
            if start >= to.millis() {
                break;
            }
            let end = (start + slice).min(to.millis());
            let mut rows: Vec<Row> = Vec::new();
            let begin = Timestamp::from_millis(start.max(from.millis()));
            let mut times = store
                .stored_times(self.stream, begin, Timestamp::from_millis(end))
                .await?;
            let names = &mut report.names;
            times
                .each(|device, at| rows.push((names.number(device), at.millis())))
                .await?;
            rows.sort_unstable();
            let mut expected = match &mut wanted.parts {
                Some(parts) => parts.take(part)?,
                None => Vec::new(),
            };
            gather(&mut expected);
            let comparable = wanted.counts.is_none() && start >= wanted.begins;
            let source = match comparable {
                true => wanted.source,
                false => Source::Nothing,
            };
            let mut found = compare(&expected, &rows, source);
            if wanted.counts.is_some() {
                for (device, _) in &rows {
                    *stored.entry(*device).or_default() += 1;
                }
            }
            let several = std::mem::take(&mut found.several);
            report.add(found);
            self.look_at(&store, &several, &mut looked_at, &mut report)
                .await?;
            start += slice;
        }
        for (device, expected) in wanted.counts.iter().flatten() {
            let stored = stored.get(device).copied().unwrap_or(0);
            report.expect(*expected);
            if *expected > stored {
                report.miss(*device, expected - stored);
            }
        }
        report.letters(store.letters_by_device(&self.stream.name, from, to).await?);
        report.promises(&store.all_devices().await?, from, to);
        let frame = Frame {
            stream: self.stream.name.clone(),
            collection: self.stream.collection.clone(),
            from,
            to,
            source: wanted.source,
            notes: wanted.notes,
        };
        Ok((report, frame))
    }

    /// Rows of one device and time: do they say the same?
    async fn look_at(
        &self,
        store: &Store,
        several: &[Several],
        looked_at: &mut usize,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let room = MOST_LOOKED_AT.saturating_sub(*looked_at).min(several.len());
        let (near, far) = several.split_at(room);
        *looked_at += room;
        let keys: Vec<_> = near
            .iter()
            .map(|one| {
                (
                    report.names.name(one.device),
                    Timestamp::from_millis(one.at),
                )
            })
            .collect();
        let alike = store.alike(self.stream, &keys).await?;
        for (one, alike) in near.iter().zip(alike) {
            report.several(one, Some(alike.contents));
        }
        for one in far {
            report.several(one, None);
        }
        Ok(())
    }

    async fn wanted(
        &self,
        store: &Store,
        report: &mut Report,
        base: i64,
        slice: i64,
    ) -> anyhow::Result<Wanted> {
        let mut wanted = Wanted {
            source: Source::Nothing,
            parts: None,
            begins: i64::MIN,
            counts: None,
            notes: Vec::new(),
        };
        let mut parts = Parts::new(base, self.args.to.millis(), slice)?;
        if let Some(path) = &self.args.published {
            wanted.source = Source::Published;
            if self.stream.time.path.0.is_empty() {
                wanted.counts = Some(BTreeMap::new());
                wanted.notes.push("readings of this stream have the time of receipt: compared by count of each device over the whole range".to_owned());
            }
            let outside = self.read(path, report, &mut parts, &mut wanted.counts)?;
            if outside > 0 {
                let note = format!("{outside} published readings are outside the range");
                wanted.notes.push(note);
            }
        } else if self.config.feed.mode == FeedMode::All {
            wanted.source = Source::Feed;
            let begins = store.feed_begins().await?;
            self.read_feed(store, report, &mut parts).await?;
            if let Some(begins) = begins.filter(|begins| *begins > self.args.from) {
                wanted.begins = begins.millis();
                let note =
                    format!("the feed begins at {begins}: earlier rows are compared with nothing");
                wanted.notes.push(note);
            }
        } else {
            let note = "compared with nothing: name a --published log, or set feed.mode = \"all\"";
            wanted.notes.push(note.to_owned());
        }
        wanted.parts = Some(parts);
        Ok(wanted)
    }

    /// Reads a publisher's log; how many readings are outside the range.
    fn read(
        &self,
        path: &Path,
        report: &mut Report,
        parts: &mut Parts,
        counts: &mut Option<BTreeMap<u32, u64>>,
    ) -> anyhow::Result<u64> {
        let reader: Box<dyn BufRead> = match path == Path::new("-") {
            true => Box::new(std::io::stdin().lock()),
            false => {
                let file =
                    File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
                Box::new(BufReader::new(file))
            }
        };
        let mut outside = 0;
        for (number, line) in (1_u64..).zip(reader.lines()) {
            let place = || format!("{}, line {number}", path.display());
            let line = line.with_context(place)?;
            let reading = published::parse(&line).map_err(|error| anyhow!(error));
            let Some(reading) = reading.with_context(place)? else {
                continue;
            };
            if reading.at < self.args.from || reading.at >= self.args.to {
                outside += u64::from(reading.count);
                continue;
            }
            let device = report.names.number(&reading.device);
            match counts {
                Some(counts) => *counts.entry(device).or_default() += u64::from(reading.count),
                None => {
                    parts.add((device, reading.at.millis(), reading.count))?;
                }
            }
        }
        Ok(outside)
    }

    /// Reads the feed: what is written to the stream's collection, whenever it came.
    async fn read_feed(
        &self,
        store: &Store,
        report: &mut Report,
        parts: &mut Parts,
    ) -> anyhow::Result<()> {
        let same = |name: &str| {
            let mut streams = self.config.streams.iter();
            streams.any(|s| s.name == name && s.collection == self.stream.collection)
        };
        // A reading may be ahead of its receipt by this much, and late by anything.
        let first = self.args.from.minus(self.stream.time.max_ahead.0);
        let mut feed = store.past_feed(first, now()).await?;
        while let Some(document) = feed.next().await? {
            if !same(&document.stream) {
                continue;
            }
            for reading in document.readings {
                if reading.at >= self.args.from && reading.at < self.args.to {
                    let device = report.names.number(reading.device.as_str());
                    parts.add((device, reading.at.millis(), 1))?;
                }
            }
        }
        Ok(())
    }
}

/// The length of a slice, in whole minutes.
fn slice_of(from: i64, to: i64) -> i64 {
    let least = (to - from) / MOST_SLICES;
    ((least + MINUTE) / MINUTE * MINUTE).max(LEAST_SLICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_whole_minutes_and_not_too_many() {
        let day = 24 * 60 * MINUTE;
        for range in [1, MINUTE, day, 400 * day] {
            let slice = slice_of(0, range);
            assert_eq!(slice % MINUTE, 0);
            assert!(slice >= LEAST_SLICE && range / slice <= MOST_SLICES);
        }
    }
}
