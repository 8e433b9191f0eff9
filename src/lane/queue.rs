//! One lane: a queue that a free writer empties in one go.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    limits: LossyLimits,
    series: LaneSeries,
}

/// What a lane holds of messages that may be dropped.
#[derive(Debug, Clone, Copy)]
pub struct LossyLimits {
    /// Loads.
    pub loads: usize,
    /// Sum of their weights.
    pub bytes: usize,
}

#[derive(Default)]
struct Queues {
    /// Bounded by the windows of the connections that feed it.
    kept: VecDeque<Load>,
    /// Bounded here.
    lossy: VecDeque<Load>,
    lossy_bytes: usize,
    closed: bool,
}

impl Queues {
    /// Returns what had to make room, oldest first; the newest always stays.
    fn push_lossy(&mut self, load: Load, limits: LossyLimits) -> Vec<Load> {
        self.lossy_bytes += load.weight();
        self.lossy.push_back(load);
        let mut pushed_out = Vec::new();
        while self.lossy.len() > limits.loads.max(1)
            || (self.lossy_bytes > limits.bytes && self.lossy.len() > 1)
        {
            let Some(oldest) = self.lossy.pop_front() else {
                break;
            };
            self.lossy_bytes -= oldest.weight();
            pushed_out.push(oldest);
        }
        pushed_out
    }
}

impl Lane {
    pub(super) fn new(limits: LossyLimits, series: LaneSeries) -> Self {
        Self {
            queues: Mutex::default(),
            arrived: Notify::new(),
            limits,
            series,
        }
    }

    /// Adds a load; a QoS 0 one may push out the oldest of its kind.
    pub(super) fn push(&self, load: Load) {
        let mut queues = self.lock();
        let pushed_out = if load.lossy() {
            queues.push_lossy(load, self.limits)
        } else {
            queues.kept.push_back(load);
            Vec::new()
        };
        let gained = 1 - i64::try_from(pushed_out.len()).unwrap_or(i64::MAX);
        self.series.depth.add(gained);
        drop(queues);
        self.arrived.notify_one();
        // Settled outside the lock: the receipt's owner takes locks of its own.
        for load in pushed_out {
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
        let mut room = |load: &Load, taken: usize| {
            let fits =
                taken == 0 || (taken < limits.loads && bytes + load.weight() <= limits.bytes);
            bytes += if fits { load.weight() } else { 0 };
            fits
        };
        while let Some(load) = queues.kept.pop_front_if(|load| room(load, taken.len())) {
            taken.push(load);
        }
        while let Some(load) = queues.lossy.pop_front_if(|load| room(load, taken.len())) {
            queues.lossy_bytes -= load.weight();
            taken.push(load);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::super::{Cargo, LaneMetrics, Lanes};
    use super::*;
    use crate::model::{Message, QoS, Reason, Receipt, Settle, Ticket, Timestamp};
    use crate::telemetry::Registry;

    const LIMITS: LossyLimits = LossyLimits {
        loads: 2,
        bytes: 1 << 20,
    };

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
            qos,
            retain: false,
            dup: false,
            received_at: Timestamp::from_millis(0),
        };
        Load {
            message: Arc::new(message),
            stream: None,
            cargo: Cargo::DeadLetter {
                reason: Reason::NoRoute,
                detail: String::new(),
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

    #[tokio::test]
    async fn qos_0_is_bounded_oldest_first_and_the_rest_is_kept() {
        let endings = Arc::new(Endings::default());
        let lanes = Lanes::new(1, LIMITS, &LaneMetrics::register(&Registry::default()));
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
        let lanes = Lanes::new(1, LIMITS, &LaneMetrics::register(&Registry::default()));
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

    #[test]
    fn qos_0_is_bounded_in_bytes_too_but_the_newest_stays() {
        let endings = Arc::new(Endings::default());
        let limits = LossyLimits {
            loads: 100,
            bytes: 400,
        };
        let lanes = Lanes::new(1, limits, &LaneMetrics::register(&Registry::default()));
        for sequence in 0..4 {
            lanes.push("d", load(&endings, sequence, QoS::AtMostOnce));
        }
        let dropped: Vec<_> = endings.0.lock().unwrap().iter().map(|(n, _)| *n).collect();
        assert_eq!(dropped, [0, 1]);
        let small = LossyLimits {
            loads: 100,
            bytes: 1,
        };
        let lanes = Lanes::new(1, small, &LaneMetrics::register(&Registry::default()));
        lanes.push("d", load(&endings, 9, QoS::AtMostOnce));
        let limits = TakeLimits { loads: 9, bytes: 9 };
        assert_eq!(lanes.iter().next().unwrap().take(limits).len(), 1);
    }
}
