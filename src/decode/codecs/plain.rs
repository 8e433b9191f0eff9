//! Text, stored as it is but for white space around it.
//!
//! It never turns into a number or a boolean: `0012` is an error code, not twelve.

use super::Parsed;
use crate::decode::rules::FieldRules;
use crate::decode::text::Text;
use crate::decode::value::Value;
use crate::model::IgnoreReason;

pub(super) fn parse<'a>(text: Text<'a>, fields: &FieldRules) -> Parsed<'a> {
    let text = text.text.trim();
    match fields.is_missing(text) {
        true => Parsed::Ignored(IgnoreReason::MissingValue),
        false => Parsed::Value(Value::Text(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::test_support::field_rules;

    #[test]
    fn text_stays_text() {
        for (text, expected) in [
            ("0012", "0012"),
            (" Offline\r\n", "Offline"),
            ("nan", "nan"),
        ] {
            let parsed = parse(Text { text, origin: 0 }, &field_rules());
            assert_eq!(parsed, Parsed::Value(Value::Text(expected.into())));
        }
    }
}
