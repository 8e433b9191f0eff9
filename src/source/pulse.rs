//! How far the connections are, for whoever must know that nothing is still under way: absence of
//! data means something only where data would have been heard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::IntGauge;

use super::window::Window;
use crate::model::Timestamp;

/// One connection as seen from here.
pub struct Heart {
    pub window: Arc<Window>,
    pub subscribed: IntGauge,
    /// Whether nothing comes through although the connection stands.
    pub stalled: Arc<AtomicBool>,
}

/// All connections.
#[derive(Clone, Default)]
pub struct Pulse(Arc<Mutex<Vec<Heart>>>);

impl Pulse {
    pub(super) fn add(&self, heart: Heart) {
        // A list is sound whatever a panicking holder was doing.
        let mut hearts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hearts.push(heart);
    }

    /// Before when everything that was received is settled, and whether any connection hears from
    /// the broker. `now` must have been read before this is called.
    pub fn take(&self, now: Timestamp) -> (Timestamp, bool) {
        let hearts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = hearts.iter().map(|heart| heart.window.oldest()).max();
        let hears =
            |heart: &Heart| heart.subscribed.get() == 1 && !heart.stalled.load(Ordering::Relaxed);
        let linked = hearts.iter().any(hears);
        (now.minus(oldest.unwrap_or_default()), linked)
    }
}
