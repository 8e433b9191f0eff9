//! The registry's word: which devices there ought to be, what they are, and which of them are
//! out of service or gone.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::alert::rules::instance::Instance;
use crate::alert::rules::judge::Touched;
use crate::alert::rules::rule::Rule;
use crate::alert::rules::select::{Match, View};
use crate::alert::rules::state::{Input, State};
use crate::alert::rules::step::event;
use crate::alert::rules::window::Presence;
use crate::alert::{EndReason, Transition};
use crate::model::{DeviceId, Timestamp};

/// A device as the registry has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its id.
    pub id: DeviceId,
    /// What kind of device.
    pub kind: Option<Arc<str>>,
    /// What the registry says of it.
    pub tags: Vec<(String, String)>,
    /// Whether it is in service. One that is not is neither judged nor missed.
    pub enabled: bool,
    /// When it was entered, or first seen.
    pub first_seen: Option<Timestamp>,
    /// When it was last seen, some seconds behind.
    pub last_seen: Option<Timestamp>,
    /// How often it reports.
    pub expected_interval: Option<Duration>,
}

impl Device {
    /// One of which nothing is known but that it should be there.
    pub fn new(id: DeviceId) -> Self {
        Self {
            id,
            kind: None,
            tags: Vec::new(),
            enabled: true,
            first_seen: None,
            last_seen: None,
            expected_interval: None,
        }
    }

    fn view(&self) -> View<'_> {
        View {
            device: self.id.as_str(),
            kind: self.kind.as_deref(),
            tags: &self.tags,
            stream: None,
            topic: None,
            fields: &[],
        }
    }
}

impl Engine {
    /// All that the registry has, at start; after [`Engine::load`]. A device that is missed by
    /// some rule and of which nothing is remembered is given its full time-out from `now`.
    pub fn devices(
        &mut self,
        devices: impl IntoIterator<Item = Device>,
        now: Timestamp,
        out: &mut Vec<Transition>,
    ) {
        for device in devices {
            self.device_changed(device, now, out);
        }
    }

    /// A device was entered or changed.
    pub fn device_changed(&mut self, device: Device, now: Timestamp, out: &mut Vec<Transition>) {
        let slot = self.slot(&device.id);
        let last_seen = device.last_seen;
        let Some(entry) = self.entries[slot as usize].as_mut() else {
            return;
        };
        let before = entry.known.replace(Box::new(device));
        let numbers: Vec<u32> = entry.instances.iter().map(|(number, _)| *number).collect();
        for number in numbers {
            if !self.still_selected(slot, number, before.as_deref()) {
                self.retire(slot, number, EndReason::OutOfScope, now, out);
                self.remove(slot, number);
            } else if let Some(seen) = last_seen {
                self.seen(slot, number, seen);
            }
        }
        self.seed(slot, now);
        self.release_if_empty(slot);
    }

    /// A device was taken out of the registry. Its episodes end; if it comes back it is new.
    pub fn device_deleted(&mut self, id: &DeviceId, now: Timestamp, out: &mut Vec<Transition>) {
        let Some(slot) = self.slots.get(id).copied() else {
            return;
        };
        let Some(entry) = self.entries[slot as usize].as_mut() else {
            return;
        };
        entry.known = None;
        let numbers: Vec<u32> = entry.instances.iter().map(|(number, _)| *number).collect();
        for number in numbers {
            self.retire(slot, number, EndReason::DeviceDeleted, now, out);
            let Some(entry) = self.entries[slot as usize].as_mut() else {
                return;
            };
            let Ok(place) = entry.find(number) else {
                continue;
            };
            let instance = &mut entry.instances[place].1;
            if instance.presence().is_some() {
                instance.memory = None;
            }
            // A track stays for its day: a replay must not open again what has ended.
            if instance.track.is_none() {
                self.remove(slot, number);
            }
        }
        self.release_if_empty(slot);
    }

