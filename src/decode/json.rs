//! JSON text to a tree, stricter than most readers: no duplicate keys, no NaN, one document, a
//! bounded depth, and errors that say where they are.
//!
//! `jiter` tokenises and keeps no state but its position. That lets us step over a NaN, which it
//! takes for a syntax error, by going on with a new tokenizer behind it. Numbers stay text.

use std::borrow::Cow;

use jiter::{Jiter, JiterError, JiterErrorType, JsonErrorType, Peek};

use super::keys;
use super::number::non_finite_prefix;
use super::refusal::{Refusal, quote};
use super::value::Value;
use crate::config::streams::NonFinite;
use crate::model::Reason;

/// How strictly to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) depth: usize,
    pub(super) non_finite: NonFinite,
}

/// Reads one document. `origin` is where the text starts in the payload.
pub(super) fn parse(text: &str, origin: usize, options: Options) -> Result<Value<'_>, Refusal> {
    let mut parser = Parser {
        text,
        jiter: Jiter::new(text.as_bytes()),
        base: 0,
        origin,
        options,
    };
    let peek = parser.jiter.peek().map_err(|e| parser.syntax(&e))?;
    let value = parser.value(peek, 0)?;
    match parser.jiter.finish() {
        Ok(()) => Ok(value),
        Err(error) => Err(parser.trailing(error.index)),
    }
}

struct Parser<'a> {
    text: &'a str,
    jiter: Jiter<'a>,
    /// Where `jiter` starts in `text`.
    base: usize,
    origin: usize,
    options: Options,
}

