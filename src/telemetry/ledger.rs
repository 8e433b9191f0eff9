//! The ledger: received = stored + already stored + dead-lettered + ignored + dropped + returned
//! + in flight, for each stream, at every scrape.
//!
//! All terms of one stream change under one lock and are read under it, so no scrape can see a
//! message that is nowhere or in two places. A folded redelivery is the same message and is not
//! counted again. "Returned" are messages given back to the broker unacknowledged (an
//! interrupted stop): it delivers them again.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use crate::model::Outcome;

/// How a message ended, as a label, and where its count stands.
const ENDINGS: [&str; 6] = [
    "stored",
    "already_stored",
    "dead_lettered",
    "ignored",
    "dropped",
    "returned",
];

/// The counts of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerCounts {
    /// Messages taken from the broker.
    pub received: u64,
    /// Messages that ended, in the order of the `outcome` label.
    pub ended: [u64; ENDINGS.len()],
    /// Messages on their way.
    pub in_flight: u64,
}

impl LedgerCounts {
    /// Whether every message is accounted for.
    pub fn balanced(&self) -> bool {
        self.received == self.ended.iter().sum::<u64>() + self.in_flight
    }
}

/// Counts messages by stream; the last entry of the label is `none` for unclaimed topics.
#[derive(Clone)]
pub struct Ledger(Arc<Mutex<Vec<(String, LedgerCounts)>>>);

impl Default for Ledger {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(vec![(
            "none".to_owned(),
            LedgerCounts::default(),
        )])))
    }
}

impl Ledger {
    /// Index of the messages no stream claims.
    pub const NONE: usize = 0;

    /// The index of a stream's counts; a name keeps its index for the life of the process.
    pub fn stream(&self, name: &str) -> usize {
        let mut all = self.lock();
        if let Some(index) = all.iter().position(|(known, _)| known == name) {
            return index;
        }
        all.push((name.to_owned(), LedgerCounts::default()));
        all.len() - 1
    }

    /// A message arrived.
    pub fn received(&self, stream: usize) {
        let counts = &mut self.lock()[stream].1;
        counts.received += 1;
        counts.in_flight += 1;
    }

    /// A message ended; `None`: it goes back to the broker. One that is in the spool now has not
    /// ended.
    pub fn ended(&self, stream: usize, outcome: Option<Outcome>) {
        let position = match outcome {
            Some(Outcome::Stored) => 0,
            Some(Outcome::AlreadyStored) => 1,
            Some(Outcome::DeadLettered) => 2,
            Some(Outcome::Ignored) => 3,
            Some(Outcome::Dropped) => 4,
            Some(Outcome::Spooled) => return,
            None => 5,
        };
        let counts = &mut self.lock()[stream].1;
        counts.in_flight -= 1;
        counts.ended[position] += 1;
    }

    /// The counts of every stream as they stand.
    pub fn snapshot(&self) -> Vec<(String, LedgerCounts)> {
        self.lock().clone()
    }

    /// Messages on their way, over all streams.
    pub fn in_flight(&self) -> u64 {
        self.lock().iter().map(|(_, counts)| counts.in_flight).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, LedgerCounts)>> {
        // Sums are sound whatever a panicking holder was doing; the process stops on a panic anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Ledger {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    /// Builds the families from one snapshot.
    fn collect(&self) -> Vec<MetricFamily> {
        let opts = |name: &str, help: &str| Opts::new(name, help);
        let literal = "names and labels are literals in the source";
        let received = IntCounterVec::new(
            opts(
                "tidegate_messages_received_total",
                "Messages taken from the broker",
            ),
            &["stream"],
        )
        .expect(literal);
        let ended = IntCounterVec::new(
            opts(
                "tidegate_messages_settled_total",
                "Messages that reached an end, by outcome",
            ),
            &["stream", "outcome"],
        )
        .expect(literal);
        let in_flight = IntGaugeVec::new(
            opts(
                "tidegate_messages_in_flight",
                "Messages taken but not yet settled",
            ),
            &["stream"],
        )
        .expect(literal);
        for (stream, counts) in self.snapshot() {
            received
                .with_label_values(&[&stream])
                .inc_by(counts.received);
            in_flight
                .with_label_values(&[&stream])
                .set(i64::try_from(counts.in_flight).unwrap_or(i64::MAX));
            for (outcome, count) in ENDINGS.into_iter().zip(counts.ended) {
                ended
                    .with_label_values(&[stream.as_str(), outcome])
                    .inc_by(count);
            }
        }
        [received.collect(), ended.collect(), in_flight.collect()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_at_every_step() {
        let ledger = Ledger::default();
        let a = ledger.stream("a");
        assert_eq!(ledger.stream("a"), a);
        ledger.received(a);
        ledger.received(a);
        ledger.ended(a, Some(Outcome::Stored));
        ledger.received(Ledger::NONE);
        ledger.ended(Ledger::NONE, Some(Outcome::Ignored));
        ledger.ended(a, None);
        for (_, counts) in ledger.snapshot() {
            assert!(counts.balanced());
        }
        assert_eq!(ledger.in_flight(), 0);
    }
}
