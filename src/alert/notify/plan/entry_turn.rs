//! One alert's turn: what it does at each of its receivers.

use super::alert::{Alert, Cooldown, Entry, Member, Way};
use super::alone::{Step, View, decide};
use super::due::Id;
use super::output::{By, Held, RemarkKind};
use super::planner::{Planner, Turn};
use super::route::jittered;
use super::told::{FLAPPING, Line, Words};
use super::transition::heard_of;
use crate::alert::{Episode, NoticeKind};
use crate::model::{Severity, Timestamp};

impl Planner {
    /// Flapping comes to its end; what nobody needs is forgotten.
    pub(super) fn turn_alert(&mut self, key: &str, now: Timestamp) {
        let Some(alert) = self.alerts.get_mut(key) else {
            return;
        };
        let before = alert.flap.clone();
        let steady = alert.flap.turn_to(now, &self.terms.policy.flap);
        if alert.flap != before {
            self.dirty.insert(Id::Alert(key.to_owned()));
        }
        if steady {
            let episode = alert.episode.clone();
            self.remark(now, RemarkKind::Steady, key, Some(&episode), None, None);
            self.touch_alert(key);
        }
        self.keep_or_forget(key, now);
    }

    /// Forgets an alert of which nobody knows and that has no past worth remembering.
    fn keep_or_forget(&mut self, key: &str, now: Timestamp) {
        let Some(alert) = self.alerts.get(key) else {
            return;
        };
        // What fires and concerns nobody has no past either: there is nobody to spare.
        if alert.entries.is_empty() && (alert.flap.is_empty() || alert.fires()) {
            self.alerts.remove(key);
            self.due.forget(&Id::Alert(key.to_owned()));
            self.dirty.insert(Id::Alert(key.to_owned()));
        } else if let Some(at) = alert.flap.next(&self.terms.policy.flap) {
            self.wait(Id::Alert(key.to_owned()), at, now);
        }
    }

    pub(super) fn turn_entry(&mut self, key: &str, slot: u32, now: Timestamp, turn: &mut Turn) {
        let Some(mut alert) = self.alerts.remove(key) else {
            return;
        };
        let Some(index) = alert.entries.iter().position(|entry| entry.slot == slot) else {
            self.alerts.insert(key.to_owned(), alert);
            return;
        };
        let id = Id::Entry(key.to_owned(), slot);
        let step = match (&alert.entries[index].storm, &alert.entries[index].way) {
            (Some(storm), _) => {
                let by = By::Storm(storm.clone());
                Step::Held(Held { by, until: None })
            }
            (None, Way::Alone(_)) => self.step_alone(&mut alert, index, now),
            (None, Way::Group { .. }) => self.step_member(&mut alert, index, now),
        };
        self.do_step(&mut alert, index, step, now, turn);
        let kept = self.keep_entry(&mut alert, index, now);
        if !kept {
            alert.entries.remove(index);
            alert.prune_past();
            self.due.forget(&id);
            self.dirty.insert(Id::Alert(key.to_owned()));
        }
        self.alerts.insert(key.to_owned(), alert);
        if !kept {
            self.keep_or_forget(key, now);
        }
    }

    fn step_alone(&mut self, alert: &mut Alert, index: usize, now: Timestamp) -> Step {
        let flapping = alert.held_by_flapping();
        let acked_until = alert.acked.filter(|until| *until > now);
        let (late, episode) = (alert.late, &alert.episode);
        let entry = &mut alert.entries[index];
        let Way::Alone(line) = &mut entry.way else {
            return Step::Idle;
        };
        if let Some(told) = &mut line.told
            && flapping != told.flapping
        {
            // What was told goes on as whatever episode there is; after it, the next is news.
            if flapping && told.episode.as_ref() != Some(&episode.id) {
                told.episode = Some(episode.id.clone());
                self.dirty.insert(Id::Alert(episode.key.clone()));
            }
            if !flapping {
                told.flapping = false;
                self.dirty.insert(Id::Alert(episode.key.clone()));
            }
        } else if let Some(told) = &mut line.told
            && flapping
            && told.episode.as_ref() != Some(&episode.id)
        {
            told.episode = Some(episode.id.clone());
            self.dirty.insert(Id::Alert(episode.key.clone()));
        }
        let terms = self.terms.receiver(&entry.receiver);
        let every = terms.repeat(&self.terms.policy, Some(episode));
        let jitter = format!("{}:{}", entry.receiver, line.key);
        let repeat_at = line.told.as_ref().filter(|_| !every.is_zero());
        let named = episode.receivers.contains(&entry.receiver);
        let cooldown = entry.cooldown.as_ref();
        let view = View {
            line,
            episode,
            flapping,
            ends_only: entry.left || self.terms.is_retired(&entry.receiver),
            waiting: entry.waiting,
            short_lived: self.terms.policy.notify_short_lived,
            min_severity: if named {
                Severity::Info
            } else {
                terms.min_severity
            },
            repeat_at: repeat_at.map(|told| told.at.plus(jittered(every, &jitter))),
            acked_until,
            cool_at: cooldown.and_then(|c| self.terms.cool_at(c.at, c.severity, episode)),
            hold_until: self.terms.hold_until(late, now),
            muted: &|| self.terms.muted(episode, &entry.receiver, now),
        };
        decide(&view, now)
    }

