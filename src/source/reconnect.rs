//! How long to wait before the next attempt, and whether another client is after our session.
//! Pure: durations and chance come in as arguments.

use std::time::Duration;

use super::link::LinkErrorKind;
use crate::runtime::Backoff;

/// First pause after a failed attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Longest pause where the broker refuses, or another client wants the same session.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// A connection that lives this long was a success: pauses start small again.
const SETTLED_IN: Duration = Duration::from_secs(10);

/// Two clients that take a session from each other live about as long as the other one's pause.
const SHORT_LIFE: Duration = Duration::from_secs(3);

/// Short lives in a row, with no failed attempt between them, before another client is suspected: a
/// broker that restarts, or a network that flaps, looks alike for a while.
const SUSPICIOUS_ENDS: u32 = 6;

/// What to do after a failure.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// How long to wait.
    pub pause: Duration,
    /// Whether another client seems to use the same client id: both would take the session from
    /// each other for ever. MQTT 5 brokers should say so (mosquitto 2.0.11 does not); else only short
    /// lives show it.
    pub rival: bool,
}

/// The history that decides.
#[derive(Debug)]
pub struct Reconnect {
    backoff: Backoff,
    short_lives: u32,
    /// Unreadable packets since the last connection that settled in.
    faults: u32,
}

impl Reconnect {
    /// Pauses grow up to `max` while the broker cannot be reached.
    pub fn new(max: Duration) -> Self {
        Self {
            backoff: Backoff::new(FIRST_PAUSE, max),
            short_lives: 0,
            faults: 0,
        }
    }

    /// The connection is alive, since `age`.
    pub fn living(&mut self, age: Duration) {
        if age > SETTLED_IN {
            self.backoff.reset();
            self.short_lives = 0;
            self.faults = 0;
        }
    }

    /// A connection ended after `age`; `None`: it was never accepted.
    pub fn lived(&mut self, age: Option<Duration>) {
        match age {
            Some(age) if age < SHORT_LIFE => self.short_lives += 1,
            // A rival's broker would have been there.
            Some(_) | None => self.short_lives = 0,
        }
    }

    /// What to do now; `chance` in 0..1 decides the jitter.
    pub fn plan(&mut self, kind: LinkErrorKind, chance: f64) -> Plan {
        let rival = kind == LinkErrorKind::TakenOver || self.short_lives >= SUSPICIOUS_ENDS;
        let pause = self.backoff.next_with(chance);
        self.faults += u32::from(kind == LinkErrorKind::Protocol);
        let lasting = match kind {
            LinkErrorKind::Refused | LinkErrorKind::TakenOver => true,
            // One may be a passing fault; a second is likely the same message delivered again.
            LinkErrorKind::Protocol => self.faults > 1,
            LinkErrorKind::Network | LinkErrorKind::Silence => false,
        };
        let pause = if lasting || rival {
            pause.max(REFUSED_PAUSE.mul_f64(1.0 - chance / 3.0))
        } else {
            pause
        };
        Plan { pause, rival }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_broker_is_tried_often_and_a_refusal_seldom() {
        let mut reconnect = Reconnect::new(Duration::from_secs(2));
        for _ in 0..10 {
            reconnect.lived(None);
            let plan = reconnect.plan(LinkErrorKind::Network, 0.0);
            assert!(
                plan.pause <= Duration::from_secs(2) && !plan.rival,
                "{plan:?}"
            );
        }
        let plan = reconnect.plan(LinkErrorKind::Refused, 1.0);
        assert_eq!(
            plan,
            Plan {
                pause: Duration::from_secs(20),
                rival: false
            }
        );
    }

    #[test]
    fn a_broker_that_restarts_again_and_again_is_no_rival() {
        let mut reconnect = Reconnect::new(Duration::from_secs(2));
        for _ in 0..5 {
            reconnect.lived(Some(Duration::from_millis(600)));
            let plan = reconnect.plan(LinkErrorKind::Network, 0.0);
            assert!(!plan.rival && plan.pause <= Duration::from_secs(2));
        }
        for _ in 0..10 {
            reconnect.lived(None);
            assert!(!reconnect.plan(LinkErrorKind::Network, 0.0).rival);
            reconnect.lived(Some(Duration::from_millis(600)));
            assert!(!reconnect.plan(LinkErrorKind::Network, 0.0).rival);
        }
    }

    #[test]
    fn a_packet_nobody_can_read_is_met_at_most_three_times_a_minute() {
        let mut reconnect = Reconnect::new(Duration::from_secs(2));
        let mut clock = Duration::ZERO;
        let mut connects = 0;
        while clock < Duration::from_secs(60) {
            connects += 1;
            reconnect.lived(Some(Duration::from_secs(4)));
            clock += reconnect.plan(LinkErrorKind::Protocol, 0.5).pause;
        }
        assert!((2..=4).contains(&connects), "{connects}");
    }

    #[test]
    fn a_rival_is_named_by_mqtt_5_and_suspected_after_short_lives() {
        let mut reconnect = Reconnect::new(Duration::from_secs(2));
        assert!(reconnect.plan(LinkErrorKind::TakenOver, 0.5).rival);
        let mut connects = 0;
        let mut clock = Duration::ZERO;
        while clock < Duration::from_secs(60) {
            connects += 1;
            reconnect.lived(Some(Duration::from_millis(100)));
            clock += reconnect.plan(LinkErrorKind::Network, 0.5).pause;
        }
        assert!(connects <= 10, "{connects} connects in a minute");
        assert!(reconnect.plan(LinkErrorKind::Network, 0.5).rival);
        reconnect.living(Duration::from_secs(11));
        assert!(!reconnect.plan(LinkErrorKind::Network, 0.5).rival);
    }
}
