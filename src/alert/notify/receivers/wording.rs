//! The built-in texts: what is said where neither rule nor receiver has words of its own.

use super::super::text;
use super::context::value_with_unit;
use super::view::{View, clock, listed};

/// Alerts named in a text.
const MOST_NAMED: usize = 20;

impl View<'_> {
    /// One line.
    pub(super) fn built_in_summary(&self) -> String {
        let notice = self.notice;
        let group = listed(&notice.group);
        if let Some(storm) = &notice.storm {
            let about = if group.is_empty() {
                &notice.key
            } else {
                &group
            };
            let line = if self.resolved() {
                format!("Storm over, {} alerts in all: {about}", storm.total)
            } else {
                format!("Storm, {} alerts firing: {about}", storm.firing)
            };
            return self.safe(&text::line(&line, 256));
        }
        let first = self.alerts.first();
        if self.many() {
            let count = self.alerts.len() + notice.truncated;
            let what = if self.resolved() {
                "resolved"
            } else {
                "firing"
            };
            let firing = self.alerts.iter().filter(|alert| !alert.resolved).count();
            let number = if self.resolved() {
                count
            } else {
                firing + notice.truncated
            };
            return match first {
                Some(only) if count == 1 => self.safe(&only.summary),
                _ => self.safe(&text::line(
                    &format!("{number} alerts {what}: {group}"),
                    256,
                )),
            };
        }
        first.map_or_else(
            || self.safe(&text::line(&notice.key, 256)),
            |alert| self.safe(&alert.summary),
        )
    }

    /// Some lines.
    pub(super) fn built_in_text(&self) -> String {
        let mut lines = Vec::new();
        if let Some(storm) = &self.notice.storm {
            lines.push(format!(
                "{} alerts since {}, {} firing now",
                storm.total,
                clock(storm.since),
                storm.firing
            ));
            for (label, value, count) in &storm.top {
                let (label, value) = (text::line(label, 64), text::line(value, 64));
                lines.push(format!("{label} = {value}: {count}"));
            }
        }
        if self.many() {
            for (alert, episode) in self
                .alerts
                .iter()
                .zip(&self.notice.episodes)
                .take(MOST_NAMED)
            {
                let level = if alert.resolved {
                    "resolved"
                } else {
                    episode.severity.name()
                };
                lines.push(format!("• [{level}] {}", alert.summary));
            }
            let more = self.alerts.len().saturating_sub(MOST_NAMED) + self.notice.truncated;
            if more > 0 && self.notice.storm.is_none() {
                lines.push(format!("and {more} more"));
            }
        } else if let (Some(alert), Some(episode)) =
            (self.alerts.first(), self.notice.episodes.first())
        {
            if let Some(own) = &alert.description {
                lines.push(own.clone());
            }
            let value = value_with_unit(episode);
            match (&value, &episode.op, episode.threshold) {
                (Some(value), Some(op), Some(threshold)) => {
                    let field = episode.field.as_deref().unwrap_or("value");
                    let limit = text::number(threshold);
                    lines.push(format!("{field} is {value}, fires at {op} {limit}"));
                }
                (Some(value), ..) => lines.push(format!("Last value: {value}")),
                (None, ..) => {}
            }
            let tags = listed(&episode.tags);
            let device = &episode.device;
            lines.push(if tags.is_empty() {
                format!("Device {device}")
            } else {
                format!("Device {device}: {tags}")
            });
            match episode.ended {
                Some(ended) => {
                    let lasted = text::span(ended.at.since(episode.fired_at));
                    let reason = ended.reason.name().replace('_', " ");
                    lines.push(format!("Ended after {lasted}: {reason}"));
                }
                None => lines.push(format!("Firing since {}", clock(episode.fired_at))),
            }
        }
        self.safe(&text::lines(&lines.join("\n"), 4_000))
    }
}
