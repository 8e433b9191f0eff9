//! The whole gateway, put together: the only folder that names every stage.
//!
//! `build` does everything that can fail for good; `run` starts the parts in the order data
//! flows, and stops them in that order too: sources first, each until its acknowledgements are on
//! the wire, then the writers, whose lanes close behind the last source.

mod collections;
mod outlook;
mod reload;
mod replay;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::alert::Alerts;
use crate::alert::notify::check_receivers;
use crate::config::{Config, Loaded, Problems, Sources, survey};
use crate::decode::Router;
use crate::devices::Devices;
use crate::lane::{LaneMetrics, Lanes, TakeLimits};
use crate::model::{Keep, Receipt};
use crate::runtime::{Backoff, Readiness, Signal, Signals, Tasks, Verdict};
use crate::sink::Sink;
use crate::source::{self, Pulse, Routes, RoutesHandle, SourceMetrics, Surroundings};
use crate::spool::Spool;
use crate::store::{ConnectError, Store, words};
use crate::telemetry::{Ledger, Registry};
use collections::Collections;
use reload::Reload;
pub use replay::{Replay, Replayed};

/// A configuration that has passed every check that needs no network.
pub struct Prepared {
    /// The configuration and where it came from.
    pub loaded: Loaded,
    /// Its streams, ready to decode.
    pub router: Router,
}

/// Reads and checks a configuration.
///
/// # Errors
/// Every mistake, each with its place.
pub fn prepare(sources: &Sources) -> Result<Prepared, Problems> {
    let (loaded, mut problems) = survey(sources);
    let Some(loaded) = loaded else {
        return Err(problems);
    };
    let config = &loaded.config;
    if problems.0.is_empty()
        && let Err(error) = source::connection(&config.mqtt, 0)
    {
        problems.add(error.key(), error.to_string());
    }
    if problems.0.is_empty() {
        check_receivers(&config.receivers, &config.watchdog, &mut problems);
    }
    // With a value of its own taken out, a stream would be blamed for what follows from that.
    if !loaded.streams_complete {
        return Err(problems);
    }
    match Router::build(&config.streams, config.mqtt.unrouted) {
        Ok(router) if router.filters().is_empty() => {
            problems.add(
                "streams",
                "none of them stores anything: there is nothing to subscribe to",
            );
        }
        Ok(router) if problems.0.is_empty() => return Ok(Prepared { loaded, router }),
        Ok(_) => {}
        Err(found) => {
            for problem in found {
                let key = format!("streams.{}.{}", problem.stream, problem.key);
                problems.add(key, problem.message);
            }
        }
    }
    Err(loaded.locate(problems))
}

/// The gateway, built but not running.
pub struct App {
    config: Config,
    reload: Reload,
    store: Store,
    lanes: Lanes,
    spool: Option<Spool>,
    ledger: Ledger,
    routes: RoutesHandle,
    metrics: Arc<SourceMetrics>,
    readiness: Readiness,
    alerts: Alerts,
    devices: Devices,
    sink: Sink,
    admin: Admin,
    signals: Signals,
}

impl App {
    /// Builds every part and binds the admin address. Broker and database may be unreachable.
    ///
    /// # Errors
    /// What trying again would not mend.
    pub async fn build(prepared: Prepared, sources: Sources) -> anyhow::Result<Self> {
        let Prepared { loaded, router } = prepared;
        let config = loaded.config;
        let registry = Registry::default();
        let readiness = Readiness::default();
        let ledger = registry.add(Ledger::default());
        registry.process();
        let spool = Spool::open(&config.spool, &config.sink, &ledger, &registry, &readiness)
            .context("the spool cannot be used")?;
        let metrics = Arc::new(SourceMetrics::register(&registry, config.mqtt.connections));
        let store = connect_in_time(&config).await?;
        let lossy = TakeLimits {
            loads: config.sink.qos0_messages,
            bytes: config.sink.qos0_bytes.bytes(),
        };
        let lanes = Lanes::new(
            config.sink.writers,
            lossy,
            &LaneMetrics::register(&registry),
        );
        let devices = Devices::new(&config.devices, &registry);
        let alerts = Alerts::build(&config, &store, &devices, &registry, &readiness)
            .map_err(anyhow::Error::msg)?;
        let sink = Sink::build(
            &config,
            &store,
            &lanes,
            &devices,
            &alerts.selection(),
            &registry,
            &readiness,
        );
        let routes = RoutesHandle::new(Routes::new(router, &ledger));
        let admin = Admin::build(&config.admin, &registry, &readiness).await?;
        let signals = Signals::install().context("cannot install signal handlers")?;
        let reload = Reload {
            sources,
            running: config.clone(),
            store: store.clone(),
            alerts: alerts.clone(),
            ledger: ledger.clone(),
            routes: routes.clone(),
            turn: Arc::default(),
        };
        Ok(Self {
            config,
            reload,
            store,
            lanes,
            spool,
            ledger,
            routes,
            metrics,
            readiness,
            alerts,
            devices,
            sink,
            admin,
            signals,
        })
    }

