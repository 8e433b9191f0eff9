//! A value and a ladder in, a verdict out: for each level whether its trigger holds and whether
//! its clear test does. What cannot be compared is unknown, and unknown changes nothing.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::config::rules::{Op, Operand};
use crate::model::{FieldValue, Severity};

/// A value that can be compared: what a field says, a rate, a count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// A whole number, compared exactly.
    Int(i64),
    /// A finite number.
    Double(f64),
    /// Text.
    Text(Box<str>),
}

impl Scalar {
    /// As a number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            Self::Bool(_) | Self::Text(_) => None,
        }
    }

    /// For payloads; whole numbers as such.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Self::Bool(truth) => (*truth).into(),
            Self::Int(number) => (*number).into(),
            Self::Double(number) => (*number).into(),
            Self::Text(text) => text.as_ref().into(),
        }
    }
}

/// Why there is nothing to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The field is not there, or null.
    Missing,
    /// Text where a number is due, a structure, and the like.
    Type,
    /// NaN or an infinity.
    NonFinite,
}

/// The field of that name; a name with dots also leads into structures kept as sent.
pub fn lookup<'a>(fields: &'a [(String, FieldValue)], name: &str) -> Option<&'a FieldValue> {
    if let Some((_, value)) = fields.iter().find(|(field, _)| field == name) {
        return Some(value);
    }
    let (head, rest) = name.split_once('.')?;
    let (_, value) = fields.iter().find(|(field, _)| field == head)?;
    rest.split('.').try_fold(value, |value, part| match value {
        FieldValue::Object(entries) => entries.iter().find(|(k, _)| k == part).map(|(_, v)| v),
        FieldValue::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// What a field says, if it says anything that can be compared.
pub fn scalar(value: Option<&FieldValue>, coerce: bool) -> Result<Scalar, Unknown> {
    match value {
        None | Some(FieldValue::Null) => Err(Unknown::Missing),
        Some(FieldValue::Double(number)) if number.is_finite() => Ok(Scalar::Double(*number)),
        Some(FieldValue::Double(_)) => Err(Unknown::NonFinite),
        Some(FieldValue::Int64(number)) => Ok(Scalar::Int(*number)),
        Some(FieldValue::Bool(truth)) => Ok(Scalar::Bool(*truth)),
        Some(FieldValue::Text(text)) if coerce => number_in(text).ok_or(Unknown::Type),
        Some(FieldValue::Text(text)) => Ok(Scalar::Text(text.as_str().into())),
        Some(FieldValue::Array(_) | FieldValue::Object(_)) => Err(Unknown::Type),
    }
}

/// The whole text as a decimal number: neither `1,5` nor `0x1F` nor `NaN`.
fn number_in(text: &str) -> Option<Scalar> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        return Some(Scalar::Int(number));
    }
    let plain = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    let number = text
        .chars()
        .all(plain)
        .then(|| text.parse::<f64>().ok())??;
    number.is_finite().then_some(Scalar::Double(number))
}

/// A set of levels, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Levels(u8);

impl Levels {
    /// No level.
    pub const NONE: Levels = Levels(0);

    /// With that level.
    pub fn with(self, level: Severity) -> Self {
        Self(self.0 | 1 << level as u8)
    }

    /// Whether that level is in it.
    pub fn has(self, level: Severity) -> bool {
        self.0 & 1 << level as u8 != 0
    }

    /// Whether none is.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The worst level in it.
    pub fn worst(self) -> Option<Severity> {
        Severity::ALL
            .into_iter()
            .rev()
            .find(|level| self.has(*level))
    }
}

/// Which triggers hold, and which clear tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Levels that are breached.
    pub trigger: Levels,
    /// Levels that are clear; neither: held.
    pub clear: Levels,
}

/// One comparison, ready to be made.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// With a number.
    Number(Op, Number),
    /// `==` or `!=` (`negated`) with a number, within an epsilon.
    Near {
        /// What to compare with.
        number: Number,
        /// How far off still counts as equal.
        epsilon: f64,
        /// `!=`.
        negated: bool,
    },
    /// `==` or `!=` (`true`) with text.
    Text(Box<str>, bool),
    /// `==` or `!=` (`true`) with a truth value.
    Bool(bool, bool),
    /// `inside`, or `outside` (`true`).
    Range(f64, f64, bool),
}

/// A number to compare with; whole ones exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole one.
    Int(i64),
    /// Any other.
    Double(f64),
}

