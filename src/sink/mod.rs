//! 4. Sink: batches from lanes into MongoDB, an outcome for every reading.
//!
//! One writer per lane, one batch under way per writer: while a write is out the next batch
//! grows in the lane, so each device contributes more readings to a write exactly when load is
//! high. Readings that rules look at are written to the feed at the same time. A batch ends when
//! every load of it is settled: stored, found stored, or written to the dead letters. Transient
//! trouble keeps it and tries again for ever; its messages stay un-acknowledged, the window closes
//! and the broker holds the rest. If the process dies here the broker delivers them again.

mod batch;
mod call;
mod classify;
mod dead_letter;
mod feed;
mod health;
mod insert;
mod metrics;
mod pace;
mod part;
mod suspects;
mod writer;

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::devices::Devices;
use crate::lane::Lanes;
use crate::model::Selection;
use crate::runtime::{Readiness, Tasks};
use crate::store::Store;
use crate::telemetry::Registry;

use feed::Feed;
pub use health::Health;
pub use insert::insert_readings;
pub use metrics::SinkMetrics;
use writer::Writer;

/// The writers, built but not running.
pub struct Sink {
    writers: Vec<Writer>,
    health: Arc<Health>,
    store: Store,
}

impl Sink {
    /// A writer for each lane. `selection` says what rules want to see.
    pub fn build(
        config: &Config,
        store: &Store,
        lanes: &Lanes,
        devices: &Devices,
        selection: &Arc<dyn Selection>,
        registry: &Registry,
        readiness: &Readiness,
    ) -> Self {
        let streams: Vec<_> = config.streams.iter().map(|s| s.name.as_str()).collect();
        let gateway = &config.mqtt.client_id;
        let metrics = Arc::new(SinkMetrics::register(registry, &streams));
        let health = Arc::new(Health::new(registry, readiness));
        let writers = lanes
            .iter()
            .enumerate()
            .map(|(index, lane)| Writer {
                lane: Arc::clone(lane),
                store: store.clone(),
                config: config.sink.clone(),
                gateway: gateway.clone(),
                devices: devices.clone(),
                feed: Feed::build(&config.feed, gateway, index, selection),
                metrics: Arc::clone(&metrics),
                health: Arc::clone(&health),
                suspects: Mutex::default(),
            })
            .collect();
        Self {
            writers,
            health,
            store: store.clone(),
        }
    }

    /// Starts the writers and the probe. Writers end when their lane is closed and empty, or when
    /// `let_go` says that what is on the lanes need not be written by this process.
    pub fn run(self, tasks: &Tasks, let_go: &CancellationToken) {
        for (index, writer) in self.writers.into_iter().enumerate() {
            tasks.spawn(format!("writer {index}"), writer.run(let_go.clone()));
        }
        tasks.spawn(
            "database probe",
            self.health.watch(self.store, tasks.stopping()),
        );
    }
}
