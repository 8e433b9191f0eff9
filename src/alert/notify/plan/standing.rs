//! How an alert stands with those who are told of it: for people who ask why they were not.

use super::alert::{Entry, Way};
use super::output::{By, Held, Standing};
use super::planner::Planner;
use super::told::Line;

impl Planner {
    /// Storms that take in what is new.
    pub fn storms_open(&self) -> usize {
        self.storms.values().filter(|storm| storm.open).count()
    }

    /// How an alert stands with each of its receivers; empty: nobody is to be told of it.
    pub fn suppressed(&self, key: &str) -> Vec<Standing> {
        let entries = self.alerts.get(key).map(|alert| &alert.entries);
        let entries = entries.into_iter().flatten();
        entries.map(|entry| self.standing(entry)).collect()
    }

    fn standing(&self, entry: &Entry) -> Standing {
        let (key, line, heard) = match (&entry.storm, &entry.way) {
            (Some(storm), _) => (storm, self.storms.get(storm).map(|s| &s.line), true),
            (None, Way::Alone(line)) => (&line.key, Some(line), true),
            (None, Way::Group { key, member }) => {
                let line = self.groups.get(key).map(|g| &g.line);
                let heard = |l: &Line| member.as_ref().is_some_and(|m| l.maybe > m.joined);
                (key, line, line.is_some_and(heard))
            }
        };
        let told = line.and_then(|l| l.told.as_ref()).filter(|_| heard);
        let held = match told {
            None => entry.held.clone().or_else(|| self.gathers(entry)),
            Some(_) => entry.held.clone(),
        };
        Standing {
            receiver: entry.receiver.clone(),
            key: key.clone(),
            told: told.map(|t| t.sure),
            severity: told.and_then(|t| t.severity),
            at: told.map(|t| t.at),
            under_way: line.and_then(|l| l.row.as_ref()).map(|row| row.kind),
            held,
        }
    }

    /// A member of a group that was not told yet.
    fn gathers(&self, entry: &Entry) -> Option<Held> {
        let Way::Group {
            key,
            member: Some(_),
        } = &entry.way
        else {
            return None;
        };
        let until = self.groups.get(key)?.opening;
        Some(Held {
            by: By::Group,
            until,
        })
    }
}
