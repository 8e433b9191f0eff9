//! Epoch numbers to milliseconds.
//!
//! In comes a number's text, out come milliseconds, from the digits as written: a binary float
//! would turn .120 s into .119. Digits beyond milliseconds are cut.

use crate::config::streams::TimeUnit;

/// Milliseconds of a number in JSON grammar; `None` beyond what 64 bits hold.
pub(super) fn millis(number: &str, unit: TimeUnit) -> Option<i64> {
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    let zeros = digits().take_while(|b| *b == b'0').count();
    if zeros == whole.len() + fraction.len() {
        return Some(0);
    }
    // Digits before the decimal point once leading zeros are gone; below one for fractions.
    let point = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()? + exponent;
    let taken = point + power(unit, point);
    if taken > 19 {
        return None;
    }
    let mut value: i128 = 0;
    let mut digits = digits().skip(zeros);
    for _ in 0..taken.max(0) {
        value = value * 10 + i128::from(digits.next().unwrap_or(b'0') - b'0');
    }
    i64::try_from(if negative { -value } else { value }).ok()
}

/// The power of ten from the unit to milliseconds; by size where the unit is not declared.
fn power(unit: TimeUnit, digits: i64) -> i64 {
    match unit {
        TimeUnit::S => 3,
        TimeUnit::Ms => 0,
        TimeUnit::Us => -3,
        TimeUnit::Ns => -6,
        TimeUnit::Auto | TimeUnit::Epoch | TimeUnit::Iso => match digits {
            ..=11 => 3,
            12..=14 => 0,
            15..=17 => -3,
            _ => -6,
        },
    }
}

/// An exponent, held within bounds that decide the outcome anyway.
fn parse_exponent(text: &str) -> i64 {
    const BOUND: i64 = 1_000_000_000;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    sign * digits.parse().map_or(BOUND, |n: i64| n.min(BOUND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use TimeUnit::{Auto, Ms, Ns, S, Us};

    #[test]
    fn digits_survive_and_units_are_told_by_size() {
        for (text, unit, expected) in [
            ("1773479729.12", S, Some(1_773_479_729_120)),
            ("1773479729.1299", S, Some(1_773_479_729_129)),
            ("1773479729", Auto, Some(1_773_479_729_000)),
            ("99999999999", Auto, Some(99_999_999_999_000)),
            ("100000000000", Auto, Some(100_000_000_000)),
            ("1773479725789", Auto, Some(1_773_479_725_789)),
            ("1773479725789.9", Auto, Some(1_773_479_725_789)),
            ("1773479725789123", Auto, Some(1_773_479_725_789)),
            ("1773479725789123456", Auto, Some(1_773_479_725_789)),
            ("1773479725", Ms, Some(1_773_479_725)),
            ("1773479725789123", Us, Some(1_773_479_725_789)),
            ("1773479725789123456", Ns, Some(1_773_479_725_789)),
            ("1.7734797255e9", Auto, Some(1_773_479_725_500)),
            ("17734797255e-1", S, Some(1_773_479_725_500)),
            ("0.0015", S, Some(1)),
            ("0.0001", S, Some(0)),
            ("0", Auto, Some(0)),
            ("0e99", Auto, Some(0)),
            ("-5", Auto, Some(-5_000)),
            ("1e500", Auto, None),
            ("1e-99999999999999999999", S, Some(0)),
            ("9223372036854775808", Ms, None),
        ] {
            assert_eq!(millis(text, unit), expected, "{text} {unit:?}");
        }
    }
}
