//! How far an instance has come: the greatest time applied, and what was applied at exactly that
//! time. Readings that come twice or out of order are told by it; it only grows, so replaying
//! what was applied changes nothing.

use crate::model::Timestamp;

/// Readings of one instant that are told apart. More of them cannot be told from repeats, and
/// are taken for such: counting one twice would be worse.
const MAX_SEEN: usize = 16;

/// The place of an instance in its device's readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// Greatest time applied; `i64::MIN`: none yet.
    pub at: i64,
    /// Greatest time of receipt applied.
    pub received: i64,
    first: i64,
    /// Beyond the first, which is nearly always the only one.
    more: Vec<i64>,
}

/// Where a reading stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Later than all before, or at the same time and not seen.
    New,
    /// Seen.
    Duplicate,
    /// Older than what has been applied.
    Late,
}

impl Default for Watermark {
    fn default() -> Self {
        Self {
            at: i64::MIN,
            received: i64::MIN,
            first: 0,
            more: Vec::new(),
        }
    }
}

impl Watermark {
    /// As it was stored.
    pub fn restore(at: Timestamp, received: Timestamp, seen: &[i64]) -> Self {
        Self {
            at: at.millis(),
            received: received.millis(),
            first: seen.first().copied().unwrap_or_default(),
            more: seen.iter().skip(1).copied().collect(),
        }
    }

    /// Hashes of what was applied at exactly that time; empty if nothing was yet.
    pub fn seen(&self) -> impl Iterator<Item = i64> {
        let first = (self.at != i64::MIN).then_some(self.first);
        first.into_iter().chain(self.more.iter().copied())
    }

    /// Where a reading stands.
    pub fn standing(&self, at: Timestamp, hash: i64) -> Standing {
        match at.millis().cmp(&self.at) {
            std::cmp::Ordering::Greater => Standing::New,
            std::cmp::Ordering::Less => Standing::Late,
            std::cmp::Ordering::Equal
                if self.first == hash
                    || self.more.contains(&hash)
                    || self.more.len() + 1 >= MAX_SEEN =>
            {
                Standing::Duplicate
            }
            std::cmp::Ordering::Equal => Standing::New,
        }
    }

    /// Takes note of a new one.
    pub fn apply(&mut self, at: Timestamp, received: Timestamp, hash: i64) {
        if at.millis() > self.at {
            self.at = at.millis();
            self.first = hash;
            self.more.clear();
        } else {
            self.more.push(hash);
        }
        self.received = self.received.max(received.millis());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_equal_repeated_and_late() {
        let at = Timestamp::from_millis;
        let mut mark = Watermark::default();
        assert_eq!(mark.seen().count(), 0);
        for (time, hash, expected) in [
            (10, 1, Standing::New),
            (10, 1, Standing::Duplicate),
            (10, 2, Standing::New),
            (10, 2, Standing::Duplicate),
            (9, 3, Standing::Late),
            (11, 1, Standing::New),
            (10, 4, Standing::Late),
            (11, 1, Standing::Duplicate),
        ] {
            assert_eq!(mark.standing(at(time), hash), expected, "{time} {hash}");
            if expected == Standing::New {
                mark.apply(at(time), at(time + 5), hash);
            }
        }
        let seen: Vec<_> = mark.seen().collect();
        assert_eq!(Watermark::restore(at(11), at(16), &seen), mark);
    }

    #[test]
    fn what_cannot_be_told_apart_is_taken_for_a_repeat() {
        let at = Timestamp::from_millis(1);
        let mut mark = Watermark::default();
        for hash in 0..16 {
            assert_eq!(mark.standing(at, hash), Standing::New);
            mark.apply(at, at, hash);
        }
        assert_eq!(mark.standing(at, 99), Standing::Duplicate);
    }
}
