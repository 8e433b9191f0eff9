//! 3. Lanes: the bounded hand-off from sources to writers, one lane per writer.
//!
//! A device always uses the same lane, so one writer owns its open bucket and sees its readings
//! together. What is acknowledged on delivery to MongoDB (QoS 1 and 2) is bounded by the
//! connections' windows and is never dropped here; QoS 0 has no window and is bounded by the
//! lane itself, oldest first. If the process dies here, un-acknowledged messages come again.

mod load;
mod metrics;
mod queue;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

pub use load::{Cargo, Load};
pub use metrics::LaneMetrics;
pub use queue::{Lane, TakeLimits};

/// All lanes.
#[derive(Clone)]
pub struct Lanes(Arc<[Arc<Lane>]>);

impl Lanes {
    /// `count` lanes, each holding at most `lossy` of loads that may be dropped.
    pub fn new(count: usize, lossy: TakeLimits, metrics: &LaneMetrics) -> Self {
        let lane = |index| Arc::new(Lane::new(lossy, metrics.lane(index)));
        Self((0..count).map(lane).collect())
    }

    /// Each lane, for its writer.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.0.iter()
    }

    /// Puts a load on the lane of `key`: the device's id, or the topic of a dead letter.
    pub fn push(&self, key: &str, load: Load) {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        // The remainder is below the number of lanes, which fits any pointer size.
        let index = (hasher.finish() % self.0.len() as u64) as usize;
        self.0[index].push(load);
    }

    /// Closes every lane: writers finish what is there and end.
    pub fn close(&self) {
        for lane in self.0.iter() {
            lane.close();
        }
    }
}