    /// Whether the rule still looks at a device whose entry in the registry has changed. What a
    /// reading said of itself goes before what the registry says, and is kept with an episode.
    fn still_selected(&self, slot: u32, number: u32, before: Option<&Device>) -> bool {
        let rule = &self.rules.rules()[number as usize];
        let Some(entry) = self.entries[slot as usize].as_ref() else {
            return false;
        };
        let Some(known) = entry.known.as_deref() else {
            return true;
        };
        if !known.enabled {
            return false;
        }
        let place = entry.find(number).ok();
        let instance = place.map(|place| &entry.instances[place].1);
        if let Some(track) = instance.and_then(|instance| instance.track.as_deref())
            && let Some(episode) = track.episode.as_deref().filter(|_| track.state.is_open())
        {
            let old = |name: &str| {
                let tags = before.map_or(&[][..], |device| &device.tags);
                tags.iter()
                    .find(|(n, _)| n == name)
                    .map(|(_, v)| v.as_str())
            };
            let own = episode
                .tags
                .iter()
                .filter(|(name, value)| old(name) != Some(&**value));
            let mut tags: Vec<_> = own.map(|(n, v)| (n.to_string(), v.to_string())).collect();
            for (name, value) in &known.tags {
                if !tags.iter().any(|(n, _)| n == name) {
                    tags.push((name.clone(), value.clone()));
                }
            }
            let own_kind = episode
                .device_type
                .as_deref()
                .filter(|kind| before.and_then(|device| device.kind.as_deref()) != Some(*kind));
            let view = View {
                kind: own_kind.or(known.kind.as_deref()),
                tags: &tags,
                stream: track.stream.as_deref(),
                topic: track.topic.as_deref(),
                ..known.view()
            };
            return rule.selector.matches(&view) != Match::No;
        }
        // Without an episode only the registry can be asked. Where it never matched, it was the
        // readings' own tags that did.
        let matched_before =
            before.is_some_and(|device| rule.selector.matches(&device.view()) != Match::No);
        !matched_before || rule.selector.matches(&known.view()) != Match::No
    }

    /// Starts to miss a device, for each absence rule that selects it by what the registry says.
    pub(super) fn seed(&mut self, slot: u32, now: Timestamp) {
        let Some(entry) = self.entries[slot as usize].as_mut() else {
            return;
        };
        let Some(known) = entry.known.as_deref().filter(|device| device.enabled) else {
            return;
        };
        let rules = Arc::clone(&self.rules);
        let missed = rules.absence().iter().copied().filter(|number| {
            let selector = &rules.rules()[*number as usize].selector;
            entry.find(*number).is_err() && selector.matches(&known.view()) == Match::Yes
        });
        let new: Vec<u32> = missed.collect();
        for number in &new {
            let mut instance = Instance::default();
            instance.set_presence(Presence {
                since: now.millis(),
                last: None,
            });
            if let Err(place) = entry.find(*number) {
                entry.instances.insert(place, (*number, instance));
            }
        }
        for number in new {
            let changed = Touched {
                urgent: false,
                changed: true,
            };
            self.settle(slot, number, State::Ok, changed);
        }
    }

    /// The registry saw a device that is missed: as good as a reading, where any reading will do.
    fn seen(&mut self, slot: u32, number: u32, at: Timestamp) {
        let rule: &Rule = &self.rules.rules()[number as usize];
        let select = &rule.config.select;
        let any_reading = rule.field().is_none()
            && rule.is_absence()
            && select.topics.is_empty()
            && select.streams.is_empty();
        let Some(entry) = self.entries[slot as usize].as_mut().filter(|_| any_reading) else {
            return;
        };
        let Ok(place) = entry.find(number) else {
            return;
        };
        let instance = &mut entry.instances[place].1;
        if instance.state() == State::Ok
            && let Some(presence) = instance.presence()
        {
            instance.set_presence(Presence {
                since: presence.since.max(at.millis()),
                ..presence
            });
        }
    }

    /// Ends what is open for an instance, for a reason that is not in the readings.
    pub(super) fn retire(
        &mut self,
        slot: u32,
        number: u32,
        reason: EndReason,
        now: Timestamp,
        out: &mut Vec<Transition>,
    ) {
        self.step(slot, number, out, |who, instance| {
            event(who, instance, Input::Retire(reason), now.millis(), None)
        });
    }
}
