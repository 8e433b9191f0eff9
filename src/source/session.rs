//! The loop of one connection: connect, subscribe, take deliveries in, again.
//!
//! Ready means connected with every filter granted. Nothing but the link is awaited while a
//! connection lives. Trouble ends the connection and is reported once per change; the next
//! attempt follows after a pause that grows while attempts fail.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Surroundings;
use super::intake::Intake;
use super::link::{Delivery, Link, LinkError, LinkErrorKind, LinkEvent};
use super::metrics::ConnectionSeries;
use super::options::ConnectionOptions;
use super::reconnect::Reconnect;
use super::routes::{Routes, RoutesHandle};
use super::subscription::{ANSWER_LIMIT, Progress, Step, Subscription};
use super::window::Window;
use crate::config::Protocol;
use crate::model::QoS;
use crate::runtime::Condition;

/// How long the goodbye may take.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);

/// One connection.
pub struct Session<L> {
    link: L,
    connection: String,
    options: ConnectionOptions,
    share_group: String,
    routes: RoutesHandle,
    intake: Intake,
    window: Arc<Window>,
    series: ConnectionSeries,
    disconnects: prometheus::IntCounterVec,
    condition: Condition,
    reconnect: Reconnect,
    /// Whether this process has had a session at the broker.
    had_session: bool,
}

/// What one connection went through.
#[derive(Default)]
struct Life {
    connected: Option<Instant>,
    progress: Progress,
    /// The routes that were last asked for.
    asked_by: Option<Arc<Routes>>,
}

/// Why a connection ended.
enum End {
    Failed(LinkError),
    /// Too many bytes on their way.
    Parked,
    /// A message was dropped on its way; the broker must deliver it again.
    Lost,
    Stopped,
}

impl<L: Link> Session<L> {
    pub fn new(
        options: ConnectionOptions,
        intake: Intake,
        surroundings: &Surroundings,
        condition: Condition,
    ) -> Self {
        let config = &options.config;
        let series = surroundings.metrics.connection(options.index);
        if config.protocol == Protocol::V5 {
            series.window.set(i64::from(config.receive_maximum));
        }
        Self {
            link: L::new(&options),
            connection: options.client_id.clone(),
            share_group: config.share_group.clone(),
            routes: surroundings.routes.clone(),
            intake,
            window: Window::new(surroundings.ledger.clone(), series.clone()),
            series,
            disconnects: surroundings.metrics.disconnects.clone(),
            condition,
            reconnect: Reconnect::new(config.reconnect_max.0),
            had_session: false,
            options,
        }
    }

    /// Runs until asked to stop, then until everything is acknowledged or waiting is over.
    pub async fn run(
        mut self,
        stopping: CancellationToken,
        abandoned: CancellationToken,
    ) -> Result<(), Infallible> {
        let connection = self.connection.clone();
        while !stopping.is_cancelled() {
            let end = match self.options.attempt() {
                Ok(attempt) => {
                    self.link.prepare(attempt);
                    self.live(&stopping, &abandoned).await
                }
                Err(error) => End::Failed(LinkError {
                    kind: LinkErrorKind::Refused,
                    message: error.to_string(),
                }),
            };
            self.series.subscribed.set(0);
            let link = &mut self.link;
            self.window.sever(|| link.sever());
            match end {
                End::Stopped => break,
                End::Parked => self.parked(&stopping).await,
                End::Lost => {
                    let reason = "a message was dropped on its way; reconnecting so that the broker delivers it again";
                    self.condition.raise(reason);
                    tracing::warn!(connection, reason, "Connection closed on purpose");
                }
                End::Failed(error) => {
                    let pause = self.pause_after(error);
                    tokio::select! {
                        // Both branches only wait.
                        () = tokio::time::sleep(pause) => {}
                        () = stopping.cancelled() => {}
                    }
                }
            }
        }
        tracing::info!(connection, "MQTT connection closed");
        Ok(())
    }

    /// One connection from its first byte to its end.
    async fn live(&mut self, stopping: &CancellationToken, abandoned: &CancellationToken) -> End {
        let mut life = Life::default();
        // Pings go out every keep-alive, so a live link shows an event at least that often.
        let silence = self.options.config.keep_alive.0 * 2;
        let mut draining = false;
        loop {
            let event = {
                let patience = life.progress.patience(silence, Instant::now());
                let mut next = pin!(timeout(patience, self.link.next(&self.window)));
                loop {
                    tokio::select! {
                        event = &mut next => break event,
                        // The branches below leave `next` alone, or drop it with its connection.
                        () = stopping.cancelled(), if !draining => {
                            draining = true;
                            if life.connected.is_none() {
                                return End::Stopped;
                            }
                            if self.window.idle() {
                                break Ok(Ok(LinkEvent::Other));
                            }
                        }
                        () = abandoned.cancelled() => return End::Stopped,
                        () = self.window.loss() => {
                            if self.window.lost() {
                                return End::Lost;
                            }
                        }
                    }
                }
            };
            let event = match event {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => return self.ended(&life, error),
                Err(_) => return self.silent(&life, silence),
            };
            if let ControlFlow::Break(end) = self.handle(event, &mut life, draining) {
                return end;
            }
            if draining && self.window.idle() {
                self.goodbye().await;
                return End::Stopped;
            }
            if self.window.bytes() > self.options.config.max_inflight.bytes()
                && !self.below_limit().await
            {
                return End::Parked;
            }
        }
    }

