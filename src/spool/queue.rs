//! Messages on their way to disk, in memory. Pure.
//!
//! What is acknowledged on delivery is bounded by the connections' windows; QoS 0 has none and is
//! bounded here, oldest first.

use std::collections::VecDeque;

use super::record;
use crate::model::{Message, QoS, Receipt};

/// A message that is not on disk yet.
pub struct Waiting {
    pub message: Message,
    /// The stream it was received under.
    pub stream: Option<String>,
    /// The broker's claim on it.
    pub receipt: Receipt,
}

impl Waiting {
    /// Bytes of its record.
    fn length(&self) -> usize {
        record::length(&self.message, self.stream.as_deref())
    }
}

/// How much of something at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    pub messages: usize,
    pub bytes: usize,
}

/// See the module's head.
pub struct Queue {
    kept: VecDeque<Waiting>,
    lossy: VecDeque<Waiting>,
    lossy_bytes: usize,
    most_lossy: Most,
}

impl Queue {
    /// Holds at most `most_lossy` of what may be dropped.
    pub fn new(most_lossy: Most) -> Self {
        Self {
            kept: VecDeque::new(),
            lossy: VecDeque::new(),
            lossy_bytes: 0,
            most_lossy,
        }
    }

    /// Adds a message; returns those it pushed out.
    pub fn push(&mut self, waiting: Waiting) -> Vec<Waiting> {
        let mut pushed_out = Vec::new();
        if waiting.message.qos != QoS::AtMostOnce {
            self.kept.push_back(waiting);
            return pushed_out;
        }
        self.lossy_bytes += waiting.length();
        self.lossy.push_back(waiting);
        while self.lossy.len() > self.most_lossy.messages
            || (self.lossy_bytes > self.most_lossy.bytes && self.lossy.len() > 1)
        {
            pushed_out.extend(self.pop_lossy());
        }
        pushed_out
    }

    /// Takes the oldest, within `most`; at least one if there is any.
    pub fn take(&mut self, most: Most) -> Vec<Waiting> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < most.messages {
            let next = self.kept.front().or(self.lossy.front());
            let Some(weight) = next.map(|waiting| waiting.length()) else {
                break;
            };
            if bytes + weight > most.bytes && !taken.is_empty() {
                break;
            }
            bytes += weight;
            taken.extend(self.kept.pop_front().or_else(|| self.pop_lossy()));
        }
        taken
    }

    /// Takes back what was taken and could not be written, to the front.
    pub fn put_back(&mut self, taken: Vec<Waiting>) {
        for waiting in taken.into_iter().rev() {
            if waiting.message.qos == QoS::AtMostOnce {
                self.lossy_bytes += waiting.length();
                self.lossy.push_front(waiting);
            } else {
                self.kept.push_front(waiting);
            }
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.lossy.is_empty()
    }

    fn pop_lossy(&mut self) -> Option<Waiting> {
        let waiting = self.lossy.pop_front()?;
        self.lossy_bytes = self.lossy_bytes.saturating_sub(waiting.length());
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::model::{Outcome, Settle, Spooled, Ticket, Timestamp};

    struct Nobody;

    impl Settle for Nobody {
        fn settled(&self, _: Ticket, _: Option<Outcome>) {}
    }

    fn waiting(payload: &'static str, qos: QoS) -> Waiting {
        let ticket = Ticket {
            sequence: 0,
            stream: 0,
            weight: 0,
        };
        Waiting {
            message: Message {
                topic: Bytes::new(),
                payload: Bytes::from_static(payload.as_bytes()),
                cut_from: None,
                qos,
                retain: false,
                dup: false,
                spooled: Spooled::No,
                received_at: Timestamp::from_millis(0),
            },
            stream: None,
            receipt: Receipt::new(ticket, Arc::new(Nobody)),
        }
    }

    fn payloads(waiting: &[Waiting]) -> Vec<&[u8]> {
        waiting.iter().map(|one| &*one.message.payload).collect()
    }

    #[test]
    fn qos_0_is_bounded_and_the_rest_is_kept_in_order() {
        let mut queue = Queue::new(Most {
            messages: 2,
            bytes: 60,
        });
        for payload in ["a", "b"] {
            assert!(queue.push(waiting(payload, QoS::AtMostOnce)).is_empty());
        }
        let out = queue.push(waiting("ccc", QoS::AtMostOnce));
        assert_eq!(payloads(&out), [b"a"]);
        for payload in ["x", "y", "z"] {
            assert!(queue.push(waiting(payload, QoS::AtLeastOnce)).is_empty());
        }
        let two = Most {
            messages: 2,
            bytes: 1_000,
        };
        let taken = queue.take(two);
        assert_eq!(payloads(&taken), [b"x", b"y"]);
        queue.put_back(taken);
        assert_eq!(payloads(&queue.take(two)), [b"x", b"y"]);
        let small = Most {
            messages: 9,
            bytes: 50,
        };
        assert_eq!(payloads(&queue.take(small)), [b"z", b"b"]);
        assert_eq!(payloads(&queue.take(small)), [b"ccc"]);
        assert!(queue.is_empty() && queue.lossy_bytes == 0);
    }
}