impl<'a> Parser<'a> {
    fn value(&mut self, peek: Peek, depth: usize) -> Result<Value<'a>, Refusal> {
        match peek {
            Peek::String => match self.jiter.known_str() {
                Ok(text) => Ok(Value::Text(borrow(self.text, text))),
                Err(error) => Err(self.syntax(&error)),
            },
            Peek::Object => self.object(depth + 1),
            Peek::Array => self.array(depth + 1),
            Peek::True | Peek::False => match self.jiter.known_bool(peek) {
                Ok(bool) => Ok(Value::Bool(bool)),
                Err(error) => Err(self.syntax(&error)),
            },
            Peek::Null => {
                let start = self.here();
                match self.jiter.known_null() {
                    Ok(()) => Ok(Value::Null),
                    Err(error) => self
                        .non_finite(start)
                        .unwrap_or_else(|| Err(self.syntax(&error))),
                }
            }
            _ => self.number(peek),
        }
    }

    fn number(&mut self, peek: Peek) -> Result<Value<'a>, Refusal> {
        let start = self.here();
        let error = match peek.is_num() {
            true => match self.jiter.known_number_bytes(peek) {
                Ok(bytes) => {
                    let end = start + bytes.len();
                    return Ok(Value::Number(Cow::Borrowed(&self.text[start..end])));
                }
                Err(error) => Some(error),
            },
            false => None,
        };
        if let Some(outcome) = self.non_finite(start) {
            return outcome;
        }
        Err(match error {
            Some(error) => self.syntax(&error),
            None => self.unexpected(start, "a value"),
        })
    }

    /// A NaN or infinity at `start`, if there is one: refused, or stepped over.
    fn non_finite(&mut self, start: usize) -> Option<Result<Value<'a>, Refusal>> {
        let length = non_finite_prefix(&self.text[start..])?;
        let end = start + length;
        if self.options.non_finite == NonFinite::DeadLetter {
            let detail = format!(
                "{} at offset {} is not JSON, which has no NaN and no infinity; send null or \
                 leave the value out, or set `non_finite = \"drop\"`",
                quote(&self.text[start..end]),
                self.origin + start
            );
            return Some(Err(Refusal::new(Reason::JsonNonFinite, detail)));
        }
        self.jiter = Jiter::new(&self.text.as_bytes()[end..]);
        self.base = end;
        Some(Ok(Value::NonFinite))
    }

    fn array(&mut self, depth: usize) -> Result<Value<'a>, Refusal> {
        self.check_depth(depth)?;
        let mut items = Vec::new();
        let mut next = self.jiter.known_array();
        loop {
            match next {
                Ok(Some(peek)) => items.push(self.value(peek, depth)?),
                Ok(None) => return Ok(Value::Array(items)),
                Err(error) => return Err(self.syntax(&error)),
            }
            next = self.jiter.array_step();
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value<'a>, Refusal> {
        self.check_depth(depth)?;
        let start = self.here();
        let mut members = Vec::new();
        let mut next = self.jiter.known_object();
        loop {
            let key = match next {
                Ok(Some(key)) => borrow(self.text, key),
                Ok(None) => break,
                Err(error) => return Err(self.syntax(&error)),
            };
            if members.is_empty() {
                members.reserve(8);
            }
            let peek = self.jiter.peek().map_err(|e| self.syntax(&e))?;
            members.push((key, self.value(peek, depth)?));
            next = self.jiter.next_key();
        }
        match keys::repeated(&members, |(key, _)| key) {
            None => Ok(Value::Object(members)),
            Some((_, n)) => Err(Refusal::new(
                Reason::JsonDuplicateKey,
                format!(
                    "key {} stands twice in the object at offset {}",
                    quote(&members[n].0),
                    self.origin + start
                ),
            )),
        }
    }

    fn here(&self) -> usize {
        self.base + self.jiter.current_index()
    }

    fn check_depth(&self, depth: usize) -> Result<(), Refusal> {
        if depth <= self.options.depth {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::TooDeep,
            format!(
                "nested beyond the depth limit of {} at offset {} (`limits.depth`)",
                self.options.depth,
                self.origin + self.here()
            ),
        ))
    }

    #[cold]
    fn trailing(&self, index: usize) -> Refusal {
        let at = self.base + index;
        let hint = match self.text[at..].starts_with(['{', '[']) {
            true => "a message holds one document, or an array of readings",
            false => "a message holds one document",
        };
        Refusal::new(
            Reason::JsonTrailingData,
            format!(
                "more data after the end of the document, at offset {}: {}; {hint}",
                self.origin + at,
                quote(&self.text[at..])
            ),
        )
    }

    #[cold]
    fn syntax(&self, error: &JiterError) -> Refusal {
        use JsonErrorType as E;
        let at = self.base + error.index;
        let JiterErrorType::JsonError(kind) = &error.error_type else {
            return self.unexpected(at, "a value");
        };
        let expected = match kind {
            E::NumberOutOfRange => {
                let detail = format!(
                    "a number of thousands of digits before offset {}",
                    self.origin + at
                );
                return Refusal::new(Reason::NumberOutOfRange, detail);
            }
            E::EofWhileParsingList | E::ExpectedListCommaOrEnd => "`,` or `]`",
            E::EofWhileParsingObject | E::ExpectedObjectCommaOrEnd => "`,` or `}`",
            E::EofWhileParsingString => "the closing `\"` of a string",
            E::ExpectedColon => "`:` after a key",
            E::KeyMustBeAString => "a key in double quotes",
            E::TrailingComma => "another item after the comma",
            E::InvalidNumber => "a digit (numbers read `-1.5e3`, without leading zeros or `+`)",
            E::ControlCharacterWhileParsingString => {
                "no control character in a string (write it as an escape such as `\\t`)"
            }
            E::InvalidEscape
            | E::UnexpectedEndOfHexEscape
            | E::InvalidUnicodeCodePoint
            | E::LoneLeadingSurrogateInHexEscape => {
                "a complete escape after `\\` (surrogates come in pairs)"
            }
            _ => "a value",
        };
        self.unexpected(at, expected)
    }

    #[cold]
    fn unexpected(&self, at: usize, expected: &str) -> Refusal {
        // An error inside a character points to its start.
        let at = (0..=at.min(self.text.len()))
            .rev()
            .find(|n| self.text.is_char_boundary(*n))
            .unwrap_or(0);
        let line_start = self.text[..at].rfind('\n').map_or(0, |n| n + 1);
        let line = self.text[..at].matches('\n').count() + 1;
        let column = self.text[line_start..at].chars().count() + 1;
        let found = match self.text[at..].chars().next() {
            None => "the end of the payload".into(),
            Some(c) => quote(c.encode_utf8(&mut [0; 4])),
        };
        let before = self.text[..at]
            .char_indices()
            .rev()
            .nth(29)
            .map_or(0, |(n, _)| n);
        let after = self.text[at..]
            .char_indices()
            .nth(20)
            .map_or(self.text.len(), |(n, _)| at + n);
        Refusal::new(
            Reason::JsonSyntax,
            format!(
                "line {line}, column {column} (offset {}): expected {expected}, found {found}, in {}",
                self.origin + at,
                quote(&self.text[before..after])
            ),
        )
    }
}

/// A part of the text where the tokenizer hands out one, a copy where it had to unescape.
fn borrow<'a>(text: &'a str, part: &str) -> Cow<'a, str> {
    let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    match text.get(start..start.wrapping_add(part.len())) {
        Some(same) => Cow::Borrowed(same),
        None => Cow::Owned(part.to_owned()),
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
