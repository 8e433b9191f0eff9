//! 4. Sink: batches from lanes into MongoDB, an outcome for every reading.
//!
//! One writer per lane, one batch under way per writer: while a write is out the next batch
//! grows in the lane, so each device contributes more readings to a write exactly when load is
//! high. A batch ends when every load of it is settled: stored, found stored, or written to the
//! dead letters. Transient trouble keeps it and tries again for ever; its messages stay
//! un-acknowledged, the window closes and the broker holds the rest. If the process dies here the
//! broker delivers them again.

mod batch;
mod call;
mod classify;
mod dead_letter;
mod health;
mod insert;
mod metrics;
mod pace;
mod part;
mod writer;

use std::sync::Arc;

use crate::config::SinkConfig;
use crate::lane::Lanes;
use crate::runtime::{Readiness, Tasks};
use crate::store::Store;
use crate::telemetry::Registry;

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
    /// A writer for each lane. `gateway` names this process in dead letters.
    pub fn build(
        config: &SinkConfig,
        gateway: &str,
        store: &Store,
        lanes: &Lanes,
        registry: &Registry,
        readiness: &Readiness,
        streams: &[&str],
    ) -> Self {
        let metrics = Arc::new(SinkMetrics::register(registry, streams));
        let health = Arc::new(Health::new(registry, readiness));
        let writers = lanes
            .iter()
            .map(|lane| Writer {
                lane: Arc::clone(lane),
                store: store.clone(),
                config: config.clone(),
                gateway: gateway.to_owned(),
                metrics: Arc::clone(&metrics),
                health: Arc::clone(&health),
            })
            .collect();
        Self {
            writers,
            health,
            store: store.clone(),
        }
    }

    /// Starts the writers and the probe. Writers end when their lane is closed and empty.
    pub fn run(self, tasks: &Tasks) {
        for (index, writer) in self.writers.into_iter().enumerate() {
            tasks.spawn(format!("writer {index}"), writer.run(tasks.abandoned()));
        }
        tasks.spawn(
            "database probe",
            self.health.watch(self.store, tasks.stopping()),
        );
    }
}
