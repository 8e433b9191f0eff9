//! The gate: new incidents pass one by one, or as a storm; the rest keeps a pace while there is
//! one. Receivers that are gone are let go here.

use std::collections::{BTreeMap, BTreeSet};

use super::alert::Way;
use super::due::Id;
use super::gate::{Gate, MINUTE};
use super::identity::storm_key;
use super::output::RemarkKind;
use super::planner::{Planner, Turn};
use super::storm::StormState;
use super::told::OWED;
use crate::alert::NoticeKind;
use crate::model::Timestamp;

impl Planner {
    pub(super) fn gate(&mut self, receiver: &str) -> &mut Gate {
        self.gates
            .entry(receiver.to_owned())
            .or_insert_with(|| Gate::new(receiver))
    }

    /// Counts one more request; its number.
    pub(super) fn count_sent(&mut self, receiver: &str, now: Timestamp) -> u64 {
        let gate = self.gate(receiver);
        gate.sent.prune(now, MINUTE);
        gate.sent.add(now, 1);
        let clock = u64::try_from(now.millis()).unwrap_or(0);
        gate.sequence = clock.max(gate.sequence + 1);
        let sequence = gate.sequence;
        self.touch_gate(receiver, now);
        sequence
    }

    pub(super) fn note_opening(&mut self, receiver: &str, rule: &str, now: Timestamp) {
        self.gate(receiver).note_opening(rule, now);
        self.touch_gate(receiver, now);
    }

    fn touch_gate(&mut self, receiver: &str, now: Timestamp) {
        let id = Id::Gate(receiver.to_owned());
        self.dirty.insert(id.clone());
        let config = &self.terms.policy.storm;
        if let Some(at) = self.gates.get(receiver).and_then(|g| g.next(config)) {
            self.wait(id, at, now);
        }
    }

    /// Whether a request that is no new incident may be made now. If not, the line is looked at
    /// again as soon as it may.
    pub(super) fn has_room(
        &mut self,
        receiver: &str,
        id: &Id,
        ending: bool,
        now: Timestamp,
    ) -> bool {
        if !self.storms.values().any(|storm| storm.receiver == receiver) {
            return true;
        }
        let config = self.terms.policy.storm.clone();
        let gate = self.gate(receiver);
        if gate.room(&config, now) > 0 {
            return true;
        }
        gate.paced.insert((!ending, id.clone()));
        false
    }

    /// Windows move on; lines that wait for the pace go on.
    pub(super) fn turn_gate(&mut self, receiver: &str, now: Timestamp) {
        let config = self.terms.policy.storm.clone();
        let stormy = self.storms.values().any(|storm| storm.receiver == receiver);
        let id = Id::Gate(receiver.to_owned());
        let Some(gate) = self.gates.get_mut(receiver) else {
            return;
        };
        if gate.prune(&config, now) {
            self.dirty.insert(id.clone());
        }
        let room = match stormy {
            true => gate.room(&config, now),
            false => usize::MAX,
        };
        let mut freed = Vec::new();
        while freed.len() < room
            && let Some((_, line)) = gate.paced.pop_first()
        {
            freed.push(line);
        }
        let leaves = gate.retired.map(|since| since.plus(OWED));
        let next = gate.next(&config).into_iter().chain(leaves).min();
        let forgotten = gate.is_empty() && gate.paced.is_empty();
        for line in freed {
            self.due.touch(line);
        }
        if leaves.is_some_and(|at| at <= now) {
            self.let_go(receiver, now);
        } else if forgotten {
            self.gates.remove(receiver);
        } else if let Some(at) = next {
            self.wait(id, at, now);
        }
    }

    /// Lets new incidents pass, or makes them part of a storm.
    pub(super) fn admit(&mut self, openings: BTreeSet<Id>, now: Timestamp, turn: &mut Turn) {
        let mut asked: BTreeMap<String, BTreeMap<String, Vec<Id>>> = BTreeMap::new();
        for id in openings {
            if let Some((receiver, rule)) = self.about(&id) {
                let rules = asked.entry(receiver).or_default();
                rules.entry(rule).or_default().push(id);
            }
        }
        for (receiver, rules) in asked {
            self.admit_at(&receiver, rules, now, turn);
        }
    }

