//! The planner: takes in what happened, and says what follows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::alert::{Alert, FAR, Way};
use super::due::{Due, Id};
use super::gate::Gate;
use super::group::Group;
use super::output::{By, Doc, Plan, Remark, RemarkKind, Saved};
use super::silence::Silence;
use super::storm::StormState;
use super::terms::Terms;
use super::told::Line;
use crate::alert::{Episode, Notice};
use crate::config::{AlertsConfig, ReceiverConfig};
use crate::model::Timestamp;

/// What should be known, what was told, and the difference. Pure: the time is an argument, and
/// nothing is done but what a [`Plan`] says.
#[derive(Debug)]
pub struct Planner {
    pub(super) terms: Terms,
    pub(super) alerts: HashMap<String, Box<Alert>>,
    pub(super) groups: HashMap<String, Group>,
    pub(super) storms: BTreeMap<String, StormState>,
    pub(super) gates: BTreeMap<String, Gate>,
    pub(super) due: Due,
    /// Documents that differ from what is stored.
    pub(super) dirty: BTreeSet<Id>,
    /// Ids of the documents stored.
    pub(super) stored: HashSet<String>,
    pub(super) remarks: Vec<Remark>,
    /// Rows whose recall may have been lost with the process.
    pub(super) recall: Vec<String>,
    /// Receivers may have gone or come back.
    pub(super) unsettled_receivers: bool,
}

/// What one turn has brought so far.
#[derive(Default)]
pub(super) struct Turn {
    pub notices: Vec<Notice>,
    pub recall: Vec<String>,
    /// Lines that want to say `firing`.
    pub openings: BTreeSet<Id>,
}

impl Planner {
    /// One that remembers nothing.
    pub fn new(policy: &AlertsConfig, receivers: &[ReceiverConfig]) -> Self {
        Self {
            terms: Terms::new(policy, receivers),
            alerts: HashMap::new(),
            groups: HashMap::new(),
            storms: BTreeMap::new(),
            gates: BTreeMap::new(),
            due: Due::default(),
            dirty: BTreeSet::new(),
            stored: HashSet::new(),
            remarks: Vec::new(),
            recall: Vec::new(),
            unsettled_receivers: false,
        }
    }

    /// Takes up where another left off. Rows that were under way are reported by [`Self::settled`]
    /// when they end, those that ended in the meantime too.
    pub fn load(&mut self, saved: Saved) {
        for doc in saved.docs {
            self.stored.insert(doc.id().to_owned());
            match doc {
                Doc::Alert(alert) => {
                    self.alerts.insert(alert.episode.key.clone(), alert);
                }
                Doc::Group(group) => {
                    self.groups.insert(group.line.key.clone(), group);
                }
                Doc::Storm(storm) => {
                    self.storms.insert(storm.line.key.clone(), storm);
                }
                Doc::Receiver(gate) => {
                    self.gates.insert(gate.receiver.clone(), gate);
                }
            }
        }
        self.gather();
        let lines = self.alerts.values().flat_map(|alert| &alert.entries);
        let lines = lines.filter_map(|entry| match &entry.way {
            Way::Alone(line) => Some(line),
            Way::Group { .. } => None,
        });
        let lines = lines
            .chain(self.groups.values().map(|group| &group.line))
            .chain(self.storms.values().map(|storm| &storm.line));
        let recalled = |line: &Line| Some(line.row.as_ref().filter(|r| r.recalling)?.id.clone());
        self.recall = lines.filter_map(recalled).collect();
        self.recall.sort_unstable();
        self.unsettled_receivers = true;
        self.touch_all();
    }

    /// Rebuilds who is in which group and storm.
    fn gather(&mut self) {
        for (key, alert) in &self.alerts {
            for entry in &alert.entries {
                if let Some(storm) = entry.storm.as_ref().and_then(|s| self.storms.get_mut(s)) {
                    storm.members.insert(key, alert.episode.severity);
                }
                if let Way::Group {
                    key: group,
                    member: Some(member),
                } = &entry.way
                    && let Some(group) = self.groups.get_mut(group)
                {
                    if member.ended {
                        group.ended.insert(key.clone());
                    } else {
                        group.firing.insert(key, alert.episode.severity);
                    }
                }
            }
        }
    }

    /// Replaces the silences: those that hold now or will.
    pub fn silences(&mut self, silences: Vec<Silence>) {
        if self.terms.silences != silences {
            self.terms.silences = silences;
            self.touch_all();
        }
    }

    /// Somebody knows of an alert: no reminders until then, or while the episode lasts and does
    /// not get worse. A time that has passed takes it back.
    pub fn acked(&mut self, key: &str, until: Option<Timestamp>) {
        let Some(alert) = self.alerts.get_mut(key) else {
            return;
        };
        alert.acked = Some(until.unwrap_or(FAR));
        self.dirty.insert(Id::Alert(key.to_owned()));
        self.touch_alert(key);
    }

