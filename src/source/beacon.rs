//! The canaries of one connection: what was published to its topic and what came back.
//!
//! The publisher asks what is due and notes the broker's answers; the session says when its
//! subscription stands and what it heard. All of it is forgotten with the connection, so a canary
//! that is known here was published after the connection was accepted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::MqttConfig;

/// How many may be out; of more, the oldest are kept, and new ones become rare: they wait at the
/// broker, which holds them for as long as its window for us is full.
const MOST_OUT: usize = 16;
const RARELY: Duration = Duration::from_secs(60);

/// The connection that canaries are published on.
#[derive(Debug)]
pub struct Line(Mutex<Option<Down>>);

/// Since when it is down, and why.
#[derive(Debug, Clone)]
pub struct Down {
    pub since: Instant,
    pub why: String,
}

impl Line {
    /// Not connected yet.
    pub fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Down {
            since: now,
            why: "not connected yet".to_owned(),
        }))))
    }

    pub fn up(&self) {
        *self.lock() = None;
    }

    /// Down because of `why`. Returns whether that is news.
    pub fn down(&self, why: &str, now: Instant) -> bool {
        let mut down = self.lock();
        let since = down.as_ref().map_or(now, |down| down.since);
        let news = down.as_ref().is_none_or(|down| down.why != why);
        *down = Some(Down {
            since,
            why: why.to_owned(),
        });
        news
    }

    pub fn state(&self) -> Option<Down> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Down>> {
        // A text and a time are sound whatever a panicking holder was doing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct Beacon {
    /// Where its canaries go.
    pub topic: String,
    /// How they are published.
    pub line: Arc<Line>,
    /// Tells this process's canaries from those of an earlier one.
    nonce: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The subscription stands.
    open: bool,
    numbered: u64,
    last: Option<Instant>,
    out: VecDeque<Out>,
    /// Why the broker does not let us publish.
    unpublished: Option<String>,
    /// Why it does not let us subscribe.
    unsubscribed: Option<String>,
    proven: bool,
}

#[derive(Debug)]
struct Out {
    number: u64,
    sent: Instant,
    /// When the broker said that it has it.
    taken: Option<Instant>,
}

/// What the session needs to know.
#[derive(Debug, PartialEq, Eq)]
pub struct Standing {
    /// For how long the broker has had the oldest that is out.
    pub out: Option<Duration>,
    /// The broker's refusal.
    pub denied: Option<String>,
    /// One came back since the process started.
    pub proven: bool,
}

/// The topic of a connection's canaries; a client id may hold what a topic may not.
pub fn topic(config: &MqttConfig, client_id: &str) -> String {
    let name = client_id.replace(['+', '#'], "_");
    format!("{}/{name}", config.canary_topic)
}

/// Whether something published to `topic` is a canary, of this connection or any other.
pub fn is_canary(config: &MqttConfig, topic: &[u8]) -> bool {
    topic
        .strip_prefix(config.canary_topic.as_bytes())
        .is_some_and(|rest| rest.starts_with(b"/"))
}

impl Beacon {
    pub fn new(topic: String, line: Arc<Line>, nonce: u64) -> Self {
        Self {
            topic,
            line,
            nonce,
            state: Mutex::default(),
        }
    }

    /// The broker answered the subscription; `refusal`: why not.
    pub fn subscribed(&self, refusal: Option<String>) {
        let mut state = self.lock();
        state.open = refusal.is_none();
        state.unsubscribed = refusal;
    }

    /// The connection ended.
    pub fn close(&self) {
        let mut state = self.lock();
        state.open = false;
        state.out.clear();
        // The next connection's first goes out at once.
        state.last = None;
    }

    /// The number and payload of a canary that is due.
    pub fn due(&self, every: Duration, now: Instant) -> Option<(u64, String)> {
        let mut state = self.lock();
        let every = match state.out.len() < MOST_OUT {
            true => every,
            false => every.max(RARELY),
        };
        let waited = |last: Instant| now.saturating_duration_since(last) >= every;
        if !state.open || !state.last.is_none_or(waited) {
            return None;
        }
        state.numbered += 1;
        state.last = Some(now);
        if state.out.len() >= MOST_OUT {
            state.out.pop_back();
        }
        let number = state.numbered;
        state.out.push_back(Out {
            number,
            sent: now,
            taken: None,
        });
        Some((number, format!("{:016x} {number}", self.nonce)))
    }

    /// The broker answered the publish.
    pub fn answered(&self, number: u64, answer: Result<(), String>, now: Instant) {
        let mut state = self.lock();
        match answer {
            Ok(()) => {
                state.unpublished = None;
                if let Some(out) = state.out.iter_mut().find(|out| out.number == number) {
                    out.taken = Some(now);
                }
            }
            Err(reason) => {
                state.unpublished = Some(reason);
                state.out.retain(|out| out.number != number);
            }
        }
    }

