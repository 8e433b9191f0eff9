//! The drain: reads records in the order of arrival and hands them to the lanes.
//!
//! What it has handed out and is not stored is bounded in messages and bytes. A record that is no
//! message any more is set aside, loudly, and holds nobody up.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::progress::Span;
use super::record::{self, Record};
use super::store::Numbered;
use super::{Inner, Onward, State};
use crate::model::{Receipt, Settle, Spooled, Ticket};
use crate::telemetry::Ledger;

/// The most that is read at once.
const CHUNK_MESSAGES: usize = 1_000;
const CHUNK_BYTES: usize = 4 << 20;

/// How long a drain that has nothing to do sleeps at the most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One message to hand out.
struct Ready {
    number: u64,
    record: Record,
    /// The ledger has not heard of it in this process.
    news: bool,
}

impl Inner {
    /// Hands out until asked to stop.
    pub(super) fn drain_all(inner: &Arc<Self>, onward: &Onward) {
        let mut told = None;
        while let Some((span, most)) = inner.next_span() {
            let read = inner.store.read(span.from, span.end, most, CHUNK_BYTES);
            match read {
                Ok(records) => {
                    told = None;
                    for ready in inner.sort_out(span, records) {
                        inner.hand_out(ready, onward);
                    }
                }
                Err(error) => {
                    inner.metrics.failures.inc();
                    let words = error.to_string();
                    if told.replace(words.clone()).as_ref() != Some(&words) {
                        tracing::error!(error = words, "The spool cannot be read; trying again");
                    }
                    let mut state = inner.lock();
                    state.drain_waits = true;
                    drop(inner.wait(state));
                }
            }
        }
    }

    /// Waits for something to read and for room to put it; `None`: asked to stop.
    fn next_span(&self) -> Option<(Span, usize)> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            if state.released
                && state.has_room(&self.config)
                && let Some(span) = state.progress.to_read()
            {
                let room = self.config.drain_messages - state.progress.out().0;
                return Some((span, room.min(CHUNK_MESSAGES)));
            }
            state.drain_waits = true;
            state = self.wait(state);
        }
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let woken = self.room.wait_timeout(state, LOOK_EVERY);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes what was read, and takes out what is no message.
    fn sort_out(&self, span: Span, records: Vec<Numbered>) -> Vec<Ready> {
        let end = records.last().map_or(span.end, |(number, _)| *number + 1);
        let (mut ready, mut damaged) = (Vec::with_capacity(records.len()), Vec::new());
        for (number, bytes) in records {
            match record::decode(&bytes) {
                Ok(record) => ready.push((number, record)),
                Err(why) => {
                    tracing::error!(
                        number,
                        bytes = bytes.len(),
                        error = why,
                        "A record of the spool is no message; it is set aside in the spool's file, table \"damaged\", and not stored"
                    );
                    self.metrics.damaged.inc();
                    damaged.push((number, bytes));
                }
            }
        }
        let mut state = self.lock();
        let State {
            progress,
            damaged: aside,
            ..
        } = &mut *state;
        let times: Vec<_> = ready
            .iter()
            .map(|(number, record)| (*number, record.message.received_at))
            .collect();
        let ready = ready.into_iter().map(|(number, mut record)| {
            if progress.seen_before(number) {
                record.message.spooled = Spooled::Again;
            }
            Ready {
                number,
                news: progress.unheard_of(number),
                record,
            }
        });
        let ready: Vec<_> = ready.collect();
        progress.handed_out(span, end, &times);
        for one in &ready {
            progress.takes(one.record.message.weight());
        }
        for (number, bytes) in damaged {
            progress.settled(number, 0, true);
            aside.push((number, bytes));
        }
        ready
    }

    fn hand_out(self: &Arc<Self>, ready: Ready, onward: &Onward) {
        let Ready {
            number,
            record: Record { message, stream },
            news,
        } = ready;
        let stream = stream.map_or(Ledger::NONE, |name| self.ledger.stream(&name));
        if news {
            self.ledger.received(stream);
        }
        let weight = message.weight();
        onward(message, &|decoded| {
            self.lock().progress.takes(decoded);
            let ticket = Ticket {
                sequence: number,
                stream,
                weight: weight + decoded,
            };
            Receipt::new(ticket, Arc::clone(self) as Arc<dyn Settle>)
        });
    }
}
