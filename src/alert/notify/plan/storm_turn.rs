//! A storm's turn: it grows, speaks, calms down, and lets go of those left.

use super::alert::over;
use super::alone::Step;
use super::due::Id;
use super::output::{Held, RemarkKind};
use super::planner::{Planner, Turn};
use super::route::jittered;
use super::storm::{SAMPLES, StormState, top_labels};
use super::told::Words;
use crate::alert::{Episode, NoticeKind, Storm};
use crate::model::Timestamp;

impl Planner {
    pub(super) fn turn_storm(&mut self, key: &str, now: Timestamp, turn: &mut Turn) {
        let Some(mut storm) = self.storms.remove(key) else {
            return;
        };
        let id = Id::Storm(key.to_owned());
        let calm = storm.calm;
        if storm.calms(&self.terms.policy.storm, now) {
            self.close_storm(&mut storm, now);
        }
        if storm.calm != calm {
            self.dirty.insert(id.clone());
        }
        let repeat_at = self.storm_repeat_at(&storm);
        let hold = self.storm_hold(&storm, now);
        let mut next = match storm.decide(repeat_at, hold, now) {
            Step::Idle if storm.is_over() => {
                self.due.forget(&id);
                self.dirty.insert(id);
                // Those that waited for the pace need not any more.
                self.due.touch(Id::Gate(storm.receiver));
                return;
            }
            Step::Idle => None,
            Step::Wait(at) => Some(at),
            Step::Held(held) => held.until,
            Step::Recall => {
                turn.recall.extend(storm.line.recall());
                self.dirty.insert(id.clone());
                None
            }
            Step::Open => {
                self.say_storm(&mut storm, NoticeKind::Firing, now, turn);
                None
            }
            Step::Say(kind) => {
                self.say_storm(&mut storm, kind, now, turn);
                None
            }
            Step::Close => {
                self.say_storm(&mut storm, NoticeKind::Resolved, now, turn);
                None
            }
        };
        if let Some(since) = storm.calm.filter(|_| storm.open) {
            let over = since.plus(self.terms.policy.storm.calm.0);
            next = Some(next.map_or(over, |at| at.min(over)));
        }
        match next {
            Some(at) => self.wait(id, at, now),
            None => self.due.forget(&id),
        }
        self.storms.insert(key.to_owned(), storm);
    }

    fn storm_repeat_at(&self, storm: &StormState) -> Option<Timestamp> {
        let told = storm.line.told.as_ref()?;
        let terms = self.terms.receiver(&storm.receiver);
        let every = terms.repeat(&self.terms.policy, None);
        let jitter = format!("{}:{}", storm.receiver, storm.line.key);
        (!every.is_zero()).then(|| told.at.plus(jittered(every, &jitter)))
    }

    /// What keeps a storm's news back: a backlog, or that all those it shows are silenced.
    fn storm_hold(&self, storm: &StormState, now: Timestamp) -> Option<Held> {
        if let Some(until) = self.terms.hold_until(false, now) {
            let by = super::output::By::CatchUp;
            return Some(Held {
                by,
                until: Some(until),
            });
        }
        let mut held = None;
        for episode in &storm.sample {
            held = Some(self.terms.muted(episode, &storm.receiver, now)?);
        }
        held
    }

    fn close_storm(&mut self, storm: &mut StormState, now: Timestamp) {
        storm.open = false;
        storm.calm = None;
        self.dirty.insert(Id::Storm(storm.line.key.clone()));
        let left = std::mem::take(&mut storm.members);
        for key in left.keys() {
            let Some(alert) = self.alerts.get_mut(key) else {
                continue;
            };
            for entry in &mut alert.entries {
                if entry.storm.as_deref() == Some(&storm.line.key) {
                    entry.storm = None;
                    entry.waiting = true;
                }
            }
            self.dirty.insert(Id::Alert(key.clone()));
            self.touch_alert(key);
        }
        let receiver = storm.receiver.clone();
        let key = storm.line.key.clone();
        let detail = format!("{} alerts, {} of them still fire", storm.total, left.len());
        self.remark(
            now,
            RemarkKind::StormClosed,
            &key,
            None,
            Some(&receiver),
            None,
        )
        .detail = Some(detail);
    }

    fn say_storm(
        &mut self,
        storm: &mut StormState,
        kind: NoticeKind,
        now: Timestamp,
        turn: &mut Turn,
    ) {
        if kind == NoticeKind::Resolved {
            let ended = storm.sample.iter().filter(|e| e.ended.is_some());
            let mut ended: Vec<Episode> = ended.cloned().collect();
            if ended.is_empty() {
                ended = storm.sample.iter().take(1).cloned().collect();
            }
            storm.sample = ended.into_iter().map(|e| over(e, now)).collect();
        } else {
            self.resample(storm);
        }
        if storm.sample.is_empty() {
            // All were over before it could be told.
            return;
        }
        if kind == NoticeKind::Firing {
            self.note_opening(&storm.receiver, "", now);
        }
        let severity = storm.members.worst().unwrap_or(storm.worst);
        let most = self.terms.receiver(&storm.receiver).max_alerts;
        let mut episodes = storm.sample.clone();
        episodes.truncate(most);
        let truncated = storm.total.saturating_sub(episodes.len());
        let words = Words {
            kind,
            severity,
            episodes,
            truncated,
            alone: false,
        };
        let sequence = self.count_sent(&storm.receiver, now);
        let mut notice = storm.line.say(&storm.receiver, words, sequence, now);
        notice.storm = Some(Storm {
            total: storm.total,
            firing: storm.members.len(),
            top: storm.top.clone(),
            since: storm.since,
        });
        if let Some(rule) = &storm.rule {
            notice.group.insert("rule".into(), rule.clone());
        }
        turn.notices.push(notice);
        storm.told_total = storm.total;
        self.dirty.insert(Id::Storm(storm.line.key.clone()));
    }

    /// Who is shown: the worst that fire. The last ones stay where none does.
    fn resample(&self, storm: &mut StormState) {
        let firing = storm.members.keys();
        let firing = firing.filter_map(|key| Some(&self.alerts.get(key)?.episode));
        let top = top_labels(firing);
        let shown = storm.members.worst_first(SAMPLES).into_iter();
        let shown: Vec<Episode> = shown
            .filter_map(|key| Some(self.alerts.get(key)?.episode.clone()))
            .collect();
        if !shown.is_empty() {
            storm.sample = shown;
            storm.top = top;
        }
    }
}
