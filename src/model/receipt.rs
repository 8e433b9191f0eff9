//! A message travels with its receipt.
//!
//! Each part of a message (a reading, a dead letter) holds a clone and settles it with a named
//! outcome. When the last clone is gone the message is reported: delivered if every part was
//! settled, lost otherwise. Dropping a receipt by accident can therefore never look like success.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// How a message ended. The greater one wins where parts of a message end differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Safe in the spool: may be acknowledged, and is on its way still.
    Spooled = 6,
    /// Left out under a named rule.
    Ignored = 1,
    /// Found in the series already.
    AlreadyStored = 2,
    /// Written and acknowledged by MongoDB.
    Stored = 3,
    /// QoS 0 only: pushed out of a full lane, at least in part.
    Dropped = 4,
    /// At least one part was written to the dead letters.
    DeadLettered = 5,
}

impl Outcome {
    fn from_u8(value: u8) -> Option<Self> {
        [
            Self::Ignored,
            Self::AlreadyStored,
            Self::Stored,
            Self::Dropped,
            Self::DeadLettered,
            Self::Spooled,
        ]
        .into_iter()
        .find(|o| *o as u8 == value)
    }
}

/// Names one delivery to whoever acknowledges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Position in the connection's arrival order; never reused within the process.
    pub sequence: u64,
    /// Index of the stream in the ledger.
    pub stream: usize,
    /// Bytes held until the message is settled.
    pub weight: usize,
}

/// Hears how messages end.
pub trait Settle: Send + Sync {
    /// `None`: some part was dropped without an outcome; the message was not delivered.
    fn settled(&self, ticket: Ticket, outcome: Option<Outcome>);
}

struct Inner {
    ticket: Ticket,
    owner: Arc<dyn Settle>,
    /// Live clones that have not settled.
    unsettled: AtomicU32,
    greatest: AtomicU8,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let delivered = *self.unsettled.get_mut() == 0;
        let outcome = Outcome::from_u8(*self.greatest.get_mut()).filter(|_| delivered);
        self.owner.settled(self.ticket, outcome);
    }
}

/// One part's claim on a message's delivery; see the module's head.
#[must_use = "an unsettled receipt reports its message as lost"]
pub struct Receipt(Arc<Inner>);

impl Receipt {
    /// A receipt with one part.
    pub fn new(ticket: Ticket, owner: Arc<dyn Settle>) -> Self {
        Self(Arc::new(Inner {
            ticket,
            owner,
            unsettled: AtomicU32::new(1),
            greatest: AtomicU8::new(0),
        }))
    }

    /// Ends this part.
    pub fn settle(self, outcome: Outcome) {
        self.0.greatest.fetch_max(outcome as u8, Ordering::AcqRel);
        self.0.unsettled.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends this part without a say in how the message ended: for what is written beside it.
    pub fn release(self) {
        self.0.unsettled.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Clone for Receipt {
    /// One more part that must be settled.
    fn clone(&self) -> Self {
        self.0.unsettled.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Log(Mutex<Vec<(u64, Option<Outcome>)>>);

    impl Settle for Log {
        fn settled(&self, ticket: Ticket, outcome: Option<Outcome>) {
            self.0.lock().unwrap().push((ticket.sequence, outcome));
        }
    }

    fn receipt(log: &Arc<Log>) -> Receipt {
        let ticket = Ticket {
            sequence: 7,
            stream: 0,
            weight: 0,
        };
        Receipt::new(ticket, Arc::clone(log) as Arc<dyn Settle>)
    }

    #[test]
    fn the_greatest_part_names_the_outcome_once_all_are_settled() {
        let log = Arc::new(Log::default());
        let first = receipt(&log);
        let second = first.clone();
        first.settle(Outcome::DeadLettered);
        assert!(log.0.lock().unwrap().is_empty());
        second.settle(Outcome::Stored);
        assert_eq!(*log.0.lock().unwrap(), [(7, Some(Outcome::DeadLettered))]);
    }

    #[test]
    fn a_released_part_leaves_the_outcome_to_the_others() {
        let log = Arc::new(Log::default());
        let first = receipt(&log);
        let second = first.clone();
        first.settle(Outcome::AlreadyStored);
        second.release();
        assert_eq!(*log.0.lock().unwrap(), [(7, Some(Outcome::AlreadyStored))]);
    }

    #[test]
    fn a_part_dropped_unsettled_means_not_delivered() {
        let log = Arc::new(Log::default());
        let first = receipt(&log);
        let second = first.clone();
        first.settle(Outcome::Stored);
        drop(second);
        assert_eq!(*log.0.lock().unwrap(), [(7, None)]);
    }
}