    fn handle(&mut self, event: LinkEvent, life: &mut Life, draining: bool) -> ControlFlow<End> {
        match event {
            LinkEvent::Connected {
                session_present,
                shared_available,
            } => {
                life.connected = Some(Instant::now());
                self.connected(session_present);
                if !shared_available && !self.share_group.is_empty() {
                    let message = "the broker does not offer shared subscriptions: use one connection and no share_group".to_owned();
                    return ControlFlow::Break(End::Failed(LinkError {
                        kind: LinkErrorKind::Refused,
                        message,
                    }));
                }
                self.ask(life)?;
            }
            LinkEvent::Subscribed(granted) => self.granted(&granted, life),
            LinkEvent::Delivery(delivery) => self.deliver(delivery, draining),
            LinkEvent::Acked(count) => self.window.sent(count),
            LinkEvent::Other => self.window.refresh(),
        }
        if let Some(since) = life.connected {
            self.reconnect.living(since.elapsed());
        }
        self.watch_subscription(life)
    }

    fn deliver(&mut self, delivery: Delivery, draining: bool) {
        match (draining, delivery.qos) {
            // Taken no more: the broker keeps it and delivers it to the next process.
            (true, QoS::AtLeastOnce | QoS::ExactlyOnce) => {}
            (true, QoS::AtMostOnce) => self.intake.turn_away(),
            (false, _) => {
                if !self.intake.take(delivery, &self.window) {
                    self.series.folded.inc();
                }
            }
        }
    }

    fn connected(&mut self, session_present: bool) {
        self.series.connects.inc();
        self.condition
            .raise("connected, but the broker has not answered the subscription yet");
        self.window.open(session_present, self.link.outbox());
        let connection = &self.connection;
        match (session_present, self.had_session) {
            (true, _) => tracing::info!(connection, "Connected to the broker; it kept the session"),
            (false, false) => {
                tracing::info!(connection, "Connected to the broker with a new session")
            }
            (false, true) => {
                self.series.sessions_lost.inc();
                tracing::error!(
                    connection,
                    "The broker forgot the session: messages it had queued for us are gone. Check its persistence and session expiry"
                );
            }
        }
        self.had_session = true;
    }

    fn ask(&mut self, life: &mut Life) -> ControlFlow<End> {
        let routes = self.routes.get();
        let wanted = Subscription::new(&routes.router.filters(), &self.share_group);
        self.link
            .unsubscribe(&life.progress.subscription.without(&wanted));
        if let Err(error) = self.link.subscribe(&wanted.filters) {
            return ControlFlow::Break(End::Failed(error));
        }
        life.progress.asked(wanted, Instant::now());
        life.asked_by = Some(routes);
        ControlFlow::Continue(())
    }

    fn granted(&mut self, granted: &[Result<QoS, String>], life: &mut Life) {
        let refusals = life.progress.answered(granted, Instant::now());
        let connection = &self.connection;
        if refusals.is_empty() {
            self.series.subscribed.set(1);
            if self.condition.clear() {
                let filters = life.progress.subscription.filters.join(" ");
                tracing::info!(connection, filters, "Subscribed");
            }
            return;
        }
        self.series.subscribed.set(0);
        self.series.refusals.inc_by(refusals.len() as u64);
        let reason = format!("subscription refused: {}", refusals.join("; "));
        if self.condition.raise(reason.as_str()) {
            tracing::error!(
                connection,
                error = reason,
                "The broker did not grant everything that was asked for"
            );
        }
    }

    /// Asks again where due; ends a connection whose subscription was never answered.
    fn watch_subscription(&mut self, life: &mut Life) -> ControlFlow<End> {
        let Some(asked_by) = &life.asked_by else {
            return ControlFlow::Continue(());
        };
        let changed = !Arc::ptr_eq(asked_by, &self.routes.get());
        match life.progress.step(Instant::now(), changed) {
            Step::Wait => ControlFlow::Continue(()),
            Step::Ask => self.ask(life),
            Step::Overdue => ControlFlow::Break(self.silent(life, ANSWER_LIMIT)),
        }
    }

    /// Ends a connection on which nothing came for `waited`, or not the answer that is due.
    fn silent(&mut self, life: &Life, waited: Duration) -> End {
        let message = match life.progress.step(Instant::now(), false) {
            Step::Overdue => "the broker did not answer the subscription".to_owned(),
            _ => format!("no sign of life from the broker for {} s", waited.as_secs()),
        };
        let kind = LinkErrorKind::Silence;
        self.ended(life, LinkError { kind, message })
    }

    fn ended(&mut self, life: &Life, error: LinkError) -> End {
        self.reconnect
            .lived(life.connected.map(|since| since.elapsed()));
        End::Failed(error)
    }

    /// Reports the failure and says how long to wait.
    fn pause_after(&mut self, error: LinkError) -> Duration {
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

    /// Waits a moment for bytes to be written, without reading more; `false`: they are not.
    async fn below_limit(&mut self) -> bool {
        let half = self.options.config.max_inflight.bytes() / 2;
        let written = async {
            while self.window.bytes() > half {
                self.window.settled_one().await;
            }
        };
        // Short enough for the broker not to miss a ping.
        timeout(self.options.config.keep_alive.0 / 2, written)
            .await
            .is_ok()
    }

    /// The link is closed; waits until half of the bytes are written.
    async fn parked(&mut self, stopping: &CancellationToken) {
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
    async fn goodbye(&mut self) {
        self.link.disconnect();
        let gone = async { while self.link.next(&self.window).await.is_ok() {} };
        // Whatever comes of it, the connection ends here.
        drop(timeout(GOODBYE_LIMIT, gone).await);
    }
}
