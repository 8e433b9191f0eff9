//! What an alert's change means for those who are told of it.

use super::alert::{Alert, Entry, Member, Way, over};
use super::due::Id;
use super::group::Group;
use super::identity::{alert_key, group_key};
use super::labels::label;
use super::output::RemarkKind;
use super::planner::Planner;
use super::route::route;
use super::told::Line;
use crate::alert::{Change, Episode, Transition};
use crate::config::Incident;
use crate::model::Timestamp;

impl Planner {
    /// An alert changed. What is older than what is known already is passed over.
    pub fn transition(&mut self, change: &Transition, now: Timestamp) {
        let episode = &change.episode;
        let key = episode.key.as_str();
        let mut alert = match self.alerts.remove(key) {
            Some(alert) => alert,
            // Nobody was told of it.
            None if episode.ended.is_some() => return,
            None => Box::new(Alert::new(episode.clone())),
        };
        let known = !alert.entries.is_empty() || !alert.flap.is_empty();
        if known && episode.sequence < alert.episode.sequence {
            self.alerts.insert(key.to_owned(), alert);
            return;
        }
        let replayed = known && episode.sequence == alert.episode.sequence;
        let turns = matches!(change.change, Change::Fired | Change::Resolved);
        if turns && !replayed && alert.flap.note(change.at, now, &self.terms.policy.flap) {
            self.remark(now, RemarkKind::Flapping, key, Some(episode), None, None);
        }
        let old = std::mem::replace(&mut alert.episode, episode.clone());
        if !known || old.id != episode.id {
            self.begin(&mut alert, old, change.at, now);
        } else {
            self.go_on(&mut alert, &old, change.change, now);
        }
        self.dirty.insert(Id::Alert(key.to_owned()));
        self.alerts.insert(key.to_owned(), alert);
        self.touch_alert(key);
    }

    /// A new episode.
    fn begin(&mut self, alert: &mut Alert, old: Episode, at: Timestamp, now: Timestamp) {
        let key = alert.episode.key.clone();
        if old.id != alert.episode.id {
            let old = over(old, now);
            for entry in &mut alert.entries {
                self.leave(&key, &old, entry, now);
            }
            alert.past.push(old);
            alert.prune_past();
        }
        alert.acked = None;
        alert.late = now.since(at) > self.terms.policy.max_alert_age.0;
        let routed = route(&self.terms.receivers, &alert.episode);
        for entry in &mut alert.entries {
            entry.left = !routed.contains(&entry.receiver);
            entry.waiting = !entry.left;
            entry.noted = None;
            let fresh = entry.is_idle() && entry.waiting;
            if let Way::Alone(line) = &mut entry.way {
                line.retry.take_if(|retry| !retry.resolved);
            }
            if fresh {
                self.renew_way(&alert.episode, entry);
            }
        }
        self.add_routes(alert, &routed);
        if alert.entries.is_empty() {
            self.remark(
                now,
                RemarkKind::NoReceiver,
                &key,
                Some(&alert.episode),
                None,
                None,
            );
        }
    }

    /// The same episode, another state.
    fn go_on(&mut self, alert: &mut Alert, old: &Episode, change: Change, now: Timestamp) {
        let episode = alert.episode.clone();
        let key = episode.key.as_str();
        if episode.ended.is_some() {
            for entry in &mut alert.entries {
                self.leave(key, &episode, entry, now);
            }
            return;
        }
        if episode.severity > old.severity {
            alert.acked = None;
        }
        if episode.severity != old.severity {
            for entry in &mut alert.entries {
                self.move_to(key, &episode, entry);
            }
        }
        let rerouted = change == Change::Updated && episode.receivers != old.receivers;
        if rerouted || episode.severity > old.severity {
            let routed = route(&self.terms.receivers, &episode);
            for entry in &mut alert.entries {
                let meant = routed.contains(&entry.receiver);
                if rerouted && !meant {
                    // Its end is told where it was told; where it was not, it never is.
                    entry.left = true;
                    entry.waiting = false;
                } else if meant && entry.left {
                    entry.left = false;
                    entry.waiting = !entry.knows(&episode.id);
                }
            }
            self.add_routes(alert, &routed);
        }
    }

