//! Between 1 and 2. Spool: messages on the gateway's own disk, acknowledged once they are there.
//!
//! Messages come from the connections, are put on disk in groups with one fsync each, and only then
//! is the broker told. From the disk, and only from there, they go to the lanes in the order of
//! arrival; what is stored is deleted. Full, or with a disk that fails, nothing more is taken and
//! the windows close. If the process dies here, what was acknowledged is read again at the next
//! start, as messages that may be stored; what was not, the broker delivers again.

mod drain;
mod limit;
mod metrics;
mod progress;
mod queue;
mod record;
mod store;
mod watch;
mod writer;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::config::{SinkConfig, SpoolConfig};
use crate::model::{Keep, Message, Outcome, Receipt, Settle, Ticket, Timestamp};
use crate::runtime::{Condition, Readiness, Tasks, now};
use crate::telemetry::{Ledger, Registry};

use limit::Full;
use metrics::SpoolMetrics;
use progress::Progress;
use queue::{Most, Queue, Waiting};
pub use store::StoreError;
use store::{Numbered, SpoolStore, Totals};

/// How long stopping waits for what has been read and is not stored; it stays on disk otherwise.
const GRACE: Duration = Duration::from_secs(3);

/// Takes a message on, with a way to make its receipt from the bytes that its readings take.
pub type Onward = Box<dyn Fn(Message, &dyn Fn(usize) -> Receipt) + Send>;

/// The spool, open.
#[derive(Clone)]
pub struct Spool(Arc<Inner>);

struct Inner {
    config: SpoolConfig,
    store: SpoolStore,
    state: Mutex<State>,
    /// There is something for the writer to do.
    work: Condvar,
    /// There is something for the drain to do.
    room: Condvar,
    /// Something changed that stopping waits for.
    changed: Notify,
    ledger: Ledger,
    metrics: SpoolMetrics,
    condition: Condition,
}

struct State {
    queue: Queue,
    progress: Progress,
    /// On disk, at the last commit.
    totals: Totals,
    /// Records that are no messages, to be set aside.
    damaged: Vec<Numbered>,
    full: Option<Full>,
    /// Why the disk cannot be written.
    trouble: Option<String>,
    /// There is a place for what is read.
    released: bool,
    /// No more is read; what cannot be kept goes back to the broker.
    stopping: bool,
    /// Nothing more will come.
    closing: bool,
    writer_waits: bool,
    drain_waits: bool,
}

impl Spool {
    /// Opens the spool where it is asked for, or where an earlier run has left messages.
    ///
    /// # Errors
    /// What somebody has to mend first.
    pub fn open(
        config: &SpoolConfig,
        sink: &SinkConfig,
        ledger: &Ledger,
        registry: &Registry,
        readiness: &Readiness,
    ) -> Result<Option<Self>, StoreError> {
        let metrics = SpoolMetrics::register(registry);
        let Some((store, totals, next)) = found(config)? else {
            return Ok(None);
        };
        if totals.records > 0 {
            tracing::info!(
                messages = totals.records,
                bytes = totals.bytes,
                "Messages of an earlier run are in the spool; they are stored first"
            );
        }
        metrics.recovered.inc_by(totals.records);
        metrics.set_held(totals.records, totals.bytes);
        let first = store.read(0, u64::MAX, 1, 0)?;
        let oldest = first.first().and_then(|(_, bytes)| {
            let record = record::decode(bytes).ok()?;
            Some(record.message.received_at)
        });
        let most_lossy = Most {
            messages: sink.qos0_messages.saturating_mul(sink.writers),
            bytes: sink.qos0_bytes.bytes().saturating_mul(sink.writers),
        };
        let condition = readiness.condition("spool", "not running yet");
        condition.clear();
        let mut progress = Progress::new(next, oldest.unwrap_or_else(now));
        progress.begin_at(first.first().map_or(next, |(number, _)| *number));
        Ok(Some(Self(Arc::new(Inner {
            config: config.clone(),
            store,
            state: Mutex::new(State {
                queue: Queue::new(most_lossy),
                progress,
                totals,
                damaged: Vec::new(),
                full: None,
                trouble: None,
                released: false,
                stopping: false,
                closing: false,
                writer_waits: false,
                drain_waits: false,
            }),
            work: Condvar::new(),
            room: Condvar::new(),
            changed: Notify::new(),
            ledger: ledger.clone(),
            metrics,
            condition,
        }))))
    }

