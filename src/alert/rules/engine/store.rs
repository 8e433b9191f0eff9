//! What of the engine must be stored, and how it comes back.
//!
//! Two rhythms. With every round of transitions: one document for each instance whose state or
//! timers changed. With every checkpoint, beside the place in the stream: documents of instances
//! that changed otherwise, and the marks of those that are simply ok, 256 documents in all of
//! which only changed ones are written. After a restart the stream is read again from the
//! checkpoint; a document is that old or newer, and its watermark refuses what it knows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Engine, StreamClock};
use crate::alert::rules::hash;
use crate::alert::rules::instance::Instance;
use crate::alert::rules::stored::{DeviceMarks, InstanceDocument, Mark, MarkBucket};
use crate::alert::{Change, EndReason, Ended, Transition};
use crate::model::{DeviceId, Timestamp};

/// How long a mark outlives the age at which readings become history, in milliseconds.
const TOLERANCE_MS: i64 = 300_000;

/// What to store with a round of transitions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dirty {
    /// To write, by key.
    pub documents: Vec<InstanceDocument>,
    /// Keys of documents to delete.
    pub removed: Vec<String>,
}

/// What to store with a place in the stream: everything up to it is in here, in what
/// [`Engine::take_dirty`] returned before, or does not matter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Checkpoint {
    /// To write, by key.
    pub documents: Vec<InstanceDocument>,
    /// Keys of documents to delete.
    pub removed: Vec<String>,
    /// To write, by number of the bucket. An empty one may be deleted.
    pub buckets: Vec<MarkBucket>,
    /// To write.
    pub clock: StreamClock,
}

impl Engine {
    /// What must be stored together with the transitions since the last call.
    pub fn take_dirty(&mut self) -> Dirty {
        let mut documents: Vec<InstanceDocument> = Vec::new();
        for (slot, number) in std::mem::take(&mut self.urgent) {
            let Some((rule, entry, place)) = self.place(slot, number) else {
                continue;
            };
            let key = hash::key(&rule.id, &entry.device);
            let instance = &entry.instances[place].1;
            if !instance.dirt.urgent {
                continue; // Removed and made again since: it is in the list twice.
            }
            // One that is ok again keeps its document until a checkpoint has its mark.
            documents.extend(InstanceDocument::of(key, &rule, &entry.device, instance));
            if let Some(instance) = self.instance_mut(slot, number) {
                instance.dirt.stored |= instance.track.is_some();
                instance.dirt.urgent = false;
            }
        }
        let mut removed = std::mem::take(&mut self.removed);
        // What was removed and is there again is written, not deleted, in whatever order.
        let keys: HashSet<&str> = documents.iter().map(|d| d.key.as_str()).collect();
        removed.retain(|key| !keys.contains(key.as_str()));
        Dirty { documents, removed }
    }

    /// What must be stored together with the place in the stream that has been reached.
    pub fn checkpoint(&mut self) -> Checkpoint {
        let mut dirty = self.take_dirty();
        for (slot, number) in std::mem::take(&mut self.touched) {
            let Some((rule, entry, place)) = self.place(slot, number) else {
                continue;
            };
            let key = hash::key(&rule.id, &entry.device);
            let bucket = usize::from(hash::bucket(&entry.device));
            let instance = &entry.instances[place].1;
            if !instance.dirt.touched {
                continue;
            }
            let document = InstanceDocument::of(key.clone(), &rule, &entry.device, instance);
            let stored = instance.dirt.stored;
            match document {
                Some(document) => dirty.documents.push(document),
                None => {
                    if stored {
                        dirty.removed.push(key);
                    }
                    self.buckets[bucket].1 = true;
                }
            }
            if let Some(instance) = self.instance_mut(slot, number) {
                instance.dirt.stored = instance.track.is_some();
                instance.dirt.touched = false;
            }
        }
        // The later of two documents of one instance is the whole truth.
        let mut last: HashMap<String, usize> = HashMap::new();
        for (place, document) in dirty.documents.iter().enumerate() {
            last.insert(document.key.clone(), place);
        }
        let mut place = 0;
        dirty.documents.retain(|document| {
            place += 1;
            last.get(&document.key) == Some(&(place - 1))
        });
        self.evict();
        let changed: Vec<usize> = (0..self.buckets.len())
            .filter(|n| self.buckets[*n].1)
            .collect();
        let buckets = changed
            .into_iter()
            .map(|bucket| self.bucket(bucket))
            .collect();
        Checkpoint {
            documents: dirty.documents,
            removed: dirty.removed,
            buckets,
            clock: self.clock,
        }
    }