    /// Adds those receivers that are not there yet.
    fn add_routes(&self, alert: &mut Alert, routed: &[String]) {
        for name in routed {
            if alert.entries.iter().all(|entry| entry.receiver != *name) {
                let way = self.fresh_way(&alert.episode, name);
                alert.add(name, way);
            }
        }
    }

    /// How an episode is told to a receiver, by its present terms.
    fn fresh_way(&self, episode: &Episode, receiver: &str) -> Way {
        let environment = &self.terms.policy.environment;
        let terms = self.terms.receiver(receiver);
        match terms.incident {
            Incident::Alert => Way::Alone(Line::new(alert_key(environment, &episode.key))),
            Incident::Group => Way::Group {
                key: group_key(
                    environment,
                    receiver,
                    &group_labels(terms, episode, receiver),
                ),
                member: None,
            },
        }
    }

    /// The present terms, without forgetting how far the numbers went.
    fn renew_way(&self, episode: &Episode, entry: &mut Entry) {
        let fresh = self.fresh_way(episode, &entry.receiver);
        match (&entry.way, &fresh) {
            (Way::Alone(old), Way::Alone(new)) if old.key == new.key => {}
            _ => entry.way = fresh,
        }
    }

    /// An episode of an entry is over: it leaves its storm, and its group has an end to tell.
    fn leave(&mut self, key: &str, episode: &Episode, entry: &mut Entry, now: Timestamp) {
        if let Some(storm) = entry.storm.take() {
            if let Some(state) = self.storms.get_mut(&storm) {
                state.members.remove(key);
                for shown in state.sample.iter_mut().filter(|e| e.id == episode.id) {
                    shown.clone_from(episode);
                }
            }
            self.dirty.insert(Id::Storm(storm.clone()));
            self.due.touch(Id::Storm(storm));
        }
        let Way::Group { key: group, member } = &mut entry.way else {
            return;
        };
        let Some(state) = self.groups.get_mut(group) else {
            return;
        };
        let Some(left) = member.as_mut().filter(|member| !member.ended) else {
            return;
        };
        left.ended = true;
        left.changed = state.line.sequence;
        state.firing.remove(key);
        state.changed = true;
        let group = group.clone();
        if heard_of(left, &state.line) {
            state.ended.insert(key.to_owned());
        } else {
            *member = None;
            let kind = match state.line.retry {
                Some(_) => RemarkKind::NeverNotified,
                None => RemarkKind::CancelledUnsent,
            };
            let receiver = Some(entry.receiver.as_str());
            self.remark(now, kind, key, Some(episode), receiver, None);
        }
        self.dirty.insert(Id::Group(group.clone()));
        self.due.touch(Id::Group(group));
    }

    /// An episode's level changed.
    fn move_to(&mut self, key: &str, episode: &Episode, entry: &mut Entry) {
        if let Some(storm) = entry.storm.as_ref()
            && let Some(state) = self.storms.get_mut(storm)
        {
            state.level(key, episode.severity);
            self.dirty.insert(Id::Storm(storm.clone()));
            self.due.touch(Id::Storm(storm.clone()));
        }
        if let Way::Group {
            key: group,
            member: Some(member),
        } = &mut entry.way
            && !member.ended
            && let Some(state) = self.groups.get_mut(group)
        {
            member.changed = state.line.sequence;
            state.firing.insert(key, episode.severity);
            state.changed = true;
        }
    }

    /// The group an entry belongs to, made if need be.
    pub(super) fn group(&mut self, key: &str, receiver: &str, episode: &Episode) -> &mut Group {
        let terms = self.terms.receiver(receiver);
        let labels = || group_labels(terms, episode, receiver);
        self.groups
            .entry(key.to_owned())
            .or_insert_with(|| Group::new(receiver, key.to_owned(), labels()))
    }
}

/// Whether the receiver heard, or may yet have heard, of a member.
pub(super) fn heard_of(member: &Member, line: &Line) -> bool {
    let under_way = line.row.as_ref().map_or(0, |row| row.sequence);
    line.maybe.max(under_way) > member.joined
}

fn group_labels(
    terms: &super::route::Receiver,
    episode: &Episode,
    receiver: &str,
) -> std::collections::BTreeMap<String, String> {
    let named = terms.group_by.iter();
    named
        .map(|name| (name.clone(), label(episode, receiver, name).to_owned()))
        .collect()
}
