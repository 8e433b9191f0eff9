//! When a reading was taken: the device's claim, if it is there and believable, else the time of
//! receipt.
//!
//! A claim that is present but unreadable is an error. One that is readable but implausible is
//! kept beside the time of receipt and flagged, unless the stream is strict.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::calendar::{self, Civil};
use super::path::Path;
use super::refusal::{Refusal, quote};
use super::value::Value;
use super::{epoch, number};
use crate::config::streams::{Implausible, TimeUnit};
use crate::model::{Flag, Flags, Reason, TimeSource, Timestamp};

/// A stream's rule for time.
#[derive(Debug, Clone)]
pub(super) struct TimeRule {
    pub(super) paths: Vec<Path>,
    pub(super) unit: TimeUnit,
    pub(super) zone: Option<TimeZone>,
    pub(super) earliest: i64,
    pub(super) max_ahead: i64,
    pub(super) implausible: Implausible,
}

/// The time of a reading and what is to be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) timestamp: Timestamp,
    pub(super) source: TimeSource,
    pub(super) flags: Flags,
    pub(super) claimed: Option<String>,
}

impl Stamp {
    /// The time of receipt.
    pub(super) fn received(at: Timestamp) -> Self {
        Self {
            timestamp: at,
            source: TimeSource::Received,
            flags: Flags::default(),
            claimed: None,
        }
    }
}

impl TimeRule {
    /// Judges a claim that is present.
    pub(super) fn judge(
        &self,
        path: &Path,
        claim: &Value<'_>,
        received: Timestamp,
    ) -> Result<Stamp, Refusal> {
        let mut flags = Flags::default();
        let Some((text, millis)) = self.read(claim, received, &mut flags) else {
            let text = claim.as_word().unwrap_or(claim.kind());
            return Err(bad(format!(
                "{} at `{}` is not a time: expected {}",
                quote(text),
                path.as_str(),
                self.expected()
            )));
        };
        let early =
            millis.is_none_or(|m| m < self.earliest) && (millis.is_some() || text.starts_with('-'));
        let late =
            millis.is_none_or(|m| m > received.millis().saturating_add(self.max_ahead)) && !early;
        let (flag, why) = match (millis, early, late) {
            (Some(millis), false, false) => {
                return Ok(Stamp {
                    timestamp: Timestamp::from_millis(millis),
                    source: TimeSource::Device,
                    flags,
                    claimed: None,
                });
            }
            (_, true, _) => (Flag::ClockUnset, "before `time.earliest`"),
            _ => (
                Flag::ClockFuture,
                "too far ahead of receipt (`time.max_ahead`)",
            ),
        };
        let claimed = match millis.map(|m| Timestamp::from_millis(m).to_string()) {
            Some(printed) if !printed.ends_with("ms") => printed,
            _ => text.to_owned(),
        };
        if self.implausible == Implausible::DeadLetter {
            return Err(bad(format!(
                "{} at `{}` means {claimed}, {why}",
                quote(text),
                path.as_str()
            )));
        }
        flags = Flags::default();
        flags.insert(flag);
        Ok(Stamp {
            flags,
            claimed: Some(claimed),
            ..Stamp::received(received)
        })
    }

    /// The claim as sent and its milliseconds since the epoch (`None` if no 64 bits hold them);
    /// `None` if it cannot be read.
    fn read<'v>(
        &self,
        claim: &'v Value<'_>,
        received: Timestamp,
        flags: &mut Flags,
    ) -> Option<(&'v str, Option<i64>)> {
        let text = match claim {
            Value::Number(text) if self.unit != TimeUnit::Iso => {
                return Some((text, epoch::millis(text, self.unit)));
            }
            Value::Text(text) => text.trim(),
            _ => return None,
        };
        if self.unit != TimeUnit::Iso && number::is_json(text) {
            return Some((text, epoch::millis(text, self.unit)));
        }
        match self.unit {
            TimeUnit::Auto | TimeUnit::Iso => {
                let civil = calendar::parse(text)?;
                Some((text, Some(self.resolve(&civil, received, flags))))
            }
            _ => None,
        }
    }

    fn resolve(&self, civil: &Civil, received: Timestamp, flags: &mut Flags) -> i64 {
        let local = civil.as_utc_millis();
        if let Some(offset) = civil.offset {
            return local - i64::from(offset) * 1_000;
        }
        let Some(zone) = &self.zone else {
            flags.insert(Flag::TzAssumed);
            return local;
        };
        // The rules are asked for the minute, since the calendar of `jiff` has no second 60.
        let minute = DateTime::new(
            civil.year,
            civil.month,
            civil.day,
            civil.hour,
            civil.minute,
            0,
            0,
        );
        let Ok(minute) = minute else {
            flags.insert(Flag::TzAssumed);
            return local;
        };
        let at = |offset: jiff::tz::Offset| local - i64::from(offset.seconds()) * 1_000;
        match zone.to_ambiguous_timestamp(minute).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(offset),
            // Before the gap the clock was behind: reading by it shifts the time forward.
            AmbiguousOffset::Gap { before, .. } => {
                flags.insert(Flag::TzGap);
                at(before)
            }
            AmbiguousOffset::Fold { before, after } => {
                flags.insert(Flag::TzAmbiguous);
                let distance = |millis: i64| millis.abs_diff(received.millis());
                let (first, second) = (at(before), at(after));
                if distance(first) <= distance(second) {
                    first
                } else {
                    second
                }
            }
        }
    }

    fn expected(&self) -> &'static str {
        match self.unit {
            TimeUnit::Auto => "RFC 3339 text such as `2026-03-14T09:15:30Z`, or an epoch number",
            TimeUnit::Iso => "RFC 3339 text such as `2026-03-14T09:15:30Z`",
            _ => "an epoch number",
        }
    }
}

