//! All instances of all rules: samples, ticks and changes in, transitions out, and what of it
//! must be stored.
//!
//! Nothing here reads a clock or a database. Whoever calls it commits what [`Engine::take_dirty`]
//! returns together with the transitions, and what [`Engine::checkpoint`] returns together with
//! the place in the stream from which to go on after a restart: replaying from there what was
//! applied already changes nothing.

mod devices;
mod due;
mod edit;
mod hand;
mod query;
mod store;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

pub use devices::Device;
pub use store::{Checkpoint, Dirty};

use super::counts::{Census, RuleCounts};
use super::hash;
use super::instance::Instance;
use super::judge::{Touched, judge, note};
use super::rule::Rule;
use super::sample::Sample;
use super::select::{Match, View};
use super::set::RuleSet;
use super::state::State;
use super::step::{Stepped, Who};
use crate::alert::Transition;
use crate::config::rules::OnGap;
use crate::model::DeviceId;

/// Rules and the state of each for each device.
#[derive(Debug)]
pub struct Engine {
    rules: Arc<RuleSet>,
    /// Only ever asked, never walked: its seeds cannot show.
    slots: HashMap<DeviceId, u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Slots by bucket, and whether any mark in the bucket changed.
    buckets: Vec<(Vec<u32>, bool)>,
    /// (time in milliseconds, slot, rule): when to look at an instance. Never later than it is
    /// due; a reading that puts a deadline off does not touch it.
    due: BinaryHeap<Reverse<(i64, u32, u32)>>,
    urgent: Vec<(u32, u32)>,
    touched: Vec<(u32, u32)>,
    removed: Vec<String>,
    clock: StreamClock,
    /// By rule.
    census: Vec<Census>,
    counts: Vec<RuleCounts>,
    /// Of rules that are no longer there.
    gone: Vec<(Arc<str>, RuleCounts)>,
    /// Readings of devices that are out of service.
    disabled: u64,
    /// Whether a rule that asks for a topic takes readings that have none.
    assume_topic: bool,
    scratch: Vec<u32>,
}

/// Where the stream's own time stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StreamClock {
    /// The last tick, in milliseconds.
    pub tick: Option<i64>,
    /// When the gateway last began to see again, in milliseconds.
    pub thawed: i64,
    /// Whether it is blind.
    pub frozen: bool,
}

impl Default for StreamClock {
    fn default() -> Self {
        Self {
            tick: None,
            thawed: i64::MIN,
            frozen: false,
        }
    }
}

/// What is kept of one device.
#[derive(Debug)]
struct Entry {
    device: DeviceId,
    /// What the registry says.
    known: Option<Box<Device>>,
    /// By number of the rule, in order.
    instances: Vec<(u32, Instance)>,
}

impl Entry {
    fn find(&self, rule: u32) -> Result<usize, usize> {
        self.instances
            .binary_search_by_key(&rule, |(rule, _)| *rule)
    }

    /// Who it is when there is no reading to ask.
    fn who<'a>(&'a self, rule: &'a Rule) -> Who<'a> {
        let known = self.known.as_deref();
        Who {
            rule,
            device: &self.device,
            kind: known.and_then(|device| device.kind.as_deref()),
            tags: known.map_or(&[], |device| &device.tags),
            stream: None,
            topic: None,
            gap_ms: gap_ms(rule, known),
        }
    }
}

/// The longest pause a `for` runs on through: the rule's, else three times what the registry says
/// of the device.
fn gap_ms(rule: &Rule, known: Option<&Device>) -> Option<i64> {
    rule.max_gap_ms.or_else(|| {
        let every = known?.expected_interval?;
        let triple = i64::try_from(every.as_millis()).ok()?.saturating_mul(3);
        (rule.config.on_gap == OnGap::Restart).then_some(triple)
    })
}

impl Engine {
    /// With these rules, and nothing remembered.
    pub fn new(rules: Arc<RuleSet>) -> Self {
        Self {
            census: vec![Census::default(); rules.len()],
            counts: vec![RuleCounts::default(); rules.len()],
            rules,
            slots: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            buckets: vec![(Vec::new(), false); hash::BUCKETS],
            due: BinaryHeap::new(),
            urgent: Vec::new(),
            touched: Vec::new(),
            removed: Vec::new(),
            clock: StreamClock::default(),
            gone: Vec::new(),
            disabled: 0,
            assume_topic: false,
            scratch: Vec::new(),
        }
    }

    /// Takes readings without a topic as if they came on one that fits: for readings that are
    /// all of devices a rule is known to look at.
    #[must_use]
    pub fn assuming_topics(mut self) -> Self {
        self.assume_topic = true;
        self
    }

    /// The rules in force.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// Judges one reading by every rule that selects it.
    pub fn sample(&mut self, sample: &Sample, out: &mut Vec<Transition>) {
        let rules = Arc::clone(&self.rules);
        let mut found = std::mem::take(&mut self.scratch);
        let view = View::of(sample);
        rules.candidates(&view, &mut found);
        let mut hash = None;
        for number in found.iter().copied() {
            let rule = &*rules.rules()[number as usize];
            let selected = match rule.selector.matches(&view) {
                Match::Yes => true,
                Match::No => false,
                Match::Perhaps => self.assume_topic || self.has(&sample.device, number),
            };
            if selected {
                let hash = *hash.get_or_insert_with(|| hash::of_fields(&sample.fields));
                self.judge(rule, number, sample, hash, out);
            }
        }
        self.scratch = found;
    }

