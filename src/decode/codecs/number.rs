//! A lone decimal number: JSON grammar, an optional `+`, white space around it, a decimal comma
//! only where the stream says so. Words that mean "no value" are counted and left out.
//!
//! Anything else is refused with a hint, never read in part.

use std::borrow::Cow;

use super::Parsed;
use crate::decode::number::is_json;
use crate::decode::refusal::{Refusal, quote};
use crate::decode::rules::FieldRules;
use crate::decode::text::Text;
use crate::decode::value::Value;
use crate::model::{IgnoreReason, Reason};

/// Words that mean "no value" wherever a number is due.
const MISSING: [&str; 5] = ["nan", "null", "none", "unknown", "unavailable"];

pub(super) fn parse<'a>(
    text: Text<'a>,
    decimal_comma: bool,
    fields: &FieldRules,
) -> Result<Parsed<'a>, Refusal> {
    let text = text.text.trim();
    let number = match text.strip_prefix('+') {
        Some(rest) if !rest.starts_with('-') => rest,
        _ => text,
    };
    let number: Cow<'a, str> = match decimal_comma && !number.contains('.') {
        true => number.replacen(',', ".", 1).into(),
        false => number.into(),
    };
    if is_json(&number) {
        return Ok(Parsed::Value(Value::Number(number)));
    }
    if fields.is_missing(text) || MISSING.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(Parsed::Ignored(IgnoreReason::MissingValue));
    }
    let hint = hint(text).map(|h| format!("; {h}")).unwrap_or_default();
    Err(Refusal::new(
        Reason::NotANumber,
        format!("{} is not a decimal number{hint}", quote(text)),
    ))
}

fn hint(text: &str) -> Option<&'static str> {
    if text.starts_with(['{', '[', '"']) {
        return Some("it looks like JSON: set `codec = \"json\"`");
    }
    if is_json(&text.replacen(',', ".", 1)) {
        return Some("if the comma is a decimal comma, set `decimal_comma = true`");
    }
    if text.starts_with("0x") || text.starts_with("0X") {
        return Some("hexadecimal is not read");
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    if digits.len() < text.len() && is_json(digits) {
        return Some("a unit behind the number is not read: send the number alone");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::rules::FieldRules;
    use crate::decode::test_support::field_rules;

    fn read(text: &str, decimal_comma: bool, fields: &FieldRules) -> String {
        match parse(Text { text, origin: 0 }, decimal_comma, fields) {
            Ok(Parsed::Value(Value::Number(number))) => number.into_owned(),
            Ok(other) => format!("{other:?}"),
            Err(refusal) => refusal.detail,
        }
    }

    #[test]
    fn numbers_and_near_numbers() {
        let fields = FieldRules {
            missing: vec!["--.-".into()],
            ..field_rules()
        };
        for (text, comma, expected) in [
            (" 21.50\r\n", false, "21.50"),
            ("+3", false, "3"),
            ("-1.5e2", false, "-1.5e2"),
            ("21,5", true, "21.5"),
            ("21.5", true, "21.5"),
            ("NaN", false, "Ignored(MissingValue)"),
            ("--.-", false, "Ignored(MissingValue)"),
        ] {
            assert_eq!(read(text, comma, &fields), expected, "{text}");
        }
        for (text, part) in [
            ("21,5", "decimal_comma"),
            ("1.234,5", "not a decimal number"),
            ("21.5 cm", "unit"),
            ("0x1F", "hexadecimal"),
            ("{\"v\":1}", "JSON"),
            ("+-1", "not a decimal"),
            ("007", "not a decimal"),
            (".5", "not a decimal"),
        ] {
            let detail = read(text, false, &fields);
            assert!(detail.contains(part) && detail.contains(text), "{detail}");
        }
        assert!(read("1,234,5", true, &fields).contains("not a decimal"));
    }
}
