//! The alerts of a group or storm that fire, with their levels counted.

use std::collections::BTreeMap;

use crate::model::Severity;

/// Alerts by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Members {
    levels: BTreeMap<String, Severity>,
    counts: [usize; Severity::ALL.len()],
}

impl Members {
    /// Enters one, or its new level.
    pub fn insert(&mut self, key: &str, severity: Severity) {
        self.remove(key);
        self.counts[severity as usize] += 1;
        self.levels.insert(key.to_owned(), severity);
    }

    pub fn remove(&mut self, key: &str) -> bool {
        let Some(severity) = self.levels.remove(key) else {
            return false;
        };
        self.counts[severity as usize] -= 1;
        true
    }

    pub fn len(&self) -> usize {
        self.levels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    pub fn contains(&self, key: &str) -> bool {
        self.levels.contains_key(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.levels.keys()
    }

    /// The worst level.
    pub fn worst(&self) -> Option<Severity> {
        let levels = Severity::ALL.into_iter().rev();
        levels.into_iter().find(|s| self.counts[*s as usize] > 0)
    }

    /// The keys, worst first, so many at the most.
    pub fn worst_first(&self, most: usize) -> Vec<&String> {
        let of = |level| self.levels.iter().filter(move |(_, s)| **s == level);
        let levels = Severity::ALL.into_iter().rev();
        levels.flat_map(of).map(|(key, _)| key).take(most).collect()
    }
}
