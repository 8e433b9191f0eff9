//! Some readings and their documents, on their way through one or more attempts. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use mongodb::bson::RawDocumentBuf;

use super::batch::{Entry, Group};
use super::classify::{DocumentError, Fate};
use crate::model::{DeviceId, Outcome, Timestamp};

/// What has to be found out before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookUp {
    /// Nothing.
    No,
    /// They may be there already: which are, by what they say?
    Delivered,
    /// An attempt of ours had an unclear outcome: which arrived, by their ids?
    Written,
}

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

    /// The parts of a new group, the first to be written last: what cannot be there yet; then
    /// what may be there, which has to be looked up; then copies of that, each part of them after
    /// the one it repeats.
    pub fn of(group: Group, suspect: &[bool]) -> Vec<Part> {
        if !suspect.contains(&true) {
            return vec![Part {
                entries: group.entries,
                documents: Arc::from(group.documents),
                look_up: LookUp::No,
            }];
        }
        let mut fresh = Vec::new();
        let mut rounds: Vec<Vec<_>> = Vec::new();
        let mut copies = 0;
        let mut last: Option<(DeviceId, Timestamp)> = None;
        let pairs = group.entries.into_iter().zip(group.documents);
        for (pair, suspect) in pairs.zip(suspect) {
            if !suspect {
                fresh.push(pair);
                continue;
            }
            let reading = &pair.0.reading;
            // Sorted: copies lie side by side.
            let same = last.as_ref().is_some_and(|(device, time)| {
                *device == reading.device && *time == reading.timestamp
            });
            copies = if same { copies + 1 } else { 0 };
            last = Some((reading.device.clone(), reading.timestamp));
            if rounds.len() <= copies {
                rounds.push(Vec::new());
            }
            rounds[copies].push(pair);
        }
        let rounds = rounds.into_iter().rev();
        let mut parts: Vec<_> = rounds
            .map(|round| Part::new(round, LookUp::Delivered))
            .collect();
        if !fresh.is_empty() {
            parts.push(Part::new(fresh, LookUp::No));
        }
        parts
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

    /// By the server's verdict.
    pub fn judged(self, failed: Vec<DocumentError>) -> Judged {
        let (mut again, mut refused, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut errors: HashMap<usize, Fate> = failed
            .into_iter()
            .map(|error| (error.index, error.fate))
            .collect();
        let pairs = self.entries.into_iter().zip(self.documents.iter().cloned());
        for (index, (entry, document)) in pairs.enumerate() {
            match errors.remove(&index) {
                None => written.push((entry, document)),
                Some(Fate::Again(_)) => again.push((entry, document)),
                Some(Fate::Refused(words)) => refused.push((entry, document, words)),
            }
        }
        Judged {
            again: Part::new(again, LookUp::Written),
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
