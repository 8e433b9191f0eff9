//! What people do to an alert: acknowledge it, end it. Named by its key, as receivers know it.

use super::Engine;
use crate::alert::Transition;
use crate::alert::rules::hash;
use crate::alert::rules::instance::{Ack, Instance};
use crate::alert::rules::state::Input;
use crate::alert::rules::step::{Stepped, event, update};
use crate::model::{DeviceId, Timestamp};

impl Engine {
    /// Somebody knows of it: reminders stop until then, or for the rest of the episode. `false`:
    /// nothing of that key is open.
    pub fn ack(
        &mut self,
        key: &str,
        until: Option<Timestamp>,
        now: Timestamp,
        out: &mut Vec<Transition>,
    ) -> bool {
        let ack = Ack {
            until: until.map(Timestamp::millis),
        };
        self.flag(key, Some(ack), now, out)
    }

    /// Takes an acknowledgement back.
    pub fn unack(&mut self, key: &str, now: Timestamp, out: &mut Vec<Transition>) -> bool {
        self.flag(key, None, now, out)
    }

    fn flag(
        &mut self,
        key: &str,
        ack: Option<Ack>,
        now: Timestamp,
        out: &mut Vec<Transition>,
    ) -> bool {
        let Some((slot, number)) = self.find(key) else {
            return false;
        };
        self.step(slot, number, out, |who, instance| {
            match instance.track.as_deref_mut() {
                Some(track) if track.state.is_open() => {
                    track.ack = ack;
                    Stepped {
                        transition: update(who, track, now.millis()),
                        urgent: true,
                        ..Stepped::default()
                    }
                }
                _ => Stepped::default(),
            }
        })
    }

    /// Ends an episode by hand; it fires again only after a clear reading. `false`: nothing of
    /// that key is open.
    pub fn resolve(&mut self, key: &str, now: Timestamp, out: &mut Vec<Transition>) -> bool {
        let Some((slot, number)) = self.find(key) else {
            return false;
        };
        self.step(slot, number, out, |who, instance| {
            event(who, instance, Input::Manual, now.millis(), None)
        })
    }

    /// The instance of a key.
    fn find(&self, key: &str) -> Option<(u32, u32)> {
        if let Some((rule, device)) = key.split_once(':').filter(|(rule, _)| *rule != "h") {
            let slot = *self.slots.get(&DeviceId::new(device)?)?;
            return Some((slot, self.rules.number(rule)?));
        }
        // A hashed key does not say whose it is. Only what has a track can be meant.
        let entries = (0..).zip(&self.entries);
        let mut tracks = entries.filter_map(|(slot, entry)| entry.as_ref().map(|e| (slot, e)));
        tracks.find_map(|(slot, entry)| {
            let with_track = entry.instances.iter().filter(|(_, i)| i.track.is_some());
            let named = |(number, _): &&(u32, Instance)| {
                let rule = &self.rules.rules()[*number as usize];
                hash::key(&rule.id, &entry.device) == key
            };
            with_track
                .clone()
                .find(named)
                .map(|(number, _)| (slot, *number))
        })
    }
}
