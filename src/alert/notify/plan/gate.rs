//! How many requests one receiver gets: what opens a storm, and the pace while there is one.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::due::Id;
use super::window::Window;
use crate::config::StormConfig;
use crate::model::Timestamp;

/// Where the pace is counted, whatever the storm's own window.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// One receiver's counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    pub(super) id: String,
    pub(super) receiver: String,
    /// Number of the last request. Lines are forgotten when nothing is owed on them; their numbers
    /// grow all the same, and so no id is given twice.
    pub(super) sequence: u64,
    /// Requests of any kind.
    pub(super) sent: Window,
    /// New incidents by rule; storms and groups of several rules under the empty name.
    pub(super) openings: Vec<(String, Window)>,
    /// Since when it is no longer configured.
    pub(super) retired: Option<Timestamp>,
    /// Lines that wait for the pace, those with an end to tell first.
    #[serde(skip)]
    pub(super) paced: BTreeSet<(bool, Id)>,
}

impl Gate {
    pub fn new(receiver: &str) -> Self {
        Self {
            id: format!("receiver:{receiver}"),
            receiver: receiver.to_owned(),
            sequence: 0,
            sent: Window::default(),
            openings: Vec::new(),
            retired: None,
            paced: BTreeSet::new(),
        }
    }

    /// New incidents of one rule within the window.
    pub(super) fn opened(&self, rule: &str, config: &StormConfig, now: Timestamp) -> usize {
        let window = self.openings.iter().find(|(name, _)| name == rule);
        window.map_or(0, |(_, w)| w.count(now, config.window.0))
    }

    /// New incidents of all rules within the window.
    pub(super) fn opened_at_all(&self, config: &StormConfig, now: Timestamp) -> usize {
        let counts = self
            .openings
            .iter()
            .map(|(_, w)| w.count(now, config.window.0));
        counts.sum()
    }

    pub(super) fn note_opening(&mut self, rule: &str, now: Timestamp) {
        match self.openings.iter_mut().find(|(name, _)| name == rule) {
            Some((_, window)) => window.add(now, 1),
            None => {
                let mut window = Window::default();
                window.add(now, 1);
                self.openings.push((rule.to_owned(), window));
            }
        }
    }

    /// Forgets what has left the windows; `true`: something did.
    pub(super) fn prune(&mut self, config: &StormConfig, now: Timestamp) -> bool {
        let before = (
            self.sent.next(MINUTE),
            self.openings.len(),
            self.next(config),
        );
        self.sent.prune(now, MINUTE);
        for (_, window) in &mut self.openings {
            window.prune(now, config.window.0);
        }
        self.openings.retain(|(_, window)| !window.is_empty());
        before
            != (
                self.sent.next(MINUTE),
                self.openings.len(),
                self.next(config),
            )
    }

    /// When something leaves the windows next.
    pub(super) fn next(&self, config: &StormConfig) -> Option<Timestamp> {
        let openings = self
            .openings
            .iter()
            .filter_map(|(_, w)| w.next(config.window.0));
        openings.chain(self.sent.next(MINUTE)).min()
    }

    /// How many more requests that are no new incidents fit into this minute of a storm: with as
    /// many new incidents of one rule as open a storm, and the storm's own messages, they stay
    /// below twice that number.
    pub(super) fn room(&self, config: &StormConfig, now: Timestamp) -> usize {
        let budget = (2 * config.open).saturating_sub(5).max(10);
        budget.saturating_sub(self.sent.count(now, MINUTE))
    }

    /// Nothing worth keeping over a restart.
    pub(super) fn is_empty(&self) -> bool {
        self.sequence == 0 && self.openings.is_empty() && self.retired.is_none()
    }
}
