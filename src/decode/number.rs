//! Numbers from their text: the JSON grammar, and what a field holds.
//!
//! An integer is never rounded: beyond 2^53 it is stored as a 64-bit integer, beyond that it is
//! refused, as is a literal too large for a double.

use crate::config::streams::Numbers;
use crate::model::FieldValue;

/// The largest magnitude below which every integer is a double.
const EXACT: i64 = 1 << 53;

/// A field's value from a number in JSON grammar; `None` where nothing can hold it.
pub(super) fn field(text: &str, numbers: Numbers) -> Option<FieldValue> {
    if !is_integer(text) {
        return double(text).map(FieldValue::Double);
    }
    let integer: i64 = text.parse().ok()?;
    Some(match numbers {
        Numbers::Double if integer.unsigned_abs() <= EXACT.unsigned_abs() => {
            FieldValue::Double(integer as f64)
        }
        _ => FieldValue::Int64(integer),
    })
}

/// Text that stands for a number below 2^53 and is written as one.
pub(super) fn coerce(text: &str, numbers: Numbers) -> Option<FieldValue> {
    (is_json(text) && double(text)?.abs() < EXACT as f64)
        .then(|| field(text, numbers))
        .flatten()
}

/// Whether the text is a NaN or infinity in one of the usual spellings.
pub(super) fn is_non_finite(text: &str) -> bool {
    non_finite_prefix(text) == Some(text.len())
}

/// The length of a NaN or infinity at the start of the text, if it ends there as a word.
pub(super) fn non_finite_prefix(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let word = bytes[sign..]
        .iter()
        .take_while(|b| b.is_ascii_alphanumeric() || **b == b'_')
        .count();
    ["nan", "inf", "infinity"]
        .iter()
        .any(|known| bytes[sign..sign + word].eq_ignore_ascii_case(known.as_bytes()))
        .then_some(sign + word)
}

/// Whether the text is one number in JSON grammar.
pub(super) fn is_json(text: &str) -> bool {
    let rest = text.strip_prefix('-').unwrap_or(text);
    let (whole, rest) = digits(rest);
    if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
        return false;
    }
    let rest = match rest.strip_prefix('.').map(digits) {
        Some(("", _)) => return false,
        Some((_, rest)) => rest,
        None => rest,
    };
    match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => {
            let (power, rest) = digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
            !power.is_empty() && rest.is_empty()
        }
        None => rest.is_empty(),
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

fn is_integer(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E'))
}

fn double(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use FieldValue::{Double, Int64};

    #[test]
    fn integers_are_exact_or_refused() {
        for (text, double, preserve) in [
            ("18", Some(Double(18.0)), Some(Int64(18))),
            ("-0", Some(Double(0.0)), Some(Int64(0))),
            ("18.0", Some(Double(18.0)), Some(Double(18.0))),
            (
                "9007199254740992",
                Some(Double(9_007_199_254_740_992.0)),
                Some(Int64(1 << 53)),
            ),
            (
                "9007199254740993",
                Some(Int64((1 << 53) + 1)),
                Some(Int64((1 << 53) + 1)),
            ),
            (
                "-9223372036854775808",
                Some(Int64(i64::MIN)),
                Some(Int64(i64::MIN)),
            ),
            ("9223372036854775808", None, None),
            ("1e500", None, None),
            ("-1.5e2", Some(Double(-150.0)), Some(Double(-150.0))),
        ] {
            assert_eq!(field(text, Numbers::Double), double, "{text}");
            assert_eq!(field(text, Numbers::Preserve), preserve, "{text}");
        }
    }

    #[test]
    fn grammar() {
        for good in ["0", "-0", "10", "1.5", "1e5", "1E+5", "0.0e-0"] {
            assert!(is_json(good), "{good}");
        }
        for bad in [
            "", "-", "+1", "01", "1.", ".5", "1e", "0x1F", "1_000", "1,5", "1 ", "nan",
        ] {
            assert!(!is_json(bad), "{bad}");
        }
    }

    #[test]
    fn coercion_takes_complete_numbers_only() {
        assert_eq!(coerce("97.00", Numbers::Double), Some(Double(97.0)));
        for text in ["007", " 1", "9007199254740992", "1e400", "12 V", "nan"] {
            assert_eq!(coerce(text, Numbers::Double), None, "{text}");
        }
    }

    #[test]
    fn non_finite_words() {
        for (text, len) in [
            ("nan", Some(3)),
            ("-Infinity,", Some(9)),
            ("+INF}", Some(4)),
            ("null", None),
            ("nano", None),
            ("-1", None),
        ] {
            assert_eq!(non_finite_prefix(text), len, "{text}");
        }
    }
}
