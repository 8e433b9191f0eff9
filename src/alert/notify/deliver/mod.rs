//! Tells receivers what the outbox says they are owed.
//!
//! In come rows right after their commit, wishes to take one back, new configurations; out go
//! requests, and how each row ended, after that was written down. If the process dies here, rows
//! are found again at the next start; the lease that a row was left with says that somebody may
//! have sent it, and it goes out again under the same id and with the same body.

mod ends;
mod handle;
mod records;

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempt::Sender;
use super::metrics::DeliveryMetrics;
use super::queue::{Queue, Recall};
use crate::alert::Settled;
use crate::config::ReceiverConfig;
use crate::model::Timestamp;
use crate::runtime;
use crate::store::Outbox;
use handle::{Command, Shared};
pub use handle::{DeliveryHandle, ReceiverHealth};
use records::{Done, Records};

/// Between looks for rows that came by another way: those of an earlier process, and those that an
/// operator has put in the queue again.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Until a row that somebody else holds, or whose lease could not be asked for, is looked at again.
const HELD: Duration = Duration::from_secs(2);
/// How long requests under way may take when the process is asked to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(20);
/// Between two counts for metrics and health.
const COUNT_EVERY: Duration = Duration::from_millis(500);

/// The task.
pub struct Deliverer {
    queue: Queue,
    sender: Sender,
    records: Records,
    clock: Clock,
    commands: mpsc::UnboundedReceiver<Command>,
    settled: mpsc::UnboundedSender<Settled>,
    metrics: DeliveryMetrics,
    shared: Arc<Mutex<Shared>>,
    jobs: JoinSet<Done>,
    /// Whether a look for rows is under way, and when the next is due.
    looking: bool,
    next_look: Instant,
    next_count: Instant,
    /// At start, ends that nobody has noted are reported once more.
    first_look: bool,
    /// Rows that have ended since the look under way began: it may have seen them before.
    ended: HashSet<String>,
}

/// Time that only goes forward, and that a test can drive.
#[derive(Debug, Clone, Copy)]
struct Clock {
    start: Timestamp,
    since: Instant,
}

impl Clock {
    fn now(self) -> Timestamp {
        self.start.plus(self.since.elapsed())
    }

    fn instant(self, at: Timestamp) -> Instant {
        self.since + at.since(self.start)
    }
}

impl Deliverer {
    /// A deliverer of what is in `outbox` to these receivers, the handle to it, and where it says
    /// how rows ended.
    pub fn new(
        outbox: Outbox,
        receivers: Vec<ReceiverConfig>,
        metrics: DeliveryMetrics,
    ) -> (Self, DeliveryHandle, mpsc::UnboundedReceiver<Settled>) {
        let owner = format!("{:016x}", fastrand::u64(..));
        let (orders, commands) = mpsc::unbounded_channel();
        let (settled, ends) = mpsc::unbounded_channel();
        let shared = Arc::default();
        let clock = Clock {
            start: runtime::now(),
            since: Instant::now(),
        };
        let mut deliverer = Self {
            queue: Queue::new(&owner),
            sender: Sender {
                outbox: outbox.clone(),
                owner: owner.clone(),
                targets: Arc::default(),
            },
            records: Records {
                outbox,
                owner: owner.clone(),
                metrics: metrics.clone(),
            },
            clock,
            commands,
            settled,
            metrics,
            shared: Arc::clone(&shared),
            jobs: JoinSet::new(),
            looking: false,
            next_look: clock.since,
            next_count: clock.since,
            first_look: true,
            ended: HashSet::new(),
        };
        deliverer.configure(receivers);
        let handle = DeliveryHandle::new(orders, owner, shared);
        (deliverer, handle, ends)
    }

    /// Names this run of the process in leases.
    pub fn owner(&self) -> &str {
        &self.sender.owner
    }

