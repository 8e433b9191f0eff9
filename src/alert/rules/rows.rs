//! The rows of the transition table in words, for whoever is shown their numbers.

use super::state::ROWS;

/// What each row is about.
const NAMES: [&str; ROWS as usize] = [
    "ok, nothing breached",
    "ok, fires at once",
    "breached, not yet for long enough",
    "pending, no longer breached",
    "pending, fires",
    "pending, starts again after a gap",
    "firing, escalates",
    "firing, not clear",
    "firing, clear down to a milder level",
    "firing, clear",
    "firing, clear, waits to recover",
    "recovering, escalates",
    "recovering, not clear after all",
    "recovering, clear for long enough",
    "no data: stale, or ended where the rule says so",
    "unknown: changes nothing",
    "pending, fires by itself on the clock of receipt",
    "edited or out of scope: ended",
    "rule or device gone: ended",
    "ended by hand, and held until clear",
];

/// What a row is about; empty for a number that is none.
pub fn row_name(row: u8) -> &'static str {
    let place = usize::from(row).wrapping_sub(1);
    NAMES.get(place).copied().unwrap_or_default()
}
