//! What rules look at: one reading, wherever it comes from.

use std::sync::Arc;

use crate::model::{DeviceId, FieldValue, Timestamp};

/// A reading as the feed carries it, or as it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Who measured.
    pub device: DeviceId,
    /// What kind of device.
    pub kind: Option<Arc<str>>,
    /// The stream that took it.
    pub stream: Arc<str>,
    /// The topic it came on; `None` where it is read back from a series, which does not keep it.
    pub topic: Option<Arc<str>>,
    /// Stable identity beside the device id, the registry's included.
    pub tags: Vec<(String, String)>,
    /// Its time: never an implausible claim.
    pub at: Timestamp,
    /// When a gateway received it; never recomputed.
    pub received: Timestamp,
    /// What it says.
    pub fields: Vec<(String, FieldValue)>,
}
