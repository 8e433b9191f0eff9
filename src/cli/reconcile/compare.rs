//! One slice of time: what should be there against what is there. Pure.
//!
//! Devices are numbers here, so that a slice of millions of readings stays small.

use std::collections::BTreeMap;

/// A minute, in milliseconds.
pub const MINUTE: i64 = 60_000;

/// A reading that should be there: device, time, how often.
pub type Expected = (u32, i64, u32);

/// A row: device and time.
pub type Row = (u32, i64);

/// What is expected, and how far that is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A publisher's log: every reading of it, and how often it was sent.
    Published,
    /// The feed: a reading may stand in it twice.
    Feed,
    /// Nothing is known but the rows themselves.
    Nothing,
}

impl Source {
    /// As printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Feed => "feed",
            Self::Nothing => "none",
        }
    }
}

/// A device's minute that is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Minute {
    /// Readings expected.
    pub expected: u64,
    /// Rows.
    pub stored: u64,
    /// Readings without any row.
    pub missing: u64,
    /// Rows that nobody expects.
    pub unexpected: u64,
}

/// Several rows of one device and time: doubled, if they say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Several {
    pub device: u32,
    pub at: i64,
    /// How many there should be.
    pub expected: u64,
    pub stored: u64,
}

impl Several {
    /// How many rows repeat another one, and how many are more than expected but say something of
    /// their own, given how many different things they say.
    pub fn split(&self, contents: u64) -> (u64, u64) {
        let excess = self.stored - self.expected;
        let doubled = excess.min(self.stored.saturating_sub(contents));
        (doubled, excess - doubled)
    }
}

/// What a slice comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    pub rows: u64,
    pub expected: u64,
    pub missing: u64,
    /// Sent more often under one time than there are rows: the same reading sent twice is stored once.
    pub repeated: u64,
    pub unexpected: u64,
    /// Readings without a row, by device and time.
    pub missing_at: Vec<Row>,
    /// Rows that nobody expects, by device and time.
    pub unexpected_at: Vec<Row>,
    /// To be looked at more closely.
    pub several: Vec<Several>,
    /// Those that are not as they should be, by device and start.
    pub minutes: BTreeMap<(u32, i64), Minute>,
    /// Distinct times of each device.
    pub times: BTreeMap<u32, u64>,
}

/// Brings readings of the same device and time together, in order.
pub fn gather(expected: &mut Vec<Expected>) {
    expected.sort_unstable();
    expected.dedup_by(|later, first| {
        let same = (later.0, later.1) == (first.0, first.1);
        if same {
            first.2 = first.2.saturating_add(later.2);
        }
        same
    });
}

/// Compares; `expected` as [`gather`] leaves it, `rows` sorted.
pub fn compare(expected: &[Expected], rows: &[Row], source: Source) -> Findings {
    let mut found = Findings::default();
    let mut minutes: BTreeMap<(u32, i64), Minute> = BTreeMap::new();
    let mut expected = expected.iter().peekable();
    let mut groups = rows.chunk_by(|a, b| a == b).peekable();
    loop {
        let here = match (expected.peek(), groups.peek()) {
            (None, None) => break,
            (Some(reading), None) => (reading.0, reading.1),
            (None, Some(group)) => group[0],
            (Some(reading), Some(group)) => (reading.0, reading.1).min(group[0]),
        };
        let wanted = expected.next_if(|reading| (reading.0, reading.1) == here);
        let stored = groups.next_if(|group| group[0] == here);
        let wanted = wanted.map_or(0, |reading| u64::from(reading.2));
        let stored = stored.map_or(0, |group| group.len() as u64);
        found.take(here, wanted, stored, source, &mut minutes);
    }
    minutes.retain(|_, minute| minute.missing + minute.unexpected > 0);
    found.minutes = minutes;
    found
}

