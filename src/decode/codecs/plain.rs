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
