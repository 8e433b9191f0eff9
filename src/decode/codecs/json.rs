//! A JSON document, or text where it is none.
//!
//! The second is for topics whose format changed with a version of the product: availability as
//! `online` or as `{"state":"online"}`.

use super::Parsed;
use crate::decode::json::{self, Options};
use crate::decode::refusal::Refusal;
use crate::decode::text::Text;
use crate::decode::value::Value;
use crate::model::Reason;

pub(super) fn parse(text: Text<'_>, options: Options) -> Result<Parsed<'_>, Refusal> {
    json::parse(text.text, text.origin, options).map(Parsed::Value)
}

/// Only objects and arrays are JSON here: `1` or `online` is a word. Text that merely starts like
/// JSON (`[12:00] started`) is text; JSON that breaks a rule of ours is refused as such.
pub(super) fn parse_or_text(text: Text<'_>, options: Options) -> Result<Parsed<'_>, Refusal> {
    let word = || Ok(Parsed::Value(Value::Text(text.text.trim().into())));
    if !text.text.trim_start().starts_with(['{', '[']) {
        return word();
    }
    match parse(text, options) {
        Err(refusal)
            if matches!(
                refusal.reason,
                Reason::JsonSyntax | Reason::JsonTrailingData
            ) =>
        {
            word()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::streams::NonFinite;

    #[test]
    fn text_where_it_is_not_json() {
        let options = Options {
            depth: 64,
            non_finite: NonFinite::DeadLetter,
        };
        let read = |text| parse_or_text(Text { text, origin: 0 }, options);
        for word in ["online", "1", "null", "[12:00] started", "{} {}"] {
            assert_eq!(read(word), Ok(Parsed::Value(Value::Text(word.into()))));
        }
        assert_eq!(read(" [] "), Ok(Parsed::Value(Value::Array(vec![]))));
        assert_eq!(
            read("{\"a\":nan}").unwrap_err().reason,
            Reason::JsonNonFinite
        );
    }
}
