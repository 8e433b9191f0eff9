//! Silences: what somebody wants not to hear of for a while. Only what fires is kept back; the end
//! of what was told is told in spite of any silence.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::labels::label;
use crate::alert::Episode;
use crate::model::Timestamp;

/// Largest compiled expression: matchers come from operators, but run for every alert.
const REGEX_BYTES: usize = 1 << 20;

/// Alerts that are not told between two times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Silence {
    /// Its name in history.
    pub id: String,
    /// All have to hold.
    pub matchers: Vec<Matcher>,
    /// From, inclusive.
    pub starts: Timestamp,
    /// Up to, exclusive. Expiring a silence sets it to the present.
    pub ends: Timestamp,
    /// Who wants it.
    pub author: String,
    /// Why.
    pub comment: String,
}

impl Silence {
    /// Whether it applies at a time.
    pub fn active(&self, now: Timestamp) -> bool {
        self.starts <= now && now < self.ends
    }

    /// Whether it is about an alert as told to a receiver.
    pub fn covers(&self, episode: &Episode, receiver: &str) -> bool {
        let mut matchers = self.matchers.iter();
        matchers.all(|m| m.matches(label(episode, receiver, &m.label)))
    }

    /// What is wrong with a new one, in words for who made it.
    ///
    /// # Errors
    /// No matcher or only such as hold for every alert, no end after the start or one more than
    /// `longest` away, no author, no comment.
    pub fn check(&self, longest: Duration) -> Result<(), String> {
        if self.matchers.iter().all(|m| m.matches("")) {
            return Err(
                "it would silence every alert: name at least one label's value, such as site=north"
                    .into(),
            );
        }
        if self.ends <= self.starts {
            return Err("it ends before it starts".into());
        }
        let length = self.ends.since(self.starts);
        if length > longest {
            return Err(format!(
                "it lasts {}: alerts.silence_max allows {}",
                humantime::format_duration(length),
                humantime::format_duration(longest)
            ));
        }
        if self.author.trim().is_empty() {
            return Err("it needs an author".into());
        }
        if self.comment.trim().is_empty() {
            return Err("it needs a comment that says why".into());
        }
        Ok(())
    }
}

/// One condition: `site=north`, `site!=north`, `rule=~cold-.*`, `rule!~cold-.*`. Expressions are
/// anchored at both ends. A label that an alert does not have is empty.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// The label.
    pub label: String,
    /// What its value must be.
    test: Test,
    negated: bool,
}

#[derive(Debug, Clone)]
enum Test {
    Equal(String),
    /// The expression as written beside its anchored form.
    Regex(String, Regex),
}

impl Matcher {
    /// Whether a value fits.
    pub fn matches(&self, value: &str) -> bool {
        let holds = match &self.test {
            Test::Equal(text) => text == value,
            Test::Regex(_, regex) => regex.is_match(value),
        };
        holds != self.negated
    }
}

impl FromStr for Matcher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "{text:?} is no matcher: expected label=value, label!=value, label=~expression or label!~expression"
            )
        };
        let at = text.find(['=', '!']).ok_or_else(malformed)?;
        let (name, rest) = text.split_at(at);
        let operators = [
            ("=~", true, false),
            ("!~", true, true),
            ("!=", false, true),
            ("=", false, false),
        ];
        let (operator, regex, negated) = operators
            .into_iter()
            .find(|(operator, ..)| rest.starts_with(operator))
            .ok_or_else(malformed)?;
        let name = name.trim();
        if name.is_empty() {
            return Err(malformed());
        }
        let value = rest[operator.len()..].trim();
        let value = value
            .strip_prefix('"')
            .and_then(|v| v.strip_suffix('"'))
            .unwrap_or(value);
        let test = if regex {
            let anchored = RegexBuilder::new(&format!("^(?:{value})$"))
                .size_limit(REGEX_BYTES)
                .build()
                .map_err(|error| format!("{value:?} is no regular expression: {error}"))?;
            Test::Regex(value.to_owned(), anchored)
        } else {
            Test::Equal(value.to_owned())
        };
        Ok(Self {
            label: name.to_owned(),
            test,
            negated,
        })
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, value) = match (&self.test, self.negated) {
            (Test::Equal(value), false) => ("=", value),
            (Test::Equal(value), true) => ("!=", value),
            (Test::Regex(value, _), false) => ("=~", value),
            (Test::Regex(value, _), true) => ("!~", value),
        };
        write!(f, "{}{operator}\"{value}\"", self.label)
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Serialize for Matcher {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Matcher {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[path = "silence_tests.rs"]
mod tests;
