//! One term of leadership: what is known is read, then each document of the feed is judged, what
//! changed is told to the planner, and what is decided is written in one transaction.
//!
//! The place in the feed is written along, unless much would have to be written with it (what is
//! remembered of devices at rest): then it follows within seconds. It may trail what is known of alerts, because a reading that was applied
//! is told by its time when it comes again; it never leads it. If the process dies here, the next
//! leader reads what was committed and goes on from that place.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::clock::StreamClock;
use super::controls::Controls;
use super::draft::Draft;
use super::load::{Known, load};
use super::metrics::AlertMetrics;
use super::notify::DeliveryMetrics;
use super::notify::plan::Planner;
use super::own::OwnAlerts;
use super::rules::Engine;
use super::telling::Telling;
use crate::config::Config;
use crate::devices::Devices;
use crate::model::Timestamp;
use crate::runtime::{Condition, now};
use crate::store::{Fence, Lease, Place, Store, words};

/// Behind by more than this: work through the backlog first.
const BEHIND: Duration = Duration::from_secs(10);

/// What a first term looks back at: readings of the moments before it began.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// How long the last turn may take.
const LAST_TURN: Duration = Duration::from_secs(1);

/// The longest pause of the loop.
const SECOND: Duration = Duration::from_secs(1);

/// Everything a term needs; the same for all of them.
pub(super) struct Setting {
    pub store: Store,
    pub config: Config,
    pub gateway: String,
    pub controls: Controls,
    pub devices: Devices,
    pub metrics: Arc<AlertMetrics>,
    pub delivery: DeliveryMetrics,
    /// When evaluation and telling were last seen to work.
    pub well: Arc<AtomicI64>,
}

/// How a term ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// Asked to stop.
    Stopped,
    /// Another leads, or may.
    Lost,
    /// It cannot go on; another try may help.
    Failed(String),
}

/// A term under way.
pub(super) struct Term<'a> {
    pub(super) setting: &'a Setting,
    pub(super) condition: &'a Condition,
    pub(super) fence: Fence,
    pub(super) engine: Engine,
    pub(super) planner: Planner,
    pub(super) own: OwnAlerts,
    pub(super) clock: StreamClock,
    pub(super) draft: Draft,
    pub(super) reached: Reached,
    pub(super) telling: Telling,
    pub(super) watching: Watching,
}

/// How far the feed has been judged.
pub(super) struct Reached {
    pub place: Option<Place>,
    pub cluster_seconds: u32,
    /// When the last document was written, by its gateway's clock.
    pub at: Timestamp,
    /// Further than what was written down.
    pub moved: bool,
    /// Writing it down takes little.
    pub light: bool,
    pub saved: Instant,
}

/// What is known of the stream and of the gateways.
pub(super) struct Watching {
    /// Messages are held since then, because there is a backlog.
    pub holding: Option<Instant>,
    /// No gateway hears from the broker since then.
    pub deaf: Option<Timestamp>,
    /// The stream was last seen to deliver.
    pub heard: Instant,
    /// It has delivered in this term.
    pub delivers: bool,
    /// The server's time, as last asked.
    pub server_seconds: Arc<AtomicU32>,
    /// Rules that have a series of their own.
    pub shown: HashSet<Arc<str>>,
    pub second: Instant,
}

impl<'a> Term<'a> {
    /// Puts the fence up and reads what the terms before have left.
    pub async fn begin(
        setting: &'a Setting,
        lease: &Lease,
        condition: &'a Condition,
    ) -> Result<Self, Ended> {
        let (store, term) = (setting.store.clone(), lease.term);
        let stamped = tokio::spawn(async move { store.stamp_fence(term).await });
        let fence = match stamped.await {
            Ok(Ok(Some(fence))) => fence,
            Ok(Ok(None)) => return Err(Ended::Lost),
            Ok(Err(error)) => return Err(Ended::Failed(words(&error))),
            Err(error) => return Err(Ended::Failed(error.to_string())),
        };
        let Known {
            checkpoint,
            engine,
            planner,
            own,
            draft,
        } = load(setting).await.map_err(Ended::Failed)?;
        let (place, cluster_seconds, at) = match checkpoint {
            Some(reached) => (reached.place, reached.cluster_seconds, reached.at),
            None => (None, 0, now().minus(FIRST_LOOK)),
        };
        let mut term = Self {
            setting,
            condition,
            fence,
            engine,
            planner,
            own,
            clock: StreamClock::default(),
            draft,
            reached: Reached {
                place,
                cluster_seconds,
                at,
                moved: false,
                light: true,
                saved: Instant::now(),
            },
            telling: Telling::begin(setting),
            watching: Watching {
                holding: None,
                deaf: None,
                heard: Instant::now(),
                delivers: false,
                server_seconds: Arc::default(),
                shown: HashSet::new(),
                second: Instant::now(),
            },
        };
        if now().since(at) > BEHIND {
            term.hold();
        }
        Ok(term)
    }

    /// Judges until asked to stop, until the lease is lost, or until something fails.
    pub async fn run(mut self, stopping: &CancellationToken, lost: &CancellationToken) -> Ended {
        let ended = tokio::select! {
            // What is dropped here was not committed, and counts as not done; calls of the driver
            // run in tasks of their own.
            () = lost.cancelled() => Ended::Lost,
            () = patience(stopping) => Ended::Stopped,
            ended = self.judge(stopping) => ended,
        };
        self.telling.end().await;
        ended
    }

    async fn judge(&mut self, stopping: &CancellationToken) -> Ended {
        let mut listening = self.setting.controls.listen();
        let mut devices = self.setting.devices.changes();
        if let Err(ended) = self.all_devices() {
            return ended;
        }
        listening.mark_changed();
        let mut feed = match self.open().await {
            Ok(feed) => feed,
            Err(ended) => return ended,
        };
        loop {
            let pause = self.pause();
            let step = tokio::select! {
                // Every branch is a receiver or only waits: nothing is lost where another wins.
                news = feed.recv() => self.news(news, &mut feed).await,
                settled = self.telling.settled() => self.settled(settled),
                change = devices.recv() => self.device(change),
                control = listening.changed() => self.control(control).await,
                () = stopping.cancelled() => Err(Ended::Stopped),
                () = tokio::time::sleep(pause) => Ok(()),
            };
            // What is known by now is written down also before an end.
            let turn = match &step {
                Err(Ended::Failed(_) | Ended::Lost) => Ok(()),
                Err(Ended::Stopped) => self.last_turn().await,
                Ok(()) => self.turn().await,
            };
            if let Err(ended) = step.and(turn) {
                return ended;
            }
        }
    }

    /// How long there is nothing to do unless something happens.
    fn pause(&self) -> Duration {
        let now = now();
        let due = self.planner.next_due().map(|due| due.since(now));
        due.map_or(SECOND, |due| due.min(SECOND))
    }
}

/// Until a stop has had its time: a database that hangs must not hold up the exit.
async fn patience(stopping: &CancellationToken) {
    stopping.cancelled().await;
    tokio::time::sleep(LAST_TURN).await;
}
