//! The second connection: publishes a canary for each connection whose subscription stands, and
//! notes the broker's answers.
//!
//! It has a clean session and nothing depends on it: while it is down no canary is out, which is
//! said in a gauge and counts against a connection only when that has nothing to deliver either.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::IntGauge;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::beacon::{Beacon, Line};
use super::link::{Link, LinkError, LinkErrorKind, LinkEvent, Publisher};
use super::options::ConnectionOptions;
use super::reconnect::Reconnect;

/// How often it looks for canaries that are due.
const TICK: Duration = Duration::from_millis(250);

/// How long the broker may take to say that it has one.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Beyond the time to connect.
const GRACE: Duration = Duration::from_secs(2);

/// See the module's head.
pub struct Canary<L> {
    link: L,
    options: ConnectionOptions,
    beacons: Vec<Arc<Beacon>>,
    line: Arc<Line>,
    reconnect: Reconnect,
    disconnected: IntGauge,
}

/// What is on its way to the broker on one connection.
struct Flight<'a> {
    publisher: Box<dyn Publisher>,
    beacons: &'a [Arc<Beacon>],
    every: Duration,
    /// Given to the client, in order: beacon, number, since when.
    queued: VecDeque<(usize, u64, Instant)>,
    /// On the wire, by packet id.
    flying: HashMap<u16, (usize, u64, Instant)>,
}

impl<L: Link> Canary<L> {
    pub fn new(
        options: ConnectionOptions,
        beacons: Vec<Arc<Beacon>>,
        line: Arc<Line>,
        disconnected: IntGauge,
    ) -> Self {
        disconnected.set(1);
        Self {
            link: L::new(&options),
            reconnect: Reconnect::new(options.config.reconnect_max.0),
            options,
            beacons,
            line,
            disconnected,
        }
    }

    /// Runs until asked to stop.
    pub async fn run(mut self, stopping: CancellationToken) -> Result<(), Infallible> {
        while !stopping.is_cancelled() {
            let ended = match self.options.attempt_aside().await {
                Ok(attempt) => {
                    self.link.prepare(attempt);
                    self.live(&stopping).await
                }
                Err(message) => Some(LinkError {
                    kind: LinkErrorKind::Refused,
                    message,
                }),
            };
            self.disconnected.set(1);
            self.link.sever();
            let Some(error) = ended else { break };
            if self.line.down(&error.message, Instant::now()) {
                let connection = &self.options.client_id;
                tracing::warn!(
                    connection,
                    error = error.message,
                    "No connection for canaries; trying again"
                );
            }
            let plan = self.reconnect.plan(error.kind, fastrand::f64());
            tokio::select! {
                // Both branches only wait.
                () = tokio::time::sleep(plan.pause) => {}
                () = stopping.cancelled() => {}
            }
        }
        Ok(())
    }

    /// One connection from its first byte to its end; `None`: asked to stop.
    async fn live(&mut self, stopping: &CancellationToken) -> Option<LinkError> {
        let mut flight = Flight {
            publisher: self.link.publisher(),
            beacons: &self.beacons,
            every: self.options.config.canary.0,
            queued: VecDeque::new(),
            flying: HashMap::new(),
        };
        let mut connected = None;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let patience = match connected {
                Some(_) => self.link.keep_alive() * 2,
                None => self.options.config.connect_timeout.0 + GRACE,
            };
            let event = {
                let mut next = pin!(timeout(patience, self.link.next(None)));
                loop {
                    tokio::select! {
                        event = &mut next => break event,
                        // Leaves `next` alone, or drops it with its connection.
                        _ = tick.tick() => {
                            let now = Instant::now();
                            if connected.is_some() {
                                flight.publish(now);
                            }
                            if flight.overdue(now) {
                                break Ok(Err(silence("the broker does not confirm canaries")));
                            }
                        }
                        () = stopping.cancelled() => return None,
                    }
                }
            };
            let event = match event {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => return Some(self.ended(connected, error)),
                Err(_) => {
                    let error = silence("no sign of life from the broker");
                    return Some(self.ended(connected, error));
                }
            };
            match event {
                LinkEvent::Connected { .. } => {
                    connected = Some(Instant::now());
                    self.line.up();
                    self.disconnected.set(0);
                }
                LinkEvent::Published(packet) => flight.published(packet),
                LinkEvent::Confirmed(packet, answer) => flight.confirmed(packet, answer),
                LinkEvent::Subscribed(_)
                | LinkEvent::Delivery(_)
                | LinkEvent::Acked(_)
                | LinkEvent::Other => {}
            }
            if let Some(since) = connected {
                self.reconnect.living(since.elapsed());
            }
        }
    }

    fn ended(&mut self, connected: Option<Instant>, error: LinkError) -> LinkError {
        self.reconnect.lived(connected.map(|since| since.elapsed()));
        error
    }
}

fn silence(message: &str) -> LinkError {
    LinkError {
        kind: LinkErrorKind::Silence,
        message: message.to_owned(),
    }
}

impl Flight<'_> {
    fn publish(&mut self, now: Instant) {
        for (index, beacon) in self.beacons.iter().enumerate() {
            if let Some((number, payload)) = beacon.due(self.every, now)
                && self.publisher.publish(&beacon.topic, payload)
            {
                self.queued.push_back((index, number, now));
            }
        }
    }

    fn published(&mut self, packet: u16) {
        if let Some(canary) = self.queued.pop_front() {
            self.flying.insert(packet, canary);
        }
    }

    fn confirmed(&mut self, packet: u16, answer: Result<(), String>) {
        if let Some((index, number, _)) = self.flying.remove(&packet) {
            self.beacons[index].answered(number, answer, Instant::now());
        }
    }

    fn overdue(&self, now: Instant) -> bool {
        let mut waiting = self.queued.iter().chain(self.flying.values());
        waiting.any(|(_, _, since)| now.saturating_duration_since(*since) > ANSWER_LIMIT)
    }
}
