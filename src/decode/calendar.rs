//! Time text to calendar fields: RFC 3339 and close spellings (a space for `T`, any fraction, a
//! comma before it, an offset without colon, `UTC` or lower-case `z`, or no offset at all).
//!
//! A scanner of our own, since the spellings that devices send are looser than any one standard.

/// A point on the calendar and, if given, how far it is from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i16,
    pub(super) month: i8,
    pub(super) day: i8,
    pub(super) hour: i8,
    pub(super) minute: i8,
    /// Up to 60: a leap second is the first second of the next minute.
    pub(super) second: i8,
    pub(super) millis: i16,
    /// Seconds east of UTC.
    pub(super) offset: Option<i32>,
}

impl Civil {
    /// Milliseconds since the epoch, taking the fields as UTC.
    pub(super) fn as_utc_millis(&self) -> i64 {
        let days = days_from_epoch(self.year.into(), self.month.into(), self.day.into());
        let hours = days * 24 + i64::from(self.hour);
        let seconds = (hours * 60 + i64::from(self.minute)) * 60 + i64::from(self.second);
        seconds * 1_000 + i64::from(self.millis)
    }
}

/// Reads a date with a time of day; `None` if it is not one.
pub(super) fn parse(text: &str) -> Option<Civil> {
    let mut scan = Scan(text.trim().as_bytes());
    let (year, month, day) = scan.date()?;
    match scan.next()? {
        b'T' | b't' | b'_' => {}
        b' ' => scan.skip_spaces(),
        _ => return None,
    }
    let hour = scan.number(2)?;
    let colon = scan.take(b':');
    let minute = scan.number(2)?;
    let mut second = 0;
    let mut millis = 0;
    if if colon {
        scan.take(b':')
    } else {
        scan.0.first().is_some_and(u8::is_ascii_digit)
    } {
        second = scan.number(2)?;
        if scan.take(b'.') || scan.take(b',') {
            millis = scan.fraction()?;
        }
    }
    let offset = scan.offset()?;
    let valid = hour < 24 && minute < 60 && second <= 60 && scan.0.is_empty();
    valid.then_some(())?;
    Some(Civil {
        year: i16::try_from(year).ok()?,
        month: i8::try_from(month).ok()?,
        day: i8::try_from(day).ok()?,
        hour: i8::try_from(hour).ok()?,
        minute: i8::try_from(minute).ok()?,
        second: i8::try_from(second).ok()?,
        millis,
        offset,
    })
}

/// Reads a date alone, as midnight UTC in milliseconds since the epoch.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    let mut scan = Scan(text.trim().as_bytes());
    let (year, month, day) = scan.date()?;
    scan.0
        .is_empty()
        .then(|| days_from_epoch(year.into(), month.into(), day.into()) * 86_400_000)
}

struct Scan<'t>(&'t [u8]);

impl Scan<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.0.strip_prefix(&[byte]) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn skip_spaces(&mut self) {
        while self.take(b' ') {}
    }

    /// Exactly so many digits.
    fn number(&mut self, digits: usize) -> Option<u16> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().try_fold(0, |n: u16, b| {
            b.is_ascii_digit().then(|| n * 10 + u16::from(b - b'0'))
        })
    }

    /// `2026-03-14` or `20260314`, a day that exists.
    fn date(&mut self) -> Option<(u16, u16, u16)> {
        let year = self.number(4)?;
        let dash = self.take(b'-');
        let month = self.number(2)?;
        if dash && !self.take(b'-') {
            return None;
        }
        let day = self.number(2)?;
        ((1..=12).contains(&month) && day >= 1 && day <= days_in(year, month))
            .then_some((year, month, day))
    }

    /// The first three digits of a fraction; the others are cut.
    fn fraction(&mut self) -> Option<i16> {
        let count = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let digit = |n: usize| digits.get(n).map_or(0, |b| i16::from(b - b'0'));
        (count > 0).then(|| digit(0) * 100 + digit(1) * 10 + digit(2))
    }

    /// `Z`, `UTC`, `GMT`, `+01:00`, `+0100`, `+01`, or nothing; the outer `None` is an error.
    fn offset(&mut self) -> Option<Option<i32>> {
        self.skip_spaces();
        if self.0.is_empty() {
            return Some(None);
        }
        if ["z", "utc", "gmt"]
            .iter()
            .any(|z| self.0.eq_ignore_ascii_case(z.as_bytes()))
        {
            self.0 = &[];
            return Some(Some(0));
        }
        let sign = match self.next()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = self.number(2)?;
        self.take(b':');
        let minutes = if self.0.is_empty() {
            0
        } else {
            self.number(2)?
        };
        (hours < 24 && minutes < 60)
            .then(|| Some(sign * (i32::from(hours) * 3_600 + i32::from(minutes) * 60)))
    }
}

fn days_in(year: u16, month: u16) -> u16 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u16::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar. Counting years from March puts the
/// leap day last, so that the days before a month follow one formula.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        const NOON: i64 = 1_773_479_729_000; // 2026-03-14T09:15:29Z
        for (text, expected) in [
            ("2026-03-14T09:15:29Z", Some((NOON, Some(0)))),
            ("2026-03-14t09:15:29z", Some((NOON, Some(0)))),
            ("2026-03-14 09:15:29", Some((NOON, None))),
            (" 2026-03-14T09:15:29 UTC ", Some((NOON, Some(0)))),
            (
                "2026-03-14T09:15:29.412345678+00:00",
                Some((NOON + 412, Some(0))),
            ),
            (
                "2026-03-14T09:15:29,5-0130",
                Some((NOON + 500, Some(-5_400))),
            ),
            ("2026-03-14T09:15:29+01", Some((NOON, Some(3_600)))),
            ("20260314T091529Z", Some((NOON, Some(0)))),
            ("2026-03-14T09:15Z", Some((NOON - 29_000, Some(0)))),
            ("2016-12-31T23:59:60Z", Some((1_483_228_800_000, Some(0)))),
            ("1970-01-01T00:00:00Z", Some((0, Some(0)))),
            ("1969-12-31T23:59:59.999Z", Some((-1, Some(0)))),
            ("2000-02-29T00:00:00Z", Some((951_782_400_000, Some(0)))),
            ("2026-02-29T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-03-14T24:00:00Z", None),
            ("2026-03-14T09:15:61Z", None),
            ("2026-03-14T09:15:29.Z", None),
            ("2026-03-14T09:15:29+25:00", None),
            ("2026-03-14T09:15:29Zx", None),
            ("2026-03-14", None),
            ("09:15:29", None),
            ("yesterday", None),
            ("", None),
            ("2026-03-14T09:15:29ü", None),
        ] {
            let found = parse(text).map(|c| (c.as_utc_millis(), c.offset));
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(parse_date("2010-01-01"), Some(1_262_304_000_000));
        assert_eq!(parse_date("2010-01-01T00:00:00Z"), None);
    }
}