    /// Another configuration. A receiver that is gone is told the ends it is owed, for three days.
    pub fn configure(&mut self, policy: &AlertsConfig, receivers: &[ReceiverConfig]) {
        self.terms.configure(policy, receivers);
        self.unsettled_receivers = true;
        self.touch_all();
    }

    /// While a backlog is worked through, what begins is not told for up to a minute, so that what
    /// is over further on never is. Ends of what was told are.
    pub fn hold(&mut self, holding: bool) {
        if self.terms.hold(holding) {
            self.touch_all();
        }
    }

    /// When to plan next, unless something happens first; a time long past: now.
    pub fn next_due(&self) -> Option<Timestamp> {
        let now = Timestamp::from_millis(0);
        let unsaid = !self.dirty.is_empty() || !self.recall.is_empty() || !self.remarks.is_empty();
        match unsaid {
            true => Some(now),
            false => self.due.next(),
        }
    }

    /// Everything that is due at `now`.
    pub fn plan(&mut self, now: Timestamp) -> Plan {
        self.terms.turn_to(now);
        if std::mem::take(&mut self.unsettled_receivers) {
            self.retire(now);
        }
        let mut turn = Turn::default();
        let mut work = BTreeSet::new();
        loop {
            self.due.take(now, &mut work);
            while let Some(id) = work.pop_first() {
                // Looked at again, it may want something else.
                turn.openings.remove(&id);
                match id {
                    Id::Alert(key) => self.turn_alert(&key, now),
                    Id::Entry(key, slot) => self.turn_entry(&key, slot, now, &mut turn),
                    Id::Group(key) => self.turn_group(&key, now, &mut turn),
                    Id::Storm(key) => self.turn_storm(&key, now, &mut turn),
                    Id::Gate(receiver) => self.turn_gate(&receiver, now),
                }
                self.due.take(now, &mut work);
            }
            if turn.openings.is_empty() {
                break;
            }
            let openings = std::mem::take(&mut turn.openings);
            self.admit(openings, now, &mut turn);
        }
        self.finish(turn)
    }

    fn finish(&mut self, turn: Turn) -> Plan {
        let mut plan = Plan {
            notices: turn.notices,
            recall: std::mem::take(&mut self.recall),
            remarks: std::mem::take(&mut self.remarks),
            ..Plan::default()
        };
        plan.recall.extend(turn.recall);
        for id in std::mem::take(&mut self.dirty) {
            let doc = match &id {
                Id::Alert(key) | Id::Entry(key, _) => self.alerts.get(key).cloned().map(Doc::Alert),
                Id::Group(key) => self.groups.get(key).cloned().map(Doc::Group),
                Id::Storm(key) => self.storms.get(key).cloned().map(Doc::Storm),
                Id::Gate(name) => {
                    let gate = self.gates.get(name).filter(|gate| !gate.is_empty());
                    gate.cloned().map(Doc::Receiver)
                }
            };
            match doc {
                Some(doc) => {
                    self.stored.insert(doc.id().to_owned());
                    plan.changed.push(doc);
                }
                None => {
                    let id = match id {
                        Id::Alert(key) | Id::Entry(key, _) => format!("alert:{key}"),
                        Id::Group(key) | Id::Storm(key) => key,
                        Id::Gate(name) => format!("receiver:{name}"),
                    };
                    if self.stored.remove(&id) {
                        plan.removed.push(id);
                    }
                }
            }
        }
        plan
    }

    /// Looks at it again at `at`, but not twice in one turn.
    pub(super) fn wait(&mut self, id: Id, at: Timestamp, now: Timestamp) {
        let soonest = Timestamp::from_millis(now.millis().saturating_add(1));
        self.due.set(id, at.max(soonest));
    }

    pub(super) fn touch_alert(&mut self, key: &str) {
        let Some(alert) = self.alerts.get(key) else {
            return;
        };
        for entry in &alert.entries {
            self.due.touch(Id::Entry(key.to_owned(), entry.slot));
            if let Way::Group { key, .. } = &entry.way {
                self.due.touch(Id::Group(key.clone()));
            }
        }
        self.due.touch(Id::Alert(key.to_owned()));
    }

    fn touch_all(&mut self) {
        let keys: Vec<String> = self.alerts.keys().cloned().collect();
        for key in keys {
            self.touch_alert(&key);
        }
        for (key, group) in &mut self.groups {
            group.changed = true;
            self.due.touch(Id::Group(key.clone()));
        }
        for key in self.storms.keys() {
            self.due.touch(Id::Storm(key.clone()));
        }
        for name in self.gates.keys() {
            self.due.touch(Id::Gate(name.clone()));
        }
    }

    pub(super) fn remark(
        &mut self,
        at: Timestamp,
        kind: RemarkKind,
        key: &str,
        episode: Option<&Episode>,
        receiver: Option<&str>,
        by: Option<By>,
    ) -> &mut Remark {
        self.remarks.push(Remark {
            at,
            kind,
            key: key.to_owned(),
            episode: episode.map(|e| e.id.clone()),
            receiver: receiver.map(str::to_owned),
            by,
            detail: None,
        });
        let last = self.remarks.len() - 1;
        &mut self.remarks[last]
    }
}
