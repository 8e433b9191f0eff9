//! What all slices come to: totals in full, examples up to a limit. Says it as text or JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::compare::{Findings, MINUTE, Minute, Several, Source};
use crate::cli::words::printable;
use crate::model::{Device, Timestamp};
use crate::store::LetterCount;

/// Devices by number.
#[derive(Default)]
pub struct Names {
    numbers: std::collections::HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// The number of a device.
    pub fn number(&mut self, device: &str) -> u32 {
        if let Some(number) = self.numbers.get(device) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(device.to_owned());
        self.numbers.insert(device.to_owned(), number);
        number
    }

    /// The device of a number.
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }
}

/// What was compared.
pub struct Frame {
    pub stream: String,
    pub collection: String,
    pub from: Timestamp,
    pub to: Timestamp,
    pub source: Source,
    /// Remarks on what the comparison could not see.
    pub notes: Vec<String>,
}

/// Several rows of one device and time, looked at.
struct Doubled {
    device: u32,
    at: i64,
    stored: u64,
    /// How many different things they say; `None`: too many to look at.
    contents: Option<u64>,
}

/// A device with fewer rows than its interval promises.
struct Thin {
    device: String,
    rows: u64,
    promised: u64,
}

/// See the module's head.
#[derive(Default)]
pub struct Report {
    limit: usize,
    pub names: Names,
    rows: u64,
    expected: u64,
    repeated: u64,
    unexpected: u64,
    doubled: u64,
    other_content: u64,
    /// Missing readings and dead letters of each device that misses any.
    missing: BTreeMap<u32, (u64, u64)>,
    /// Dead letters that name no device.
    nameless_letters: u64,
    letters: u64,
    times: BTreeMap<u32, u64>,
    thin_count: u64,
    minutes: Vec<(u32, i64, Minute)>,
    missing_at: Vec<(u32, i64)>,
    unexpected_at: Vec<(u32, i64)>,
    doubled_at: Vec<Doubled>,
    thin: Vec<Thin>,
}

impl Report {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Adds a slice.
    pub fn add(&mut self, found: Findings) {
        self.rows += found.rows;
        self.expected += found.expected;
        self.repeated += found.repeated;
        self.unexpected += found.unexpected;
        for ((device, _), minute) in &found.minutes {
            if minute.missing > 0 {
                self.miss(*device, minute.missing);
            }
        }
        for (device, times) in found.times {
            *self.times.entry(device).or_default() += times;
        }
        let limit = self.limit;
        let room = |len: usize| limit.saturating_sub(len);
        let minutes = found.minutes.into_iter().map(|((d, at), m)| (d, at, m));
        self.minutes.extend(minutes.take(room(self.minutes.len())));
        let missing = found.missing_at.into_iter();
        self.missing_at
            .extend(missing.take(room(self.missing_at.len())));
        let unexpected = found.unexpected_at.into_iter();
        self.unexpected_at
            .extend(unexpected.take(room(self.unexpected_at.len())));
    }

    /// A device misses so many readings.
    pub fn miss(&mut self, device: u32, count: u64) {
        self.missing.entry(device).or_default().0 += count;
    }

    /// So many readings were expected, beyond those of the slices.
    pub fn expect(&mut self, count: u64) {
        self.expected += count;
    }

    /// Several rows of one time say so many different things.
    pub fn several(&mut self, several: &Several, contents: Option<u64>) {
        // Not looked at, they count as the worse of the two.
        let (doubled, other) = several.split(contents.unwrap_or(0));
        self.doubled += doubled;
        self.other_content += other;
        if self.doubled_at.len() < self.limit {
            self.doubled_at.push(Doubled {
                device: several.device,
                at: several.at,
                stored: several.stored,
                contents,
            });
        }
    }

    /// Dead letters that may be what is missing.
    pub fn letters(&mut self, counts: Vec<LetterCount>) {
        for LetterCount { device, letters } in counts {
            self.letters += letters;
            match device {
                None => self.nameless_letters += letters,
                Some(device) => {
                    let number = self.names.number(&device);
                    if let Some(missing) = self.missing.get_mut(&number) {
                        missing.1 += letters;
                    }
                }
            }
        }
    }

