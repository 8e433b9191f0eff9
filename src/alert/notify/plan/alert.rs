//! One alert as the planner remembers it: its episode, and for each receiver how far it was told.

use serde::{Deserialize, Serialize};

use super::flap::Flap;
use super::output::{By, Held};
use super::told::Line;
use crate::alert::{EndReason, Ended, Episode};
use crate::model::{Severity, Timestamp};

/// As good as never: the end of the calendar.
pub(super) const FAR: Timestamp = Timestamp::from_millis(253_370_764_800_000);

/// An alert somebody has to be told of, or was a short while ago.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    pub(super) id: String,
    /// The current episode, or the last.
    pub(super) episode: Episode,
    /// Earlier ones whose end some receiver is still owed.
    pub(super) past: Vec<Episode>,
    pub(super) flap: Flap,
    /// Until when reminders are not wanted.
    pub(super) acked: Option<Timestamp>,
    /// The episode came to light long after it began: there is a backlog.
    pub(super) late: bool,
    pub(super) entries: Vec<Entry>,
}

/// One alert at one receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    /// Tells it from the others of the alert.
    pub slot: u32,
    pub receiver: String,
    pub way: Way,
    /// The current episode was not told, nor did it join a storm or a group.
    pub waiting: bool,
    /// The key of the storm that speaks for it.
    pub storm: Option<String>,
    /// The end last told.
    pub cooldown: Option<Cooldown>,
    /// The alert is no longer meant for this receiver: only its end is told.
    pub left: bool,
    /// What kept it back when that was last written down.
    pub noted: Option<By>,
    #[serde(skip)]
    pub held: Option<Held>,
}

/// How it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Way {
    /// For itself.
    Alone(Line),
    /// With others.
    Group { key: String, member: Option<Member> },
}

/// Its place in a group. Numbers are those of the group's requests: what was said with a greater
/// number than `joined` included it, and with a greater one than `changed` told its latest state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Member {
    pub episode: String,
    pub joined: u64,
    pub changed: u64,
    pub ended: bool,
}

/// The end of an episode that was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cooldown {
    pub at: Timestamp,
    pub severity: Severity,
}

impl Entry {
    /// Nothing of it is known to the receiver, nor under way.
    pub fn is_idle(&self) -> bool {
        self.storm.is_none()
            && match &self.way {
                Way::Alone(line) => line.is_idle(),
                Way::Group { member, .. } => member.is_none(),
            }
    }

    /// Whether the receiver knows, or is about to be told with others, of an episode.
    pub fn knows(&self, episode: &str) -> bool {
        self.storm.is_some()
            || match &self.way {
                Way::Alone(line) => {
                    let told = line.told.as_ref().and_then(|t| t.episode.as_deref());
                    told == Some(episode)
                }
                Way::Group { member, .. } => member.as_ref().is_some_and(|m| !m.ended),
            }
    }

    fn refers(&self, episode: &str) -> bool {
        match &self.way {
            Way::Alone(line) => {
                let told = line.told.as_ref().and_then(|t| t.episode.as_deref());
                let row = line.row.as_ref().and_then(|r| r.episode.as_deref());
                told == Some(episode) || row == Some(episode)
            }
            Way::Group { member, .. } => member.as_ref().is_some_and(|m| m.episode == episode),
        }
    }
}

impl Alert {
    pub fn new(episode: Episode) -> Self {
        Self {
            id: format!("alert:{}", episode.key),
            episode,
            past: Vec::new(),
            flap: Flap::default(),
            acked: None,
            late: false,
            entries: Vec::new(),
        }
    }

    /// Whether the current episode fires.
    pub(super) fn fires(&self) -> bool {
        self.episode.ended.is_none()
    }

    /// Whether it is held as firing though it comes and goes. Somebody's decision is not held.
    pub(super) fn held_by_flapping(&self) -> bool {
        self.flap.flaps()
            && self.episode.ended.is_none_or(|ended| {
                matches!(
                    ended.reason,
                    EndReason::ConditionCleared | EndReason::NoData
                )
            })
    }

    pub(super) fn entry(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.slot == slot)
    }

    /// The entry by which it belongs to a group.
    pub(super) fn in_group(&self, group: &str) -> Option<&Entry> {
        let belongs = |way: &Way| matches!(way, Way::Group { key, .. } if key == group);
        self.entries.iter().find(|entry| belongs(&entry.way))
    }

    /// Likewise, and its place there.
    pub(super) fn member_mut(&mut self, group: &str) -> Option<(&mut Entry, u32)> {
        let slot = self.in_group(group)?.slot;
        self.entry(slot).map(|entry| (entry, slot))
    }

    /// Adds a receiver.
    pub(super) fn add(&mut self, receiver: &str, way: Way) -> &mut Entry {
        let slot = self.entries.iter().map(|e| e.slot + 1).max().unwrap_or(0);
        self.entries.push(Entry {
            slot,
            receiver: receiver.to_owned(),
            way,
            waiting: true,
            storm: None,
            cooldown: None,
            left: false,
            noted: None,
            held: None,
        });
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    /// An episode by its id, over: one that is not known to have ended has by now.
    pub(super) fn over(&self, id: &str, now: Timestamp) -> Episode {
        let found = self.past.iter().find(|episode| episode.id == id);
        over(found.unwrap_or(&self.episode).clone(), now)
    }

    /// Forgets the episodes that nobody is owed anything of.
    pub(super) fn prune_past(&mut self) {
        let entries = &self.entries;
        self.past
            .retain(|episode| entries.iter().any(|entry| entry.refers(&episode.id)));
    }
}

/// An episode with an end.
pub(super) fn over(mut episode: Episode, now: Timestamp) -> Episode {
    if episode.ended.is_none() {
        episode.ended = Some(Ended {
            at: now,
            reason: EndReason::ConditionCleared,
        });
    }
    episode
}
