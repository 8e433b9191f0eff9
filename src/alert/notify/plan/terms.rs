//! What holds for all alerts at the moment: the policy, the receivers, silences, quiet hours, and
//! whether the watcher is catching up.

use std::collections::BTreeMap;
use std::time::Duration;

use super::output::{By, Held};
use super::quiet::QuietHours;
use super::route::Receiver;
use super::silence::Silence;
use crate::alert::Episode;
use crate::config::{AlertsConfig, ReceiverConfig};
use crate::model::{Severity, Timestamp};

/// The longest that a backlog keeps back what just began.
const CATCH_UP: Duration = Duration::from_secs(60);

/// Everything that is not memory.
#[derive(Debug)]
pub(super) struct Terms {
    pub policy: AlertsConfig,
    pub receivers: BTreeMap<String, Receiver>,
    retired: Receiver,
    pub silences: Vec<Silence>,
    pub quiet: QuietHours,
    holding: bool,
    /// When the first turn of this hold was.
    held_since: Option<Timestamp>,
}

impl Terms {
    pub fn new(policy: &AlertsConfig, receivers: &[ReceiverConfig]) -> Self {
        let compiled =
            |config: &ReceiverConfig| (config.name.clone(), Receiver::new(policy, config));
        Self {
            policy: policy.clone(),
            receivers: receivers.iter().map(compiled).collect(),
            retired: Receiver::retired(policy),
            silences: Vec::new(),
            quiet: QuietHours::new(&policy.quiet),
            holding: false,
            held_since: None,
        }
    }

    /// The same under another configuration.
    pub fn configure(&mut self, policy: &AlertsConfig, receivers: &[ReceiverConfig]) {
        let fresh = Self::new(policy, receivers);
        let before = std::mem::replace(self, fresh);
        self.silences = before.silences;
        self.holding = before.holding;
        self.held_since = before.held_since;
    }

    /// A receiver's terms; those of a stranger where it is no longer configured.
    pub fn receiver(&self, name: &str) -> &Receiver {
        self.receivers.get(name).unwrap_or(&self.retired)
    }

    pub fn is_retired(&self, name: &str) -> bool {
        !self.receivers.contains_key(name)
    }

    /// `true`: that is a change.
    pub fn hold(&mut self, holding: bool) -> bool {
        let changed = self.holding != holding;
        self.holding = holding;
        if changed {
            self.held_since = None;
        }
        changed
    }

    /// Prepares for judging at `now`.
    pub fn turn_to(&mut self, now: Timestamp) {
        self.quiet.turn_to(now);
        if self.holding {
            self.held_since.get_or_insert(now);
        }
    }

    /// Until when a backlog keeps back what is said next, while what it is about may be over
    /// further on in it: a minute, or longer for what was `late` when it came to light.
    pub fn hold_until(&self, late: bool, now: Timestamp) -> Option<Timestamp> {
        let since = self.held_since.filter(|_| self.holding)?;
        let longest = if late {
            self.policy.max_alert_age.0
        } else {
            CATCH_UP
        };
        Some(since.plus(longest)).filter(|until| *until > now)
    }

    /// The silence or the quiet hours that keep an alert from a receiver.
    pub fn muted(&self, episode: &Episode, receiver: &str, now: Timestamp) -> Option<Held> {
        let silences = self.silences.iter();
        let silence = silences
            .filter(|s| s.active(now) && s.covers(episode, receiver))
            .max_by_key(|s| s.ends);
        if let Some(silence) = silence {
            return Some(Held {
                by: By::Silence(silence.id.clone()),
                until: Some(silence.ends),
            });
        }
        let (name, until) = self.quiet.hold(episode, receiver)?;
        Some(Held {
            by: By::Quiet(name.to_owned()),
            until: Some(until),
        })
    }

    /// When the cooldown after an episode is over for the next one.
    pub fn cool_at(
        &self,
        ended: Timestamp,
        severity: Severity,
        next: &Episode,
    ) -> Option<Timestamp> {
        let length = next.wishes.cooldown.unwrap_or(self.policy.cooldown.0);
        (next.severity <= severity).then(|| ended.plus(length))
    }
}
