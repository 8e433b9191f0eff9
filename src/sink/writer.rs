//! The loop of one writer: wait, take, write, again.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use tokio_util::sync::CancellationToken;

use super::batch::{Group, sort_out};
use super::dead_letter::write_letters;
use super::feed::{Feed, Pending, write_feed};
use super::health::Health;
use super::insert::{Context, insert_readings};
use super::metrics::SinkMetrics;
use super::pace::{Written, rest};
use super::suspects::Suspects;
use crate::config::SinkConfig;
use crate::devices::Devices;
use crate::lane::{Lane, Load, TakeLimits};
use crate::runtime::Backoff;
use crate::store::Store;

/// First pause after a failed write.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// One writer and what it needs.
pub(super) struct Writer {
    pub lane: Arc<Lane>,
    pub store: Store,
    pub config: SinkConfig,
    pub gateway: String,
    pub devices: Devices,
    pub feed: Option<Feed>,
    pub metrics: Arc<SinkMetrics>,
    pub health: Arc<Health>,
    pub suspects: Mutex<Suspects>,
}

impl Writer {
    /// Runs until the lane is closed and empty, or until waiting is over.
    pub async fn run(self, abandoned: CancellationToken) -> Result<(), Infallible> {
        let limits = TakeLimits {
            loads: self.config.batch_readings,
            bytes: self.config.batch_bytes.bytes(),
        };
        tokio::select! {
            // Dropped only when the process gives up at its deadline: un-settled receipts then
            // say "not delivered", and the broker delivers again.
            () = abandoned.cancelled() => Ok(()),
            () = self.write_all(limits) => Ok(()),
        }
    }

    async fn write_all(&self, limits: TakeLimits) {
        let mut last = Written::default();
        while self.lane.ready().await {
            let rest = rest(self.config.min_linger.0, last);
            if !rest.is_zero() {
                self.lane.linger(rest, limits.loads).await;
            }
            last = self.write(self.lane.take(limits)).await;
        }
    }

    async fn write(&self, loads: Vec<Load>) -> Written {
        let started = Instant::now();
        let (groups, mut letters) = sort_out(loads, &self.gateway, &self.devices);
        let mut pending = Pending::default();
        for group in &groups {
            if let Some(feed) = &self.feed {
                feed.gather(group, &mut pending);
            }
        }
        let seen: Vec<_> = groups.iter().flat_map(Group::sightings).collect();
        let readings = groups.iter().map(|group| group.entries.len()).sum();
        let devices = groups.iter().map(|group| group.devices).sum();
        let series = groups
            .into_iter()
            .map(|group| insert_readings(group, self.context()));
        let (refused, ()) = join(join_all(series), write_feed(pending, self.context())).await;
        self.devices.seen(seen);
        letters.extend(refused.into_iter().flatten());
        if !letters.is_empty() {
            write_letters(letters, &mut self.context()).await;
        }
        Written {
            readings,
            devices,
            took: started.elapsed(),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            store: &self.store,
            gateway: &self.gateway,
            dedup: self.config.dedup,
            suspects: &self.suspects,
            metrics: &self.metrics,
            health: &self.health,
            backoff: Backoff::new(FIRST_PAUSE, self.config.retry_max.0),
        }
    }
}
