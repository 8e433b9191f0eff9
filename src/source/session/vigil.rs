//! Keeps an eye on whether messages flow on one connection: gathers the facts once a second, has
//! them judged, says so in `/readyz`, and tells the session when to rebuild.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prometheus::IntCounterVec;

use crate::config::MqttConfig;
use crate::runtime::Condition;
use crate::source::beacon::{self, Beacon, Standing};
use crate::source::link::Delivery;
use crate::source::metrics::ConnectionSeries;
use crate::source::options::ConnectionOptions;
use crate::source::stall::{Facts, Front, OVERDUE, Rebuild, Rebuilds, Verdict, judge};
use crate::source::window::Window;

/// How often to look.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the module's head.
pub struct Vigil {
    config: MqttConfig,
    connection: String,
    /// `None`: canaries are switched off.
    beacon: Option<Arc<Beacon>>,
    condition: Condition,
    series: ConnectionSeries,
    rebuilds_total: IntCounterVec,
    rebuilds: Rebuilds,
    /// The connection before was ended because of a stall, and nothing was delivered since.
    rebuilt: bool,
    stalled: Arc<AtomicBool>,
    /// Of the last look.
    verdict: Verdict,
    life: Life,
}

/// One connection as seen from here.
struct Life {
    connected: Instant,
    last_delivery: Option<Instant>,
    unsettled: Front,
    leaving: Front,
}

impl Life {
    fn new(now: Instant) -> Self {
        Self {
            connected: now,
            last_delivery: None,
            unsettled: Front::default(),
            leaving: Front::default(),
        }
    }
}

impl Vigil {
    pub fn new(
        options: &ConnectionOptions,
        beacon: Option<Arc<Beacon>>,
        condition: Condition,
        series: ConnectionSeries,
        rebuilds_total: IntCounterVec,
    ) -> Self {
        condition.clear();
        Self {
            config: options.config.clone(),
            connection: options.client_id.clone(),
            beacon,
            condition,
            series,
            rebuilds_total,
            rebuilds: Rebuilds::default(),
            rebuilt: false,
            stalled: Arc::default(),
            verdict: Verdict::Fine,
            life: Life::new(Instant::now()),
        }
    }

    /// Where this connection hears its canaries.
    pub fn topic(&self) -> Option<&str> {
        self.beacon.as_ref().map(|beacon| beacon.topic.as_str())
    }

