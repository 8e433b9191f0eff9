//! `[[alerts.quiet]]`: hours of the week in which only the worst is told. What is written is read
//! here; when it applies is worked out where notifications are planned.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Problems;
use crate::model::Severity;

/// Hours in which alerts are not told, until the hours end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuietConfig {
    /// Its name, in history and explanations.
    pub name: String,
    /// IANA time zone of the windows.
    pub tz: String,
    /// When, each `[days] HH:MM-HH:MM`: from the first minute up to, not with, the last.
    pub windows: Vec<WeekWindow>,
    /// Which alerts, by label as for receivers, `receiver` too; empty: all.
    #[serde(rename = "match")]
    pub matches: BTreeMap<String, Vec<String>>,
    /// Levels told all the same.
    pub bypass: Vec<Severity>,
}

impl Default for QuietConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            tz: "UTC".into(),
            windows: Vec::new(),
            matches: BTreeMap::new(),
            bypass: vec![Severity::Critical],
        }
    }
}

impl QuietConfig {
    pub(super) fn validate(&self, key: &str, problems: &mut Problems) {
        if self.name.is_empty() {
            problems.add(format!("{key}.name"), "is missing: give the hours a name");
        }
        if jiff::tz::TimeZone::get(&self.tz).is_err() {
            problems.add(
                format!("{key}.tz"),
                format!(
                    "{:?} is no IANA time zone, such as \"Europe/Berlin\"",
                    self.tz
                ),
            );
        }
        if self.windows.is_empty() {
            problems.add(
                format!("{key}.windows"),
                "is empty: expected at least one, such as \"mon-fri 22:00-06:00\"",
            );
        }
    }
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MINUTES: u16 = 24 * 60;

/// Hours of the week on which they begin: `mon-fri 22:00-06:00`, `sat,sun 00:00-24:00`,
/// `12:00-13:00` (every day). An end not after the start lies on the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeekWindow {
    days: [bool; 7],
    start: u16,
    end: u16,
}

impl WeekWindow {
    /// Whether it begins on a day, Monday being 0.
    pub fn begins_on(&self, day: usize) -> bool {
        self.days.get(day).copied().unwrap_or(false)
    }

    /// The first minute, counted from midnight.
    pub fn start(&self) -> u16 {
        self.start
    }

    /// The minute it ends with, counted from the midnight before its start: up to 2,880.
    pub fn end(&self) -> u16 {
        if self.end > self.start {
            self.end
        } else {
            self.end + DAY_MINUTES
        }
    }
}

impl FromStr for WeekWindow {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim().to_ascii_lowercase();
        let (days, hours) = match text.rsplit_once(char::is_whitespace) {
            Some((days, hours)) => (parse_days(days)?, hours),
            None => ([true; 7], text.as_str()),
        };
        let (start, end) = hours.split_once('-').ok_or(())?;
        let (start, end) = (parse_minute(start)?, parse_minute(end)?);
        if start == DAY_MINUTES || start == end {
            return Err(());
        }
        Ok(Self { days, start, end })
    }
}

fn parse_days(text: &str) -> Result<[bool; 7], ()> {
    let day = |name: &str| {
        let name = name.trim();
        DAYS.iter().position(|day| *day == name).ok_or(())
    };
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(part)?, day(part)?),
        };
        let mut here = first;
        days[here] = true;
        while here != last {
            here = (here + 1) % 7;
            days[here] = true;
        }
    }
    Ok(days)
}

fn parse_minute(text: &str) -> Result<u16, ()> {
    let (hour, minute) = text.trim().split_once(':').ok_or(())?;
    let number = |text: &str| match text.len() {
        2 if text.bytes().all(|b| b.is_ascii_digit()) => text.parse::<u16>().map_err(drop),
        _ => Err(()),
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let total = hour * 60 + minute;
    (minute < 60 && total <= DAY_MINUTES)
        .then_some(total)
        .ok_or(())
}

impl fmt::Display for WeekWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != [true; 7] {
            let named: Vec<&str> = (0..7).filter(|d| self.days[*d]).map(|d| DAYS[d]).collect();
            write!(f, "{} ", named.join(","))?;
        }
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{}-{}", clock(self.start), clock(self.end))
    }
}

impl Serialize for WeekWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WeekWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|()| {
            serde::de::Error::custom(format!(
                "{text:?} is no window: expected `[days] HH:MM-HH:MM`, such as \"mon-fri 22:00-06:00\" or \"sat,sun 00:00-24:00\""
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_read_and_print() {
        for (text, printed, start, end) in [
            (
                "mon-fri 22:00-06:00",
                "mon,tue,wed,thu,fri 22:00-06:00",
                1_320,
                1_800,
            ),
            ("Sat,Sun 00:00-24:00", "sat,sun 00:00-24:00", 0, 1_440),
            ("12:00-13:00", "12:00-13:00", 720, 780),
            (
                "fri-mon 18:30-18:00",
                "mon,fri,sat,sun 18:30-18:00",
                1_110,
                2_520,
            ),
        ] {
            let window: WeekWindow = text.parse().unwrap();
            assert_eq!(window.to_string(), printed);
            assert_eq!((window.start(), window.end()), (start, end), "{text}");
            assert_eq!(printed.parse::<WeekWindow>(), Ok(window));
        }
        for bad in [
            "",
            "mon",
            "22:00",
            "24:00-06:00",
            "22:00-25:00",
            "22:60-23:00",
            "10:00-10:00",
            "moon 22:00-06:00",
            "1:00-2:00",
        ] {
            assert!(bad.parse::<WeekWindow>().is_err(), "{bad}");
        }
    }
}
