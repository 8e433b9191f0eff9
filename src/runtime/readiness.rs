//! Whether the gateway can do its job right now, and if not, why: named conditions that their
//! owners raise and clear, read by `/readyz`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// All conditions of the process.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<String, Option<String>>>>);

impl Readiness {
    /// A new condition that stands in the way until cleared.
    pub fn condition(&self, name: impl Into<String>, reason: impl Into<String>) -> Condition {
        let condition = Condition {
            name: name.into(),
            all: self.clone(),
        };
        condition.raise(reason);
        condition
    }

    /// What stands in the way, by name; empty when ready.
    pub fn reasons(&self) -> BTreeMap<String, String> {
        self.lock()
            .iter()
            .filter_map(|(name, reason)| Some((name.clone(), reason.clone()?)))
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Option<String>>> {
        // A map of texts is sound whatever a panicking holder was doing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One owner's say in readiness.
#[derive(Debug)]
pub struct Condition {
    name: String,
    all: Readiness,
}

impl Condition {
    /// Not ready, and why. Returns whether that is news.
    pub fn raise(&self, reason: impl Into<String>) -> bool {
        let reason = Some(reason.into());
        let mut all = self.all.lock();
        let before = all.insert(self.name.clone(), reason.clone());
        before.flatten() != reason
    }

    /// Nothing in the way. Returns whether that is news.
    pub fn clear(&self) -> bool {
        self.all
            .lock()
            .insert(self.name.clone(), None)
            .flatten()
            .is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_condition_is_clear() {
        let readiness = Readiness::default();
        let broker = readiness.condition("mqtt", "connecting");
        let database = readiness.condition("mongodb", "connecting");
        assert!(broker.clear());
        assert!(!broker.clear());
        assert_eq!(
            readiness.reasons().into_iter().collect::<Vec<_>>(),
            [("mongodb".into(), "connecting".into())]
        );
        assert!(database.raise("unreachable"));
        assert!(!database.raise("unreachable"));
        database.clear();
        assert!(readiness.reasons().is_empty());
    }
}