    /// Joins the group as soon as nothing speaks against it; leaves it again if something does
    /// before it was told.
    fn step_member(&mut self, alert: &mut Alert, index: usize, now: Timestamp) -> Step {
        let fires = alert.fires();
        let (late, episode) = (alert.late, &alert.episode);
        let entry = &mut alert.entries[index];
        let Way::Group { key, member } = &mut entry.way else {
            return Step::Idle;
        };
        let silenced = || self.terms.muted(episode, &entry.receiver, now);
        if let Some(joined) = member.as_ref().filter(|m| !m.ended) {
            let unsaid = self
                .groups
                .get(key)
                .is_none_or(|g| !heard_of(joined, &g.line));
            let gone = entry.left || self.terms.is_retired(&entry.receiver);
            let held = if gone { None } else { silenced() };
            if !unsaid || (!gone && held.is_none()) {
                return Step::Idle;
            }
            *member = None;
            entry.waiting = !entry.left;
            if let Some(group) = self.groups.get_mut(key) {
                group.firing.remove(&episode.key);
                group.changed = true;
            }
            self.due.touch(Id::Group(key.clone()));
            self.dirty.insert(Id::Alert(episode.key.clone()));
            return held.map_or(Step::Idle, Step::Held);
        }
        let gone = entry.left || self.terms.is_retired(&entry.receiver);
        if !fires || !entry.waiting || gone {
            return Step::Idle;
        }
        let terms = self.terms.receiver(&entry.receiver);
        let named = episode.receivers.contains(&entry.receiver);
        if !named && episode.severity < terms.min_severity {
            let by = By::MinSeverity;
            return Step::Held(Held { by, until: None });
        }
        if let Some(until) = self.terms.hold_until(late, now) {
            let by = By::CatchUp;
            return Step::Held(Held {
                by,
                until: Some(until),
            });
        }
        if let Some(held) = silenced() {
            return Step::Held(held);
        }
        // An end that is not told yet is as fresh as can be.
        let untold = member
            .as_ref()
            .and_then(|m| alert.past.iter().find(|e| e.id == m.episode));
        let untold = untold.and_then(|e| Some((e.ended?.at.min(now), e.severity)));
        let told = entry.cooldown.as_ref().map(|c| (c.at, c.severity));
        let cool_at = untold
            .or(told)
            .and_then(|(at, s)| self.terms.cool_at(at, s, episode));
        if let Some(until) = cool_at.filter(|at| *at > now) {
            let by = By::Cooldown;
            return Step::Held(Held {
                by,
                until: Some(until),
            });
        }
        let wait = terms.group_wait;
        let (receiver, key) = (entry.receiver.clone(), key.clone());
        entry.waiting = false;
        let old = member.take();
        let critical = episode.severity == Severity::Critical;
        let group = self.group(&key, &receiver, episode);
        let sequence = group.line.sequence;
        let row = group.line.row.as_ref();
        let closing = row.is_some_and(|row| row.kind == NoticeKind::Resolved);
        group.ended.remove(&episode.key);
        group.firing.insert(&episode.key, episode.severity);
        group.changed = true;
        let opening = if critical { now } else { now.plus(wait) };
        group.opening = Some(group.opening.map_or(opening, |at| at.min(opening)));
        if let Way::Group { member, .. } = &mut alert.entries[index].way {
            *member = Some(Member {
                episode: alert.episode.id.clone(),
                // One that came back before its end was said never left.
                joined: old.filter(|_| !closing).map_or(sequence, |m| m.joined),
                changed: sequence,
                ended: false,
            });
        }
        alert.prune_past();
        self.dirty.insert(Id::Group(key.clone()));
        self.due.touch(Id::Group(key));
        self.dirty.insert(Id::Alert(alert.episode.key.clone()));
        Step::Idle
    }

