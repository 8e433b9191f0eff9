//! What has to be looked at, and when: looking costs what is due, not what there is.

use std::collections::{BTreeSet, HashMap};

use crate::model::Timestamp;

/// One thing to look at. Sorted in the order in which things due together are looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Id {
    /// An alert: flapping.
    Alert(String),
    /// An alert at a receiver.
    Entry(String, u32),
    /// A group by its key.
    Group(String),
    /// A storm by its key.
    Storm(String),
    /// A receiver's counts.
    Gate(String),
}

/// Always due.
const PAST: Timestamp = Timestamp::from_millis(0);

/// The next time for each thing.
#[derive(Debug, Default)]
pub(super) struct Due {
    queue: BTreeSet<(Timestamp, Id)>,
    times: HashMap<Id, Timestamp>,
}

impl Due {
    /// Looks at it next at `at` and not before.
    pub fn set(&mut self, id: Id, at: Timestamp) {
        if let Some(before) = self.times.insert(id.clone(), at) {
            if before == at {
                return;
            }
            self.queue.remove(&(before, id.clone()));
        }
        self.queue.insert((at, id));
    }

    /// Looks at it in the next turn, or still in this one.
    pub fn touch(&mut self, id: Id) {
        self.set(id, PAST);
    }

    pub fn forget(&mut self, id: &Id) {
        if let Some(at) = self.times.remove(id) {
            self.queue.remove(&(at, id.clone()));
        }
    }

    /// Moves what is due into `work`.
    pub fn take(&mut self, now: Timestamp, work: &mut BTreeSet<Id>) {
        while let Some((at, _)) = self.queue.first()
            && *at <= now
            && let Some((_, id)) = self.queue.pop_first()
        {
            self.times.remove(&id);
            work.insert(id);
        }
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.queue.first().map(|(at, _)| *at)
    }
}
