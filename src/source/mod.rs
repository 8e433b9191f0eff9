//! 1. Sources: MQTT in, acknowledgements out.
//!
//! One task per connection that only polls: it stamps each delivery with its place in the arrival
//! order, has it decoded and puts it on its lane without ever waiting. Acknowledgements go back
//! in arrival order, on the connection that delivered, once the message is stored. The window of
//! un-acknowledged messages is the bound. A second connection publishes canaries, which must come
//! back on each of them: a stall is seen and mended. If the process dies here, the broker still has
//! everything that was not acknowledged.

mod acks;
mod beacon;
mod canary;
mod dispatch;
mod intake;
mod link;
mod link_v311;
mod link_v5;
mod metrics;
mod options;
mod pulse;
mod reconnect;
mod routes;
mod session;
mod stall;
mod subscription;
mod window;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

pub use dispatch::Dispatch;
pub use metrics::SourceMetrics;
pub use options::{Attempt, ConnectionOptions, TlsError, connection};
pub use pulse::Pulse;
pub use routes::{Routes, RoutesHandle};

use crate::config::{MqttConfig, Protocol};
use crate::lane::Lanes;
use crate::model::Keep;
use crate::runtime::{Readiness, Tasks};
use crate::telemetry::Ledger;
use beacon::{Beacon, Line};
use canary::Canary;
use intake::Intake;
use link::Link;
use session::Session;

/// Everything a connection needs from the rest of the program.
#[derive(Clone)]
pub struct Surroundings {
    /// Streams by topic; replaced on reload.
    pub routes: RoutesHandle,
    /// Where loads go.
    pub lanes: Lanes,
    /// Where messages go first, where there is one.
    pub spool: Option<Arc<dyn Keep>>,
    /// Where messages are counted.
    pub ledger: Ledger,
    /// Which ignore reasons were counted.
    pub metrics: Arc<SourceMetrics>,
    /// Where each connection can be asked how far it is.
    pub pulse: Pulse,
    /// Told of every change of state.
    pub readiness: Readiness,
    /// Held by every session: its receiver ends when the last delivery was handed over.
    pub alive: tokio::sync::mpsc::Sender<Infallible>,
}

impl Surroundings {
    /// The way onto the lanes, for connections and for the spool.
    pub fn dispatch(&self) -> Dispatch {
        Dispatch {
            routes: self.routes.clone(),
            lanes: self.lanes.clone(),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

/// Starts one session per configured connection. Each ends, when asked to stop, after its
/// outstanding acknowledgements are on the wire.
///
/// # Errors
/// Where certificates or secrets cannot be read.
pub fn run(
    config: &MqttConfig,
    surroundings: &Surroundings,
    tasks: &Tasks,
) -> Result<(), TlsError> {
    match config.protocol {
        Protocol::V5 => start_all::<link_v5::LinkV5>(config, surroundings, tasks),
        Protocol::V311 => start_all::<link_v311::LinkV311>(config, surroundings, tasks),
    }
}

fn start_all<L: Link>(
    config: &MqttConfig,
    surroundings: &Surroundings,
    tasks: &Tasks,
) -> Result<(), TlsError> {
    let watched = !config.canary.0.is_zero();
    let line = Line::new(Instant::now());
    let nonce = fastrand::u64(..);
    let mut beacons = Vec::new();
    for index in 0..config.connections {
        let options = options::connection(config, index)?;
        let beacon = watched.then(|| {
            let topic = beacon::topic(config, &options.client_id);
            Arc::new(Beacon::new(topic, Arc::clone(&line), nonce))
        });
        beacons.extend(beacon.clone());
        start::<L>(options, beacon, surroundings, tasks);
    }
    if watched {
        let options = options::canary(config)?;
        let disconnected = surroundings.metrics.canary_disconnected.clone();
        let canary = Canary::<L>::new(options, beacons, line, disconnected);
        tasks.spawn_service("canary", canary.run(tasks.stopping()));
    }
    Ok(())
}

fn start<L: Link>(
    options: ConnectionOptions,
    beacon: Option<Arc<Beacon>>,
    surroundings: &Surroundings,
    tasks: &Tasks,
) {
    let name = format!("mqtt {}", options.client_id);
    let condition = surroundings
        .readiness
        .condition(name.clone(), "not connected yet");
    let intake = Intake::new(surroundings.clone());
    let session = Session::<L>::new(options, intake, surroundings, condition, beacon);
    surroundings.pulse.add(session.heart());
    tasks.spawn_service("gauges", session.refresh());
    tasks.spawn(name, session.run(tasks.stopping(), tasks.abandoned()));
}