fn bad(detail: String) -> Refusal {
    Refusal::new(Reason::BadTime, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(unit: TimeUnit, zone: &str) -> TimeRule {
        TimeRule {
            paths: Vec::new(),
            unit,
            zone: (!zone.is_empty()).then(|| TimeZone::get(zone).unwrap()),
            earliest: calendar::parse_date("2010-01-01").unwrap(),
            max_ahead: 3_600_000,
            implausible: Implausible::Received,
        }
    }

    fn judge(
        rule: &TimeRule,
        claim: Value<'_>,
        received: &str,
    ) -> Result<(String, Vec<&'static str>, Option<String>), Reason> {
        let stamp = rule
            .judge(
                &Path::parse("ts").unwrap(),
                &claim,
                received.parse().unwrap(),
            )
            .map_err(|r| r.reason)?;
        Ok((
            stamp.timestamp.to_string(),
            stamp.flags.names().collect(),
            stamp.claimed,
        ))
    }

    #[test]
    fn zones_and_their_edges() {
        let berlin = rule(TimeUnit::Iso, "Europe/Berlin");
        let none = rule(TimeUnit::Iso, "");
        for (rule, text, received, expected, flags) in [
            (
                &berlin,
                "2026-07-14 11:15:29",
                "2026-07-14T09:15:30Z",
                "2026-07-14T09:15:29.000Z",
                &[][..],
            ),
            (
                &berlin,
                "2026-10-25T02:30:00",
                "2026-10-25T01:30:02Z",
                "2026-10-25T01:30:00.000Z",
                &["tz_ambiguous"],
            ),
            (
                &berlin,
                "2026-10-25T02:30:00",
                "2026-10-25T00:30:02Z",
                "2026-10-25T00:30:00.000Z",
                &["tz_ambiguous"],
            ),
            (
                &berlin,
                "2026-03-29T02:30:00",
                "2026-03-29T01:30:02Z",
                "2026-03-29T01:30:00.000Z",
                &["tz_gap"],
            ),
            (
                &none,
                "2026-03-14T09:15:29",
                "2026-03-14T09:15:30Z",
                "2026-03-14T09:15:29.000Z",
                &["tz_assumed"],
            ),
        ] {
            let found = judge(rule, Value::Text(text.into()), received);
            assert_eq!(found, Ok((expected.into(), flags.to_vec(), None)), "{text}");
        }
    }

    #[test]
    fn implausible_claims_are_kept_beside_the_time_of_receipt() {
        let auto = rule(TimeUnit::Auto, "");
        let received = "2026-03-14T09:15:30.250Z";
        for (claim, flag, claimed) in [
            ("1773479725", "clock_unset", "1970-01-21T12:37:59.725Z"),
            ("0", "clock_unset", "1970-01-01T00:00:00.000Z"),
            ("-1e400", "clock_unset", "-1e400"),
            ("1e400", "clock_future", "1e400"),
            ("1773566130250", "clock_future", "2026-03-15T09:15:30.250Z"),
        ] {
            let ms = TimeRule {
                unit: TimeUnit::Ms,
                ..auto.clone()
            };
            let found = judge(&ms, Value::Number(claim.into()), received);
            assert_eq!(
                found,
                Ok((received.into(), vec![flag], Some(claimed.into()))),
                "{claim}"
            );
            let strict = TimeRule {
                implausible: Implausible::DeadLetter,
                ..ms
            };
            assert_eq!(
                judge(&strict, Value::Number(claim.into()), received),
                Err(Reason::BadTime)
            );
        }
        let edge = judge(
            &auto,
            Value::Text("2026-03-14T10:15:30.250Z".into()),
            received,
        );
        assert_eq!(edge.unwrap().1, Vec::<&str>::new());
    }

    #[test]
    fn unreadable_claims_are_refused() {
        let received = "2026-03-14T09:15:30Z";
        for (unit, claim) in [
            (TimeUnit::Auto, Value::Bool(true)),
            (TimeUnit::Auto, Value::Object(vec![])),
            (TimeUnit::Auto, Value::Text("soon".into())),
            (TimeUnit::Auto, Value::Text("".into())),
            (TimeUnit::Iso, Value::Number("1773479725".into())),
            (TimeUnit::S, Value::Text("2026-03-14T09:15:30Z".into())),
        ] {
            assert_eq!(
                judge(&rule(unit, ""), claim.clone(), received),
                Err(Reason::BadTime),
                "{claim:?}"
            );
        }
        let text = judge(
            &rule(TimeUnit::S, ""),
            Value::Text(" 1773479725 ".into()),
            received,
        );
        assert_eq!(text.unwrap().0, "2026-03-14T09:15:25.000Z");
    }
}