impl Test {
    /// `None` where operator and operand do not fit, which validation has refused before.
    pub fn new(op: Op, operand: &Operand, epsilon: f64) -> Option<Self> {
        let negated = op == Op::Ne;
        let number = match operand {
            Operand::Integer(number) => Some(Number::Int(*number)),
            Operand::Number(number) => Some(Number::Double(*number)),
            _ => None,
        };
        Some(match (op, operand, number) {
            (Op::Inside | Op::Outside, Operand::Pair([low, high]), _) => {
                Self::Range(*low, *high, op == Op::Outside)
            }
            (Op::Eq | Op::Ne, Operand::Text(text), _) => Self::Text(text.as_str().into(), negated),
            (Op::Eq | Op::Ne, Operand::Bool(truth), _) => Self::Bool(*truth, negated),
            (Op::Eq | Op::Ne, _, Some(number)) => Self::Near {
                number,
                epsilon,
                negated,
            },
            (Op::Gt | Op::Ge | Op::Lt | Op::Le, _, Some(number)) => Self::Number(op, number),
            _ => return None,
        })
    }

    /// Whether it holds; `None`: the value is of another type.
    pub fn holds(&self, value: &Scalar) -> Option<bool> {
        Some(match self {
            Self::Number(op, number) => {
                let order = compare(value, *number)?;
                match op {
                    Op::Gt => order == Ordering::Greater,
                    Op::Ge => order != Ordering::Less,
                    Op::Lt => order == Ordering::Less,
                    _ => order != Ordering::Greater,
                }
            }
            Self::Near {
                number,
                epsilon,
                negated,
            } => {
                let equal = compare(value, *number)? == Ordering::Equal
                    || (*epsilon > 0.0 && (value.number()? - number.double()).abs() <= *epsilon);
                equal != *negated
            }
            Self::Text(text, negated) => match value {
                Scalar::Text(value) => (value == text) != *negated,
                _ => return None,
            },
            Self::Bool(truth, negated) => match value {
                Scalar::Bool(value) => (value == truth) != *negated,
                _ => return None,
            },
            Self::Range(low, high, negated) => {
                let inside = compare(value, Number::Double(*low))? != Ordering::Less
                    && compare(value, Number::Double(*high))? != Ordering::Greater;
                inside != *negated
            }
        })
    }

    /// The number it fires at for this value: of a range the end that is nearer.
    pub fn threshold(&self, value: Option<f64>) -> Option<f64> {
        match self {
            Self::Number(_, number) | Self::Near { number, .. } => Some(number.double()),
            Self::Range(low, high, _) => {
                let value = value?;
                let nearer = (value - low).abs() <= (value - high).abs();
                Some(if nearer { *low } else { *high })
            }
            Self::Text(..) | Self::Bool(..) => None,
        }
    }

    /// Whether every value for which this holds is one for which `other` does.
    pub fn implies(&self, other: &Test) -> bool {
        match (self, other) {
            (Self::Number(a_op, a), Self::Number(b_op, b)) if a_op == b_op => {
                let order = a.double().partial_cmp(&b.double());
                match a_op {
                    Op::Gt | Op::Ge => order != Some(Ordering::Less),
                    _ => order != Some(Ordering::Greater),
                }
            }
            (Self::Range(a_low, a_high, false), Self::Range(b_low, b_high, false)) => {
                a_low >= b_low && a_high <= b_high
            }
            (Self::Range(a_low, a_high, true), Self::Range(b_low, b_high, true)) => {
                a_low <= b_low && a_high >= b_high
            }
            _ => self == other,
        }
    }

    /// Whether `a` is the worse of two numbers that breach.
    pub fn worse(&self, a: f64, b: f64) -> bool {
        match self {
            Self::Number(Op::Gt | Op::Ge, _) => a > b,
            Self::Number(..) => a < b,
            Self::Range(low, high, outside) => {
                let middle = (low + high) / 2.0;
                ((a - middle).abs() > (b - middle).abs()) == *outside && a != b
            }
            _ => false,
        }
    }
}

impl Number {
    fn double(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Double(number) => number,
        }
    }
}

/// Exactly: no whole number takes a detour through a double.
fn compare(value: &Scalar, with: Number) -> Option<Ordering> {
    match (value, with) {
        (Scalar::Double(a), Number::Double(b)) => a.partial_cmp(&b),
        (Scalar::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        (Scalar::Int(a), Number::Double(b)) => int_with_double(*a, b),
        (Scalar::Double(a), Number::Int(b)) => int_with_double(b, *a).map(Ordering::reverse),
        (Scalar::Bool(_) | Scalar::Text(_), _) => None,
    }
}

fn int_with_double(int: i64, double: f64) -> Option<Ordering> {
    // 2^63 is a double; every double below it in size has a whole part that an i64 can hold.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if double.is_nan() {
        return None;
    }
    if double >= LIMIT {
        return Some(Ordering::Less);
    }
    if double < -LIMIT {
        return Some(Ordering::Greater);
    }
    let whole = double.floor();
    Some(match int.cmp(&(whole as i64)) {
        Ordering::Equal if double > whole => Ordering::Less,
        order => order,
    })
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
