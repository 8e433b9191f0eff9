//! The loop of one connection: connect, subscribe, take deliveries in, again.
//!
//! Ready means connected with every filter granted. Nothing but the link is awaited while a
//! connection lives. Trouble ends the connection and is reported once per change; the next
//! attempt follows after a pause that grows while attempts fail.

mod waits;

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::Protocol;
use crate::model::QoS;
use crate::runtime::Condition;
use crate::source::Surroundings;
use crate::source::intake::Intake;
use crate::source::link::{Delivery, Link, LinkError, LinkErrorKind, LinkEvent};
use crate::source::metrics::ConnectionSeries;
use crate::source::options::{Attempt, ConnectionOptions};
use crate::source::pulse::Heart;
use crate::source::reconnect::Reconnect;
use crate::source::routes::{Routes, RoutesHandle};
use crate::source::subscription::{ANSWER_LIMIT, Progress, Step, Subscription};
use crate::source::window::Window;

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
            asked: None,
            options,
        }
    }

    /// How it is asked how far it is.
    pub fn heart(&self) -> Heart {
        Heart {
            window: Arc::clone(&self.window),
            subscribed: self.series.subscribed.clone(),
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
            let end = match self.attempt().await {
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

    /// Reads secrets and certificates, off the threads that move messages.
    async fn attempt(&mut self) -> Result<Attempt, String> {
        let options = self.options.clone();
        match tokio::task::spawn_blocking(move || options.attempt()).await {
            Ok(attempt) => attempt.map_err(|error| format!("{}: {error}", error.key())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// One connection from its first byte to its end.
    async fn live(&mut self, stopping: &CancellationToken, abandoned: &CancellationToken) -> End {
        let mut life = Life::default();
        let mut draining = false;
        loop {
            // Pings go out every keep-alive, so a live link shows an event at least that often.
            let silence = match life.connected {
                Some(_) => self.link.keep_alive() * 2,
                None => self.options.config.connect_timeout.0 + GRACE,
            };
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
            LinkEvent::Other => {}
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

    fn connected(&mut self, session_present: bool, session_expiry: Option<Duration>) {
        self.series.connects.inc();
        self.condition
            .raise("connected, but the broker has not answered the subscription yet");
        self.window.open(session_present, self.link.outbox());
        let connection = &self.connection;
        let again = self.asked.is_some();
        if !session_present && again {
            self.series.sessions_lost.inc();
            tracing::error!(
                connection,
                "The broker forgot the session: messages it had queued for us are gone. Check its persistence and session expiry"
            );
        } else {
            tracing::info!(connection, session_present, "Connected to the broker");
        }
        if let Some(kept) =
            session_expiry.filter(|kept| *kept < self.options.config.session_expiry.0)
        {
            tracing::warn!(
                connection,
                seconds = kept.as_secs(),
                "The broker keeps the session for less than mqtt.session_expiry asks for"
            );
        }
    }

    fn ask(&mut self, life: &mut Life) -> ControlFlow<End> {
        let routes = self.routes.get();
        let wanted = Subscription::new(&routes.router.filters(), &self.share_group);
        // What an earlier process asked for is not known, but how this one's filters would have
        // read with or without a share group is: both at once would deliver everything twice.
        let unwanted = match &self.asked {
            Some(asked) => asked.without(&wanted),
            None => wanted.other_spellings(&self.share_group),
        };
        self.link.unsubscribe(&unwanted);
        if let Err(error) = self.link.subscribe(&wanted.filters) {
            return ControlFlow::Break(End::Failed(error));
        }
        self.asked = Some(wanted.clone());
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
}
