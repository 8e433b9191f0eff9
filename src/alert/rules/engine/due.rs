//! What silence does by itself: absence, a `for` on the clock of receipt, stale episodes,
//! acknowledgements that run out. Only ticks of the stream's own time get here, so that neither
//! lag nor a replay can let a deadline pass early.

use std::cmp::Reverse;

use super::{Engine, State};
use crate::alert::Transition;
use crate::alert::rules::instance::Instance;
use crate::alert::rules::rule::Rule;
use crate::alert::rules::state::Input;
use crate::alert::rules::step::{Stepped, event, silent, update};
use crate::model::{Severity, Timestamp};

/// Ticks further apart than this mean that nobody was looking in between, in milliseconds.
const BLIND_MS: i64 = 15_000;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// The last reading qualifies a level.
    Hold(Severity),
    /// Silence has reached a level.
    Silence(Severity),
    /// An acknowledgement runs out.
    Unack,
    /// An episode is stale.
    Stale,
    /// An episode ends for want of data.
    NoData,
    /// What ended long ago may be forgotten.
    Forget,
}

impl Engine {
    /// The stream's own time is `stream_time`: every reading received before it has been shown.
    /// Deadlines up to it pass, unless the gateway is blind (`frozen`): then none does, and when
    /// it sees again each waits a little longer.
    pub fn tick(&mut self, stream_time: Timestamp, frozen: bool, out: &mut Vec<Transition>) {
        let now = stream_time.millis();
        let last = self.clock.tick;
        self.clock.tick = last.max(Some(now));
        if frozen {
            self.clock.frozen = true;
            return;
        }
        if self.clock.frozen || last.is_none_or(|last| now.saturating_sub(last) > BLIND_MS) {
            self.clock.frozen = false;
            self.clock.thawed = now;
        }
        self.pass(now, out);
    }

    /// Time passes up to `to`, and nobody was blind meanwhile: for who tells a whole story and
    /// need not tick through it.
    pub fn advance(&mut self, to: Timestamp, out: &mut Vec<Transition>) {
        let now = to.millis();
        if self.clock.tick.is_none() {
            self.clock.thawed = now;
        }
        self.clock.frozen = false;
        self.clock.tick = self.clock.tick.max(Some(now));
        self.pass(now, out);
    }

    /// Lets every deadline up to `now` pass.
    fn pass(&mut self, now: i64, out: &mut Vec<Transition>) {
        while let Some(Reverse((at, slot, number))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            if self.unqueue(slot, number, at) {
                self.look(slot, number, at, now, out);
            }
        }
    }