    /// Forgets marks that no reading can meet again: whatever is that old is history.
    fn evict(&mut self) {
        let Some(now) = self.clock.tick else {
            return;
        };
        let rules = Arc::clone(&self.rules);
        for bucket in 0..self.buckets.len() {
            if !self.buckets[bucket].1 {
                continue;
            }
            for slot in self.buckets[bucket].0.clone() {
                if let Some(entry) = self.entries[slot as usize].as_mut() {
                    entry.instances.retain(|(number, instance)| {
                        let rule = &rules.rules()[*number as usize];
                        let old = now - rule.max_age_ms.saturating_add(TOLERANCE_MS);
                        let kept = instance.track.is_some()
                            || instance.presence().is_some()
                            || instance.dirt.stored
                            || rule.backfill;
                        kept || instance.mark.received.max(instance.mark.at) >= old
                    });
                }
                self.release_if_empty(slot);
            }
        }
    }

    /// The marks of one bucket, whole.
    fn bucket(&mut self, bucket: usize) -> MarkBucket {
        self.buckets[bucket].1 = false;
        let mut rules: Vec<(String, i64)> = Vec::new();
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let mut devices = Vec::new();
        for slot in &self.buckets[bucket].0 {
            let Some(entry) = self.entries[*slot as usize].as_ref() else {
                continue;
            };
            let mut marks = Vec::new();
            for (number, instance) in &entry.instances {
                if instance.track.is_some() {
                    continue;
                }
                let short = *numbers.entry(*number).or_insert_with(|| {
                    let rule = &self.rules.rules()[*number as usize];
                    rules.push((rule.id.to_string(), rule.prints.subject));
                    u32::try_from(rules.len() - 1).unwrap_or(u32::MAX)
                });
                marks.push(Mark::of(instance, short));
            }
            if !marks.is_empty() {
                devices.push(DeviceMarks {
                    device: entry.device.as_str().to_owned(),
                    marks,
                });
            }
        }
        MarkBucket {
            bucket: u8::try_from(bucket).unwrap_or(u8::MAX),
            rules,
            devices,
        }
    }

    /// Takes back what was stored. Rules may have changed meanwhile: what is open under one that
    /// is gone or says something else is ended or judged anew, and told.
    pub fn load(
        &mut self,
        documents: impl IntoIterator<Item = InstanceDocument>,
        buckets: impl IntoIterator<Item = MarkBucket>,
        clock: StreamClock,
        now: Timestamp,
        out: &mut Vec<Transition>,
    ) {
        self.clock = clock;
        for document in documents {
            self.load_document(document, now, out);
        }
        for bucket in buckets {
            for marks in &bucket.devices {
                let Some(device) = DeviceId::new(&marks.device) else {
                    continue;
                };
                for mark in &marks.marks {
                    if let Some((rule, print)) = bucket.rules.get(mark.rule as usize) {
                        self.load_mark(&device, rule, *print, mark);
                    }
                }
            }
        }
        self.requeue_all();
    }

    fn load_document(
        &mut self,
        document: InstanceDocument,
        now: Timestamp,
        out: &mut Vec<Transition>,
    ) {
        let Some(device) = DeviceId::new(&document.device) else {
            return;
        };
        let number = self.rules.number(&document.rule);
        let Some(number) = number.filter(|n| self.rules.rules()[*n as usize].config.enabled) else {
            let reason = match number {
                Some(_) => EndReason::RuleDisabled,
                None => EndReason::RuleDeleted,
            };
            orphan(document, reason, now, &mut self.removed, out);
            return;
        };
        let mut instance = document.mark.restore();
        let mut track = Box::new(document.track);
        // One text for all of a rule, not one for each that comes from a document.
        let telling = &self.rules.rules()[number as usize].telling;
        if let Some(episode) = track.episode.as_mut().filter(|e| e.telling == *telling) {
            episode.telling = Arc::clone(telling);
        }
        instance.track = Some(track);
        instance.dirt.stored = true;
        let state = instance.state();
        self.put(&device, number, instance);
        super::count(&mut self.census[number as usize], state, |n| *n += 1);
        let slot = self.slot(&device);
        self.adopt(slot, number, document.prints, None, now, out);
    }