    /// Starts the writer and the drain, each a thread of its own. The drain waits for `release`.
    pub fn run(&self, onward: Onward, tasks: &Tasks) {
        let inner = Arc::clone(&self.0);
        thread("spool writer", tasks, move || inner.write_all());
        let inner = Arc::clone(&self.0);
        thread("spool drain", tasks, move || {
            Inner::drain_all(&inner, &onward)
        });
        let (inner, stopping) = (Arc::clone(&self.0), tasks.stopping());
        tasks.spawn_service("spool gauges", watch::watch(Arc::clone(&self.0)));
        tasks.spawn_service("spool stop", async move {
            stopping.cancelled().await;
            inner.lock().stopping = true;
            inner.work.notify_all();
            inner.room.notify_all();
            std::future::pending::<Result<(), std::convert::Infallible>>().await
        });
    }

    /// There is a place for what is read.
    pub fn release(&self) {
        self.0.lock().released = true;
        self.0.room.notify_all();
    }

    /// A time before which everything that is in the spool is stored; `None`: all of it is.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.0.lock().progress.oldest()
    }

    /// Waits until everything taken is on disk, or cannot be put there. The sources have gone.
    pub async fn flushed(&self) {
        self.0
            .until(|state| state.queue.is_empty() || state.blocked())
            .await;
    }

    /// Waits a moment for what has been read to be stored. The lanes are closed.
    pub async fn settled(&self) {
        let settled = self.0.until(|state| state.progress.out().0 == 0);
        // What is not stored by then stays on disk.
        drop(tokio::time::timeout(GRACE, settled).await);
    }

    /// Lets the writer delete what is stored, and end. Nothing is settled any more.
    pub fn close(&self) {
        self.0.lock().closing = true;
        self.0.work.notify_all();
    }
}

/// The store, if there is a reason to open it, what is in it, and the next number.
fn found(config: &SpoolConfig) -> Result<Option<(SpoolStore, Totals, u64)>, StoreError> {
    let path: &Path = &config.path;
    if !config.enabled && !SpoolStore::exists(path) {
        return Ok(None);
    }
    let store = match SpoolStore::open(path) {
        // Another gateway on this machine has its spool in the default place.
        Err(StoreError::InUse(_)) if !config.enabled => return Ok(None),
        store => store?,
    };
    let (totals, next) = store.totals()?;
    if !config.enabled {
        if totals.records == 0 {
            return Ok(None);
        }
        tracing::warn!(
            messages = totals.records,
            path = %path.display(),
            "spool.enabled is off, but messages of an earlier run are in the spool: it stays in use until the next start, so that they are stored, and in order"
        );
    }
    Ok(Some((store, totals, next)))
}

impl Keep for Spool {
    fn keep(&self, message: Message, stream: Option<&str>, receipt: Receipt) {
        let waiting = Waiting {
            message,
            stream: stream.map(str::to_owned),
            receipt,
        };
        let mut state = self.0.lock();
        let pushed_out = state.queue.push(waiting);
        if std::mem::take(&mut state.writer_waits) {
            self.0.work.notify_one();
        }
        drop(state);
        // Outside the lock: the receipt's owner takes locks of its own.
        for waiting in pushed_out {
            waiting.receipt.settle(Outcome::Dropped);
        }
    }
}

impl Settle for Inner {
    fn settled(&self, ticket: Ticket, outcome: Option<Outcome>) {
        match outcome {
            Some(_) => {
                self.ledger.ended(ticket.stream, outcome);
                self.metrics.drained.inc();
            }
            None => self.metrics.again.inc(),
        }
        let mut state = self.lock();
        let stored = outcome.is_some();
        state
            .progress
            .settled(ticket.sequence, ticket.weight, stored);
        if state.drain_waits && state.has_room(&self.config) {
            state.drain_waits = false;
            self.room.notify_one();
        }
        if state.stopping || state.full.is_some() {
            self.work.notify_one();
            self.changed.notify_waiters();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in here stops the process; what is on disk is read again by the next.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, done: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if done(&self.lock()) {
                return;
            }
            // A change between the look and the wait is seen by the next look.
            drop(tokio::time::timeout(Duration::from_millis(50), changed).await);
        }
    }
}

impl State {
    /// Whether nothing more can be put on disk.
    fn blocked(&self) -> bool {
        self.full.is_some() || self.trouble.is_some()
    }

    /// Whether more may be read. Not before a quarter is free, so that it is read in chunks.
    fn has_room(&self, config: &SpoolConfig) -> bool {
        let (messages, bytes) = self.progress.out();
        messages <= config.drain_messages - config.drain_messages.div_ceil(4)
            && bytes <= config.drain_bytes.bytes() / 4 * 3
    }
}

/// Runs `work` on a thread of its own. Its panic stops the process.
fn thread(name: &'static str, tasks: &Tasks, work: impl FnOnce() + Send + 'static) {
    let (ended, end) = oneshot::channel();
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            work();
            // Nobody listens any more where the process has given up waiting.
            let _ = ended.send(());
        });
    tasks.spawn(name, async move {
        spawned.map_err(|error| error.to_string())?;
        end.await.map_err(|_| "panicked".to_owned())
    });
}
