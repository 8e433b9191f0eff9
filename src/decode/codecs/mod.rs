//! One file per payload format: text in, a tree out, or why not.
//!
//! All of them end in the same tree, so that a lone number and a JSON object share everything that
//! comes after.

use super::json::Options;
use super::refusal::Refusal;
use super::rules::FieldRules;
use super::text::Text;
use super::value::Value;
use crate::config::streams::Codec;
use crate::model::IgnoreReason;

mod boolean;
mod json;
mod number;
mod plain;

/// What a codec needs to know of its stream.
#[derive(Debug, Clone)]
pub(super) struct CodecRules {
    pub(super) codec: Codec,
    pub(super) options: Options,
    pub(super) decimal_comma: bool,
}

/// A payload read.
#[derive(Debug, PartialEq)]
pub(super) enum Parsed<'a> {
    Value(Value<'a>),
    Ignored(IgnoreReason),
}

/// Reads a payload that is not empty.
pub(super) fn parse<'a>(
    text: Text<'a>,
    rules: &CodecRules,
    fields: &FieldRules,
) -> Result<Parsed<'a>, Refusal> {
    match rules.codec {
        Codec::Json => json::parse(text, rules.options),
        Codec::JsonOrText => json::parse_or_text(text, rules.options),
        Codec::Text => Ok(plain::parse(text, fields)),
        Codec::Number => number::parse(text, rules.decimal_comma, fields),
        Codec::Bool => boolean::parse(text, fields),
    }
}