    /// Runs until a signal or a failure, then stops in order.
    pub async fn run(mut self) -> Verdict {
        let tasks = Tasks::default();
        tracing::info!(admin = %self.admin.address, broker = self.config.mqtt.url, database = self.config.mongodb.database, "Tidegate starts");
        tasks.spawn_service("admin", self.admin.run());
        let let_go = tasks.abandoned().child_token();
        self.sink.run(&tasks, &let_go);
        let (alive, sources_alive) = mpsc::channel(1);
        let (lanes, spool) = (self.lanes.clone(), self.spool.clone());
        tasks.spawn("lanes", close_behind(sources_alive, lanes, spool, let_go));
        let keep = |spool: &Spool| Arc::new(spool.clone()) as Arc<dyn Keep>;
        let surroundings = Surroundings {
            routes: self.routes.clone(),
            lanes: self.lanes,
            spool: self.spool.as_ref().map(keep),
            ledger: self.ledger.clone(),
            metrics: self.metrics,
            pulse: Pulse::default(),
            readiness: self.readiness.clone(),
            alive,
        };
        let collections = Collections {
            store: self.store,
            config: self.config.clone(),
            routes: self.routes,
            condition: self.readiness.condition("collections", "not looked at yet"),
        };
        if self.spool.is_none() {
            let outlook = outlook::watch(self.config.clone(), self.ledger.clone());
            tasks.spawn_service("outlook", outlook);
        }
        if let Some(spool) = &self.spool {
            let dispatch = surroundings.dispatch();
            let onward = move |message, receipt: &dyn Fn(usize) -> Receipt| {
                dispatch.hand_over(message, |_, decoded| receipt(decoded));
            };
            spool.run(Box::new(onward), &tasks);
        }
        let parts = Parts {
            surroundings,
            spool: self.spool,
            devices: self.devices,
            alerts: self.alerts,
        };
        tasks.spawn("start", start(collections, parts, tasks.clone()));

        let mut told_to_stop = false;
        let drain = self.config.sink.drain_timeout.0;
        let waiting = tasks.clone();
        let mut finished = tokio::spawn(async move { waiting.finish(drain).await });
        loop {
            tokio::select! {
                // Signals are kept while nobody waits; the handle is polled again.
                verdict = &mut finished => {
                    return verdict.unwrap_or_else(|error| Verdict::Failed(error.to_string()));
                }
                signal = self.signals.next() => match signal {
                    Signal::Stop if std::mem::replace(&mut told_to_stop, true) => {
                        tracing::warn!("Second signal: leaving at once");
                        tasks.abandon();
                    }
                    Signal::Stop => {
                        tracing::info!(in_flight = self.ledger.in_flight(), "Stopping: finishing writes and acknowledgements");
                        self.readiness.condition("process", "stopping");
                        tasks.stop();
                    }
                    // On its own: a database that does not answer must not keep us from the next signal.
                    Signal::Reload => tasks.spawn_service("reload", self.reload.clone().run()),
                },
            }
        }
    }
}

