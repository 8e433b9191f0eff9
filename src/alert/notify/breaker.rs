//! Whether a receiver is worth asking at all. When it keeps failing, its rows wait without using up
//! attempts, and one of them at a time tries whether it is back.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::Timestamp;

/// Failures in a row that open it.
const IN_A_ROW: u32 = 5;
/// Or half of at least this many attempts within [`WINDOW`].
const MANY: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// How long it stays open at first, and at the most.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(600);

/// One receiver's breaker.
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    state: State,
    failures: u32,
    recent: VecDeque<(Timestamp, bool)>,
    /// How long it was open the last time.
    last: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Closed,
    /// Until then nobody is sent.
    Open(Timestamp),
    /// One is under way to see.
    Probing,
    /// The receiver is gone for good; somebody has to look at the configuration.
    Disabled,
}

/// What may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Whatever is due.
    All,
    /// One, to see.
    Probe,
    /// Nothing, until then.
    NothingUntil(Timestamp),
    /// Nothing until something else happens.
    Nothing,
}

impl Breaker {
    /// What may be sent now.
    pub fn leave(&self, now: Timestamp) -> Leave {
        match self.state {
            State::Closed => Leave::All,
            State::Open(until) if until > now => Leave::NothingUntil(until),
            State::Open(_) => Leave::Probe,
            State::Probing | State::Disabled => Leave::Nothing,
        }
    }

    /// A probe is under way.
    pub fn probe(&mut self) {
        self.state = State::Probing;
    }

    /// A probe came back without having told anything about the receiver; another may go then.
    pub fn probe_void(&mut self, again: Timestamp) {
        if self.state == State::Probing {
            self.state = State::Open(again);
        }
    }

    /// The receiver answered as one that works. Returns whether that closes it.
    pub fn success(&mut self, now: Timestamp) -> bool {
        let news = self.state != State::Closed;
        self.failures = 0;
        if news {
            self.recent.clear();
        }
        self.note(now, false);
        self.state = State::Closed;
        self.last = None;
        news
    }

    /// It failed. Returns whether that opens it.
    pub fn failure(&mut self, now: Timestamp) -> bool {
        self.note(now, true);
        self.failures = self.failures.saturating_add(1);
        match self.state {
            State::Probing => {
                self.open(now);
                false
            }
            State::Closed if self.failures >= IN_A_ROW || self.mostly_failing() => {
                self.open(now);
                true
            }
            _ => false,
        }
    }

    /// It cannot work before somebody changes something: opens at once, for so long. Returns whether
    /// that is news.
    pub fn trip(&mut self, now: Timestamp, long: Duration) -> bool {
        let news = self.state == State::Closed;
        self.state = State::Open(now.plus(long));
        news
    }

    /// It is gone. Returns whether that is news.
    pub fn disable(&mut self) -> bool {
        let news = self.state != State::Disabled;
        self.state = State::Disabled;
        news
    }

    /// As new: the configuration has changed.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether everything is sent.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// For a gauge: 0 closed, 1 probing, 2 open, 3 disabled.
    pub fn level(&self, now: Timestamp) -> i64 {
        match self.state {
            State::Closed => 0,
            State::Probing => 1,
            State::Open(until) if until <= now => 1,
            State::Open(_) => 2,
            State::Disabled => 3,
        }
    }

    fn open(&mut self, now: Timestamp) {
        let long = self.last.map_or(FIRST, |last| (last * 2).min(LONGEST));
        self.last = Some(long);
        self.state = State::Open(now.plus(long));
    }

    fn note(&mut self, now: Timestamp, failed: bool) {
        self.recent.push_back((now, failed));
        let from = now.minus(WINDOW);
        while self.recent.front().is_some_and(|(at, _)| *at < from) || self.recent.len() > 1_000 {
            self.recent.pop_front();
        }
    }

    fn mostly_failing(&self) -> bool {
        let failed = self.recent.iter().filter(|(_, failed)| *failed).count();
        self.recent.len() >= MANY && failed * 2 >= self.recent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(0).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_a_success_in_between_does_not() {
        let mut breaker = Breaker::default();
        for second in 0..4 {
            assert!(!breaker.failure(at(second)));
        }
        breaker.success(at(4));
        for second in 5..9 {
            assert!(!breaker.failure(at(second)));
        }
        assert_eq!(breaker.leave(at(9)), Leave::All);
        assert!(breaker.failure(at(9)));
        assert_eq!(breaker.leave(at(9)), Leave::NothingUntil(at(39)));
        assert_eq!(breaker.level(at(9)), 2);
    }

    #[test]
    fn half_of_twenty_open_it() {
        let mut breaker = Breaker::default();
        let mut opened = false;
        for number in 0..20 {
            if number % 2 == 0 {
                breaker.success(at(number));
            } else {
                opened |= breaker.failure(at(number));
            }
        }
        assert!(opened);
        // The same spread over more than a minute does not.
        let mut breaker = Breaker::default();
        for number in 0..40 {
            if number % 2 == 0 {
                breaker.success(at(number * 7));
            } else {
                assert!(!breaker.failure(at(number * 7)));
            }
        }
    }

    #[test]
    fn open_times_double_and_one_probe_decides() {
        let mut breaker = Breaker::default();
        let mut now = 0;
        for _ in 0..5 {
            breaker.failure(at(now));
        }
        for long in [30, 60, 120, 240, 480, 600, 600] {
            assert_eq!(breaker.leave(at(now)), Leave::NothingUntil(at(now + long)));
            now += long;
            assert_eq!(breaker.leave(at(now)), Leave::Probe);
            breaker.probe();
            assert_eq!(breaker.leave(at(now)), Leave::Nothing);
            assert!(!breaker.failure(at(now)));
        }
        now += 600;
        breaker.probe();
        breaker.probe_void(at(now));
        assert_eq!(breaker.leave(at(now)), Leave::Probe);
        breaker.probe();
        assert!(breaker.success(at(now)));
        assert_eq!(breaker.leave(at(now)), Leave::All);
        for _ in 0..5 {
            breaker.failure(at(now));
        }
        assert_eq!(breaker.leave(at(now)), Leave::NothingUntil(at(now + 30)));
    }

    #[test]
    fn a_mistake_of_ours_opens_it_at_once_and_gone_is_for_good() {
        let mut breaker = Breaker::default();
        assert!(breaker.trip(at(0), Duration::from_secs(300)));
        assert_eq!(breaker.leave(at(0)), Leave::NothingUntil(at(300)));
        assert!(breaker.disable());
        assert!(!breaker.disable());
        assert_eq!(breaker.leave(at(1_000_000)), Leave::Nothing);
        breaker.reset();
        assert_eq!(breaker.leave(at(1_000_000)), Leave::All);
    }
}