impl Findings {
    fn take(
        &mut self,
        (device, at): Row,
        wanted: u64,
        stored: u64,
        source: Source,
        minutes: &mut BTreeMap<(u32, i64), Minute>,
    ) {
        // The feed is written again with a write that is repeated.
        let wanted = match source {
            Source::Published => wanted,
            Source::Feed | Source::Nothing => wanted.min(1),
        };
        self.rows += stored;
        self.expected += wanted;
        *self.times.entry(device).or_default() += u64::from(stored > 0);
        let minute = (device, at.div_euclid(MINUTE) * MINUTE);
        let minute = minutes.entry(minute).or_default();
        minute.expected += wanted;
        minute.stored += stored;
        if stored == 0 {
            self.missing += wanted;
            minute.missing += wanted;
            self.missing_at.push((device, at));
        } else if wanted > stored {
            self.repeated += wanted - stored;
        }
        // Without a row nothing is said; the others cannot be told from rows of another publisher.
        if wanted == 0 && stored > 0 && source != Source::Nothing {
            self.unexpected += 1;
            minute.unexpected += 1;
            self.unexpected_at.push((device, at));
        }
        let expected = wanted.max(1);
        if stored > expected {
            self.several.push(Several {
                device,
                at,
                expected,
                stored,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (expected, rows, source) -> (missing, repeated, unexpected, several)
    #[test]
    fn what_is_missing_repeated_or_unexpected() {
        let m = MINUTE;
        type Case<'a> = (
            &'a str,
            &'a [Expected],
            &'a [Row],
            Source,
            (u64, u64, u64, usize),
        );
        let table: [Case<'_>; 10] = [
            ("nothing at all", &[], &[], Source::Published, (0, 0, 0, 0)),
            (
                "all there",
                &[(0, 1, 1), (1, 1, 1)],
                &[(0, 1), (1, 1)],
                Source::Published,
                (0, 0, 0, 0),
            ),
            (
                "the last is missing",
                &[(0, 1, 1), (0, m, 1)],
                &[(0, 1)],
                Source::Published,
                (1, 0, 0, 0),
            ),
            (
                "another device's row does not count",
                &[(0, 1, 1)],
                &[(1, 1)],
                Source::Published,
                (1, 0, 1, 0),
            ),
            (
                "doubled",
                &[(0, 1, 1)],
                &[(0, 1), (0, 1)],
                Source::Published,
                (0, 0, 0, 1),
            ),
            (
                "sent twice, stored twice",
                &[(0, 1, 2)],
                &[(0, 1), (0, 1)],
                Source::Published,
                (0, 0, 0, 0),
            ),
            (
                "sent twice, stored once",
                &[(0, 1, 2)],
                &[(0, 1)],
                Source::Published,
                (0, 1, 0, 0),
            ),
            (
                "twice in the feed, stored once",
                &[(0, 1, 2)],
                &[(0, 1)],
                Source::Feed,
                (0, 0, 0, 0),
            ),
            (
                "in the feed and gone",
                &[(0, 1, 2)],
                &[],
                Source::Feed,
                (1, 0, 0, 0),
            ),
            (
                "rows alone",
                &[],
                &[(0, 1), (0, 1), (0, 2)],
                Source::Nothing,
                (0, 0, 0, 1),
            ),
        ];
        for (what, expected, rows, source, says) in table {
            let found = compare(expected, rows, source);
            let said = (
                found.missing,
                found.repeated,
                found.unexpected,
                found.several.len(),
            );
            assert_eq!(said, says, "{what}: {found:?}");
            assert_eq!(found.rows, rows.len() as u64, "{what}");
        }
    }

    #[test]
    fn minutes_that_differ_are_kept_with_their_counts() {
        let expected = [(0, 0, 1), (0, 1_000, 1), (0, MINUTE, 1), (1, 0, 1)];
        let found = compare(&expected, &[(0, 0), (0, MINUTE), (1, 0)], Source::Published);
        let minute = Minute {
            expected: 2,
            stored: 1,
            missing: 1,
            unexpected: 0,
        };
        assert_eq!(found.minutes, BTreeMap::from([((0, 0), minute)]));
        assert_eq!(found.missing_at, [(0, 1_000)]);
        assert_eq!(found.times, BTreeMap::from([(0, 2), (1, 1)]));
        // Also before 1970.
        let found = compare(&[(0, -1, 1)], &[], Source::Published);
        assert!(found.minutes.contains_key(&(0, -MINUTE)));
    }

    #[test]
    fn readings_of_one_time_are_brought_together() {
        let mut expected = vec![(1, 5, 1), (0, 7, 2), (1, 5, 3)];
        gather(&mut expected);
        assert_eq!(expected, [(0, 7, 2), (1, 5, 4)]);
    }

    #[test]
    fn several_rows_are_doubled_as_far_as_they_say_the_same() {
        let several = |expected, stored| Several {
            device: 0,
            at: 0,
            expected,
            stored,
        };
        for (expected, stored, contents, says) in [
            (1, 2, 1, (1, 0)),
            (1, 2, 2, (0, 1)),
            (1, 3, 2, (1, 1)),
            (2, 3, 2, (1, 0)),
            (2, 3, 1, (1, 0)),
            (2, 3, 3, (0, 1)),
        ] {
            assert_eq!(several(expected, stored).split(contents), says);
        }
    }
}
