//! What becomes of requests: how each attempt went, what is written of it, and what is told of a
//! row's end once that is written.

use std::time::Duration;

use tokio::time::Instant;

use super::records::Done;
use super::{Deliverer, HELD, LOOK_EVERY};
use crate::alert::notify::attempt::Attempted;
use crate::alert::notify::classify::{Class, Verdict};
use crate::alert::notify::queue::{News, Step};
use crate::alert::notify::row::Row;
use crate::alert::{Delivery, NoticeKind, Settled};
use crate::runtime::now;
use crate::store::RowState;

impl Deliverer {
    pub(super) fn done(&mut self, done: Done) {
        let now = self.clock.now();
        match done {
            Done::Attempted(row, Attempted::Sent { verdict, took }) => {
                self.judge(&row, &verdict, took);
            }
            Done::Attempted(row, Attempted::Held) => {
                self.queue.not_sent(&row.id, HELD, now);
                self.stays(row.id);
            }
            Done::Attempted(row, Attempted::NoDatabase(why)) => {
                tracing::debug!(row = %row.id, why, "No lease; trying again");
                self.queue.not_sent(&row.id, HELD, now);
                self.stays(row.id);
            }
            Done::Attempted(row, Attempted::Ended(ended)) => {
                self.queue.recorded(&row.id, true, now);
                self.report(*ended);
            }
            Done::Attempted(row, Attempted::Gone) => {
                self.queue.recorded(&row.id, true, now);
                self.settle(
                    *row,
                    Delivery::Dead {
                        reason: "its row is gone from the outbox".into(),
                        ambiguous: true,
                    },
                );
            }
            Done::Written { id, delivery } => {
                let row = self.queue.recorded(&id, delivery.is_some(), now);
                match (row, delivery) {
                    (Some(row), Some(delivery)) => self.settle(row, delivery),
                    _ => self.stays(id),
                }
            }
            Done::Recalled { id, row } => match row {
                Some(row) => {
                    self.queue.recorded(&id, true, now);
                    self.report(*row);
                }
                // Somebody else holds it, or it has ended: its next attempt will tell.
                None => {
                    self.queue.recorded(&id, false, now);
                }
            },
            Done::Looked {
                queued,
                ended,
                failed,
            } => {
                self.looking = false;
                self.next_look = Instant::now() + if failed { HELD } else { LOOK_EVERY };
                self.first_look &= failed;
                let known = std::mem::take(&mut self.ended);
                for row in queued.into_iter().filter(|row| !known.contains(&row.id)) {
                    self.queue.push(row, now);
                }
                for row in ended.into_iter().filter(|row| !known.contains(&row.id)) {
                    self.report(row);
                }
            }
        }
    }

    pub(super) fn judge(&mut self, row: &Row, verdict: &Verdict, took: Duration) {
        let (class, receiver) = (verdict.class, row.receiver.as_str());
        self.metrics.attempt(receiver, class, took);
        tracing::debug!(receiver, row = %row.id, class = class.name(), why = verdict.why, "Attempt");
        if class == Class::Configuration {
            // Read again before the next one: somebody may have renewed what is wrong.
            self.sender.targets().forget(receiver);
        }
        self.queue.refresh(row);
        let (now, chance) = (self.clock.now(), fastrand::f64());
        let Some(outcome) = self.queue.sent(&row.id, verdict, now, chance) else {
            return;
        };
        self.metrics.throttled.inc_by(outcome.throttled.as_secs());
        let why = verdict.why.as_str();
        match outcome.news {
            Some(News::Opened) => {
                tracing::warn!(receiver, why, "Receiver keeps failing; its messages wait");
            }
            Some(News::Misconfigured) => {
                tracing::error!(
                    receiver,
                    why,
                    "Receiver refuses us: check its section; trying again every 5 minutes"
                );
            }
            Some(News::Gone) => {
                tracing::error!(
                    receiver,
                    why,
                    "Receiver is gone for good (410): its messages are parked until it is configured anew"
                );
            }
            Some(News::Recovered) => tracing::info!(receiver, "Receiver works again"),
            None => {}
        }
        self.write(row.id.clone(), outcome.step);
    }

    pub(super) fn write(&mut self, id: String, step: Step) {
        let records = self.records.clone();
        self.jobs
            .spawn(async move { records.write(id, step).await });
    }

    /// Says how a row ended, as it is stored.
    pub(super) fn report(&mut self, row: Row) {
        let ambiguous = row.ambiguous;
        let why = row.last.as_ref().map(|last| last.why.clone());
        let delivery = match row.state {
            RowState::Delivered => Delivery::Accepted,
            RowState::Recalled => Delivery::Recalled { ambiguous },
            RowState::Dead | RowState::Queued => Delivery::Dead {
                reason: why.unwrap_or_default(),
                ambiguous,
            },
        };
        self.settle(row, delivery);
    }

    pub(super) fn settle(&mut self, row: Row, outcome: Delivery) {
        let at = now();
        if self.looking {
            self.ended.insert(row.id.clone());
        }
        match &outcome {
            Delivery::Accepted if row.notice.kind == NoticeKind::Firing => {
                let took = at.since(row.created);
                self.metrics.fire_to_accept.observe(took.as_secs_f64());
            }
            Delivery::Dead { reason, ambiguous } => {
                self.metrics.dead(&row.receiver);
                if row.notice.kind == NoticeKind::Firing && !ambiguous {
                    self.metrics.never_notified.inc();
                }
                tracing::error!(
                    receiver = row.receiver,
                    key = row.key,
                    row = row.id,
                    kind = row.kind,
                    reason,
                    "Message given up; see `tidegate outbox list --state dead`"
                );
            }
            Delivery::Accepted | Delivery::Recalled { .. } => {}
        }
        // Nobody listens any more when everything is being stopped; the row is reported again then.
        let _ = self.settled.send(Settled {
            notice: row.notice,
            outcome,
            at,
        });
    }
}
