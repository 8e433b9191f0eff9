//! Rules are exchanged while some of them fire: each episode goes on, is judged anew or ends, by
//! what part of its rule changed. None is left behind.

use std::sync::Arc;

use super::Engine;
use crate::alert::rules::counts::{Census, RuleCounts};
use crate::alert::rules::evaluate::{Levels, Test, Verdict};
use crate::alert::rules::instance::{Instance, Track};
use crate::alert::rules::judge::Touched;
use crate::alert::rules::rule::{Prints, Rule};
use crate::alert::rules::select::{Match, View};
use crate::alert::rules::set::RuleSet;
use crate::alert::rules::state::State;
use crate::alert::rules::step::{Stepped, Who, dress, edited, update};
use crate::alert::{EndReason, Transition};
use crate::model::{Severity, Timestamp};

impl Engine {
    /// Puts other rules in force.
    pub fn replace(&mut self, rules: Arc<RuleSet>, now: Timestamp, out: &mut Vec<Transition>) {
        let old = Arc::clone(&self.rules);
        let slots = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        // What is gone ends under the old numbers, while there is still a rule to ask.
        for slot in 0..slots {
            for number in self.numbers(slot) {
                let id = &old.rules()[number as usize].id;
                let reason = match rules.get(id) {
                    None => EndReason::RuleDeleted,
                    Some(rule) if !rule.config.enabled => EndReason::RuleDisabled,
                    Some(_) => continue,
                };
                self.retire(slot, number, reason, now, out);
                self.remove(slot, number);
            }
        }
        self.renumber(&old, rules);
        for slot in 0..slots {
            for number in self.numbers(slot) {
                let rules = Arc::clone(&self.rules);
                let id = &rules.rules()[number as usize].id;
                if let Some(before) = old.get(id) {
                    self.adopt(slot, number, before.prints, Some(before), now, out);
                }
            }
            self.seed(slot, now);
            self.release_if_empty(slot);
        }
        self.requeue_all();
    }

    fn numbers(&self, slot: u32) -> Vec<u32> {
        let entry = self.entries[slot as usize].as_ref();
        entry.map_or_else(Vec::new, |entry| {
            entry.instances.iter().map(|(number, _)| *number).collect()
        })
    }

    /// Moves everything that goes by a rule's number to its new one.
    fn renumber(&mut self, old: &RuleSet, rules: Arc<RuleSet>) {
        let moved: Vec<Option<u32>> = old
            .rules()
            .iter()
            .map(|rule| rules.number(&rule.id))
            .collect();
        let to = |number: u32| moved[number as usize];
        for entry in self.entries.iter_mut().flatten() {
            // Both orders are that of the ids: what was sorted stays sorted.
            let instances = std::mem::take(&mut entry.instances).into_iter();
            entry.instances = instances
                .filter_map(|(number, instance)| Some((to(number)?, instance)))
                .collect();
        }
        for list in [&mut self.urgent, &mut self.touched] {
            let pairs = std::mem::take(list).into_iter();
            *list = pairs
                .filter_map(|(slot, number)| Some((slot, to(number)?)))
                .collect();
        }
        let mut census = vec![Census::default(); rules.len()];
        let mut counts = vec![RuleCounts::default(); rules.len()];
        for (number, place) in moved.iter().enumerate() {
            let taken = std::mem::take(&mut self.counts[number]);
            match place {
                Some(place) => {
                    census[*place as usize] = self.census[number];
                    counts[*place as usize] = taken;
                }
                None => self.gone.push((Arc::clone(&old.rules()[number].id), taken)),
            }
        }
        self.census = census;
        self.counts = counts;
        self.rules = rules;
    }

    /// Brings an instance made by an earlier form of its rule under the present one. `old`: that
    /// form, if it is still known.
    pub(super) fn adopt(
        &mut self,
        slot: u32,
        number: u32,
        prints: Prints,
        old: Option<&Rule>,
        now: Timestamp,
        out: &mut Vec<Transition>,
    ) {
        let rule = Arc::clone(&self.rules.rules()[number as usize]);
        if rule.prints == prints {
            return;
        }
        if rule.prints.subject != prints.subject {
            self.retire(slot, number, EndReason::RuleChanged, now, out);
            self.remove(slot, number);
            return;
        }
        if rule.prints.select != prints.select && !self.selects(slot, number, &rule) {
            self.retire(slot, number, EndReason::OutOfScope, now, out);
            self.remove(slot, number);
            return;
        }
        if rule.prints.meaning != prints.meaning {
            self.step(slot, number, out, |who, instance| {
                rejudge(who, instance, old, now.millis())
            });
        }
        if rule.prints.looks != prints.looks {
            self.step(slot, number, out, |who, instance| {
                match instance.track.as_deref_mut() {
                    Some(track) if track.state.is_open() => {
                        dress(who.rule, track);
                        Stepped {
                            transition: update(who, track, now.millis()),
                            urgent: true,
                            ..Stepped::default()
                        }
                    }
                    _ => Stepped::default(),
                }
            });
        }
        // Stored again with today's prints, or the edit would be found again at the next start.
        if self.numbers(slot).contains(&number) {
            let before = self.state(slot, number);
            let touched = Touched {
                urgent: false,
                changed: true,
            };
            self.settle(slot, number, before, touched);
        }
    }

