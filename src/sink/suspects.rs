//! Which readings may be stored already, told from the greatest time known of each device. Pure.
//!
//! A reading that no earlier process, connection or copy can have stored is later than everything
//! of its device in the series. So a writer keeps the greatest time it has seen for each device
//! and topic, learns it from the series when it first hears of a device, and looks up only what is
//! not later: copies that a device, a bridge or a restored broker sends again without saying so,
//! and readings that come late. It costs nothing while time goes forward. The topic is part of the
//! key because devices that send each field by itself send one time many times.
//!
//! Holds for readings of one device through one gateway; gateways that are handed each other's
//! messages look everything up (`sink.dedup = "always"`). If the process dies here, the next one
//! learns again.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::batch::{Entry, Group};
use crate::config::Dedup;
use crate::model::{Spooled, TimeSource, Timestamp};

/// Devices and topics one writer keeps; 16 bytes each. Beyond it, it learns anew.
const MOST: usize = 1 << 20;

/// A device whose first reading is older than this is looked up until it sends a later one:
/// learning would read all that was stored since.
const HORIZON: Duration = Duration::from_hours(6);

/// Greatest time known, in milliseconds, by hash of series, topic and device. Two devices of equal
/// hash share the greater of their times, which only costs look-ups.
#[derive(Debug, Default)]
pub struct Suspects(HashMap<u64, i64>);

/// A device whose greatest stored time must be learned.
#[derive(Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Position in the group of the first of its readings.
    pub position: usize,
    /// Its earliest time there: only what is stored from then on matters.
    pub earliest: Timestamp,
}

impl Suspects {
    /// The devices of a group that are not known yet, each once; `now` is the time of day.
    pub fn strangers(&mut self, group: &Group, keys: &Keys, now: Timestamp) -> Vec<Stranger> {
        if self.0.len() > MOST {
            self.0.clear();
        }
        let oldest = now.minus(HORIZON);
        let mut strangers: Vec<Stranger> = Vec::new();
        for (position, entry) in group.entries.iter().enumerate() {
            let earliest = entry.reading.timestamp;
            let unknown = keys.0[position].is_some_and(|key| !self.0.contains_key(&key));
            // Sorted by device and time: the first that is met is the earliest.
            let met = strangers.last().is_some_and(|last| {
                group.entries[last.position].reading.device == entry.reading.device
            });
            if unknown && !met && earliest >= oldest {
                strangers.push(Stranger { position, earliest });
            }
        }
        strangers
    }

    /// The series holds nothing of these devices later than `greatest`, position by position
    /// (`None`: nothing from the earliest time on).
    pub fn learned(
        &mut self,
        group: &Group,
        keys: &Keys,
        strangers: &[Stranger],
        greatest: &[Option<Timestamp>],
    ) {
        for (stranger, greatest) in strangers.iter().zip(greatest) {
            let device = &group.entries[stranger.position].reading.device;
            let before = stranger.earliest.millis().saturating_sub(1);
            let known = greatest.map_or(before, |greatest| greatest.millis().max(before));
            let from = group.entries.iter().zip(&keys.0).skip(stranger.position);
            let own = from.take_while(|(entry, _)| entry.reading.device == *device);
            for key in own.filter_map(|(_, key)| *key) {
                self.0.entry(key).or_insert(known);
            }
        }
    }

    /// Whether each reading of the group may be stored already; takes their times in.
    pub fn judge(&mut self, group: &Group, keys: &Keys, dedup: Dedup) -> Vec<bool> {
        let judge = |(entry, key): (&Entry, &Option<u64>)| {
            // Its time of receipt is the one it had before, and tells it apart as well as its own.
            let kept = entry.message.spooled == Spooled::Again;
            let repeated = entry.message.dup || entry.message.retain || kept;
            match dedup {
                Dedup::Off => false,
                Dedup::Always => own_time(entry) || kept,
                Dedup::Redelivered => {
                    let late = key.is_some_and(|key| self.late(key, entry));
                    late || (repeated && (own_time(entry) || kept))
                }
            }
        };
        group.entries.iter().zip(&keys.0).map(judge).collect()
    }

    fn late(&mut self, key: u64, entry: &Entry) -> bool {
        let time = entry.reading.timestamp.millis();
        match self.0.get_mut(&key) {
            Some(greatest) if time > *greatest => {
                *greatest = time;
                false
            }
            Some(_) => true,
            // Not learned: beyond the horizon.
            None => true,
        }
    }
}

/// What each reading of a group is known by; `None`: it has no time of its own.
#[derive(Debug)]
pub struct Keys(Vec<Option<u64>>);

impl Keys {
    /// Position by position.
    pub fn of(group: &Group) -> Self {
        let key = |entry| own_time(entry).then(|| key(group, entry));
        Self(group.entries.iter().map(key).collect())
    }
}

fn own_time(entry: &Entry) -> bool {
    entry.reading.time_source == TimeSource::Device
}

