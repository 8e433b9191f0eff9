//! Quiet hours on the calendar: whether they apply at an instant and until when. Local times that
//! do not exist move forward; of those that exist twice both belong to the hours.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, ToSpan};

use super::labels::Patterns;
use crate::alert::Episode;
use crate::config::{QuietConfig, WeekWindow};
use crate::model::{Severity, Timestamp};

/// One section of the configuration, ready to be asked.
#[derive(Debug, Clone)]
pub(super) struct Quiet {
    pub name: String,
    zone: TimeZone,
    windows: Vec<WeekWindow>,
    patterns: Patterns,
    bypass: Vec<Severity>,
}

impl Quiet {
    /// A zone that is not known never applies: the configuration has been checked before.
    pub fn new(config: &QuietConfig) -> Option<Self> {
        Some(Self {
            name: config.name.clone(),
            zone: TimeZone::get(&config.tz).ok()?,
            windows: config.windows.clone(),
            patterns: Patterns::new(&config.matches),
            bypass: config.bypass.clone(),
        })
    }

    /// Whether it is about an alert as it stands.
    pub fn covers(&self, episode: &Episode, receiver: &str) -> bool {
        !self.bypass.contains(&episode.severity) && self.patterns.fit(episode, receiver)
    }

    /// When the hours that hold at `now` end; `None`: none do.
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        let instant = jiff::Timestamp::from_millisecond(now.millis()).ok()?;
        let today = self.zone.to_datetime(instant).date();
        // A window is at most a day long, so it began today or yesterday.
        let days = [today.checked_sub(1.day()).ok(), Some(today)];
        let spans = days.into_iter().flatten().flat_map(|day| {
            let mut windows = self.windows.iter();
            std::iter::from_fn(move || windows.next().map(|window| (day, window)))
        });
        spans
            .filter(|(day, window)| {
                window.begins_on(usize::from(
                    day.weekday().to_monday_zero_offset().unsigned_abs(),
                ))
            })
            .filter_map(|(day, window)| {
                Some((
                    self.instant(day, window.start(), Edge::Start)?,
                    self.instant(day, window.end(), Edge::End)?,
                ))
            })
            .filter(|(start, end)| *start <= now && now < *end)
            .map(|(_, end)| end)
            .max()
    }

    fn instant(&self, day: Date, minute: u16, edge: Edge) -> Option<Timestamp> {
        let local = day
            .at(0, 0, 0, 0)
            .checked_add(SignedDuration::from_mins(i64::from(minute)))
            .ok()?;
        let ambiguous = self.zone.to_ambiguous_timestamp(local);
        let instant = match edge {
            Edge::Start => ambiguous.compatible(),
            Edge::End => ambiguous.later(),
        };
        Some(Timestamp::from_millis(instant.ok()?.as_millisecond()))
    }
}

enum Edge {
    Start,
    End,
}

/// All sections, with what they say about one instant worked out once.
#[derive(Debug, Clone, Default)]
pub(super) struct QuietHours {
    sections: Vec<Quiet>,
    at: Option<Timestamp>,
    until: Vec<Option<Timestamp>>,
}

impl QuietHours {
    pub fn new(configs: &[QuietConfig]) -> Self {
        Self {
            sections: configs.iter().filter_map(Quiet::new).collect(),
            at: None,
            until: Vec::new(),
        }
    }

    /// Looks at the calendar once for all alerts that are judged at `now`.
    pub fn turn_to(&mut self, now: Timestamp) {
        if self.at != Some(now) {
            self.at = Some(now);
            self.until = self.sections.iter().map(|s| s.until(now)).collect();
        }
    }

    /// The section that keeps an alert back at the instant last turned to, and how long.
    pub fn hold(&self, episode: &Episode, receiver: &str) -> Option<(&str, Timestamp)> {
        let pairs = self.sections.iter().zip(&self.until);
        pairs
            .filter_map(|(section, until)| Some((section, (*until)?)))
            .filter(|(section, _)| section.covers(episode, receiver))
            .map(|(section, until)| (section.name.as_str(), until))
            .max_by_key(|(_, until)| *until)
    }
}

#[cfg(test)]
#[path = "quiet_tests.rs"]
mod tests;
