//! The identity of a device, and what a registry may know of it beside its readings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Reading, Timestamp};

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

/// An entry of the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Who.
    pub id: DeviceId,
    /// What kind.
    pub kind: Option<Arc<str>>,
    /// Stable identity: site, model and the like.
    pub tags: BTreeMap<String, String>,
    /// Units by field.
    pub units: BTreeMap<String, String>,
    /// How often it reports when all is well.
    pub expected_interval: Option<Duration>,
    /// Whether anybody is to be told about it.
    pub enabled: bool,
    /// When it was entered or first heard from.
    pub first_seen: Option<Timestamp>,
    /// When it was last heard from, give or take the interval at which that is written.
    pub last_seen: Option<Timestamp>,
}

impl Device {
    /// Joins type and tags into a reading that has none of that name.
    pub fn enrich(&self, reading: &mut Reading) {
        if reading.kind.is_none() {
            reading.kind.clone_from(&self.kind);
        }
        for (name, value) in &self.tags {
            if let Err(place) = reading
                .tags
                .binary_search_by(|(known, _)| known.as_str().cmp(name))
            {
                reading.tags.insert(place, (name.clone(), value.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FieldValue, Flags, TimeSource};

    #[test]
    fn the_reading_s_own_tags_win() {
        let mut reading = Reading {
            device: DeviceId::new("d").unwrap(),
            kind: None,
            timestamp: Timestamp::from_millis(0),
            time_source: TimeSource::Device,
            tags: vec![("model".into(), "own".into()), ("z".into(), "1".into())],
            fields: vec![("v".into(), FieldValue::Bool(true))],
            flags: Flags::default(),
            claimed: None,
        };
        let text = |text: &str| text.to_owned();
        let device = Device {
            id: reading.device.clone(),
            kind: Some("probe".into()),
            tags: BTreeMap::from([(text("model"), text("x")), (text("site"), text("north"))]),
            units: BTreeMap::new(),
            expected_interval: None,
            enabled: true,
            first_seen: None,
            last_seen: None,
        };
        device.enrich(&mut reading);
        assert_eq!(reading.kind.as_deref(), Some("probe"));
        let expected = [("model", "own"), ("site", "north"), ("z", "1")];
        assert_eq!(reading.tags, expected.map(|(a, b)| (text(a), text(b))));
    }
}
