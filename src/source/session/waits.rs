//! Where a session waits: between two attempts, for bytes to be written, for its goodbye.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::source::link::{Link, LinkError, LinkErrorKind};

/// How long the goodbye may take.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);

impl<L: Link> Session<L> {
    /// Reports the failure and says how long to wait.
    pub(super) fn pause_after(&mut self, error: LinkError) -> Duration {
        self.disconnects
            .with_label_values(&[error.kind.name()])
            .inc();
        let connection = &self.connection;
        let broker = &self.options.config.url;
        let plan = self.reconnect.plan(error.kind, fastrand::f64());
        let reason = if plan.rival {
            format!(
                "{}; another client is probably using client id {connection:?}: give each gateway its own mqtt.client_id",
                error.message
            )
        } else {
            error.message
        };
        if self.condition.raise(format!("{broker}: {reason}")) {
            match error.kind {
                LinkErrorKind::Refused | LinkErrorKind::TakenOver => {
                    tracing::error!(
                        connection,
                        broker,
                        error = reason,
                        "No connection to the broker"
                    );
                }
                _ => tracing::warn!(
                    connection,
                    broker,
                    error = reason,
                    "No connection to the broker; trying again"
                ),
            }
        }
        plan.pause
    }

    /// Waits a moment for bytes to be written, without reading more; `false`: they are
    /// not.
    pub(super) async fn below_limit(&mut self, stopping: &CancellationToken) -> bool {
        let half = self.options.config.max_inflight.bytes() / 2;
        let written = async {
            while self.window.bytes() > half {
                self.window.settled_one().await;
            }
        };
        tokio::select! {
            // All branches only wait. The limit is short enough for the broker not to miss a ping.
            limited = timeout(self.link.keep_alive() / 2, written) => limited.is_ok(),
            () = stopping.cancelled() => true,
        }
    }

    /// The link is closed; waits until half of the bytes are written.
    pub(super) async fn parked(&mut self, stopping: &CancellationToken) {
        self.series.parked.inc();
        self.condition.raise(format!(
            "{} bytes wait for MongoDB; the link is closed until half of them are written",
            self.window.bytes()
        ));
        tracing::warn!(
            connection = self.connection,
            bytes = self.window.bytes(),
            "Too many bytes wait for MongoDB; the broker holds the rest"
        );
        let half = self.options.config.max_inflight.bytes() / 2;
        while self.window.bytes() > half {
            tokio::select! {
                // Both branches only wait.
                () = self.window.settled_one() => {}
                () = stopping.cancelled() => return,
            }
        }
    }

    /// Everything is acknowledged and on the wire: says goodbye and sees it off.
    pub(super) async fn goodbye(&mut self) {
        self.link.disconnect();
        let gone = async { while self.link.next(Some(&self.window)).await.is_ok() {} };
        // Whatever comes of it, the connection ends here.
        drop(timeout(GOODBYE_LIMIT, gone).await);
    }
}
