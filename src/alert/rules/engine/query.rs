//! What there is to know of the engine without changing it, and its numbers.

use std::sync::Arc;

use super::{Engine, Entry};
use crate::alert::Episode;
use crate::alert::rules::counts::{Census, RuleCounts};
use crate::alert::rules::instance::{Instance, Track};
use crate::model::DeviceId;

impl Engine {
    /// The state of a rule for a device.
    pub fn instance(&self, rule: &str, device: &DeviceId) -> Option<&Instance> {
        let entry = self.entries[*self.slots.get(device)? as usize].as_ref()?;
        let place = entry.find(self.rules.number(rule)?).ok()?;
        Some(&entry.instances[place].1)
    }

    /// Every open episode, in the order of the devices' first readings.
    pub fn episodes(&self) -> impl Iterator<Item = Episode> {
        self.open().filter_map(|(entry, number, track)| {
            let rule = &self.rules.rules()[number as usize];
            track.told(&rule.id, &entry.device)
        })
    }

    /// How many episodes are open at each level, by [`Severity`](crate::model::Severity).
    pub fn firing(&self) -> [u64; 4] {
        let mut firing = [0; 4];
        for level in self.open().filter_map(|(_, _, track)| track.level) {
            firing[level as usize] += 1;
        }
        firing
    }

    fn open(&self) -> impl Iterator<Item = (&Entry, u32, &Track)> {
        self.entries.iter().flatten().flat_map(|entry| {
            let instances = entry.instances.iter();
            instances.filter_map(move |(number, instance)| {
                let track = instance.track.as_deref()?;
                track.state.is_open().then_some((entry, *number, track))
            })
        })
    }

    /// What was counted since the last call, by rule; rules without anything are left out.
    pub fn take_counts(&mut self) -> Vec<(Arc<str>, RuleCounts)> {
        let rules = self.rules.rules().iter();
        let taken = rules
            .zip(&mut self.counts)
            .map(|(rule, counts)| (Arc::clone(&rule.id), std::mem::take(counts)));
        let gone = std::mem::take(&mut self.gone);
        gone.into_iter()
            .chain(taken)
            .filter(|(_, counts)| *counts != RuleCounts::default())
            .collect()
    }

    /// How many instances are in which state, by rule.
    pub fn census(&self) -> impl Iterator<Item = (&Arc<str>, Census)> {
        let rules = self.rules.rules().iter();
        rules.map(|rule| &rule.id).zip(self.census.iter().copied())
    }

    /// Readings left out since the last call because their device is out of service.
    pub fn take_disabled(&mut self) -> u64 {
        std::mem::take(&mut self.disabled)
    }
}