    fn admit_at(
        &mut self,
        receiver: &str,
        mut rules: BTreeMap<String, Vec<Id>>,
        now: Timestamp,
        turn: &mut Turn,
    ) {
        let config = self.terms.policy.storm.clone();
        // What has a storm already joins it.
        rules.retain(|rule, ids| match self.open_storm(receiver, rule) {
            Some(storm) => {
                self.join(&storm, ids);
                false
            }
            None => true,
        });
        let gate = self.gate(receiver);
        let many = |rule: &str, ids: &[Id]| {
            !rule.is_empty() && gate.opened(rule, &config, now) + ids.len() > config.open
        };
        let (storms, single): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|(rule, ids)| many(rule, ids));
        let requests = storms.len() + single.iter().map(|(_, ids)| ids.len()).sum::<usize>();
        if requests > 0 && gate.opened_at_all(&config, now) + requests > config.umbrella {
            let storm = self.open_new(receiver, None, now);
            for (_, ids) in storms.into_iter().chain(single) {
                self.join(&storm, &ids);
            }
            return;
        }
        for (rule, ids) in storms {
            let storm = self.open_new(receiver, Some(&rule), now);
            self.join(&storm, &ids);
        }
        for (rule, ids) in single {
            for id in ids {
                self.note_opening(receiver, &rule, now);
                self.say_firing(&id, now, turn);
            }
        }
    }

    /// The receiver and the rule of a line that wants to say `firing`.
    fn about(&self, id: &Id) -> Option<(String, String)> {
        match id {
            Id::Entry(key, slot) => {
                let alert = self.alerts.get(key)?;
                let entry = alert.entries.iter().find(|e| e.slot == *slot)?;
                Some((entry.receiver.clone(), alert.episode.rule.clone()))
            }
            Id::Group(key) => {
                let group = self.groups.get(key)?;
                Some((group.receiver.clone(), self.group_rule(group)))
            }
            Id::Alert(_) | Id::Storm(_) | Id::Gate(_) => None,
        }
    }

    fn say_firing(&mut self, id: &Id, now: Timestamp, turn: &mut Turn) {
        match id {
            Id::Entry(key, slot) => {
                let Some(mut alert) = self.alerts.remove(key) else {
                    return;
                };
                if let Some(index) = alert.entries.iter().position(|e| e.slot == *slot) {
                    let episode = alert.episode.clone();
                    self.say_alone(&mut alert, index, NoticeKind::Firing, episode, now, turn);
                }
                self.alerts.insert(key.clone(), alert);
            }
            Id::Group(key) => {
                if let Some(mut group) = self.groups.remove(key) {
                    self.say_group(&mut group, NoticeKind::Firing, now, turn);
                    self.groups.insert(key.clone(), group);
                }
            }
            Id::Alert(_) | Id::Storm(_) | Id::Gate(_) => {}
        }
    }

    /// The storm that speaks for a rule at a receiver: its own, else that of all.
    fn open_storm(&self, receiver: &str, rule: &str) -> Option<String> {
        let of = |wanted: Option<&str>| {
            let mut storms = self.storms.iter();
            storms.find_map(|(key, storm)| {
                let fits = storm.open && storm.receiver == receiver;
                (fits && storm.rule.as_deref() == wanted).then(|| key.clone())
            })
        };
        of(Some(rule)).or_else(|| of(None))
    }

    fn open_new(&mut self, receiver: &str, rule: Option<&str>, now: Timestamp) -> String {
        let key = storm_key(&self.terms.policy.environment, receiver, rule);
        let storm = self
            .storms
            .entry(key.clone())
            .or_insert_with(|| StormState::new(receiver, key.clone(), rule, now));
        if !storm.open {
            // The last one of the kind is still being closed.
            storm.open = true;
            storm.since = now;
            storm.total = 0;
            storm.told_total = 0;
        }
        self.remark(
            now,
            RemarkKind::StormOpened,
            &key,
            None,
            Some(receiver),
            None,
        );
        key
    }

    /// Makes lines that have not said anything yet part of a storm.
    fn join(&mut self, storm_key: &str, ids: &[Id]) {
        let Some(mut storm) = self.storms.remove(storm_key) else {
            return;
        };
        for id in ids {
            match id {
                Id::Entry(key, slot) => self.join_one(&mut storm, key, Some(*slot), ""),
                Id::Group(group) => {
                    let Some(state) = self.groups.get_mut(group) else {
                        continue;
                    };
                    let members = std::mem::take(&mut state.firing);
                    state.opening = None;
                    for key in members.keys() {
                        self.join_one(&mut storm, key, None, group);
                    }
                    self.dirty.insert(Id::Group(group.clone()));
                    self.due.touch(Id::Group(group.clone()));
                }
                Id::Alert(_) | Id::Storm(_) | Id::Gate(_) => {}
            }
        }
        self.dirty.insert(Id::Storm(storm_key.to_owned()));
        self.due.touch(Id::Storm(storm_key.to_owned()));
        self.storms.insert(storm_key.to_owned(), storm);
    }

    fn join_one(&mut self, storm: &mut StormState, key: &str, slot: Option<u32>, group: &str) {
        let Some(alert) = self.alerts.get_mut(key) else {
            return;
        };
        let (severity, fires) = (alert.episode.severity, alert.fires());
        let entry = match slot {
            Some(slot) => alert.entry(slot),
            None => alert.member_mut(group).map(|(entry, _)| entry),
        };
        let Some(entry) = entry else {
            return;
        };
        entry.waiting = false;
        if let Way::Group { member, .. } = &mut entry.way {
            *member = None;
        }
        if fires {
            entry.storm = Some(storm.line.key.clone());
            entry.held = Some(storm.held());
            storm.join(key, severity);
        } else {
            // Over already: one of many is not told for its own sake.
            let slot = entry.slot;
            self.due.touch(Id::Entry(key.to_owned(), slot));
        }
        self.dirty.insert(Id::Alert(key.to_owned()));
    }
}