    /// Compares with what the registry promises, between two times.
    pub fn promises(&mut self, devices: &[Device], from: Timestamp, to: Timestamp) {
        for device in devices.iter().filter(|device| device.enabled) {
            let Some(interval) = device.expected_interval.filter(|i| !i.is_zero()) else {
                continue;
            };
            let since = device.first_seen.map_or(from, |first| first.max(from));
            let promised = promised(to.since(since), interval);
            let number = self.names.number(device.id.as_str());
            let rows = self.times.get(&number).copied().unwrap_or(0);
            if is_thin(rows, promised) {
                self.thin_count += 1;
                if self.thin.len() < self.limit {
                    self.thin.push(Thin {
                        device: device.id.to_string(),
                        rows,
                        promised,
                    });
                }
            }
        }
    }

    fn missing_count(&self) -> u64 {
        self.missing.values().map(|(missing, _)| missing).sum()
    }

    /// How many of them a dead letter of the same device may account for.
    fn dead_lettered(&self) -> u64 {
        let accounted = self
            .missing
            .values()
            .map(|(missing, letters)| missing.min(letters));
        accounted.sum()
    }

    /// Nothing is missing that is not a dead letter, and nothing doubled.
    pub fn clean(&self) -> bool {
        self.missing_count() == self.dead_lettered() && self.doubled == 0
    }

    /// As one object.
    pub fn json(&self, frame: &Frame) -> Value {
        let name = |device: &u32| self.names.name(*device);
        let time = |at: &i64| Timestamp::from_millis(*at);
        let at = |(device, at): &(u32, i64)| json!({ "device": name(device), "time": time(at) });
        json!({
            "stream": frame.stream,
            "collection": frame.collection,
            "from": frame.from,
            "to": frame.to,
            "comparedWith": frame.source.name(),
            "clean": self.clean(),
            "rows": self.rows,
            "devices": self.times.values().filter(|times| **times > 0).count(),
            "expected": self.expected,
            "missing": self.missing_count(),
            "deadLettered": self.dead_lettered(),
            "doubled": self.doubled,
            "otherContent": self.other_content,
            "repeated": self.repeated,
            "unexpected": self.unexpected,
            "deadLetters": self.letters,
            "deadLettersWithoutDevice": self.nameless_letters,
            "thin": self.thin_count,
            "notes": frame.notes,
            "byDevice": self.missing.iter().take(self.limit).map(|(device, (missing, letters))| json!({
                "device": name(device), "missing": missing, "deadLetters": letters,
            })).collect::<Vec<_>>(),
            "minutes": self.minutes.iter().map(|(device, start, minute)| json!({
                "device": name(device), "minute": time(start), "expected": minute.expected,
                "stored": minute.stored, "missing": minute.missing, "unexpected": minute.unexpected,
            })).collect::<Vec<_>>(),
            "missingAt": self.missing_at.iter().map(at).collect::<Vec<_>>(),
            "unexpectedAt": self.unexpected_at.iter().map(at).collect::<Vec<_>>(),
            "severalAt": self.doubled_at.iter().map(|doubled| json!({
                "device": name(&doubled.device), "time": time(&doubled.at),
                "rows": doubled.stored, "contents": doubled.contents,
            })).collect::<Vec<_>>(),
            "thinDevices": self.thin.iter().map(|thin| json!({
                "device": thin.device, "rows": thin.rows, "promised": thin.promised,
            })).collect::<Vec<_>>(),
        })
    }

