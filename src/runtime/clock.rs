//! The one place that reads the wall clock. Decisions take the time as an argument; elapsed time
//! is measured with `Instant`, which a clock jump does not touch.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Now, by the system's clock; a clock before 1970 reads as 1970.
pub fn now() -> Timestamp {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
}
