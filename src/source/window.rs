//! The window of one connection: [`Acks`] under a lock, and the way back to the broker.
//!
//! Everything that must not mix two connections happens under this one lock: queueing an
//! acknowledgement, and cutting the connection off ([`Window::sever`]). An acknowledgement can
//! therefore never be queued for one connection and sent on the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::acks::{Ack, Acks, Admission, Arrival, Fronts};
use super::link::AckOutbox;
use super::metrics::ConnectionSeries;
use crate::model::{Outcome, Settle, Ticket};
use crate::telemetry::Ledger;

/// One connection's window.
pub struct Window {
    state: Mutex<State>,
    /// Acknowledgements are waiting to be taken.
    changed: Notify,
    /// A message reached its end.
    settled: Notify,
    /// A message was dropped without an outcome.
    loss: Notify,
    ledger: Ledger,
    series: ConnectionSeries,
}

#[derive(Default)]
struct State {
    acks: Acks,
    /// Due, and not yet handed to the client.
    due: std::collections::VecDeque<Ack>,
    outbox: Option<Box<dyn AckOutbox>>,
    /// A message of this connection was dropped without an outcome.
    lost: bool,
}

/// The sequence number of a delivery that needs no acknowledgement.
pub const NO_ACK: u64 = u64::MAX;

impl Window {
    pub fn new(ledger: Ledger, series: ConnectionSeries) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Notify::new(),
            settled: Notify::new(),
            loss: Notify::new(),
            ledger,
            series,
        })
    }

    /// A connection was accepted; acknowledgements go to `outbox`, or wait to be taken.
    pub fn open(&self, session_present: bool, outbox: Option<Box<dyn AckOutbox>>) {
        let mut state = self.lock();
        state.acks.connected(session_present);
        state.outbox = outbox;
    }

    /// Cuts the connection off: runs `cut`, which forgets what the client holds for it, under
    /// the same lock that acknowledgements are queued under.
    pub fn sever(&self, cut: impl FnOnce()) {
        let mut state = self.lock();
        self.series.stale_acks.inc_by(state.acks.leaving() as u64);
        state.acks.severed();
        state.due.clear();
        state.outbox = None;
        state.lost = false;
        cut();
        self.publish(&state);
    }

    /// A delivery came.
    pub fn arrived(&self, arrival: Arrival) -> Admission {
        let mut state = self.lock();
        let (admission, due) = state.acks.arrived(arrival);
        self.hand_over(&mut state, due);
        self.publish(&state);
        admission
    }

    /// A delivery takes so many more bytes, now that it is decoded.
    pub fn grew(&self, bytes: usize) {
        self.lock().acks.grew(bytes);
    }

    /// Takes all acknowledgements that are due, for a client that is sent to directly.
    pub fn take_due(&self) -> Vec<Ack> {
        let mut state = self.lock();
        state.due.drain(..).collect()
    }

    /// `count` acknowledgements went out on the wire.
    pub fn sent(&self, count: usize) {
        let mut state = self.lock();
        state.acks.sent(count);
        self.series.acked.inc_by(count as u64);
        // Room in the client's queue again.
        self.hand_over(&mut state, Vec::new());
    }

    /// Waits until there is something to take.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until some message reaches its end.
    pub async fn settled_one(&self) {
        self.settled.notified().await;
    }

    /// Waits until a message is lost on its way.
    pub async fn loss(&self) {
        self.loss.notified().await;
    }

    /// Whether a message of the current connection was dropped on its way: only a new connection
    /// makes the broker deliver it again.
    pub fn lost(&self) -> bool {
        self.lock().lost
    }

    /// Whether everything delivered is acknowledged, and every acknowledgement on the wire.
    pub fn idle(&self) -> bool {
        self.unacked() == 0
    }

    /// Deliveries of the current connection whose acknowledgement is not known to be on the wire.
    pub fn unacked(&self) -> usize {
        self.lock().acks.unacked()
    }

    /// What the order of acknowledgements waits for.
    pub fn fronts(&self) -> Fronts {
        self.lock().acks.fronts()
    }

    /// A delivery that nothing is to be done about takes its turn to be acknowledged.
    pub fn pass(&self, sequence: u64, weight: usize) {
        let mut state = self.lock();
        let due = state.acks.settled(sequence, weight);
        self.hand_over(&mut state, due);
        self.publish(&state);
    }

    /// Bytes of messages on their way.
    pub fn bytes(&self) -> usize {
        self.lock().acks.bytes()
    }

    /// How long ago the oldest delivery that is not settled came; zero where there is none.
    pub fn oldest(&self) -> Duration {
        self.lock().acks.oldest(Instant::now())
    }

    /// Brings the gauges up to date.
    pub fn refresh(&self) {
        let state = self.lock();
        self.publish(&state);
    }

    fn hand_over(&self, state: &mut State, due: Vec<Ack>) {
        let now = Instant::now();
        for ack in &due {
            self.series
                .ack_seconds
                .observe(now.saturating_duration_since(ack.arrived).as_secs_f64());
        }
        state.due.extend(due);
        match &state.outbox {
            None => {
                if !state.due.is_empty() {
                    self.changed.notify_one();
                }
            }
            Some(outbox) => {
                while let Some(ack) = state.due.front() {
                    if !outbox.send(*ack) {
                        break;
                    }
                    state.due.pop_front();
                }
            }
        }
    }

    fn publish(&self, state: &State) {
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.series.unacked.set(gauge(state.acks.unacked()));
        self.series.bytes.set(gauge(state.acks.bytes()));
        self.series
            .oldest
            .set(state.acks.oldest(Instant::now()).as_secs_f64());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in here stops the process; until then a stuck window is the worst that follows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settle for Window {
    fn settled(&self, ticket: Ticket, outcome: Option<Outcome>) {
        self.ledger.ended(ticket.stream, outcome);
        if ticket.sequence != NO_ACK {
            let mut state = self.lock();
            match outcome {
                Some(_) => {
                    let due = state.acks.settled(ticket.sequence, ticket.weight);
                    self.hand_over(&mut state, due);
                }
                None => {
                    state.acks.lost(ticket.sequence, ticket.weight);
                    state.lost = true;
                    self.loss.notify_one();
                }
            }
            self.publish(&state);
        }
        self.settled.notify_one();
    }
}