    fn do_step(
        &mut self,
        alert: &mut Alert,
        index: usize,
        step: Step,
        now: Timestamp,
        turn: &mut Turn,
    ) {
        let key = alert.episode.key.clone();
        let id = Id::Entry(key.clone(), alert.entries[index].slot);
        alert.entries[index].held = None;
        match step {
            Step::Idle => self.due.forget(&id),
            Step::Wait(at) => self.wait(id, at, now),
            Step::Held(held) => self.keep_back(alert, index, held, now),
            Step::Recall => {
                if let Way::Alone(line) = &mut alert.entries[index].way {
                    turn.recall.extend(line.recall());
                }
                self.dirty.insert(Id::Alert(key));
            }
            Step::Open => {
                turn.openings.insert(id);
            }
            Step::Say(kind) => {
                if self.has_room(&alert.entries[index].receiver, &id, false, now) {
                    let episode = alert.episode.clone();
                    self.say_alone(alert, index, kind, episode, now, turn);
                } else {
                    let (by, until) = (By::Pace, None);
                    alert.entries[index].held = Some(Held { by, until });
                }
            }
            Step::Close => {
                if self.has_room(&alert.entries[index].receiver, &id, true, now) {
                    let told = match &alert.entries[index].way {
                        Way::Alone(line) => line.told.as_ref().and_then(|t| t.episode.clone()),
                        Way::Group { .. } => None,
                    };
                    let episode = alert.over(told.as_deref().unwrap_or(""), now);
                    self.say_alone(alert, index, NoticeKind::Resolved, episode, now, turn);
                } else {
                    let (by, until) = (By::Pace, None);
                    alert.entries[index].held = Some(Held { by, until });
                }
            }
        }
    }

    /// Says something about one alert.
    pub(super) fn say_alone(
        &mut self,
        alert: &mut Alert,
        index: usize,
        kind: NoticeKind,
        mut episode: Episode,
        now: Timestamp,
        turn: &mut Turn,
    ) {
        if kind != NoticeKind::Resolved && alert.held_by_flapping() {
            episode.ended = None;
            episode.flags.push(FLAPPING.into());
        }
        if kind == NoticeKind::Firing {
            // Told though it is over: as it was.
            episode.ended = None;
        }
        let entry = &mut alert.entries[index];
        let sequence = self.count_sent(&entry.receiver, now);
        let Way::Alone(line) = &mut entry.way else {
            return;
        };
        let words = Words {
            kind,
            severity: episode.severity,
            episodes: vec![episode],
            truncated: 0,
            alone: true,
        };
        turn.notices
            .push(line.say(&entry.receiver, words, sequence, now));
        self.dirty.insert(Id::Alert(alert.episode.key.clone()));
    }

    /// Remembers why nothing is said, and writes it down once.
    fn keep_back(&mut self, alert: &mut Alert, index: usize, held: Held, now: Timestamp) {
        let key = alert.episode.key.clone();
        let entry = &mut alert.entries[index];
        let id = Id::Entry(key.clone(), entry.slot);
        match held.until {
            Some(at) => self.wait(id, at, now),
            None => self.due.forget(&id),
        }
        let worth = matches!(held.by, By::Silence(_) | By::Quiet(_) | By::Cooldown);
        if worth && entry.waiting && entry.noted.as_ref() != Some(&held.by) {
            entry.noted = Some(held.by.clone());
            let receiver = entry.receiver.clone();
            let by = Some(held.by.clone());
            let episode = Some(&alert.episode);
            self.remark(
                now,
                RemarkKind::Suppressed,
                &key,
                episode,
                Some(&receiver),
                by,
            );
            self.dirty.insert(Id::Alert(key));
        }
        entry.held = Some(held);
    }

    /// Whether an entry still means something. One that is over and was never told says so.
    fn keep_entry(&mut self, alert: &mut Alert, index: usize, now: Timestamp) -> bool {
        let fires = alert.fires();
        let entry = &mut alert.entries[index];
        if !entry.is_idle() || (fires && !entry.left) {
            return true;
        }
        let untold = entry.waiting && !fires;
        let alone = matches!(entry.way, Way::Alone(_));
        if untold && alone && self.terms.policy.notify_short_lived && entry.held.is_none() {
            // On its way to be told all the same.
            return true;
        }
        if untold {
            entry.waiting = false;
            let refused = matches!(&entry.way, Way::Alone(Line { retry: Some(_), .. }));
            let kind = if refused {
                RemarkKind::NeverNotified
            } else {
                RemarkKind::CancelledUnsent
            };
            let (receiver, by) = (entry.receiver.clone(), entry.noted.take());
            let key = alert.episode.key.clone();
            let episode = Some(&alert.episode);
            self.remark(now, kind, &key, episode, Some(&receiver), by);
            self.dirty.insert(Id::Alert(key));
        }
        self.cools(&alert.entries[index], &alert.episode, now)
    }

    /// Whether the end of an episode still counts for the next.
    fn cools(&mut self, entry: &Entry, episode: &Episode, now: Timestamp) -> bool {
        let Some(Cooldown { at, .. }) = entry.cooldown else {
            return false;
        };
        // The next episode may come with another wish.
        let wish = episode.wishes.cooldown.unwrap_or_default();
        let length = wish.max(self.terms.policy.cooldown.0);
        let over = at.plus(length);
        if over > now {
            self.wait(Id::Entry(episode.key.clone(), entry.slot), over, now);
        }
        over > now
    }
}