    fn load_mark(&mut self, device: &DeviceId, rule: &str, print: i64, mark: &Mark) {
        let Some(number) = self.rules.number(rule) else {
            return;
        };
        let rule = &self.rules.rules()[number as usize];
        if !rule.config.enabled || rule.prints.subject != print {
            return;
        }
        let restored = mark.restore();
        let key = hash::key(&rule.id, device);
        let slot = self.slot(device);
        let Some((_, entry, place)) = self.place(slot, number) else {
            self.put(device, number, restored);
            return;
        };
        let there = &entry.instances[place].1;
        let reached = |instance: &Instance| {
            let last = instance.presence().map(|presence| presence.since);
            (instance.mark.received, instance.mark.at, last)
        };
        // On a tie the document has it: it is written whenever anything happens.
        if reached(&restored) > reached(there) {
            let (state, stored) = (there.state(), there.dirt.stored);
            super::count(&mut self.census[number as usize], state, |n| {
                *n = n.saturating_sub(1);
            });
            self.removed.extend(stored.then_some(key));
            self.put(device, number, restored);
        }
    }

    /// Puts an instance in its place, over what is there.
    fn put(&mut self, device: &DeviceId, number: u32, instance: Instance) {
        let slot = self.slot(device);
        let Some(entry) = self.entries[slot as usize].as_mut() else {
            return;
        };
        match entry.find(number) {
            Ok(place) => entry.instances[place].1 = instance,
            Err(place) => entry.instances.insert(place, (number, instance)),
        }
    }

    fn place(
        &self,
        slot: u32,
        number: u32,
    ) -> Option<(Arc<crate::alert::rules::rule::Rule>, &super::Entry, usize)> {
        let entry = self.entries.get(slot as usize)?.as_ref()?;
        let place = entry.find(number).ok()?;
        let rule = Arc::clone(&self.rules.rules()[number as usize]);
        Some((rule, entry, place))
    }

    fn instance_mut(&mut self, slot: u32, number: u32) -> Option<&mut Instance> {
        let entry = self.entries.get_mut(slot as usize)?.as_mut()?;
        let place = entry.find(number).ok()?;
        Some(&mut entry.instances[place].1)
    }

    /// Forgets an instance; its document goes with the next round.
    pub(super) fn remove(&mut self, slot: u32, number: u32) {
        let Some((rule, entry, place)) = self.place(slot, number) else {
            return;
        };
        let key = hash::key(&rule.id, &entry.device);
        let bucket = usize::from(hash::bucket(&entry.device));
        let (state, stored) = {
            let instance = &entry.instances[place].1;
            (instance.state(), instance.dirt.stored)
        };
        super::count(&mut self.census[number as usize], state, |n| {
            *n = n.saturating_sub(1);
        });
        self.removed.extend(stored.then_some(key));
        self.buckets[bucket].1 = true;
        if let Some(entry) = self.entries[slot as usize].as_mut() {
            entry.instances.remove(place);
        }
    }

    /// Gives a slot back that holds nothing any more.
    pub(super) fn release_if_empty(&mut self, slot: u32) {
        let Some(entry) = self.entries[slot as usize].as_ref() else {
            return;
        };
        if entry.known.is_some() || !entry.instances.is_empty() {
            return;
        }
        self.slots.remove(&entry.device);
        let list = &mut self.buckets[usize::from(hash::bucket(&entry.device))].0;
        list.retain(|other| *other != slot);
        self.entries[slot as usize] = None;
        self.free.push(slot);
    }
}

/// A document whose rule is gone: its episode says all that is needed to end it.
fn orphan(
    document: InstanceDocument,
    reason: EndReason,
    now: Timestamp,
    removed: &mut Vec<String>,
    out: &mut Vec<Transition>,
) {
    if document.track.state.is_open()
        && let Some(mut episode) = document.episode()
    {
        let floor = u64::try_from(now.millis()).unwrap_or_default();
        episode.sequence = (episode.sequence + 1).max(floor);
        episode.ended = Some(Ended { at: now, reason });
        episode.flags.clear();
        out.push(Transition {
            change: Change::Resolved,
            at: now,
            previous: document.track.level,
            episode,
        });
    }
    removed.push(document.key);
}
