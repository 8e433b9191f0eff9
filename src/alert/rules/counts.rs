//! What evaluation came to, as plain numbers that the caller turns into metrics.

use crate::alert::Change;

use super::evaluate::Unknown;
use super::state::ROWS;

/// Numbers of one rule since they were last taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// Readings that breached some level.
    pub breach: u64,
    /// Readings that were clear of every level.
    pub clear: u64,
    /// Readings between `at` and `clear`.
    pub held: u64,
    /// Readings that said nothing that could be judged.
    pub unknown: u64,
    /// Of these: NaN or an infinity.
    pub nonfinite: u64,
    /// Of these: another type.
    pub mistyped: u64,
    /// Of these: null, or nothing at that path.
    pub missing: u64,
    /// Left out: older than what was applied.
    pub late: u64,
    /// Left out: applied already.
    pub duplicate: u64,
    /// Left out: history.
    pub historical: u64,
    /// Not opened: the rule has as many as it may.
    pub limited: u64,
    /// Rows of the transition table taken, by number.
    pub rows: [u64; ROWS as usize + 1],
    /// Transitions, by [`Change`].
    pub changes: [u64; Change::ALL.len()],
}

impl RuleCounts {
    pub(super) fn note_unknown(&mut self, why: Unknown) {
        self.unknown += 1;
        self.rows[16] += 1;
        match why {
            Unknown::NonFinite => self.nonfinite += 1,
            Unknown::Type => self.mistyped += 1,
            Unknown::Missing => self.missing += 1,
        }
    }

    /// Evaluations by result, for a closed set of labels.
    pub fn results(&self) -> [(&'static str, u64); 4] {
        [
            ("breach", self.breach),
            ("clear", self.clear),
            ("held", self.held),
            ("unknown", self.unknown),
        ]
    }

    /// Readings left out or of no use, by why.
    pub fn skipped(&self) -> [(&'static str, u64); 6] {
        [
            ("late", self.late),
            ("duplicate", self.duplicate),
            ("historical", self.historical),
            ("nonfinite", self.nonfinite),
            ("type", self.mistyped),
            ("missing", self.missing),
        ]
    }
}

/// How many instances of a rule are in which state; those that are ok are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Waiting to fire.
    pub pending: u64,
    /// Firing.
    pub firing: u64,
    /// Firing, and clear for a while.
    pub recovering: u64,
}

impl Census {
    /// All of them.
    pub fn active(&self) -> u64 {
        self.pending + self.firing + self.recovering
    }
}
