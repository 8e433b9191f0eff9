//! A refusal: the reason code and a sentence a person can act on.
//!
//! The sentence names what is wrong and where, and quotes the offending text, cut and escaped so
//! that it fits a log line and a terminal.

use crate::model::Reason;

/// Why a message, or a part of it, cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable code.
    pub reason: Reason,
    /// What, where, and the offending text.
    pub detail: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }
}

/// Characters of a payload that a sentence quotes at most.
const QUOTED: usize = 80;

/// The text in backticks, control characters escaped, cut to a readable length.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from("`");
    let mut chars = text.chars();
    for c in chars.by_ref().take(QUOTED) {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out.push('`');
    out
}

/// One refusal for a message whose items failed one by one: `failed` is not empty.
pub(super) fn merge(failed: Vec<(usize, Refusal)>, items: usize) -> Option<Refusal> {
    const NAMED: usize = 5;
    let reason = failed.first()?.1.reason;
    if items == 1 {
        return failed.into_iter().next().map(|(_, refusal)| refusal);
    }
    let mut detail = format!("{} of {items} readings refused", failed.len());
    for (n, (index, refusal)) in failed.iter().take(NAMED).enumerate() {
        let separator = if n == 0 { ": " } else { "; " };
        detail += &format!(
            "{separator}item {index}: {} ({})",
            refusal.detail, refusal.reason
        );
    }
    if failed.len() > NAMED {
        detail += &format!("; and {} more", failed.len() - NAMED);
    }
    Some(Refusal { reason, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_cut_and_escaped() {
        assert_eq!(quote("a\tb"), "`a\\tb`");
        assert_eq!(quote(&"ü".repeat(81)), format!("`{}…`", "ü".repeat(80)));
    }

    #[test]
    fn the_first_reason_counts_and_five_items_are_named() {
        let failed = (0..7)
            .map(|i| (i, Refusal::new(Reason::BadTime, format!("no {i}"))))
            .collect();
        let refusal = merge(failed, 9).unwrap();
        assert_eq!(refusal.reason, Reason::BadTime);
        assert!(
            refusal
                .detail
                .starts_with("7 of 9 readings refused: item 0: no 0")
        );
        assert!(
            refusal
                .detail
                .ends_with("item 4: no 4 (bad_time); and 2 more")
        );
        assert_eq!(merge(Vec::new(), 3), None);
    }
}
