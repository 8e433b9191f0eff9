//! A sign of life to a service outside, which calls for help when it stays away: the only way to
//! hear of a gateway that cannot say any more that it is ill. It is sent only while the gateway
//! itself holds that rules are evaluated and receivers are told.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::classify::{Class, Verdict, answer, failure};
use super::request::Outgoing;
use super::target::Target;
use crate::config::{ReceiverKind, WatchdogConfig, WatchdogMethod};
use crate::runtime;

/// Until the next try after one that failed: the service outside is not to call for help because of
/// one lost packet.
const AGAIN: Duration = Duration::from_secs(5);

/// Sends signs of life.
pub struct Watchdog {
    target: Target,
    method: WatchdogMethod,
    interval: Duration,
    environment: String,
}

impl Watchdog {
    /// `None`: no address is configured.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn build(config: &WatchdogConfig, environment: &str) -> Result<Option<Self>, String> {
        let target = Target::watchdog(config)
            .map_err(|(key, message)| format!("watchdog.{key}: {message}"))?;
        Ok(target.map(|target| Self {
            target,
            method: config.method,
            interval: config.interval.0,
            environment: environment.to_owned(),
        }))
    }

    /// Sends one whenever it is time and `healthy` says so, until asked to stop.
    ///
    /// # Errors
    /// None.
    pub async fn run(
        self,
        healthy: impl Fn() -> bool + Send + 'static,
        stop: CancellationToken,
    ) -> Result<(), Infallible> {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut silent, mut failing) = (false, false);
        loop {
            tokio::select! {
                // A sign of life that is under way is worth nothing when everything stops.
                () = stop.cancelled() => return Ok(()),
                _ = ticks.tick() => {}
            }
            if !healthy() {
                if !std::mem::replace(&mut silent, true) {
                    tracing::warn!("No sign of life is sent: alerts do not work as they should");
                }
                continue;
            }
            silent = false;
            let verdict = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                verdict = self.beat() => verdict,
            };
            if verdict.class == Class::Ok {
                if std::mem::take(&mut failing) {
                    tracing::info!("Signs of life arrive again");
                }
                continue;
            }
            if !std::mem::replace(&mut failing, true) {
                tracing::warn!(why = verdict.why, "A sign of life did not arrive");
            }
            ticks.reset_at(Instant::now() + AGAIN.min(self.interval));
        }
    }

    async fn beat(&self) -> Verdict {
        let now = runtime::now();
        let answered = match (
            self.method,
            reqwest::Url::parse(self.target.secrets.url.expose()),
        ) {
            (WatchdogMethod::Get, _) | (_, Err(_)) => self.target.get().await,
            (WatchdogMethod::Post, Ok(url)) => {
                let body = serde_json::json!({
                    "type": "watchdog", "environment": self.environment, "timestamp": now,
                });
                let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
                self.target
                    .send(Outgoing {
                        url,
                        headers,
                        body: body.to_string(),
                    })
                    .await
            }
        };
        let mut verdict = match answered {
            Ok(said) => answer(ReceiverKind::Template, &said, now),
            Err(failed) => failure(&failed),
        };
        verdict.why = self.target.secrets.redact(&verdict.why);
        verdict
    }
}
