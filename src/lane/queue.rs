//! One lane: a queue that a free writer empties in one go.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::load::Load;
use super::metrics::LaneSeries;
use crate::model::Outcome;

/// How much a writer takes at once.
#[derive(Debug, Clone, Copy)]
pub struct TakeLimits {
    /// Loads at the most.
    pub loads: usize,
    /// Sum of their weights at the most; a single load may exceed it.
    pub bytes: usize,
}

/// One lane; see the folder's head.
pub struct Lane {
    queues: Mutex<Queues>,
    arrived: Notify,
    /// What `lossy` may hold.
    lossy_limits: TakeLimits,
    series: LaneSeries,
}

#[derive(Default)]
struct Queues {
    /// Bounded by the windows of the connections that feed it.
    kept: VecDeque<Load>,
    /// Bounded here.
    lossy: VecDeque<Load>,
    /// Sum of their weights, with each message counted at the first of its loads.
    lossy_bytes: usize,
    closed: bool,
}

impl Lane {
    pub(super) fn new(lossy_limits: TakeLimits, series: LaneSeries) -> Self {
        Self {
            queues: Mutex::default(),
            arrived: Notify::new(),
            lossy_limits,
            series,
        }
    }

    /// Adds a load; a QoS 0 one may push out older ones of its kind.
    pub(super) fn push(&self, load: Load) {
        let mut pushed_out = Vec::new();
        let mut queues = self.lock();
        if load.lossy() {
            queues.lossy_bytes += held_by(&load, queues.lossy.back());
            queues.lossy.push_back(load);
            while queues.lossy.len() > self.lossy_limits.loads
                || (queues.lossy_bytes > self.lossy_limits.bytes && queues.lossy.len() > 1)
            {
                pushed_out.extend(queues.pop_lossy());
            }
        } else {
            queues.kept.push_back(load);
        }
        self.series.depth.inc();
        drop(queues);
        self.arrived.notify_one();
        // Settled outside the lock: the receipt's owner takes locks of its own.
        for load in pushed_out {
            self.series.depth.dec();
            self.series.dropped.inc();
            load.receipt.settle(Outcome::Dropped);
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Waits until there is something to take; `false` when the lane is closed and empty.
    pub async fn ready(&self) -> bool {
        loop {
            {
                let queues = self.lock();
                if !queues.kept.is_empty() || !queues.lossy.is_empty() {
                    return true;
                }
                if queues.closed {
                    return false;
                }
            }
            // A notification that came since the look is kept by `Notify`.
            self.arrived.notified().await;
        }
    }

    /// Waits for a fuller batch: until `longest` has passed, `loads` are waiting, the lane is
    /// closed, or nothing has arrived for a quarter of the time. The last rule keeps a batch from
    /// waiting for more messages than the broker's window lets through.
    pub async fn linger(&self, longest: Duration, loads: usize) {
        let deadline = Instant::now() + longest;
        loop {
            {
                let queues = self.lock();
                if queues.closed || queues.kept.len() + queues.lossy.len() >= loads {
                    return;
                }
            }
            let lull = (Instant::now() + longest / 4).min(deadline);
            if timeout_at(lull, self.arrived.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Takes what is there, oldest first, within `limits`; at least one load if there is any.
    pub fn take(&self, limits: TakeLimits) -> Vec<Load> {
        let mut queues = self.lock();
        let waiting = queues.kept.len() + queues.lossy.len();
        let mut taken = Vec::with_capacity(waiting.min(limits.loads));
        let mut bytes = 0;
        for lossy in [false, true] {
            while let Some(load) = queues.front(lossy) {
                if taken.len() >= limits.loads
                    || (bytes + load.weight() > limits.bytes && !taken.is_empty())
                {
                    break;
                }
                bytes += load.weight();
                taken.extend(if lossy {
                    queues.pop_lossy()
                } else {
                    queues.kept.pop_front()
                });
            }
        }
        self.series
            .depth
            .sub(i64::try_from(taken.len()).unwrap_or(i64::MAX));
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // Two queues are sound whatever a panicking holder was doing; the process stops anyway.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn front(&self, lossy: bool) -> Option<&Load> {
        if lossy {
            self.lossy.front()
        } else {
            self.kept.front()
        }
    }

    fn pop_lossy(&mut self) -> Option<Load> {
        let load = self.lossy.pop_front()?;
        let next = self.lossy.front();
        // What the next one shares with it stays.
        let shared = next.is_some_and(|next| Arc::ptr_eq(&next.message, &load.message));
        let freed = load.weight() + if shared { 0 } else { load.message.weight() };
        self.lossy_bytes = self.lossy_bytes.saturating_sub(freed);
        Some(load)
    }
}

/// Bytes that `load` adds behind `last`: readings of one message arrive together and share it.
fn held_by(load: &Load, last: Option<&Load>) -> usize {
    let shared = last.is_some_and(|last| Arc::ptr_eq(&last.message, &load.message));
    load.weight() + if shared { 0 } else { load.message.weight() }
}

#[cfg(test)]
mod tests {

    use bytes::Bytes;

    use super::super::{Cargo, LaneMetrics, Lanes};
    use super::*;
    use crate::model::{Message, QoS, Reason, Receipt, Settle, Spooled, Ticket, Timestamp};
    use crate::telemetry::Registry;

    #[derive(Default)]
    struct Endings(Mutex<Vec<(u64, Option<Outcome>)>>);

    impl Settle for Endings {
        fn settled(&self, ticket: Ticket, outcome: Option<Outcome>) {
            self.0.lock().unwrap().push((ticket.sequence, outcome));
        }
    }

    fn load(endings: &Arc<Endings>, sequence: u64, qos: QoS) -> Load {
        let message = Message {
            topic: Bytes::from_static(b"t"),
            payload: Bytes::from_static(b"1234567890"),
            cut_from: None,
            qos,
            retain: false,
            dup: false,
            spooled: Spooled::No,
            received_at: Timestamp::from_millis(0),
        };
        Load {
            message: Arc::new(message),
            stream: None,
            cargo: Cargo::DeadLetter {
                reason: Reason::NoRoute,
                detail: String::new(),
                device: None,
            },
            receipt: Receipt::new(
                Ticket {
                    sequence,
                    stream: 0,
                    weight: 0,
                },
                endings.clone(),
            ),
        }
    }

    const TWO: TakeLimits = TakeLimits {
        loads: 2,
        bytes: 1 << 20,
    };

    #[test]
    fn qos_0_is_bounded_in_bytes_too() {
        let endings = Arc::new(Endings::default());
        let one = load(&endings, 0, QoS::AtMostOnce);
        let limits = TakeLimits {
            loads: 100,
            bytes: 2 * (one.weight() + one.message.weight()),
        };
        drop(one);
        let lanes = Lanes::new(1, limits, &LaneMetrics::register(&Registry::default()));
        for sequence in 1..=5 {
            lanes.push("d", load(&endings, sequence, QoS::AtMostOnce));
        }
        let dropped = |sequence| (sequence, Some(Outcome::Dropped));
        assert_eq!(
            endings.0.lock().unwrap()[1..],
            [dropped(1), dropped(2), dropped(3)]
        );
        let lane = lanes.iter().next().unwrap();
        assert_eq!(lane.take(limits).len(), 2);
        assert_eq!(lane.lock().lossy_bytes, 0);
    }

    #[tokio::test]
    async fn qos_0_is_bounded_oldest_first_and_the_rest_is_kept() {
        let endings = Arc::new(Endings::default());
        let lanes = Lanes::new(1, TWO, &LaneMetrics::register(&Registry::default()));
        for sequence in 0..4 {
            lanes.push("d", load(&endings, sequence, QoS::AtMostOnce));
        }
        lanes.push("d", load(&endings, 9, QoS::AtLeastOnce));
        assert_eq!(
            *endings.0.lock().unwrap(),
            [(0, Some(Outcome::Dropped)), (1, Some(Outcome::Dropped))]
        );
        let lane = lanes.iter().next().unwrap();
        assert!(lane.ready().await);
        assert_eq!(
            lane.take(TakeLimits {
                loads: 2,
                bytes: 1 << 20
            })
            .len(),
            2
        );
        assert_eq!(
            lane.take(TakeLimits {
                loads: 2,
                bytes: 1 << 20
            })
            .len(),
            1
        );
        lanes.close();
        assert!(!lane.ready().await);
    }

    #[test]
    fn a_batch_is_bounded_in_bytes_but_never_empty() {
        let endings = Arc::new(Endings::default());
        let lanes = Lanes::new(1, TWO, &LaneMetrics::register(&Registry::default()));
        for sequence in 0..3 {
            lanes.push("d", load(&endings, sequence, QoS::AtLeastOnce));
        }
        let lane = lanes.iter().next().unwrap();
        assert_eq!(
            lane.take(TakeLimits {
                loads: 10,
                bytes: 1
            })
            .len(),
            1
        );
        assert_eq!(
            lane.take(TakeLimits {
                loads: 10,
                bytes: 400
            })
            .len(),
            2
        );
    }
}
