//! How far the records are: on disk, read, stored. Pure.
//!
//! Numbers grow in the order of arrival. Everything below `read` was handed to the lanes or is
//! gone; what is handed out is remembered until it is stored, then until it is deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Timestamp;

/// A message received before another may have been put on its way after it, by so much.
const SKEW: Duration = Duration::from_millis(250);

/// See the module's head.
#[derive(Debug)]
pub struct Progress {
    /// Records below were found at start.
    recovered: u64,
    /// Records below are on disk.
    committed: u64,
    /// Records below have been read.
    read: u64,
    /// Read and not yet stored, with their receive times.
    out: BTreeMap<u64, Timestamp>,
    /// Bytes of them in memory.
    out_bytes: usize,
    /// Read, and lost on their way: to be read again.
    again: BTreeMap<u64, Timestamp>,
    /// Stored, to be deleted.
    done: Vec<u64>,
    /// A time before which nothing was received that is on disk and has not been read.
    unread_since: Timestamp,
}

/// What to read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first number.
    pub from: u64,
    /// Beyond the last.
    pub end: u64,
}

impl Progress {
    /// Records below `next` were found at start, the oldest received at `oldest`.
    pub fn new(next: u64, oldest: Timestamp) -> Self {
        Self {
            recovered: next,
            committed: next,
            read: 0,
            out: BTreeMap::new(),
            out_bytes: 0,
            again: BTreeMap::new(),
            done: Vec::new(),
            unread_since: oldest,
        }
    }

    /// Nothing is below `first`.
    pub fn begin_at(&mut self, first: u64) {
        self.read = first;
    }

    /// The number of the next record.
    pub fn next(&self) -> u64 {
        self.committed
    }

    /// Records up to below `next` are on disk; none of the new ones was received before `since`.
    pub fn committed(&mut self, next: u64, since: Timestamp) {
        self.unread_since = match self.read < self.committed {
            true => self.unread_since.min(since),
            false => since,
        };
        self.committed = next;
    }

    /// What to read, where there is anything.
    pub fn to_read(&self) -> Option<Span> {
        if let Some((number, _)) = self.again.first_key_value() {
            let (from, end) = (*number, *number + 1);
            return Some(Span { from, end });
        }
        (self.read < self.committed).then_some(Span {
            from: self.read,
            end: self.committed,
        })
    }

    /// Whether a record was there at start, or has been read before: it may be stored.
    pub fn seen_before(&self, number: u64) -> bool {
        number < self.recovered || self.again.contains_key(&number)
    }

    /// Whether the ledger does not know a record yet.
    pub fn unheard_of(&self, number: u64) -> bool {
        number < self.recovered && !self.again.contains_key(&number)
    }

    /// Everything of `span` that is below `end` was read: `records`, and nothing else is there.
    pub fn handed_out(&mut self, span: Span, end: u64, records: &[(u64, Timestamp)]) {
        for number in span.from..end.min(span.from + 1) {
            self.again.remove(&number);
        }
        self.out.extend(records.iter().copied());
        if end > self.read {
            self.read = end;
            if let Some((_, at)) = records.last() {
                self.unread_since = *at;
            }
        }
    }

    /// A record that was read takes so many bytes in memory.
    pub fn takes(&mut self, bytes: usize) {
        self.out_bytes += bytes;
    }

    /// A record of `bytes` is stored, or was lost on its way.
    pub fn settled(&mut self, number: u64, bytes: usize, stored: bool) {
        self.out_bytes = self.out_bytes.saturating_sub(bytes);
        let at = self.out.remove(&number);
        if stored {
            self.done.push(number);
        } else if let Some(at) = at {
            self.again.insert(number, at);
        }
    }

    /// Records read and not yet stored, and their bytes.
    pub fn out(&self) -> (usize, usize) {
        (self.out.len(), self.out_bytes)
    }

    /// How many can be deleted.
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// Takes the numbers to delete.
    pub fn take_done(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.done)
    }

    /// They could not be deleted.
    pub fn keep_done(&mut self, mut done: Vec<u64>) {
        done.append(&mut self.done);
        self.done = done;
    }

    /// A time before which everything that is on disk is stored; `None`: all of it is.
    pub fn oldest(&self) -> Option<Timestamp> {
        let unread = (self.read < self.committed).then_some(self.unread_since);
        let first = |times: &BTreeMap<u64, Timestamp>| times.first_key_value().map(|(_, at)| *at);
        let times = [unread, first(&self.out), first(&self.again)];
        let oldest = times.into_iter().flatten().min()?;
        Some(oldest.minus(SKEW))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn from_disk_to_stored_and_back_again() {
        let mut progress = Progress::new(3, at(10));
        assert_eq!(progress.to_read(), Some(Span { from: 0, end: 3 }));
        progress.committed(5, at(20));
        assert_eq!(progress.oldest(), Some(at(10).minus(SKEW)));
        let span = progress.to_read().unwrap();
        assert_eq!(span, Span { from: 0, end: 5 });
        assert!(progress.seen_before(2) && !progress.seen_before(3));
        progress.handed_out(span, 4, &[(1, at(10)), (2, at(11)), (3, at(20))]);
        progress.takes(30);
        assert_eq!(progress.to_read(), Some(Span { from: 4, end: 5 }));
        progress.settled(1, 10, true);
        assert_eq!(progress.oldest(), Some(at(11).minus(SKEW)));
        progress.settled(2, 10, false);
        assert_eq!(progress.out(), (1, 10));
        assert_eq!(progress.oldest(), Some(at(11).minus(SKEW)));
        // The lost one comes first, and is not news to the ledger.
        let span = progress.to_read().unwrap();
        assert_eq!(span, Span { from: 2, end: 3 });
        assert!(progress.seen_before(2) && !progress.unheard_of(2) && progress.unheard_of(1));
        progress.handed_out(span, 3, &[(2, at(11))]);
        progress.handed_out(Span { from: 4, end: 5 }, 5, &[(4, at(21))]);
        assert_eq!(progress.to_read(), None);
        for number in [2, 3, 4] {
            progress.settled(number, 10, true);
        }
        assert_eq!(progress.oldest(), None);
        assert_eq!(progress.take_done(), [1, 2, 3, 4]);
    }
}
