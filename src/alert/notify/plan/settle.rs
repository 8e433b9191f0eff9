//! How a request ended, and what that makes of the line it was on.

use super::alert::{Alert, Cooldown, Way, over};
use super::due::Id;
use super::group::Group;
use super::output::RemarkKind;
use super::planner::Planner;
use super::storm::{RETRY, StormState};
use super::told::{Line, Meaning, is_group, is_storm};
use super::transition::heard_of;
use crate::alert::{Delivery, Episode, NoticeKind, Settled};
use crate::model::Timestamp;

impl Planner {
    /// A row ended. One that is not known was given up earlier and sent again by hand: what it
    /// told, if it fires, is owed an end.
    pub fn settled(&mut self, settled: &Settled, now: Timestamp) {
        let notice = &settled.notice;
        if notice.kind == NoticeKind::Test || notice.episodes.is_empty() {
            return;
        }
        let meaning = if is_group(&notice.key) {
            self.settle_group(settled, now)
        } else if is_storm(&notice.key) {
            self.settle_storm(settled, now)
        } else {
            self.settle_alone(settled, now)
        };
        let kind = match meaning {
            Meaning::Refused => RemarkKind::Undelivered,
            Meaning::GaveUp => RemarkKind::Abandoned,
            _ => return,
        };
        let reason = match &settled.outcome {
            Delivery::Dead { reason, .. } => Some(reason.clone()),
            Delivery::Accepted | Delivery::Recalled { .. } => None,
        };
        let many = is_group(&notice.key) || is_storm(&notice.key);
        let episode = notice.episodes.first().filter(|_| !many);
        let key = episode.map_or(&notice.key, |e| &e.key);
        let detail = format!("{}: {}", notice.kind.name(), reason.unwrap_or_default());
        self.remark(settled.at, kind, key, episode, Some(&notice.receiver), None)
            .detail = Some(detail);
    }

    fn settle_alone(&mut self, settled: &Settled, now: Timestamp) -> Meaning {
        let notice = &settled.notice;
        let episode = &notice.episodes[0];
        let key = episode.key.as_str();
        let owing = notice.kind != NoticeKind::Resolved && may_have_it(&settled.outcome);
        let mut alert = match self.alerts.remove(key) {
            Some(alert) => alert,
            None if owing => Box::new(Alert::new(over(episode.clone(), now))),
            None => return Meaning::Nothing,
        };
        let mine = |way: &Way| matches!(way, Way::Alone(line) if line.key == notice.key);
        let entries = &mut alert.entries;
        let found = entries
            .iter()
            .position(|e| e.receiver == notice.receiver && mine(&e.way));
        let index = match found {
            Some(index) => index,
            None if owing => {
                let way = Way::Alone(Line::new(notice.key.clone()));
                let entry = alert.add(&notice.receiver, way);
                entry.left = true;
                entry.waiting = false;
                alert.entries.len() - 1
            }
            None => {
                self.alerts.insert(key.to_owned(), alert);
                return Meaning::Nothing;
            }
        };
        if owing && alert.episode.id != episode.id {
            let known = alert.past.iter().any(|past| past.id == episode.id);
            if !known {
                alert.past.push(over(episode.clone(), now));
            }
        }
        let over_at = alert.over(&episode.id, settled.at).ended.map(|e| e.at);
        let terms = self.terms.receiver(&notice.receiver);
        let repeat = terms.repeat(&self.terms.policy, Some(episode));
        let current = alert.episode.id.clone();
        let entry = &mut alert.entries[index];
        let Way::Alone(line) = &mut entry.way else {
            return Meaning::Nothing;
        };
        let told = line.told.clone();
        let meaning = line.settle(settled, repeat, over_at);
        let now_told = line.told.as_ref().and_then(|t| t.episode.as_ref());
        if now_told == Some(&current) {
            entry.waiting = false;
        }
        if let (Meaning::Closed, Some(told)) = (meaning, told) {
            entry.cooldown = Some(Cooldown {
                at: over_at.unwrap_or(settled.at).min(settled.at),
                severity: told.worst,
            });
        }
        alert.prune_past();
        self.dirty.insert(Id::Alert(key.to_owned()));
        self.alerts.insert(key.to_owned(), alert);
        self.touch_alert(key);
        meaning
    }