    /// For a person.
    pub fn text(&self, frame: &Frame, out: &mut impl Write) -> io::Result<()> {
        let name = |device: &u32| printable(self.names.name(*device));
        let time = |at: &i64| Timestamp::from_millis(*at);
        writeln!(
            out,
            "stream {} in {}, {} to {}",
            frame.stream, frame.collection, frame.from, frame.to
        )?;
        let devices = self.times.values().filter(|times| **times > 0).count();
        writeln!(out, "{:>10} rows of {devices} devices", self.rows)?;
        match frame.source {
            Source::Published => writeln!(out, "{:>10} published", self.expected)?,
            Source::Feed => writeln!(out, "{:>10} in the feed", self.expected)?,
            Source::Nothing => {}
        }
        for note in &frame.notes {
            writeln!(out, "note: {note}")?;
        }
        if frame.source != Source::Nothing {
            writeln!(
                out,
                "{:>10} missing, {} of them dead letters by count",
                self.missing_count(),
                self.dead_lettered()
            )?;
        }
        writeln!(out, "{:>10} doubled", self.doubled)?;
        for (count, what) in [
            (
                self.other_content,
                "more under one time, saying something else",
            ),
            (
                self.repeated,
                "sent again under the same time and stored once",
            ),
            (self.unexpected, "stored, but not expected"),
            (self.letters, "dead letters received in this time"),
            (self.nameless_letters, "of these name no device"),
            (
                self.thin_count,
                "devices with fewer rows than their interval promises (thin)",
            ),
        ] {
            if count > 0 {
                writeln!(out, "{count:>10} {what}")?;
            }
        }
        for (device, start, minute) in &self.minutes {
            writeln!(
                out,
                "minute      {}  {}  expected {}, stored {}, missing {}, unexpected {}",
                time(start),
                name(device),
                minute.expected,
                minute.stored,
                minute.missing,
                minute.unexpected
            )?;
        }
        for (device, at) in &self.missing_at {
            writeln!(out, "missing     {}  {}", time(at), name(device))?;
        }
        for doubled in &self.doubled_at {
            let says = match doubled.contents {
                Some(1) => "all saying the same".to_owned(),
                Some(contents) => format!("saying {contents} different things"),
                None => "not looked at".to_owned(),
            };
            let (at, name) = (time(&doubled.at), name(&doubled.device));
            writeln!(
                out,
                "several     {at}  {name}  {} rows, {says}",
                doubled.stored
            )?;
        }
        for (device, at) in &self.unexpected_at {
            writeln!(out, "unexpected  {}  {}", time(at), name(device))?;
        }
        for thin in &self.thin {
            let Thin {
                device,
                rows,
                promised,
            } = thin;
            let device = printable(device);
            writeln!(
                out,
                "thin        {device}  {rows} rows, {promised} promised"
            )?;
        }
        for (device, (missing, letters)) in self.missing.iter().take(self.limit) {
            let device = name(device);
            writeln!(
                out,
                "device      {device}  {missing} missing, {letters} dead letters"
            )?;
        }
        let verdict = match self.clean() {
            true => "clean",
            false => "NOT clean",
        };
        writeln!(out, "{verdict}")
    }
}

/// How many readings an interval promises in so long.
fn promised(span: Duration, interval: Duration) -> u64 {
    u64::try_from(span.as_millis() / interval.as_millis().max(1)).unwrap_or(u64::MAX)
}

/// One less than promised is an edge, and one in twenty a device's clock.
fn is_thin(rows: u64, promised: u64) -> bool {
    rows + 1 < promised - promised / 20
}

/// The start of the minute that `at` is in.
pub fn minute_of(at: i64) -> i64 {
    at.div_euclid(MINUTE) * MINUTE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_promises_and_edges_are_forgiven() {
        let secs = Duration::from_secs;
        assert_eq!(promised(secs(600), secs(5)), 120);
        assert_eq!(promised(secs(4), secs(5)), 0);
        for (rows, promised, thin) in [
            (0, 0, false),
            (0, 1, false),
            (0, 2, true),
            (1, 2, false),
            (113, 120, false),
            (112, 120, true),
        ] {
            assert_eq!(is_thin(rows, promised), thin, "{rows} of {promised}");
        }
    }

    #[test]
    fn a_dead_letter_accounts_for_what_its_device_misses_and_no_more() {
        let mut report = Report::new(10);
        let (a, b) = (report.names.number("a"), report.names.number("b"));
        report.miss(a, 2);
        report.miss(b, 1);
        let count = |device: &str, letters| LetterCount {
            device: Some(device.to_owned()),
            letters,
        };
        report.letters(vec![count("a", 5)]);
        assert_eq!((report.missing_count(), report.dead_lettered()), (3, 2));
        assert!(!report.clean());
        report.letters(vec![count("b", 1), count("c", 9)]);
        assert!(report.clean());
    }
}
