//! One publishing connection: MQTT 3.1.1, many publishes to one flush, so that the load costs the
//! machine as little as may be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rumqttc::{
    AsyncClient, Event, EventLoop, Incoming, MqttOptions, NetworkOptions, Outgoing, Publish, QoS,
    Request, TlsConfiguration, Transport,
};
use tokio_util::sync::CancellationToken;

use super::Totals;
use super::fleet::Fleet;
use super::log::{PublishedLog, Unconfirmed};
use crate::config::MqttConfig;
use crate::runtime::now;
use crate::source::connection;

/// How long the broker may take to confirm what is outstanding at the end.
const LAST_CONFIRMATIONS: Duration = Duration::from_secs(30);

/// Publishes between two flushes at the most.
const BURST: u64 = 256;

/// What one connection publishes.
pub struct Workload {
    /// Messages per second; `None`: as fast as confirmed.
    pub rate: Option<f64>,
    /// Messages in all; `None`: until stopped.
    pub count: Option<u64>,
    /// 0 or 1.
    pub qos: u8,
    /// Un-confirmed at the most.
    pub window: u16,
}

/// One connection.
pub struct Publisher {
    events: EventLoop,
    /// Keeps the event loop's request channel open.
    _client: AsyncClient,
    workload: Workload,
    fleet: Arc<Fleet>,
    totals: Arc<Totals>,
    log: Option<Arc<PublishedLog>>,
    unconfirmed: Unconfirmed,
    sent: u64,
    acked: u64,
}

impl Publisher {
    pub fn new(
        config: &MqttConfig,
        workload: Workload,
        fleet: Arc<Fleet>,
        totals: Arc<Totals>,
        log: Option<Arc<PublishedLog>>,
    ) -> anyhow::Result<Self> {
        let options = connection(config, 0)?;
        let client_id = format!("{}-simulate-{:08x}", options.client_id, fastrand::u32(..));
        let mut mqtt = MqttOptions::new(client_id, &options.broker.host, options.broker.port);
        mqtt.set_keep_alive(Duration::from_secs(30))
            .set_inflight(workload.window)
            .set_clean_session(true);
        let attempt = options.attempt()?;
        if let Some((user, password)) = attempt.credentials {
            mqtt.set_credentials(user, password);
        }
        if let Some(tls) = attempt.tls {
            mqtt.set_transport(Transport::tls_with_config(TlsConfiguration::Rustls(tls)));
        }
        let (client, mut events) = AsyncClient::new(mqtt, 8);
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        events.set_network_options(network);
        Ok(Self {
            events,
            _client: client,
            workload,
            fleet,
            totals,
            log,
            unconfirmed: Unconfirmed::default(),
            sent: 0,
            acked: 0,
        })
    }

    /// Publishes until the count is reached or `stop`, then waits for the last confirmations.
    pub async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let broker = self.events.mqtt_options.broker_address();
        match self.events.poll().await {
            Ok(Event::Incoming(Incoming::ConnAck(_))) => {}
            Ok(other) => return Err(anyhow!("the broker answered {other:?}")),
            Err(error) => {
                return Err(anyhow!(
                    "cannot connect to {}:{}: {error}",
                    broker.0,
                    broker.1
                ));
            }
        }
        let started = Instant::now();
        while !stop.is_cancelled() && self.workload.count.is_none_or(|count| self.sent < count) {
            let due = self.due(started.elapsed());
            if due > 0 {
                self.publish(due).await?;
            }
            self.confirmations(if due > 0 {
                Duration::ZERO
            } else {
                Duration::from_millis(2)
            })
            .await?;
        }
        let deadline = Instant::now() + LAST_CONFIRMATIONS;
        while self.workload.qos > 0 && self.acked < self.sent && Instant::now() < deadline {
            self.confirmations(Duration::from_millis(100)).await?;
        }
        if self.workload.qos > 0 && self.acked < self.sent {
            return Err(anyhow!(
                "the broker did not confirm {} of {} messages",
                self.sent - self.acked,
                self.sent
            ));
        }
        Ok(())
    }

    /// How many may be published now.
    fn due(&self, elapsed: Duration) -> u64 {
        let by_count = self
            .workload
            .count
            .map_or(u64::MAX, |count| count - self.sent);
        let by_rate = self.workload.rate.map_or(u64::MAX, |rate| {
            ((elapsed.as_secs_f64() * rate) as u64).saturating_sub(self.sent)
        });
        let by_window = match self.workload.qos {
            0 => u64::MAX,
            _ => u64::from(self.workload.window) - (self.sent - self.acked),
        };
        by_count.min(by_rate).min(by_window).min(BURST)
    }

    async fn publish(&mut self, count: u64) -> anyhow::Result<()> {
        let fleet = Arc::clone(&self.fleet);
        let qos = if self.workload.qos == 0 {
            QoS::AtMostOnce
        } else {
            QoS::AtLeastOnce
        };
        let network = self
            .events
            .network
            .as_mut()
            .context("the connection to the broker was lost")?;
        let time = now();
        let mut bad = 0;
        for _ in 0..count {
            let publication = fleet.next(time);
            bad += u64::from(publication.bad);
            let publish = Publish::new(publication.topic, qos, publication.payload);
            if let Some(packet) = self
                .events
                .state
                .handle_outgoing_packet(Request::Publish(publish))?
            {
                network.write(packet).await?;
            }
            // The note that it went out; nobody here polls for it.
            let note = self.events.state.events.pop_back();
            if let Some(Event::Outgoing(Outgoing::Publish(packet))) = note
                && self.log.is_some()
                && !publication.bad
            {
                self.unconfirmed
                    .sent(packet, publication.device, publication.time);
            }
        }
        network.flush().await?;
        self.sent += count;
        self.totals.sent.fetch_add(count, Ordering::Relaxed);
        self.totals.bad.fetch_add(bad, Ordering::Relaxed);
        if self.workload.qos == 0 {
            self.acked += count;
            self.totals.acked.fetch_add(count, Ordering::Relaxed);
            // At QoS 0 nothing comes back that would let other tasks run.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Takes what the broker has confirmed, waiting at most `patience` for the first.
    async fn confirmations(&mut self, patience: Duration) -> anyhow::Result<()> {
        let window_full =
            self.workload.qos > 0 && self.sent - self.acked >= u64::from(self.workload.window);
        let patience = if window_full {
            LAST_CONFIRMATIONS
        } else {
            patience
        };
        // A poll that is cut short loses nothing in this version: see the gateway's own link.
        while let Ok(event) = tokio::time::timeout(patience, self.events.poll()).await {
            match event
                .map_err(|error| anyhow!("the connection to the broker was lost: {error}"))?
            {
                Event::Incoming(Incoming::PubAck(ack)) => {
                    if let Some(log) = &self.log {
                        log.confirmed(&mut self.unconfirmed, ack.pkid)?;
                    }
                    self.acked += 1;
                    self.totals.acked.fetch_add(1, Ordering::Relaxed);
                }
                Event::Incoming(Incoming::ConnAck(_)) => {
                    return Err(anyhow!("the broker dropped the connection"));
                }
                _ => {}
            }
            // What one read brought has been taken; the next may take its time.
            if self.events.state.events.is_empty() {
                break;
            }
        }
        Ok(())
    }
}
