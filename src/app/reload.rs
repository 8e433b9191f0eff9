//! SIGHUP: the streams, rules and receivers of the configuration are read again; streams take effect
//! for the next message.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::collections::{provision_whole, report};
use super::prepare;
use crate::alert::Alerts;
use crate::config::{Config, Sources};
use crate::source::{Routes, RoutesHandle};
use crate::store::Store;
use crate::telemetry::Ledger;

/// What a reload needs.
#[derive(Clone)]
pub(super) struct Reload {
    pub sources: Sources,
    pub running: Config,
    pub store: Store,
    pub alerts: Alerts,
    pub ledger: Ledger,
    pub routes: RoutesHandle,
    /// Reloads take turns.
    pub turn: Arc<Mutex<()>>,
}

impl Reload {
    /// Reads the files again and puts sound streams in force.
    pub async fn run(self) -> Result<(), Infallible> {
        let _turn = self.turn.lock().await;
        reload(&self).await;
        Ok(())
    }
}

/// Puts changed streams in force. A bad file changes nothing.
async fn reload(reload: &Reload) {
    let Reload {
        sources,
        running,
        store,
        alerts,
        ledger,
        routes,
        ..
    } = reload;
    let prepared = match prepare(sources) {
        Ok(prepared) => prepared,
        Err(problems) => {
            tracing::error!(error = %problems, "Configuration not reloaded; the old one stays in force");
            return;
        }
    };
    let config = prepared.loaded.config;
    if (Config {
        streams: running.streams.clone(),
        rules: running.rules.clone(),
        receivers: running.receivers.clone(),
        alerts: running.alerts.clone(),
        ..config.clone()
    }) != *running
    {
        tracing::warn!(
            "Sections other than [[streams]], [[rules]], [[receivers]] and [alerts] have changed; they take effect at the next start"
        );
    }
    alerts.reload(&config);
    let wanted = Config {
        streams: config.streams,
        ..running.clone()
    };
    match provision_whole(store, &wanted).await {
        Ok(findings) => {
            report(&findings);
            // Not part of a stream, so it stays as it was.
            let router = prepared.router.with_unrouted(running.mqtt.unrouted);
            routes.replace(Routes::new(router, ledger));
            tracing::info!(streams = wanted.streams.len(), "Streams reloaded");
        }
        Err(error) => {
            tracing::error!(error = %error, "Streams not reloaded; the old ones stay in force");
        }
    }
}