    /// Set while nothing comes through although the connection stands.
    pub fn stalled(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stalled)
    }

    /// The broker accepted a connection.
    pub fn connected(&mut self) {
        self.life = Life::new(Instant::now());
    }

    /// The broker answered the subscription; `refusal` of the canary's topic.
    pub fn subscribed(&self, refusal: Option<String>) {
        if let Some(beacon) = &self.beacon {
            beacon.subscribed(refusal);
        }
    }

    /// Something was delivered. Returns whether it is a canary.
    pub fn delivered(&mut self, delivery: &Delivery) -> bool {
        let now = Instant::now();
        self.life.last_delivery = Some(now);
        if !beacon::is_canary(&self.config, &delivery.topic) {
            return false;
        }
        if let Some(beacon) = &self.beacon
            && beacon.topic.as_bytes() == delivery.topic
            && let Some(took) = beacon.came(&delivery.payload, now)
        {
            self.series.canary_seconds.observe(took.as_secs_f64());
            self.rebuilds.reset();
        }
        true
    }

    /// The connection ended: what was said of it holds no longer, but that it is being mended.
    pub fn closed(&mut self) {
        if let Some(beacon) = &self.beacon {
            beacon.close();
        }
        self.series.canary_overdue.set(0);
        if !self.rebuilt {
            self.condition.clear();
            self.verdict = Verdict::Fine;
        }
    }

    /// Looks at a connection that is accepted. Returns why it is to be ended.
    pub fn look(&mut self, window: &Window) -> Option<String> {
        let now = Instant::now();
        let fronts = window.fronts();
        let standing = self.beacon.as_ref().map(|beacon| beacon.standing(now));
        let down = self.beacon.as_ref().and_then(|beacon| beacon.line.state());
        let life = &mut self.life;
        let heard = life.last_delivery;
        let facts = Facts {
            watched: self.beacon.is_some(),
            out: standing.as_ref().and_then(|standing| standing.out),
            denied: standing.as_ref().is_some_and(|s| s.denied.is_some()),
            was_denied: self.verdict == Verdict::Denied,
            proven: standing.as_ref().is_some_and(|s| s.proven),
            line_down: down
                .as_ref()
                .map(|down| now.saturating_duration_since(down.since)),
            quiet: now.saturating_duration_since(heard.unwrap_or(life.connected)),
            heard: heard.is_some(),
            rebuilt: self.rebuilt,
            unacked: fronts.unacked,
            held: life.unsettled.age(fronts.unsettled, now),
            unsent: life.leaving.age(fronts.leaving, now),
        };
        let verdict = judge(&facts);
        let overdue = facts.out.is_some_and(|out| out > OVERDUE);
        self.series.canary_overdue.set(i64::from(overdue));
        let stalled = matches!(verdict, Verdict::Stalled | Verdict::Mending);
        self.stalled.store(stalled, Ordering::Relaxed);
        let why = down.map(|down| down.why);
        let before = std::mem::replace(&mut self.verdict, verdict);
        let said = self.reason(verdict, window.oldest(), &facts, standing, why);
        let Some(reason) = said else {
            if self.condition.clear() {
                self.rebuilt = false;
                tracing::info!(connection = self.connection, "Messages flow again");
            }
            return None;
        };
        self.condition.raise(reason.as_str());
        if verdict != before && verdict != Verdict::Mending {
            tracing::error!(
                connection = self.connection,
                error = reason,
                "Messages do not flow as they should"
            );
        }
        let rebuild = match verdict {
            Verdict::Stalled => Rebuild::Stalled,
            Verdict::Unsent => Rebuild::Unsent,
            _ => return None,
        };
        if !self.rebuilds.take(now, fastrand::f64()) {
            return None;
        }
        self.rebuilt = self.beacon.is_some();
        self.rebuilds_total
            .with_label_values(&[rebuild.name()])
            .inc();
        Some(reason)
    }

    /// What to say; `None`: nothing stands in the way.
    fn reason(
        &self,
        verdict: Verdict,
        oldest: Duration,
        facts: &Facts,
        standing: Option<Standing>,
        line_down: Option<String>,
    ) -> Option<String> {
        let topic = self.topic().unwrap_or_default();
        let text = match verdict {
            Verdict::Fine | Verdict::Late => return None,
            Verdict::Denied => {
                let why = standing.and_then(|standing| standing.denied);
                let why = why.unwrap_or_else(|| "it does not come back".to_owned());
                format!(
                    "the canary on {topic}: {why}; check that the gateway's user may publish to and subscribe this topic, or set mqtt.canary = \"0s\""
                )
            }
            Verdict::Blind => format!(
                "nothing is delivered, and the second connection, which would tell why, is down ({}); allow client id \"{}-canary\", or set mqtt.canary = \"0s\"",
                line_down.unwrap_or_default(),
                self.config.client_id
            ),
            Verdict::Held => format!(
                "the oldest of {} un-acknowledged messages came {} s ago and is not written: MongoDB or the writer holds it",
                facts.unacked,
                oldest.as_secs()
            ),
            Verdict::Unsent => {
                "acknowledgements do not leave: the broker takes nothing from the connection; reconnecting"
                    .to_owned()
            }
            Verdict::Stalled | Verdict::Mending => format!(
                "the broker took the canary on {topic} and does not deliver it, nor anything else: the subscription or the queue at the broker is broken; reconnecting"
            ),
        };
        Some(text)
    }
}