    fn state(&self, slot: u32, number: u32) -> State {
        let entry = self.entries[slot as usize].as_ref();
        let find = |entry: &super::Entry| {
            entry
                .find(number)
                .ok()
                .map(|p| entry.instances[p].1.state())
        };
        entry.and_then(find).unwrap_or_default()
    }

    /// Whether the rule's new selector takes the device, as far as is known of it.
    fn selects(&self, slot: u32, number: u32, rule: &Rule) -> bool {
        let Some(entry) = self.entries[slot as usize].as_ref() else {
            return false;
        };
        let known = entry.known.as_deref();
        let place = entry.find(number).ok();
        let track = place.and_then(|place| entry.instances[place].1.track.as_deref());
        let mut tags: Vec<(String, String)> = Vec::new();
        let mut kind = None;
        let episode = track.and_then(|track| track.episode.as_deref());
        if let Some(episode) = episode {
            tags.extend(
                episode
                    .tags
                    .iter()
                    .map(|(n, v)| (n.to_string(), v.to_string())),
            );
            kind = episode.device_type.as_deref();
        }
        if let Some(known) = known {
            for (name, value) in &known.tags {
                if !tags.iter().any(|(n, _)| n == name) {
                    tags.push((name.clone(), value.clone()));
                }
            }
            kind = kind.or(known.kind.as_deref());
        }
        // Of a device that only its readings describe, and that has no episode, the next reading
        // tells; until then it is not missed.
        let view = View {
            device: entry.device.as_str(),
            kind,
            tags: &tags,
            stream: track.and_then(|track| track.stream.as_deref()),
            topic: track.and_then(|track| track.topic.as_deref()),
            fields: &[],
        };
        rule.selector.matches(&view) != Match::No
    }
}

/// What the last value says under the rule's new form.
fn rejudge(who: &Who<'_>, instance: &mut Instance, old: Option<&Rule>, now: i64) -> Stepped {
    let rule = who.rule;
    let presence = instance.presence();
    let Some(track) = instance.track.as_deref_mut() else {
        return Stepped::default();
    };
    let verdict = match (&track.value, presence) {
        (_, Some(presence)) => silent_levels(rule, presence.since, now),
        (Some(value), _) if now - track.last_received <= rule.max_age_ms => {
            match rule.judge(value) {
                Some(verdict) => verdict,
                None => return Stepped::default(),
            }
        }
        // What was said too long ago is neither breach nor recovery.
        _ => return Stepped::default(),
    };
    match track.state {
        State::Firing | State::Recovering => edited(who, track, verdict, now),
        State::Pending => {
            let keeps = old.is_some_and(|old| is_looser(rule, old));
            restart(track, verdict, keeps);
            let stepped = Stepped {
                urgent: true,
                ..Stepped::default()
            };
            if track.is_idle() {
                instance.track = None;
            }
            stepped
        }
        State::Ok => Stepped::default(),
    }
}

/// Which levels silence since then has reached.
fn silent_levels(rule: &Rule, since: i64, now: i64) -> Verdict {
    let silent = match rule.condition {
        crate::alert::rules::rule::Condition::Absence { silence_ms, .. } => silence_ms,
        _ => i64::MAX,
    };
    let mut verdict = Verdict::default();
    for (severity, level) in rule.ladder() {
        let due = since.saturating_add(silent).saturating_add(level.for_ms);
        if due <= now {
            verdict.trigger = verdict.trigger.with(severity);
        } else {
            verdict.clear = verdict.clear.with(severity);
        }
    }
    verdict
}

/// Timers survive an edit only where the trigger got looser; otherwise what counts is from now on.
fn restart(track: &mut Track, verdict: Verdict, keep: bool) {
    let last_at = track.last_at;
    for severity in Severity::ALL {
        let since = &mut track.since[severity as usize];
        *since = match verdict.trigger.has(severity) {
            true if keep => Some(since.unwrap_or(last_at)),
            true => Some(last_at),
            false => None,
        };
    }
    if verdict.trigger == Levels::NONE {
        track.state = State::Ok;
    }
}

/// Whether whatever breached a level of `old` breaches that level now.
fn is_looser(new: &Rule, old: &Rule) -> bool {
    let level = |severity: Severity| match (new.level(severity), old.level(severity)) {
        (Some(new), Some(old)) => match (&new.trigger, &old.trigger) {
            (Some(new), Some(old)) => Test::implies(old, new),
            _ => false,
        },
        (None, Some(_)) => false,
        (_, None) => true,
    };
    Severity::ALL.into_iter().all(level)
}
