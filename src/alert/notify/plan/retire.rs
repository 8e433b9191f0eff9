//! Receivers that are no longer configured: they are told the ends they are owed, for three days.

use super::alert::Way;
use super::due::Id;
use super::output::RemarkKind;
use super::planner::Planner;
use crate::model::Timestamp;

impl Planner {
    /// Notes which receivers are gone, and which came back.
    pub(super) fn retire(&mut self, now: Timestamp) {
        let entries = self.alerts.values().flat_map(|alert| &alert.entries);
        let named = entries.map(|entry| entry.receiver.clone());
        let named = named.chain(self.groups.values().map(|group| group.receiver.clone()));
        let named = named.chain(self.storms.values().map(|storm| storm.receiver.clone()));
        let mut names: Vec<String> = named.chain(self.gates.keys().cloned()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let retired = self.terms.is_retired(&name);
            let gate = self.gate(&name);
            let before = gate.retired;
            gate.retired = retired.then(|| before.unwrap_or(now));
            if gate.retired != before {
                self.dirty.insert(Id::Gate(name.clone()));
            }
            self.due.touch(Id::Gate(name));
        }
    }

    /// Forgets everything about a receiver that is gone.
    pub(super) fn let_go(&mut self, receiver: &str, now: Timestamp) {
        let mut owed = Vec::new();
        let mut keys: Vec<String> = self.alerts.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            let Some(alert) = self.alerts.get_mut(&key) else {
                continue;
            };
            let before = alert.entries.len();
            for entry in alert.entries.iter().filter(|e| e.receiver == receiver) {
                if let Way::Alone(line) = &entry.way
                    && line.told.is_some()
                {
                    owed.push((key.clone(), alert.episode.clone()));
                }
            }
            alert.entries.retain(|entry| entry.receiver != receiver);
            if alert.entries.len() != before {
                alert.prune_past();
                self.dirty.insert(Id::Alert(key.clone()));
                self.due.touch(Id::Alert(key));
            }
        }
        for (key, episode) in owed {
            let kind = RemarkKind::Abandoned;
            self.remark(now, kind, &key, Some(&episode), Some(receiver), None);
        }
        let groups = self.groups.values().filter(|g| g.receiver == receiver);
        let groups: Vec<_> = groups
            .map(|g| (g.line.key.clone(), g.line.told.is_some()))
            .collect();
        let storms = self.storms.values().filter(|s| s.receiver == receiver);
        let storms: Vec<_> = storms
            .map(|s| (s.line.key.clone(), s.line.told.is_some()))
            .collect();
        let mut lines = [groups, storms].concat();
        lines.sort_unstable();
        for (key, told) in lines {
            if told {
                self.remark(now, RemarkKind::Abandoned, &key, None, Some(receiver), None);
            }
            for id in [Id::Group(key.clone()), Id::Storm(key.clone())] {
                self.due.forget(&id);
            }
            if self.groups.remove(&key).is_some() {
                self.dirty.insert(Id::Group(key));
            } else if self.storms.remove(&key).is_some() {
                self.dirty.insert(Id::Storm(key));
            }
        }
        self.gates.remove(receiver);
        self.dirty.insert(Id::Gate(receiver.to_owned()));
        self.due.forget(&Id::Gate(receiver.to_owned()));
    }
}