    /// Something came on a canary's topic. Returns how long it took, if it is one of those out.
    pub fn came(&self, payload: &[u8], now: Instant) -> Option<Duration> {
        let (nonce, number) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
        if u64::from_str_radix(nonce, 16) != Ok(self.nonce) {
            return None;
        }
        let number: u64 = number.parse().ok()?;
        let mut state = self.lock();
        let position = state.out.iter().position(|out| out.number == number)?;
        let sent = state.out[position].sent;
        state.proven = true;
        state.unpublished = None;
        // Those before it were lost on the way: what counts is that messages flow.
        state.out.drain(..=position);
        Some(now.saturating_duration_since(sent))
    }

    /// How it stands.
    pub fn standing(&self, now: Instant) -> Standing {
        let state = self.lock();
        let taken = state.out.iter().find_map(|out| out.taken);
        let denied = match (&state.unsubscribed, &state.unpublished) {
            (Some(why), _) => Some(format!("subscribing is refused ({why})")),
            (None, Some(why)) => Some(format!("publishing is refused ({why})")),
            (None, None) => None,
        };
        Standing {
            out: taken.map(|taken| now.saturating_duration_since(taken)),
            denied,
            proven: state.proven,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in here stops the process; until then a canary too many is the worst that follows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(5);

    #[test]
    fn a_canary_goes_out_and_comes_back() {
        let start = Instant::now();
        let later = |secs| start + Duration::from_secs(secs);
        let beacon = Beacon::new("c/a".into(), Line::new(start), 7);
        assert_eq!(beacon.due(EVERY, start), None);
        beacon.subscribed(None);
        let (first, payload) = beacon.due(EVERY, start).unwrap();
        assert_eq!(beacon.due(EVERY, later(4)), None);
        // Out only when the broker has it.
        assert_eq!(beacon.standing(later(4)).out, None);
        beacon.answered(first, Ok(()), later(1));
        assert_eq!(beacon.standing(later(4)).out, Some(Duration::from_secs(3)));
        let (second, newer) = beacon.due(EVERY, later(5)).unwrap();
        beacon.answered(second, Ok(()), later(5));
        // The oldest counts.
        assert_eq!(beacon.standing(later(9)).out, Some(Duration::from_secs(8)));
        for foreign in ["", "x", "0000000000000008 1", "0000000000000007 99"] {
            assert_eq!(beacon.came(foreign.as_bytes(), later(9)), None, "{foreign}");
        }
        // The second came: the first is no longer waited for.
        let took = beacon.came(newer.as_bytes(), later(9));
        assert_eq!(took, Some(Duration::from_secs(4)));
        assert_eq!(beacon.came(payload.as_bytes(), later(9)), None);
        let standing = beacon.standing(later(9));
        assert_eq!((standing.out, standing.proven), (None, true));
        // One from before the end of the connection says nothing about the next.
        let (_, old) = beacon.due(EVERY, later(10)).unwrap();
        beacon.close();
        beacon.subscribed(None);
        assert_eq!(beacon.came(old.as_bytes(), later(11)), None);
        assert!(beacon.due(EVERY, later(11)).is_some());
    }

    #[test]
    fn refusals_are_named_and_end() {
        let now = Instant::now();
        let beacon = Beacon::new("c/a".into(), Line::new(now), 7);
        beacon.subscribed(Some("NotAuthorized".into()));
        assert!(beacon.standing(now).denied.unwrap().contains("subscribing"));
        assert_eq!(beacon.due(EVERY, now), None);
        beacon.subscribed(None);
        let (number, _) = beacon.due(EVERY, now).unwrap();
        beacon.answered(number, Err("NotAuthorized".into()), now);
        let standing = beacon.standing(now);
        assert!(standing.denied.unwrap().contains("publishing"));
        assert_eq!(standing.out, None);
        let (number, payload) = beacon.due(EVERY, now + EVERY).unwrap();
        beacon.answered(number, Ok(()), now + EVERY);
        assert_eq!(beacon.standing(now).denied, None);
        assert!(beacon.came(payload.as_bytes(), now + EVERY).is_some());
    }

    #[test]
    fn any_client_id_makes_a_topic() {
        let config = MqttConfig::default();
        assert_eq!(topic(&config, "gw/1+#"), "tidegate/canary/gw/1__");
        assert!(is_canary(&config, b"tidegate/canary/another"));
        assert!(!is_canary(&config, b"tidegate/canary"));
        assert!(!is_canary(&config, b"tidegate/canary-bird/telemetry"));
    }
}