fn key(group: &Group, entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    group.stream.collection.hash(&mut hasher);
    entry.message.topic.hash(&mut hasher);
    entry.reading.device.as_str().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use mongodb::bson::oid::ObjectId;

    use super::super::part::{LookUp, Part};
    use super::*;
    use crate::config::StreamConfig;
    use crate::model::{
        DeviceId, FieldValue, Flags, Message, Outcome, QoS, Reading, Receipt, Settle, Ticket,
    };
    use crate::store::encode_reading;

    struct Nobody;

    impl Settle for Nobody {
        fn settled(&self, _: Ticket, _: Option<Outcome>) {}
    }

    /// (topic, device, time, DUP), in the order a batch has them.
    type Row = (&'static str, &'static str, i64, bool);

    fn group(rows: &[Row]) -> Group {
        let entry = |(topic, device, time, dup): &Row| Entry {
            message: Arc::new(Message {
                topic: Bytes::from_static(topic.as_bytes()),
                payload: Bytes::new(),
                cut_from: None,
                qos: QoS::AtLeastOnce,
                retain: false,
                dup: *dup,
                spooled: Spooled::No,
                received_at: Timestamp::from_millis(*time),
            }),
            reading: Reading {
                device: DeviceId::new(device).unwrap(),
                kind: None,
                timestamp: Timestamp::from_millis(*time),
                time_source: TimeSource::Device,
                claimed: None,
                tags: Vec::new(),
                fields: vec![("v".into(), FieldValue::Double(1.0))],
                flags: Flags::default(),
            },
            id: ObjectId::new(),
            receipt: Receipt::new(
                Ticket {
                    sequence: 0,
                    stream: 0,
                    weight: 0,
                },
                Arc::new(Nobody),
            ),
        };
        let entries: Vec<_> = rows.iter().map(entry).collect();
        let encode = |entry: &Entry| encode_reading(entry.id, &entry.reading).unwrap();
        let documents = entries.iter().map(encode).collect();
        Group {
            stream: Arc::new(StreamConfig::telemetry()),
            entries,
            documents,
            devices: 1,
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(100_000_000);

    /// Meets a group's devices, of which the series holds readings up to `stored`.
    fn meet(suspects: &mut Suspects, group: &Group, stored: Option<i64>) -> usize {
        let keys = Keys::of(group);
        let strangers = suspects.strangers(group, &keys, NOW);
        let greatest = vec![stored.map(Timestamp::from_millis); strangers.len()];
        suspects.learned(group, &keys, &strangers, &greatest);
        strangers.len()
    }

    #[test]
    fn a_reading_later_than_all_of_its_device_is_no_suspect() {
        let t = NOW.millis();
        let mut suspects = Suspects::default();
        for (rows, strangers, expected) in [
            // Met first, with nothing in the series from here on.
            (vec![("a", "d", t, false)], 1, vec![false]),
            (
                vec![("a", "d", t + 1, false), ("a", "d", t + 3, false)],
                0,
                vec![false, false],
            ),
            // Late, again, and of a time that was seen: any of them may be there.
            (
                vec![
                    ("a", "d", t - 9, false),
                    ("a", "d", t + 2, false),
                    ("a", "d", t + 3, false),
                ],
                0,
                vec![true, true, true],
            ),
            // A copy in one batch with what it repeats.
            (
                vec![("a", "d", t + 4, false), ("a", "d", t + 4, false)],
                0,
                vec![false, true],
            ),
            // Told by the broker.
            (vec![("a", "d", t + 5, true)], 0, vec![true]),
            // Another topic of the device and another device go by times of their own.
            (
                vec![("b", "d", t + 5, false), ("a", "e", t, false)],
                2,
                vec![false, false],
            ),
        ] {
            let group = group(&rows);
            assert_eq!(meet(&mut suspects, &group, None), strangers, "{rows:?}");
            assert_eq!(
                suspects.judge(&group, &Keys::of(&group), Dedup::Redelivered),
                expected,
                "{rows:?}"
            );
        }
    }

    #[test]
    fn what_an_earlier_process_stored_is_learned() {
        let t = NOW.millis();
        let mut suspects = Suspects::default();
        let backlog = group(&[
            ("a", "d", t, false),
            ("a", "d", t + 1, false),
            ("a", "d", t + 2, false),
        ]);
        meet(&mut suspects, &backlog, Some(t + 1));
        let judged = suspects.judge(&backlog, &Keys::of(&backlog), Dedup::Redelivered);
        assert_eq!(judged, [true, true, false]);
    }

    #[test]
    fn a_device_met_with_an_old_reading_is_looked_up_until_it_sends_a_new_one() {
        let (t, old) = (NOW.millis(), 1_000);
        let mut suspects = Suspects::default();
        let late = group(&[("a", "d", old, false)]);
        assert_eq!(meet(&mut suspects, &late, None), 0);
        assert_eq!(
            suspects.judge(&late, &Keys::of(&late), Dedup::Redelivered),
            [true]
        );
        let both = group(&[("a", "d", old, false), ("a", "d", t, false)]);
        assert_eq!(meet(&mut suspects, &both, None), 1);
        assert_eq!(
            suspects.judge(&both, &Keys::of(&both), Dedup::Redelivered),
            [true, false]
        );
    }

    #[test]
    fn off_suspects_nothing_and_always_everything() {
        let rows = group(&[("a", "d", 1, true), ("a", "d", 2, false)]);
        let mut suspects = Suspects::default();
        assert_eq!(
            suspects.judge(&rows, &Keys::of(&rows), Dedup::Off),
            [false, false]
        );
        assert_eq!(
            suspects.judge(&rows, &Keys::of(&rows), Dedup::Always),
            [true, true]
        );
    }

    #[test]
    fn copies_are_looked_up_after_what_they_repeat_is_written() {
        let rows = [
            ("a", "d", 1, false),
            ("a", "d", 1, false),
            ("a", "d", 1, false),
            ("a", "d", 2, false),
        ];
        let mut parts = Part::of(group(&rows), &[false, true, true, true]);
        let mut order = Vec::new();
        // Taken from the end, as the writer does.
        while let Some(part) = parts.pop() {
            let times = part
                .entries
                .iter()
                .map(|entry| entry.reading.timestamp.millis());
            order.push((part.look_up, times.collect::<Vec<_>>()));
        }
        let delivered = LookUp::Delivered;
        assert_eq!(
            order,
            [
                (LookUp::No, vec![1]),
                (delivered, vec![1, 2]),
                (delivered, vec![1])
            ]
        );
    }
}
