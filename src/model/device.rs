//! The identity of a device: never empty, cheap to clone.

use std::fmt;
use std::sync::Arc;

/// A device's id as it appears in `metadata.deviceId`; non-empty, any UTF-8, may hold slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(Arc<str>);

impl DeviceId {
    /// Takes any non-empty text; `None` where there is nothing to identify a device by.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(Arc::from(text)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
