//! Looks at the spool once a second: gauges, the limit of age, and how long it will last.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Inner;
use super::limit::{Level, time_to_full};
use crate::runtime::now;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Over how many looks the pace is taken.
const PACE_LOOKS: u32 = 15;

/// How long the rate is watched before it is said how long the spool lasts.
const SAY_AFTER: Duration = Duration::from_secs(60);

/// A warning that was given is not repeated for so long.
const WARN_EVERY: Duration = Duration::from_secs(6 * 3_600);

/// The pace at which something changes, smoothed.
struct Pace {
    last: f64,
    per_second: f64,
}

impl Pace {
    /// `value` now, `seconds` after the last.
    fn see(&mut self, value: f64, seconds: f64) {
        let pace = (value - self.last) / seconds.max(0.001);
        self.last = value;
        self.per_second += (pace - self.per_second) / f64::from(PACE_LOOKS);
    }
}

/// Until everybody else is done.
pub(super) async fn watch(inner: Arc<Inner>) -> Result<(), Infallible> {
    let bytes = inner.lock().totals.bytes as f64;
    let mut growth = Pace {
        last: bytes,
        per_second: 0.0,
    };
    let mut taken = Pace {
        last: 0.0,
        per_second: 0.0,
    };
    let (started, mut looked, mut warned) = (Instant::now(), Instant::now(), None);
    let mut drained = inner.metrics.drained.get();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let seconds = looked.elapsed().as_secs_f64();
        looked = Instant::now();
        let storing = inner.metrics.drained.get() > drained;
        drained = inner.metrics.drained.get();
        let level = inner.gauge();
        growth.see(level.bytes as f64, seconds);
        taken.see(inner.metrics.taken_bytes.get() as f64, seconds);
        let seconds = time_to_full(&inner.config, level, growth.per_second, storing);
        inner.metrics.to_full.set(seconds);
        if started.elapsed() >= SAY_AFTER && taken.per_second > 0.0 {
            say(&inner, taken.per_second, &mut warned);
        }
    }
}

/// Says how long the spool would last without MongoDB: once, and as a warning where that is less
/// than was asked for.
fn say(inner: &Inner, rate: f64, said: &mut Option<Instant>) {
    let lasts = Duration::try_from_secs_f64(inner.config.max_bytes.0 as f64 / rate);
    let lasts = lasts.unwrap_or(Duration::MAX).min(inner.config.max_age.0);
    let (bytes_per_second, lasts_seconds) = (rate.round(), lasts.as_secs());
    if lasts >= inner.config.outage.0 {
        if said.is_none() {
            *said = Some(Instant::now());
            tracing::info!(
                bytes_per_second,
                lasts_seconds,
                "How long the spool would take messages without MongoDB, at the present rate"
            );
        }
    } else if said.is_none_or(|at| at.elapsed() > WARN_EVERY) {
        *said = Some(Instant::now());
        tracing::warn!(
            bytes_per_second,
            lasts_seconds,
            outage = %inner.config.outage,
            "At the present rate the spool is full before an outage of spool.outage is over: raise spool.max_bytes or spool.max_age"
        );
    }
}

impl Inner {
    /// Brings the gauges up to date.
    fn gauge(&self) -> Level {
        let mut state = self.lock();
        self.look(&mut state);
        let waiting =
            state.totals.records - (state.progress.done() as u64).min(state.totals.records);
        let oldest = state.progress.oldest();
        let level = Level {
            bytes: state.totals.bytes,
            oldest: oldest.map_or(Duration::ZERO, |oldest| now().since(oldest)),
        };
        drop(state);
        self.metrics.set_held(waiting, level.bytes);
        let file = i64::try_from(self.store.file_bytes()).unwrap_or(i64::MAX);
        self.metrics.file_bytes.set(file);
        self.metrics.oldest.set(level.oldest.as_secs_f64());
        level
    }
}
