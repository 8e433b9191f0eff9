//! Which deliveries are un-acknowledged, and which may be acknowledged now. Pure.
//!
//! * Acknowledgements leave in arrival order (MQTT 5 §4.6), so a finished message waits for those
//!   before it.
//! * A packet id means something on one connection only. At its end nothing queued for it is sent
//!   any more; messages still on their way to MongoDB are remembered. When the resumed session
//!   delivers the same packet again (same id, DUP, same topic and payload), the copy is folded
//!   into the one on its way, or acknowledged at once if that has been stored meanwhile.
//! * Some brokers repeat a packet on a live connection: folded too, and acknowledged once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::model::QoS;

/// An acknowledgement to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Packet id.
    pub packet: u16,
    /// Decides its form: PUBACK or PUBREC.
    pub qos: QoS,
    /// When the message arrived.
    pub arrived: Instant,
}

/// What identifies a delivery.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Packet id, not 0.
    pub packet: u16,
    /// QoS 1 or 2.
    pub qos: QoS,
    /// The DUP flag.
    pub dup: bool,
    /// Hash of topic and payload.
    pub fingerprint: u64,
    /// Bytes held until it is settled.
    pub weight: usize,
    /// When it came.
    pub at: Instant,
}

/// What to do with a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Handle it under this sequence number.
    New(u64),
    /// The same message is on its way, or stored: nothing to do.
    Folded,
}

/// Where the order stands: as long as a front is the same, nothing before it moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fronts {
    /// Un-acknowledged deliveries of the current connection.
    pub unacked: usize,
    /// The message that all others wait for: not settled yet.
    pub unsettled: Option<u64>,
    /// The first whose acknowledgement is due but not known to be on the wire.
    pub leaving: Option<u64>,
}

/// The un-acknowledged deliveries of one client.
///
/// Every delivery takes the next number, which names its message. A copy of an earlier message
/// takes a number for its place in the order, but stands for the message it repeats.
#[derive(Debug, Default)]
pub struct Acks {
    /// Number of `entries[0]`.
    first: u64,
    /// Deliveries on the current connection, in arrival order.
    entries: VecDeque<Entry>,
    /// Their numbers by packet id.
    by_packet: HashMap<u16, u64>,
    /// Done, with an acknowledgement that is due but not known to be on the wire.
    leaving: VecDeque<Entry>,
    /// Copies on the current connection whose message is on its way: message to entry.
    copies: HashMap<u64, u64>,
    /// Un-acknowledged when an earlier connection ended, by packet id.
    remembered: HashMap<u16, Remembered>,
    /// Packet ids of those by message.
    remembered_by_message: HashMap<u64, u16>,
    /// Arrival of the oldest of them, while there is no connection to repeat it on.
    remembered_since: Option<Instant>,
    /// Bytes of messages on their way, of all connections.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    message: u64,
    arrival: Arrival,
    done: bool,
    /// The broker gave its packet id to another message: must not be acknowledged.
    mute: bool,
}

#[derive(Debug)]
struct Remembered {
    message: u64,
    fingerprint: u64,
    at: Instant,
    done: bool,
}

impl Acks {
    /// Un-acknowledged deliveries of the current connection.
    pub fn unacked(&self) -> usize {
        self.entries.len() + self.leaving.len()
    }

    /// Acknowledgements that are due but not known to be on the wire.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// What the order waits for.
    pub fn fronts(&self) -> Fronts {
        Fronts {
            unacked: self.unacked(),
            unsettled: self.entries.front().map(|entry| entry.message),
            leaving: self.leaving.front().map(|entry| entry.message),
        }
    }

