//! Instances as they are stored: a document for each that has a track, and marks by the bucket for
//! all that are simply ok.

use serde::{Deserialize, Serialize};

use super::instance::{Instance, Track};
use super::rule::{Prints, Rule};
use super::watermark::Watermark;
use super::window::Memory;
use crate::alert::Episode;
use crate::model::{DeviceId, Timestamp};

/// An instance with a track, as it is stored: one document each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceDocument {
    /// The alert's key.
    pub key: String,
    /// The rule's id.
    pub rule: String,
    /// The device.
    pub device: String,
    /// Prints of the rule it was made by.
    pub prints: Prints,
    /// Its watermark.
    pub mark: Mark,
    /// The rest.
    pub track: Track,
}

/// An instance's place in its device's readings, and what its kind remembers, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Number of the rule in the bucket's list; 0 in a document of its own.
    #[serde(rename = "r", default)]
    pub rule: u32,
    /// Greatest time applied, in milliseconds; absent: none yet.
    #[serde(rename = "a", default)]
    pub at: Option<i64>,
    /// Greatest time of receipt applied, in milliseconds.
    #[serde(rename = "c", default)]
    pub received: i64,
    /// What was applied at exactly that time.
    #[serde(rename = "h", default)]
    pub seen: Vec<i64>,
    /// What the rule's kind remembers.
    #[serde(rename = "m", default)]
    pub memory: Option<Memory>,
}

/// The marks of all devices that share a bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MarkBucket {
    /// Which, 0 to 255.
    pub bucket: u8,
    /// Ids of the rules that the marks refer to by number, each with the print of its subject.
    pub rules: Vec<(String, i64)>,
    /// Marks by device.
    pub devices: Vec<DeviceMarks>,
}

/// The marks of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceMarks {
    /// The device.
    #[serde(rename = "d")]
    pub device: String,
    /// One for each rule.
    #[serde(rename = "m")]
    pub marks: Vec<Mark>,
}

impl Mark {
    pub(super) fn of(instance: &Instance, rule: u32) -> Self {
        let mark = &instance.mark;
        Self {
            rule,
            at: (mark.at != i64::MIN).then_some(mark.at),
            received: if mark.at == i64::MIN {
                0
            } else {
                mark.received
            },
            seen: mark.seen().collect(),
            memory: instance.memory.as_deref().cloned(),
        }
    }

    pub(super) fn restore(&self) -> Instance {
        let mark = match self.at {
            Some(at) => Watermark::restore(
                Timestamp::from_millis(at),
                Timestamp::from_millis(self.received),
                &self.seen,
            ),
            None => Watermark::default(),
        };
        Instance {
            mark,
            memory: self.memory.clone().map(Box::new),
            ..Instance::default()
        }
    }
}

impl InstanceDocument {
    /// The episode, open or the last one, as it is told.
    pub fn episode(&self) -> Option<Episode> {
        self.track.told(&self.rule, &DeviceId::new(&self.device)?)
    }

    pub(super) fn of(
        key: String,
        rule: &Rule,
        device: &DeviceId,
        instance: &Instance,
    ) -> Option<Self> {
        Some(Self {
            key,
            rule: rule.id.to_string(),
            device: device.as_str().to_owned(),
            prints: rule.prints,
            mark: Mark::of(instance, 0),
            track: instance.track.as_deref()?.clone(),
        })
    }
}
