//! Some readings and their documents, on their way through one or more attempts. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mongodb::bson::RawDocumentBuf;

use super::batch::{Entry, Group};
use super::classify::DocumentError;
use crate::config::Dedup;
use crate::model::{Outcome, Spooled, TimeSource};

/// What has to be found out before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookUp {
    /// Nothing.
    No,
    /// The broker may have delivered them before: which are stored, by what they say?
    Delivered,
    /// An attempt of ours had an unclear outcome: which arrived, by their ids?
    Written,
}

/// Where a document's id, which comes first, ends: length, type, name and ObjectId.
const BEHIND_ID: usize = 4 + 1 + 4 + 12;

/// See the module's head.
pub struct Part {
    /// The readings.
    pub entries: Vec<Entry>,
    /// Their documents, position by position.
    pub documents: Arc<[RawDocumentBuf]>,
    /// What to find out first.
    pub look_up: LookUp,
}

/// How a write went that the server judged document by document.
pub struct Judged {
    /// To be written again.
    pub again: Part,
    /// Refused, with the server's words.
    pub refused: Vec<Refused>,
    /// Written.
    pub written: Part,
}

/// A reading that the server refused, its document, and the server's words.
pub type Refused = (Entry, RawDocumentBuf, String);

impl Part {
    /// Position by position.
    pub fn new(pairs: Vec<(Entry, RawDocumentBuf)>, look_up: LookUp) -> Self {
        let (entries, documents): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        Self {
            entries,
            documents: Arc::from(documents),
            look_up,
        }
    }

    /// The parts of a new group: what may have been delivered before is looked up first.
    pub fn of(group: Group, dedup: Dedup) -> Vec<Part> {
        let suspect = |entry: &Entry| {
            let delivered_before = match dedup {
                Dedup::Off => false,
                Dedup::Redelivered => {
                    entry.message.dup || entry.message.retain || entry.message.suspect
                }
                Dedup::Always => true,
            };
            // A receive time tells readings apart where it is the one they had when last written.
            delivered_before
                && (entry.reading.time_source == TimeSource::Device
                    || entry.message.spooled == Spooled::Again)
        };
        if !group.entries.iter().any(suspect) {
            return vec![Part {
                entries: group.entries,
                documents: Arc::from(group.documents),
                look_up: LookUp::No,
            }];
        }
        let pairs = group.entries.into_iter().zip(group.documents);
        let (suspects, others): (Vec<_>, Vec<_>) = pairs.partition(|(entry, _)| suspect(entry));
        // The last is written first: the original of a suspect may be among the others.
        let parts = [
            Part::new(suspects, LookUp::Delivered),
            Part::new(others, LookUp::No),
        ];
        parts
            .into_iter()
            .filter(|part| !part.entries.is_empty())
            .collect()
    }

    /// Ends all of it.
    pub fn settle(self, outcome: Outcome) {
        for entry in self.entries {
            entry.receipt.settle(outcome);
        }
    }

    /// Takes out what `there` says, position by position; the rest needs no more looking up.
    pub fn take(self, there: &[bool]) -> (Part, Part) {
        let pairs = self.entries.into_iter().zip(self.documents.iter().cloned());
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for (pair, there) in pairs.zip(there) {
            if *there {
                found.push(pair);
            } else {
                missing.push(pair);
            }
        }
        (Part::new(found, LookUp::No), Part::new(missing, LookUp::No))
    }

    /// The first of those that say the same, and the others, to be looked up again once the first
    /// are written.
    pub fn apart(self) -> (Part, Part) {
        let mut seen = HashSet::new();
        let pairs = self.entries.into_iter().zip(self.documents.iter().cloned());
        let (first, again): (Vec<_>, Vec<_>) = pairs.partition(|(_, document)| {
            let said = document.as_bytes().get(BEHIND_ID..).unwrap_or_default();
            seen.insert(said.to_vec())
        });
        (
            Part::new(first, LookUp::No),
            Part::new(again, LookUp::Delivered),
        )
    }

    /// By the server's verdict.
    pub fn judged(self, failed: Vec<DocumentError>) -> Judged {
        let (mut again, mut refused, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut errors: HashMap<usize, Option<String>> = failed
            .into_iter()
            .map(|error| (error.index, error.refused))
            .collect();
        let pairs = self.entries.into_iter().zip(self.documents.iter().cloned());
        for (index, (entry, document)) in pairs.enumerate() {
            match errors.remove(&index) {
                None => written.push((entry, document)),
                Some(None) => again.push((entry, document)),
                Some(Some(words)) => refused.push((entry, document, words)),
            }
        }
        Judged {
            again: Part::new(again, LookUp::No),
            refused,
            written: Part::new(written, LookUp::No),
        }
    }

    /// Two halves of a part of two or more.
    pub fn halves(self) -> [Part; 2] {
        let mut pairs: Vec<_> = self
            .entries
            .into_iter()
            .zip(self.documents.iter().cloned())
            .collect();
        let second = pairs.split_off(pairs.len() / 2);
        [
            Part::new(pairs, self.look_up),
            Part::new(second, self.look_up),
        ]
    }
}
