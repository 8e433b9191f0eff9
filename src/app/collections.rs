//! The collections readings go to: made before anything is taken from the broker, and looked at now
//! and then. A collection that somebody drops while the gateway runs would be made anew by the
//! server at the next insert, but as an ordinary one.

use std::convert::Infallible;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::runtime::{Backoff, Condition};
use crate::source::RoutesHandle;
use crate::store::{Finding, ProvisionError, Provisioned, Store, provision};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What is needed to make and watch them.
pub(super) struct Collections {
    pub store: Store,
    pub config: Config,
    /// Tells which streams are in force.
    pub routes: RoutesHandle,
    pub condition: Condition,
}

impl Collections {
    /// Makes what is missing, however long it takes; `false`: asked to stop before it was done.
    ///
    /// # Errors
    /// What somebody has to mend first.
    pub async fn make(&self, stopping: &CancellationToken) -> Result<bool, ProvisionError> {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        loop {
            tokio::select! {
                // Only the waiting is dropped; the call runs in a task of its own.
                () = stopping.cancelled() => return Ok(false),
                outcome = provision_whole(&self.store, &self.config) => match outcome {
                    Ok(findings) => {
                        report(&findings);
                        return Ok(true);
                    }
                    Err(error) if error.transient() => {
                        if self.condition.raise(error.to_string()) {
                            tracing::warn!(error = %error, "The database cannot be prepared yet; trying again");
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            tokio::select! {
                // Both branches only wait.
                () = stopping.cancelled() => return Ok(false),
                () = tokio::time::sleep(backoff.next_pause()) => {}
            }
        }
    }

    /// Looks again and again; whether the database answers at all is for others to tell.
    pub async fn watch(self) -> Result<(), Infallible> {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let streams = self
                .routes
                .get()
                .configs
                .iter()
                .map(|config| (**config).clone())
                .collect();
            let wanted = Config {
                streams,
                ..self.config.clone()
            };
            match provision_whole(&self.store, &wanted).await {
                Ok(findings) => {
                    let made = |finding: &&Finding| matches!(finding, Finding::Created(_));
                    for finding in findings.iter().filter(made) {
                        tracing::warn!(%finding, "Something was missing in MongoDB and has been made anew");
                    }
                    self.condition.clear();
                }
                // Whether the database answers at all is for the writers to tell.
                Err(error) if error.transient() => {}
                Err(error) => {
                    if self.condition.raise(error.to_string()) {
                        tracing::error!(error = %error, "A collection is not what it was");
                    }
                }
            }
        }
    }
}

/// Provisions in a task of its own: a driver call is never dropped half way.
pub(super) async fn provision_whole(
    store: &Store,
    config: &Config,
) -> Result<Provisioned, ProvisionError> {
    let (store, config) = (store.clone(), config.clone());
    let call = tokio::spawn(async move { provision(&store, &config).await });
    call.await
        .expect("provisioning does not panic; if it does, so does this task")
}

/// Logs what was done and what is odd.
pub(super) fn report(findings: &[Finding]) {
    for finding in findings {
        match finding {
            Finding::Created(what) => tracing::info!(what, "Created in MongoDB"),
            Finding::Present(_) => {}
            Finding::Drift(what) => tracing::warn!(
                what,
                "MongoDB differs from the configuration; nothing was changed"
            ),
            Finding::Warning(what) => tracing::warn!(what, "MongoDB deployment"),
        }
    }
}
