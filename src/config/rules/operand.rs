//! What a rule compares with, and how.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Greater.
    #[serde(rename = ">", alias = "gt")]
    Gt,
    /// Greater or equal.
    #[serde(rename = ">=", alias = "ge")]
    Ge,
    /// Less.
    #[serde(rename = "<", alias = "lt")]
    Lt,
    /// Less or equal.
    #[serde(rename = "<=", alias = "le")]
    Le,
    /// Equal; numbers within `epsilon`.
    #[serde(rename = "==", alias = "eq")]
    Eq,
    /// Not equal.
    #[serde(rename = "!=", alias = "ne")]
    Ne,
    /// Within `[low, high]`, both ends included.
    #[serde(rename = "inside", alias = "between", alias = "in")]
    Inside,
    /// Below `low` or above `high`.
    #[serde(rename = "outside", alias = "not_in")]
    Outside,
}

impl Op {
    /// As written in rules and payloads.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }

    /// Whether it takes `[low, high]`.
    pub const fn takes_pair(self) -> bool {
        matches!(self, Self::Inside | Self::Outside)
    }

    /// Whether it takes text and truth values too.
    pub const fn takes_any(self) -> bool {
        matches!(self, Self::Eq | Self::Ne)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// What a value is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Operand {
    /// A truth value, for `==` and `!=`.
    Bool(bool),
    /// A whole number; compared exactly with whole numbers.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Text, for `==` and `!=`.
    Text(String),
    /// `[low, high]`, for `inside` and `outside`.
    Pair([f64; 2]),
}

impl Operand {
    /// A count; beyond what a window holds anyway it stays at the greatest.
    pub(super) fn from_count(count: u64) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// As a number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub(super) const fn noun(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a truth value",
            Self::Integer(_) | Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::Pair(_) => "[low, high]",
        }
    }
}
