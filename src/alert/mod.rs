//! 7. Alerts: the feed comes in by change stream, rules judge each reading, receivers are told.
//!
//! Every gateway beats into the feed and follows the rules, because its writers ask which readings
//! they want; of all that may, one leads and evaluates. State, outbox and history are written in
//! one transaction, fenced by the lease, and the place in the stream with them or moments later.
//! If the process dies here, the next leader goes on from that place: what was applied is told by
//! its time, and every request that is still owed is found.

mod beat;
mod clock;
mod controls;
mod draft;
mod episode;
mod events;
mod gap;
mod gauges;
mod inventory;
mod lead;
mod load;
mod metrics;
mod notice;
pub mod notify;
mod own;
pub mod rules;
mod telling;
mod term;
mod turn;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use beat::Pulse;
pub use episode::{Change, EndReason, Ended, Episode, Transition, Wishes};
pub use inventory::{Listed, inventory, standing};
pub use notice::{Delivery, Notice, NoticeKind, Settled, Storm};

use crate::config::{Config, FeedMode};
use crate::devices::Devices;
use crate::model::{Selection, Timestamp};
use crate::runtime::{Readiness, Tasks, now};
use crate::store::{DriverResult, Store};
use crate::telemetry::Registry;
use controls::Controls;
use metrics::AlertMetrics;
use notify::{DeliveryMetrics, Watchdog};
use rules::{RuleSet, Rules};
use term::Setting;

/// How long ago alerts may have been seen to work for a sign of life to be true.
const STALE: Duration = Duration::from_secs(15);

/// Evaluation and telling, built but not running.
#[derive(Clone)]
pub struct Alerts {
    setting: Arc<Setting>,
    rules: Rules,
    readiness: Readiness,
    /// The server cannot do what evaluation needs.
    standalone: Arc<AtomicBool>,
}

impl Alerts {
    /// With the file's rules in force.
    ///
    /// # Errors
    /// What is wrong with the watchdog.
    pub fn build(
        config: &Config,
        store: &Store,
        devices: &Devices,
        registry: &Registry,
        readiness: &Readiness,
    ) -> Result<Self, String> {
        let rules = Rules::new(Arc::new(RuleSet::default()));
        let metrics = Arc::new(AlertMetrics::register(registry));
        let names: Vec<_> = config.receivers.iter().map(|r| r.name.as_str()).collect();
        let controls = Controls::new(store, &rules, config, &metrics);
        let setting = Setting {
            store: store.clone(),
            gateway: config.mqtt.client_id.clone(),
            controls,
            devices: devices.clone(),
            metrics,
            delivery: DeliveryMetrics::register(registry, &names),
            config: config.clone(),
            well: Arc::default(),
        };
        // Built anew where it runs; here its mistakes are told in time.
        Watchdog::build(&config.watchdog, &config.alerts.environment)?;
        Ok(Self {
            setting: Arc::new(setting),
            rules,
            readiness: readiness.clone(),
            standalone: Arc::default(),
        })
    }

    /// Says which readings the rules in force want to see.
    pub fn selection(&self) -> Arc<dyn Selection> {
        Arc::new(self.rules.clone())
    }

    /// Reads the rules of the database, before the first reading comes, and sees whether they can
    /// be evaluated at all.
    ///
    /// # Errors
    /// The driver's.
    pub async fn look(&self) -> DriverResult<()> {
        if !self.on() {
            return Ok(());
        }
        if !self.setting.store.replicated().await? {
            self.standalone.store(true, Ordering::Relaxed);
            tracing::warn!(
                "The server is a standalone: it has neither change streams nor transactions, so no rules are evaluated"
            );
            return Ok(());
        }
        self.setting.controls.look().await
    }

    /// Puts the rules and receivers of a reload in force.
    pub fn reload(&self, config: &Config) {
        self.setting.controls.reload(config);
    }

    /// Starts beating, following the rules and, where this process may, leading.
    pub fn run(&self, pulse: Pulse, tasks: &Tasks) {
        if !self.on() {
            return;
        }
        let setting = &self.setting;
        let beating = beat::beat(
            setting.store.clone(),
            setting.gateway.clone(),
            pulse,
            tasks.stopping(),
        );
        tasks.spawn_service("beat", beating);
        tasks.spawn_service("controls", setting.controls.clone().follow());
        if setting.config.alerts.enabled {
            let condition = self.readiness.condition("alerts", "nobody evaluates yet");
            let leading = lead::lead(Arc::clone(setting), condition, tasks.stopping());
            // Judging computes. On a thread of its own it keeps no connection waiting, however much
            // there is to judge.
            let runtime = tokio::runtime::Handle::current();
            let judging = tokio::task::spawn_blocking(move || runtime.block_on(leading));
            tasks.spawn("alerts", async { judging.await.map(|Ok(())| ()) });
            self.watch_over(tasks);
        }
    }

    /// Signs of life go out while this gateway leads and sees that it works.
    fn watch_over(&self, tasks: &Tasks) {
        let config = &self.setting.config;
        if let Ok(Some(watchdog)) = Watchdog::build(&config.watchdog, &config.alerts.environment) {
            let well = Arc::clone(&self.setting.well);
            let healthy = move || {
                let seen = Timestamp::from_millis(well.load(Ordering::Relaxed));
                now().since(seen) < STALE
            };
            tasks.spawn_service("watchdog", watchdog.run(healthy, tasks.stopping()));
        }
    }

    fn on(&self) -> bool {
        self.setting.config.feed.mode != FeedMode::Off && !self.standalone.load(Ordering::Relaxed)
    }
}