    /// Bytes of messages on their way, of this and former connections.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A message on its way takes so many more bytes.
    pub fn grew(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Age of the oldest delivery that is not acknowledged, of this connection or, while there is
    /// none, the last one. A repeated delivery is as old as its first copy.
    pub fn oldest(&self, now: Instant) -> Duration {
        let here = self.leaving.front().or(self.entries.front());
        let arrived = [here.map(|entry| entry.arrival.at), self.remembered_since];
        let oldest = arrived.into_iter().flatten().min();
        oldest.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// A connection was accepted. Without its session the broker does not repeat deliveries.
    pub fn connected(&mut self, session_present: bool) {
        // What is repeated brings its age along; what is not, the broker had been told after all.
        self.remembered_since = None;
        if !session_present {
            self.remembered.clear();
            self.remembered_by_message.clear();
        }
    }

    /// The connection ended: its packet ids mean nothing any more, its un-acknowledged messages
    /// will come again. Those are also the ones whose acknowledgement was due but is not known to
    /// have left.
    pub fn severed(&mut self) {
        let oldest = self.leaving.front().or(self.entries.front());
        let oldest = oldest.map(|entry| entry.arrival.at);
        self.remembered_since = [self.remembered_since, oldest].into_iter().flatten().min();
        self.first += self.entries.len() as u64;
        let ended = self.leaving.drain(..).chain(self.entries.drain(..));
        for entry in ended.filter(|entry| !entry.mute) {
            let Arrival {
                packet,
                fingerprint,
                at,
                ..
            } = entry.arrival;
            self.remembered_by_message.insert(entry.message, packet);
            let remembered = Remembered {
                message: entry.message,
                fingerprint,
                at,
                done: entry.done,
            };
            if let Some(older) = self.remembered.insert(packet, remembered) {
                // The broker gave the id to another message since: the later one is repeated.
                self.remembered_by_message.remove(&older.message);
            }
        }
        self.by_packet.clear();
        self.copies.clear();
    }

    /// A delivery came. Returns what to do, and the acknowledgements that became due.
    pub fn arrived(&mut self, arrival: Arrival) -> (Admission, Vec<Ack>) {
        // On a live link a broker may repeat what it has no answer to yet.
        let unanswered = |entry: &&Entry| entry.arrival.packet == arrival.packet && !entry.mute;
        if arrival.dup
            && let Some(entry) = self.leaving.iter().find(unanswered)
            && entry.arrival.fingerprint == arrival.fingerprint
        {
            return (Admission::Folded, Vec::new());
        }
        if let Some(entry) = self
            .by_packet
            .get(&arrival.packet)
            .and_then(|n| self.entries.get_mut(index(*n, self.first)))
        {
            if entry.arrival.fingerprint == arrival.fingerprint {
                return (Admission::Folded, Vec::new());
            }
            // The broker reused an id that we have not released. Its view counts: one
            // acknowledgement, for the packet it sent last.
            entry.mute = true;
        }
        let number = self.first + self.entries.len() as u64;
        let remembered = self.remembered.remove(&arrival.packet);
        if let Some(remembered) = &remembered {
            self.remembered_by_message.remove(&remembered.message);
        }
        let repeated = remembered.filter(|r| arrival.dup && r.fingerprint == arrival.fingerprint);
        let message = repeated.as_ref().map_or(number, |r| r.message);
        let at = repeated.as_ref().map_or(arrival.at, |r| r.at);
        self.entries.push_back(Entry {
            message,
            arrival: Arrival { at, ..arrival },
            done: false,
            mute: false,
        });
        self.by_packet.insert(arrival.packet, number);
        match repeated {
            None => {
                self.bytes += arrival.weight;
                (Admission::New(number), Vec::new())
            }
            Some(repeated) if repeated.done => (Admission::Folded, self.finish(number)),
            Some(repeated) => {
                self.copies.insert(repeated.message, number);
                (Admission::Folded, Vec::new())
            }
        }
    }

    /// Message `number`, of `weight` bytes, reached its end. Returns the acknowledgements that
    /// are due now, in order.
    pub fn settled(&mut self, number: u64, weight: usize) -> Vec<Ack> {
        self.bytes = self.bytes.saturating_sub(weight);
        if let Some(copy) = self.copies.remove(&number) {
            return self.finish(copy);
        }
        if let Some(packet) = self.remembered_by_message.get(&number) {
            if let Some(remembered) = self.remembered.get_mut(packet) {
                remembered.done = true;
            }
            return Vec::new();
        }
        self.finish(number)
    }

    /// The first `count` acknowledgements that were due are on the wire.
    pub fn sent(&mut self, count: usize) {
        self.leaving.drain(..count.min(self.leaving.len()));
    }

    /// Message `number` was dropped on its way: its delivery stays un-acknowledged, and the copy
    /// that the next connection brings is a new message.
    pub fn lost(&mut self, number: u64, weight: usize) {
        self.bytes = self.bytes.saturating_sub(weight);
        if let Some(packet) = self.remembered_by_message.remove(&number) {
            self.remembered.remove(&packet);
        }
        let entry = self.copies.remove(&number).unwrap_or(number);
        if entry >= self.first
            && let Some(entry) = self.entries.get_mut(index(entry, self.first))
        {
            entry.mute = true;
        }
    }

    /// Marks a delivery of the current connection as done; one of an earlier connection that
    /// nobody remembers needs nothing more.
    fn finish(&mut self, number: u64) -> Vec<Ack> {
        if number < self.first {
            return Vec::new();
        }
        if let Some(entry) = self.entries.get_mut(index(number, self.first)) {
            entry.done = true;
        }
        let mut due = Vec::new();
        while self.entries.front().is_some_and(|entry| entry.done) {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            let Arrival {
                packet, qos, at, ..
            } = entry.arrival;
            if !entry.mute {
                due.push(Ack {
                    packet,
                    qos,
                    arrived: at,
                });
                self.by_packet.remove(&packet);
                self.leaving.push_back(entry);
            }
            self.first += 1;
        }
        due
    }
}

/// Position of delivery `number` in a queue that starts at `first`, which is not greater.
fn index(number: u64, first: u64) -> usize {
    usize::try_from(number - first).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "acks_tests.rs"]
mod tests;
