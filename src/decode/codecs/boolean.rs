//! A lone word from the stream's map.
//!
//! No word is a boolean by itself: `1`, `on` and `true` mean different things to different
//! products, so a word outside the map is refused by name.

use super::Parsed;
use crate::decode::refusal::{Refusal, quote};
use crate::decode::rules::FieldRules;
use crate::decode::text::Text;
use crate::decode::value::Value;
use crate::model::{IgnoreReason, Reason};

pub(super) fn parse<'a>(text: Text<'a>, fields: &FieldRules) -> Result<Parsed<'a>, Refusal> {
    let text = text.text.trim();
    if let Some(bool) = fields.booleans.get(text) {
        return Ok(Parsed::Value(Value::Bool(*bool)));
    }
    if fields.is_missing(text) {
        return Ok(Parsed::Ignored(IgnoreReason::MissingValue));
    }
    let known: Vec<String> = fields
        .booleans
        .keys()
        .take(10)
        .map(|word| quote(word))
        .collect();
    Err(Refusal::new(
        Reason::NotABoolean,
        format!(
            "{} is none of the stream's `booleans` ({})",
            quote(text),
            known.join(", ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::test_support::field_rules;

    #[test]
    fn only_words_of_the_map() {
        let fields = FieldRules {
            booleans: [("ON".into(), true), ("OFF".into(), false)].into(),
            missing: vec!["n/a".into()],
            ..field_rules()
        };
        let read = |text| parse(Text { text, origin: 0 }, &fields);
        assert_eq!(read(" OFF\n"), Ok(Parsed::Value(Value::Bool(false))));
        assert_eq!(read("N/A"), Ok(Parsed::Ignored(IgnoreReason::MissingValue)));
        for word in ["on", "1", "true", "FAULT"] {
            let refusal = read(word).unwrap_err();
            assert_eq!(refusal.reason, Reason::NotABoolean);
            assert!(refusal.detail.contains(word) && refusal.detail.contains("`OFF`, `ON`"));
        }
    }
}
