//! A group's turn: compares its members with what was told of them, and speaks.

use super::alert::over;
use super::alone::Step;
use super::due::Id;
use super::group::{Around, Group, News};
use super::output::{By, Held};
use super::planner::{Planner, Turn};
use super::route::jittered;
use super::told::Words;
use crate::alert::{Episode, NoticeKind};
use crate::model::Timestamp;

impl Planner {
    pub(super) fn turn_group(&mut self, key: &str, now: Timestamp, turn: &mut Turn) {
        let Some(mut group) = self.groups.remove(key) else {
            return;
        };
        let id = Id::Group(key.to_owned());
        let terms = self.terms.receiver(&group.receiver);
        let around = Around {
            ends_only: self.terms.is_retired(&group.receiver),
            interval: terms.group_interval,
            hold_until: self.terms.hold_until(false, now),
            news: &|| self.news(&group, now),
            repeat_at: &|| self.group_repeat_at(&group),
            unwanted: &|| self.unwanted(&group, now),
        };
        let (step, nothing_new) = group.decide(&around, now);
        if nothing_new {
            group.changed = false;
        }
        match step {
            Step::Idle if group.line.is_idle() && group.firing.is_empty() => {
                self.due.forget(&id);
                self.dirty.insert(id);
                return;
            }
            Step::Idle => self.due.forget(&id),
            Step::Wait(at) => self.wait(id, at, now),
            Step::Held(held) => {
                let at = held.until.unwrap_or(now);
                self.wait(id, at, now);
            }
            Step::Recall => {
                turn.recall.extend(group.line.recall());
                self.dirty.insert(id);
            }
            Step::Open => {
                turn.openings.insert(id);
            }
            Step::Say(kind) => {
                if self.has_room(&group.receiver, &id, false, now) {
                    self.say_group(&mut group, kind, now, turn);
                }
            }
            Step::Close => {
                if self.has_room(&group.receiver, &id, true, now) {
                    self.say_group(&mut group, NoticeKind::Resolved, now, turn);
                }
            }
        }
        self.groups.insert(key.to_owned(), group);
    }

    /// What the receiver does not know of the members. The level of one that is silenced changes
    /// in silence.
    fn news(&self, group: &Group, now: Timestamp) -> News {
        let mut news = News {
            any: !group.orphans.is_empty() || !group.ended.is_empty(),
            later: None,
        };
        let line = &group.line;
        let unsaid = group.firing.keys().filter_map(|key| {
            let alert = self.alerts.get(key)?;
            let entry = alert.in_group(&line.key)?;
            match &entry.way {
                super::alert::Way::Group {
                    member: Some(member),
                    ..
                } if line.sure <= member.changed => Some((alert, member)),
                _ => None,
            }
        });
        for (alert, member) in unsaid {
            let muted = match line.maybe > member.joined {
                true => self.terms.muted(&alert.episode, &group.receiver, now),
                false => None,
            };
            match muted {
                None => news.any = true,
                Some(held) => {
                    let until = held.until;
                    news.later = match (news.later, until) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                }
            }
        }
        news
    }

    fn group_repeat_at(&self, group: &Group) -> Option<Timestamp> {
        let told = group.line.told.as_ref()?;
        let terms = self.terms.receiver(&group.receiver);
        let episodes = group.firing.keys().filter_map(|key| self.alerts.get(key));
        let every = episodes
            .map(|alert| terms.repeat(&self.terms.policy, Some(&alert.episode)))
            .filter(|every| !every.is_zero())
            .min()?;
        let jitter = format!("{}:{}", group.receiver, group.line.key);
        Some(told.at.plus(jittered(every, &jitter)))
    }

    /// Whether nobody wants to be reminded of any member, and until when that is so.
    fn unwanted(&self, group: &Group, now: Timestamp) -> Option<Held> {
        let mut first: Option<Held> = None;
        for key in group.firing.keys() {
            let alert = self.alerts.get(key)?;
            let acked = alert.acked.filter(|until| *until > now).map(|until| Held {
                by: By::Acked,
                until: Some(until),
            });
            let held = acked.or_else(|| self.terms.muted(&alert.episode, &group.receiver, now))?;
            if first.as_ref().is_none_or(|f| held.until < f.until) {
                first = Some(held);
            }
        }
        first
    }

    /// Says something about a group.
    pub(super) fn say_group(
        &mut self,
        group: &mut Group,
        kind: NoticeKind,
        now: Timestamp,
        turn: &mut Turn,
    ) {
        let (episodes, truncated) = self.shown(group, now);
        let Some(first) = episodes.first() else {
            return;
        };
        let was = first.severity;
        let severity = group.firing.worst().unwrap_or_else(|| {
            let levels = episodes.iter().map(|e| e.severity);
            levels.max().unwrap_or(was)
        });
        let words = Words {
            kind,
            severity,
            episodes,
            truncated,
            alone: false,
        };
        let sequence = self.count_sent(&group.receiver, now);
        let mut notice = group.line.say(&group.receiver, words, sequence, now);
        notice.group.clone_from(&group.labels);
        turn.notices.push(notice);
        group.opening = None;
        group.changed = false;
        self.dirty.insert(Id::Group(group.line.key.clone()));
    }

    /// The members a message shows: those that fire, worst first, then those whose end is news; up
    /// to half of the room is for these.
    fn shown(&self, group: &Group, now: Timestamp) -> (Vec<Episode>, usize) {
        let room = self.terms.receiver(&group.receiver).max_alerts;
        let total = group.firing.len() + group.ended.len() + group.orphans.len();
        let ends = group.ended.len() + group.orphans.len();
        let firing_room = room.saturating_sub(ends.min(room / 2)).max(1);
        let mut episodes: Vec<Episode> = group
            .firing
            .worst_first(firing_room)
            .into_iter()
            .filter_map(|key| Some(self.alerts.get(key)?.episode.clone()))
            .collect();
        let mut ended: Vec<Episode> = group
            .ended
            .iter()
            .filter_map(|key| {
                let alert = self.alerts.get(key)?;
                let member = match &alert.in_group(&group.line.key)?.way {
                    super::alert::Way::Group { member, .. } => member.as_ref()?,
                    super::alert::Way::Alone(_) => return None,
                };
                Some(alert.over(&member.episode, now))
            })
            .chain(group.orphans.iter().map(|e| over(e.clone(), now)))
            .collect();
        ended.sort_by_key(|e| std::cmp::Reverse(e.severity));
        ended.truncate(room.saturating_sub(episodes.len()));
        episodes.append(&mut ended);
        let truncated = total.saturating_sub(episodes.len());
        (episodes, truncated)
    }

    /// The rule that all its firing members share; empty: several.
    pub(super) fn group_rule(&self, group: &Group) -> String {
        let mut rules = group
            .firing
            .keys()
            .filter_map(|key| Some(self.alerts.get(key)?.episode.rule.as_str()));
        match rules.next() {
            Some(first) if rules.all(|rule| rule == first) => first.to_owned(),
            _ => String::new(),
        }
    }
}
