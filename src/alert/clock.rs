//! How far the fleet's readings have come: the time before which nothing can be missing any more.
//!
//! Each gateway says once a second up to when everything it received is in the feed. The least of
//! them is the stream's time; deadlines are judged against it, never against the wall. A gateway
//! that hears nothing from the broker cannot vouch for silence, and one that stopped speaking
//! drops out. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Timestamp;
use crate::store::Beat;

/// How long a gateway may say nothing before it no longer counts.
const SILENT_AFTER: Duration = Duration::from_secs(15);

/// The stream's clock.
#[derive(Debug, Default)]
pub struct StreamClock {
    gateways: BTreeMap<String, Heard>,
    time: Option<Timestamp>,
}

#[derive(Debug)]
struct Heard {
    at: Timestamp,
    beat: Beat,
}

/// What the clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Showing {
    /// The stream's time; never goes back.
    pub time: Timestamp,
    /// Nobody hears from the broker: silence means nothing.
    pub blind: bool,
}

impl StreamClock {
    /// A gateway's beat, written at `at` by its clock.
    pub fn beat(&mut self, gateway: &str, at: Timestamp, beat: Beat) {
        self.gateways.insert(gateway.to_owned(), Heard { at, beat });
        let newest = self.gateways.values().map(|heard| heard.at).max();
        let newest = newest.unwrap_or(at);
        self.gateways
            .retain(|_, heard| newest.since(heard.at) < SILENT_AFTER);
        let low = self
            .gateways
            .values()
            .filter(|heard| heard.beat.linked)
            .map(|heard| heard.beat.low)
            .min();
        self.time = self.time.max(low);
    }

    /// What it shows; `None` before the first beat of a gateway that hears from the broker.
    pub fn showing(&self) -> Option<Showing> {
        let blind = !self.gateways.values().any(|heard| heard.beat.linked);
        self.time.map(|time| Showing { time, blind })
    }

    /// Whether any gateway that speaks hears from the broker; `None`: none speaks.
    pub fn linked(&self) -> Option<bool> {
        let mut beats = self.gateways.values().map(|heard| heard.beat.linked);
        beats
            .next()
            .map(|first| first || beats.any(|linked| linked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn beat(low: i64, linked: bool) -> Beat {
        Beat {
            low: at(low),
            linked,
        }
    }

    #[test]
    fn the_slowest_gateway_that_hears_sets_the_time() {
        let mut clock = StreamClock::default();
        assert_eq!(clock.showing(), None);
        for (gateway, written, said, expected) in [
            ("a", 100, beat(100, true), (100, false)),
            // Behind: the time stands still rather than going back.
            ("b", 100, beat(90, true), (100, false)),
            ("a", 101, beat(101, true), (100, false)),
            ("b", 101, beat(101, true), (101, false)),
            // One that hears nothing does not hold the others up.
            ("b", 102, beat(101, false), (101, false)),
            ("a", 103, beat(103, true), (103, false)),
            // Nobody hears.
            ("a", 104, beat(104, false), (103, true)),
            ("a", 110, beat(110, false), (103, true)),
            // And again.
            ("a", 111, beat(111, true), (111, false)),
        ] {
            clock.beat(gateway, at(written), said);
            let (time, blind) = expected;
            let expected = Showing {
                time: at(time),
                blind,
            };
            assert_eq!(clock.showing(), Some(expected), "{gateway} {written}");
        }
        assert_eq!(clock.linked(), Some(true));
    }

    #[test]
    fn a_gateway_that_fell_silent_drops_out() {
        let mut clock = StreamClock::default();
        clock.beat("a", at(100), beat(50, true));
        clock.beat("b", at(114), beat(114, true));
        assert_eq!(clock.showing().map(|s| s.time), Some(at(50)));
        clock.beat("b", at(115), beat(115, true));
        assert_eq!(clock.showing().map(|s| s.time), Some(at(115)));
    }
}