    /// When [`Engine::tick`] may have something to do, at the earliest.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let Reverse((at, _, _)) = self.due.peek()?;
        Some(Timestamp::from_millis(*at))
    }

    /// Whether that place in the queue is still the instance's own.
    fn unqueue(&mut self, slot: u32, number: u32, at: i64) -> bool {
        let Some(Some(entry)) = self.entries.get_mut(slot as usize) else {
            return false;
        };
        let Ok(place) = entry.find(number) else {
            return false;
        };
        let instance = &mut entry.instances[place].1;
        let own = instance.queued == at;
        if own {
            instance.queued = i64::MAX;
        }
        own
    }

    /// Does what is due for one instance by `to`, and queues it again for what comes later: so that
    /// over a long time everything happens in order.
    fn look(&mut self, slot: u32, number: u32, to: i64, now: i64, out: &mut Vec<Transition>) {
        let rule = std::sync::Arc::clone(&self.rules.rules()[number as usize]);
        let thawed = self.clock.thawed;
        // Four levels at the most, then stale, no data, unack, forget: more would be a loop.
        for _ in 0..16 {
            let room = self.room(&rule, number);
            let Some(entry) = self.entries[slot as usize].as_ref() else {
                return;
            };
            let gap_ms = super::gap_ms(&rule, entry.known.as_deref());
            let next = entry
                .find(number)
                .ok()
                .and_then(|place| due(&entry.instances[place].1, &rule, gap_ms, thawed));
            let Some((at, what)) = next.filter(|(at, _)| *at <= to) else {
                break;
            };
            let mut limited = false;
            self.step(slot, number, out, |who, instance| {
                let stepped = act(who, instance, what, at, room);
                limited = stepped.limited;
                stepped
            });
            if limited {
                // Tried again with the next tick that is a while away, not in a busy loop.
                self.requeue(slot, number, now.saturating_add(BLIND_MS));
                return;
            }
        }
        self.requeue(slot, number, i64::MIN);
    }

    /// Queues an instance for its next deadline, but not before `least`.
    fn requeue(&mut self, slot: u32, number: u32, least: i64) {
        let rule = &self.rules.rules()[number as usize];
        let thawed = self.clock.thawed;
        let Some(entry) = self.entries[slot as usize].as_mut() else {
            return;
        };
        let gap_ms = super::gap_ms(rule, entry.known.as_deref());
        let Ok(place) = entry.find(number) else {
            return;
        };
        let instance = &mut entry.instances[place].1;
        if let Some(at) = instance.deadline(rule, gap_ms, thawed) {
            let at = at.max(least);
            if at < instance.queued {
                instance.queued = at;
                self.due.push(Reverse((at, slot, number)));
            }
        }
    }

    /// Queues every instance anew, after rule numbers or the clock have changed.
    pub(super) fn requeue_all(&mut self) {
        self.due.clear();
        let mut all = Vec::new();
        for (slot, entry) in (0..).zip(&mut self.entries) {
            for (number, instance) in entry.iter_mut().flat_map(|entry| &mut entry.instances) {
                instance.queued = i64::MAX;
                all.push((slot, *number));
            }
        }
        for (slot, number) in all {
            self.requeue(slot, number, i64::MIN);
        }
    }
}

/// The first thing due. At one instant what fires comes before what ends.
fn due(instance: &Instance, rule: &Rule, gap_ms: Option<i64>, thawed: i64) -> Option<(i64, Due)> {
    let silence = instance
        .silence_deadline(rule, thawed)
        .map(|(at, level)| (at, Due::Silence(level)));
    let Some(track) = &instance.track else {
        return silence;
    };
    let hold = track.wall_deadline(rule, gap_ms);
    let stale_after = rule.stale_after_ms.filter(|_| !track.stale);
    [
        silence,
        hold.map(|(at, level)| (at, Due::Hold(level))),
        track
            .ack
            .and_then(|ack| ack.until)
            .map(|at| (at, Due::Unack)),
        track
            .no_data_at(rule, stale_after, thawed)
            .map(|at| (at, Due::Stale)),
        track
            .no_data_at(rule, rule.resolve_after_ms, thawed)
            .map(|at| (at, Due::NoData)),
        track.forget_at().map(|at| (at, Due::Forget)),
    ]
    .into_iter()
    .flatten()
    .min_by_key(|(at, _)| *at)
}

fn act(
    who: &crate::alert::rules::step::Who<'_>,
    instance: &mut Instance,
    what: Due,
    at: i64,
    room: bool,
) -> Stepped {
    match what {
        Due::Hold(level) => event(who, instance, Input::Deadline, at, Some(level)),
        Due::Stale => event(who, instance, Input::Silence(false), at, None),
        Due::NoData => event(who, instance, Input::Silence(true), at, None),
        Due::Silence(level) => {
            let since = instance.presence().map_or(at, |presence| presence.since);
            silent(who, instance, level, at, since, room)
        }
        Due::Unack => {
            let mut stepped = Stepped::default();
            if let Some(track) = instance.track.as_deref_mut() {
                track.ack = None;
                if track.state.is_open() {
                    stepped.transition = update(who, track, at);
                    stepped.urgent = true;
                }
            }
            stepped
        }
        Due::Forget => {
            if let Some(track) = instance.track.as_deref_mut() {
                track.episode = None;
                track.state = State::Ok;
                if track.is_idle() {
                    instance.track = None;
                }
            }
            Stepped::default()
        }
    }
}