    fn settle_group(&mut self, settled: &Settled, now: Timestamp) -> Meaning {
        let notice = &settled.notice;
        let owing = notice.kind != NoticeKind::Resolved && may_have_it(&settled.outcome);
        let mut group = match self.groups.remove(&notice.key) {
            Some(group) => group,
            None if owing => Group::new(&notice.receiver, notice.key.clone(), notice.group.clone()),
            None => return Meaning::Nothing,
        };
        let ours = group
            .line
            .row
            .as_ref()
            .is_some_and(|row| row.id == notice.id);
        let terms = self.terms.receiver(&group.receiver);
        let repeat = terms.repeat(&self.terms.policy, None);
        let over_at = notice
            .episodes
            .iter()
            .filter_map(|e| Some(e.ended?.at))
            .max();
        let meaning = group.line.settle(settled, repeat, over_at);
        if meaning != Meaning::Nothing {
            group.changed = true;
        }
        if owing && !ours && group.line.told.is_some() {
            for episode in &notice.episodes {
                let member =
                    group.firing.contains(&episode.key) || group.ended.contains(&episode.key);
                if !member {
                    group.orphans.push(over(episode.clone(), now));
                }
            }
        }
        if settled.outcome == Delivery::Accepted && ours {
            let told = |orphan: &Episode| {
                notice.kind == NoticeKind::Resolved
                    || notice.episodes.iter().any(|e| e.id == orphan.id)
            };
            group.orphans.retain(|orphan| !told(orphan));
        }
        if matches!(meaning, Meaning::Closed | Meaning::GaveUp) {
            group.orphans.clear();
        }
        self.let_ended_go(&mut group, settled.at);
        if matches!(meaning, Meaning::Unsaid | Meaning::Refused) {
            // Those it would have told of may have been silenced in the meantime.
            self.touch_members(&group);
        }
        self.dirty.insert(Id::Group(notice.key.clone()));
        self.due.touch(Id::Group(notice.key.clone()));
        self.groups.insert(notice.key.clone(), group);
        meaning
    }

    fn touch_members(&mut self, group: &Group) {
        for key in group.firing.keys() {
            let entry = self
                .alerts
                .get(key)
                .and_then(|a| a.in_group(&group.line.key));
            if let Some(slot) = entry.map(|entry| entry.slot) {
                self.due.touch(Id::Entry(key.clone(), slot));
            }
        }
    }

    /// Members whose end was told, or whose beginning never was, leave the group.
    fn let_ended_go(&mut self, group: &mut Group, at: Timestamp) {
        let key = group.line.key.clone();
        let closed = group.line.told.is_none() && group.line.row.is_none();
        let mut untold = Vec::new();
        for alert_key in group.ended.clone() {
            let Some(alert) = self.alerts.get_mut(&alert_key) else {
                group.ended.remove(&alert_key);
                continue;
            };
            let Some((entry, slot)) = alert.member_mut(&key) else {
                group.ended.remove(&alert_key);
                continue;
            };
            let receiver = entry.receiver.clone();
            let Way::Group { member: place, .. } = &mut entry.way else {
                continue;
            };
            let Some(member) = place.as_ref() else {
                group.ended.remove(&alert_key);
                continue;
            };
            let told = group.line.sure > member.changed;
            if !told && !closed && heard_of(member, &group.line) {
                continue;
            }
            let heard = told || heard_of(member, &group.line);
            let id = member.episode.clone();
            *place = None;
            let episode = alert.over(&id, at);
            if heard {
                let cooldown = Cooldown {
                    at: episode.ended.map_or(at, |e| e.at).min(at),
                    severity: episode.severity,
                };
                if let Some(entry) = alert.entry(slot) {
                    entry.cooldown = Some(cooldown);
                }
            } else {
                untold.push((alert_key.clone(), episode, receiver));
            }
            alert.prune_past();
            group.ended.remove(&alert_key);
            self.dirty.insert(Id::Alert(alert_key.clone()));
            self.due.touch(Id::Entry(alert_key, slot));
        }
        for (key, episode, receiver) in untold {
            let kind = RemarkKind::CancelledUnsent;
            self.remark(at, kind, &key, Some(&episode), Some(&receiver), None);
        }
    }

    fn settle_storm(&mut self, settled: &Settled, now: Timestamp) -> Meaning {
        let notice = &settled.notice;
        let owing = notice.kind != NoticeKind::Resolved && may_have_it(&settled.outcome);
        let mut storm = match self.storms.remove(&notice.key) {
            Some(storm) => storm,
            None if owing => self.storm_of(settled, now),
            None => return Meaning::Nothing,
        };
        let over_at = notice
            .episodes
            .iter()
            .filter_map(|e| Some(e.ended?.at))
            .max();
        let meaning = storm.line.settle(settled, RETRY, over_at);
        self.dirty.insert(Id::Storm(notice.key.clone()));
        self.due.touch(Id::Storm(notice.key.clone()));
        self.storms.insert(notice.key.clone(), storm);
        meaning
    }

    /// A storm that is only known from a request sent again by hand: to be closed.
    fn storm_of(&self, settled: &Settled, now: Timestamp) -> StormState {
        let notice = &settled.notice;
        let rule = notice.group.get("rule").map(String::as_str);
        let key = notice.key.clone();
        let mut storm = StormState::new(&notice.receiver, key, rule, now);
        storm.open = false;
        storm.sample = notice
            .episodes
            .iter()
            .map(|e| over(e.clone(), now))
            .collect();
        storm.total = notice.storm.as_ref().map_or(1, |s| s.total);
        storm.top = notice
            .storm
            .as_ref()
            .map_or_else(Vec::new, |s| s.top.clone());
        storm.worst = notice.severity;
        storm
    }
}

/// Whether a request may have reached the receiver.
fn may_have_it(outcome: &Delivery) -> bool {
    match outcome {
        Delivery::Accepted => true,
        Delivery::Dead { ambiguous, .. } | Delivery::Recalled { ambiguous } => *ambiguous,
    }
}