/// Closes the lanes when the last source has gone. What the spool holds need not be written by this
/// process.
async fn close_behind(
    mut sources: mpsc::Receiver<Infallible>,
    lanes: Lanes,
    spool: Option<Spool>,
    let_go: CancellationToken,
) -> Result<(), Infallible> {
    let None = sources.recv().await;
    if let Some(spool) = &spool {
        spool.flushed().await;
    }
    lanes.close();
    if let Some(spool) = &spool {
        spool.settled().await;
        let_go.cancel();
        spool.close();
    }
    Ok(())
}

/// What is started once the database is there.
struct Parts {
    surroundings: Surroundings,
    spool: Option<Spool>,
    devices: Devices,
    alerts: Alerts,
}

/// Makes the collections, however long the database takes to be there, then starts the sources:
/// nothing is taken from the broker before there is a place for it, which the spool is.
async fn start(collections: Collections, parts: Parts, tasks: Tasks) -> anyhow::Result<()> {
    let Parts {
        surroundings,
        spool,
        devices,
        alerts,
    } = parts;
    let mqtt = &collections.config.mqtt;
    let taking = "cannot start the MQTT side";
    if spool.is_some() {
        source::run(mqtt, &surroundings, &tasks).context(taking)?;
    }
    if !collections.make(&tasks.stopping()).await? {
        return Ok(());
    }
    predecessor_done(&collections, &tasks).await;
    // The first reading already has what the registry says of its device, and is in the feed if a
    // rule of the database wants it, unless the database went away this very moment; then they come
    // as soon as it is back.
    let (registry, store) = (devices.clone(), collections.store.clone());
    let looking = tokio::spawn(async move { registry.look(&store).await });
    if let Ok(Err(error)) = looking.await {
        tracing::warn!(
            error = words(&error),
            "The registry of devices cannot be read yet"
        );
    }
    devices.run(&collections.store, &tasks);
    let looked = alerts.clone();
    if let Ok(Err(error)) = tokio::spawn(async move { looked.look().await }).await {
        tracing::warn!(
            error = words(&error),
            "Rules of the database cannot be read yet"
        );
    }
    match &spool {
        Some(spool) => spool.release(),
        None => source::run(mqtt, &surroundings, &tasks).context(taking)?,
    }
    let pulse = surroundings.pulse.clone();
    let heard = move |now| {
        // In this order: what moves from a connection to the spool meanwhile is seen there.
        let (settled, linked) = pulse.take(now);
        let spooled = spool.as_ref().and_then(Spool::oldest);
        (spooled.map_or(settled, |at| settled.min(at)), linked)
    };
    alerts.run(Arc::new(heard), &tasks);
    // Not earlier: the connections' own conditions stand in the way of readiness from here on.
    collections.condition.clear();
    tasks.spawn_service("collections", collections.watch());
    Ok(())
}

/// Waits until the server is done with inserts that an earlier process of this gateway left behind.
async fn predecessor_done(collections: &Collections, tasks: &Tasks) {
    let stopping = tasks.stopping();
    while !stopping.is_cancelled() {
        let store = collections.store.clone();
        let asking = tokio::spawn(async move { store.predecessor_writes().await });
        match asking.await {
            Ok(Ok(true)) => {
                let reason = "the server is still at a write of an earlier process of this gateway (or of another one with this mqtt.client_id)";
                if collections.condition.raise(reason) {
                    tracing::warn!("Waiting: {reason}");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(Ok(false)) => return,
            Ok(Err(error)) => {
                tracing::info!(
                    error = words(&error),
                    "Cannot ask whether an earlier process still writes; going on"
                );
                return;
            }
            Err(_) => return,
        }
    }
}

/// The name of a `mongodb+srv` address is looked up when the client is made, and a name server
/// that is away is no reason to give up.
async fn connect_in_time(config: &Config) -> Result<Store, ConnectError> {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
    loop {
        match Store::connect(config).await {
            Err(error @ ConnectError::NameServer(_)) => {
                tracing::warn!(error = %error, "The database's name cannot be looked up; trying again");
                tokio::time::sleep(backoff.next_pause()).await;
            }
            outcome => return outcome,
        }
    }
}