    fn judge(
        &mut self,
        rule: &Rule,
        number: u32,
        sample: &Sample,
        hash: i64,
        out: &mut Vec<Transition>,
    ) {
        let slot = self.slot(&sample.device);
        let room = self.room(rule, number);
        let Some(entry) = self.entries[slot as usize].as_mut() else {
            return;
        };
        let Entry {
            device,
            known,
            instances,
        } = entry;
        if known.as_ref().is_some_and(|device| !device.enabled) {
            self.disabled += 1;
            return;
        }
        let who = Who {
            rule,
            device,
            kind: sample.kind.as_deref(),
            tags: &sample.tags,
            stream: Some(&sample.stream),
            topic: sample.topic.as_deref(),
            gap_ms: gap_ms(rule, known.as_deref()),
        };
        let counts = &mut self.counts[number as usize];
        let (before, touched) = match instances.binary_search_by_key(&number, |(rule, _)| *rule) {
            Ok(place) => {
                let instance = &mut instances[place].1;
                let before = instance.state();
                (
                    before,
                    judge(&who, instance, sample, hash, room, counts, out),
                )
            }
            Err(place) => {
                // What said nothing leaves nothing behind.
                let mut instance = Instance::default();
                let touched = judge(&who, &mut instance, sample, hash, room, counts, out);
                if touched.changed {
                    instances.insert(place, (number, instance));
                }
                (State::Ok, touched)
            }
        };
        if touched.changed {
            self.settle(slot, number, before, touched);
        }
    }

    /// Whether the rule may have one more instance that is not ok.
    fn room(&self, rule: &Rule, number: u32) -> bool {
        self.census[number as usize].active() < rule.config.max_instances
    }

    fn has(&self, device: &DeviceId, rule: u32) -> bool {
        let slot = self.slots.get(device);
        let entry = slot.and_then(|slot| self.entries[*slot as usize].as_ref());
        entry.is_some_and(|entry| entry.find(rule).is_ok())
    }

    /// The device's slot, made if it has none.
    fn slot(&mut self, device: &DeviceId) -> u32 {
        if let Some(slot) = self.slots.get(device) {
            return *slot;
        }
        let entry = Entry {
            device: device.clone(),
            known: None,
            instances: Vec::new(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.buckets[usize::from(hash::bucket(device))].0.push(slot);
        self.slots.insert(device.clone(), slot);
        slot
    }

    /// After a step: counts, what must be stored, when to look again.
    fn settle(&mut self, slot: u32, number: u32, before: State, touched: Touched) {
        let rule = Arc::clone(&self.rules.rules()[number as usize]);
        let Some(entry) = self.entries[slot as usize].as_mut() else {
            return;
        };
        let Ok(place) = entry.find(number) else {
            return;
        };
        let gap_ms = gap_ms(&rule, entry.known.as_deref());
        let bucket = hash::bucket(&entry.device);
        let instance = &mut entry.instances[place].1;
        let after = instance.state();
        if before != after {
            let census = &mut self.census[number as usize];
            count(census, before, |n| *n = n.saturating_sub(1));
            count(census, after, |n| *n += 1);
        }
        if touched.urgent && !instance.dirt.urgent {
            instance.dirt.urgent = true;
            self.urgent.push((slot, number));
        }
        if instance.track.is_some() || instance.dirt.stored {
            if !instance.dirt.touched {
                instance.dirt.touched = true;
                self.touched.push((slot, number));
            }
        } else {
            self.buckets[usize::from(bucket)].1 = true;
        }
        if let Some(at) = instance.deadline(&rule, gap_ms, self.clock.thawed)
            && at < instance.queued
        {
            instance.queued = at;
            self.due.push(Reverse((at, slot, number)));
        }
    }

    /// Takes a step of an instance that is not about a reading.
    fn step(
        &mut self,
        slot: u32,
        number: u32,
        out: &mut Vec<Transition>,
        step: impl FnOnce(&Who<'_>, &mut Instance) -> Stepped,
    ) -> bool {
        let rule = Arc::clone(&self.rules.rules()[number as usize]);
        let Some(mut entry) = self.entries[slot as usize].take() else {
            return false;
        };
        let mut done = None;
        if let Ok(place) = entry.find(number) {
            let mut instance = std::mem::take(&mut entry.instances[place].1);
            let before = instance.state();
            let stepped = step(&entry.who(&rule), &mut instance);
            entry.instances[place].1 = instance;
            let touched = Touched {
                urgent: stepped.urgent,
                changed: stepped.row.is_some() || stepped.transition.is_some(),
            };
            note(stepped, &mut self.counts[number as usize], out);
            done = Some((before, touched));
        }
        self.entries[slot as usize] = Some(entry);
        match done {
            Some((before, touched)) => {
                self.settle(slot, number, before, touched);
                touched.changed
            }
            None => false,
        }
    }
}

fn count(census: &mut Census, state: State, change: impl FnOnce(&mut u64)) {
    match state {
        State::Ok => {}
        State::Pending => change(&mut census.pending),
        State::Firing => change(&mut census.firing),
        State::Recovering => change(&mut census.recovering),
    }
}

#[cfg(test)]
#[path = "../engine_tests.rs"]
pub(super) mod tests;

#[cfg(test)]
#[path = "../replay_tests.rs"]
mod replay_tests;