    /// Works until asked to stop; then ends what is under way and gives leases back.
    ///
    /// # Errors
    /// None.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Infallible> {
        loop {
            self.send_what_is_due();
            self.count();
            let wake = self.wake();
            tokio::select! {
                // Only waiting is dropped in each branch; jobs stay in their set.
                () = stop.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => break,
                },
                Some(done) = self.jobs.join_next() => self.done(done.expect("jobs do not panic; if one does, so does this task")),
                () = tokio::time::sleep_until(wake) => {}
            }
            // A burst of rows is put in the queue as a whole before the first is picked.
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
        }
        self.finish().await;
        Ok(())
    }

    fn send_what_is_due(&mut self) {
        let now = self.clock.now();
        for (id, step) in self.queue.expired(now) {
            self.write(id, step);
        }
        while let Some(job) = self.queue.next(now) {
            let sender = self.sender.clone();
            if job.row.ambiguous {
                self.metrics.duplicates_possible.inc();
            }
            self.jobs.spawn(async move {
                let (row, how) = sender.attempt(job, now).await;
                Done::Attempted(Box::new(row), how)
            });
        }
        if !self.looking && Instant::now() >= self.next_look {
            self.looking = true;
            self.ended.clear();
            let (records, ends) = (self.records.clone(), self.first_look);
            let known = self.queue.ids();
            self.jobs
                .spawn(async move { records.look(known, ends).await });
        }
    }

    fn wake(&self) -> Instant {
        let due = self.queue.wake(self.clock.now());
        let due = due.map(|at| self.clock.instant(at));
        let mut wake = self.next_count;
        if !self.looking {
            wake = wake.min(self.next_look);
        }
        due.map_or(wake, |due| due.min(wake))
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Deliver(rows) => {
                let now = self.clock.now();
                for row in rows {
                    self.queue.push(row, now);
                }
            }
            Command::Recall(id) => self.recall(id),
            Command::Configure(receivers) => self.configure(receivers),
        }
    }

    fn recall(&mut self, id: String) {
        if self.queue.recall(&id) == Recall::Now {
            let records = self.records.clone();
            self.jobs.spawn(async move { records.recall(id).await });
        }
    }

    /// The row stays for another attempt, unless somebody has asked for it meanwhile.
    fn stays(&mut self, id: String) {
        if self.queue.wanted_back(&id) {
            self.recall(id);
        }
    }

    fn configure(&mut self, receivers: Vec<ReceiverConfig>) {
        let paces: BTreeMap<String, (f64, f64)> = receivers
            .iter()
            .map(|receiver| (receiver.name.clone(), receiver.pace()))
            .collect();
        for name in paces.keys() {
            self.metrics.receiver(name);
        }
        let queue = &self.queue;
        self.sender
            .targets()
            .configure(receivers, |name| queue.owes(name));
        self.queue.configure(&paces, self.clock.now());
    }

    fn count(&mut self) {
        if Instant::now() < self.next_count {
            return;
        }
        self.next_count = Instant::now() + COUNT_EVERY;
        let now = self.clock.now();
        let standing = self.queue.standing(now);
        let oldest = self.queue.oldest();
        let age = oldest.map_or(Duration::ZERO, |at| now.since(at));
        self.metrics.standing(&standing, age);
        handle::lock(&self.shared).update(&standing, oldest.map(|_| age));
    }

    /// Ends what is under way, in time, and gives the leases back of what was not sent.
    async fn finish(mut self) {
        // What was asked for before the stop is still done, but for new requests.
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
        let deadline = Instant::now() + LAST_REQUESTS;
        // A look for rows need not end.
        while self.jobs.len() > usize::from(self.looking) {
            tokio::select! {
                // Whoever is not done at the deadline leaves its lease behind, which tells.
                () = tokio::time::sleep_until(deadline) => break,
                done = self.jobs.join_next() => match done {
                    Some(done) => self.done(done.expect("jobs do not panic; if one does, so does this task")),
                    None => break,
                },
            }
        }
        self.records.release(self.queue.leased()).await;
    }
}
