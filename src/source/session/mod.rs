//! The loop of one connection: connect, subscribe, take deliveries in, again.
//!
//! Ready means connected with every filter granted. Nothing but the link is awaited while a
//! connection lives. Trouble ends the connection and is reported once per change; the next
//! attempt follows after a pause that grows while attempts fail.

mod asking;
mod vigil;
mod waits;

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::Protocol;
use crate::model::QoS;
use crate::runtime::Condition;
use crate::source::Surroundings;
use crate::source::beacon::Beacon;
use crate::source::intake::Intake;
use crate::source::link::{Delivery, Link, LinkError, LinkErrorKind, LinkEvent};
use crate::source::metrics::ConnectionSeries;
use crate::source::options::ConnectionOptions;
use crate::source::pulse::Heart;
use crate::source::reconnect::Reconnect;
use crate::source::routes::{Routes, RoutesHandle};
use crate::source::subscription::{Progress, Step, Subscription};
use crate::source::window::Window;
use vigil::{LOOK_EVERY, Vigil};

/// How old the gauges of a quiet link may be.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// Beyond the time to connect, before a broker that does not even refuse counts as silent.
const GRACE: Duration = Duration::from_secs(2);

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
    vigil: Vigil,
    /// What the session at the broker was asked for last; `None`: not by this process.
    asked: Option<Subscription>,
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
    /// Nothing moved on it.
    Stalled(String),
    Stopped,
}

impl<L: Link> Session<L> {
    pub fn new(
        options: ConnectionOptions,
        intake: Intake,
        surroundings: &Surroundings,
        condition: Condition,
        beacon: Option<Arc<Beacon>>,
    ) -> Self {
        let config = &options.config;
        let series = surroundings.metrics.connection(options.index);
        if config.protocol == Protocol::V5 {
            series.window.set(i64::from(config.receive_maximum));
        }
        let vigil = Vigil::new(
            &options,
            beacon,
            surroundings
                .readiness
                .condition(format!("flow {}", options.client_id), "not connected yet"),
            series.clone(),
            surroundings.metrics.rebuilds.clone(),
        );
        Self {
            vigil,
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
            asked: None,
            options,
        }
    }

    /// How it is asked how far it is.
    pub fn heart(&self) -> Heart {
        Heart {
            window: Arc::clone(&self.window),
            subscribed: self.series.subscribed.clone(),
            stalled: self.vigil.stalled(),
        }
    }

    /// Keeps the gauges up to date while nothing happens on the link.
    pub fn refresh(&self) -> impl Future<Output = Result<(), Infallible>> + Send + use<L> {
        let window = Arc::clone(&self.window);
        async move {
            loop {
                tokio::time::sleep(REFRESH_EVERY).await;
                window.refresh();
            }
        }
    }

    /// Runs until asked to stop, then until everything is acknowledged or waiting is over.
    pub async fn run(
        mut self,
        stopping: CancellationToken,
        abandoned: CancellationToken,
    ) -> Result<(), Infallible> {
        while !stopping.is_cancelled() {
            let end = match self.options.attempt_aside().await {
                Ok(attempt) => {
                    self.link.prepare(attempt);
                    self.live(&stopping, &abandoned).await
                }
                Err(message) => End::Failed(LinkError {
                    kind: LinkErrorKind::Refused,
                    message,
                }),
            };
            self.series.subscribed.set(0);
            self.vigil.closed();
            let unacked = self.window.unacked();
            let link = &mut self.link;
            self.window.sever(|| link.sever());
            let connection = &self.connection;
            match end {
                End::Stopped => {
                    tracing::info!(connection, unacked, "MQTT connection closed");
                    break;
                }
                End::Parked => self.parked(&stopping).await,
                End::Lost => {
                    let reason = "a message was dropped on its way; reconnecting so that the broker delivers it again";
                    self.condition.raise(reason);
                    tracing::warn!(connection, reason, "Connection closed on purpose");
                }
                End::Stalled(reason) => {
                    self.condition.raise(reason.as_str());
                    let connection = &self.connection;
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
        Ok(())
    }

    /// One connection from its first byte to its end.
    async fn live(&mut self, stopping: &CancellationToken, abandoned: &CancellationToken) -> End {
        let mut life = Life::default();
        let mut draining = false;
        let mut tick = interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Pings go out every keep-alive, so a live link shows an event at least that often.
            let silence = match life.connected {
                Some(_) => self.link.keep_alive() * 2,
                None => self.options.config.connect_timeout.0 + GRACE,
            };
            let event = {
                let patience = life.progress.patience(silence, Instant::now());
                let mut next = pin!(timeout(patience, self.link.next(Some(&self.window))));
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
                        _ = tick.tick(), if life.connected.is_some() && !draining => {
                            if let Some(reason) = self.vigil.look(&self.window) {
                                return End::Stalled(reason);
                            }
                        }
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
                && !self.below_limit(stopping).await
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
                session_expiry,
            } => {
                life.connected = Some(Instant::now());
                self.connected(session_present, session_expiry);
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
            LinkEvent::Published(_) | LinkEvent::Confirmed(..) | LinkEvent::Other => {}
        }
        if let Some(since) = life.connected {
            self.reconnect.living(since.elapsed());
        }
        self.watch_subscription(life)
    }

    fn deliver(&mut self, delivery: Delivery, draining: bool) {
        let canary = self.vigil.delivered(&delivery);
        match (draining, delivery.qos) {
            (false, _) if canary => Intake::pass(&delivery, &self.window),
            (true, QoS::AtMostOnce) if canary => {}
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
}
