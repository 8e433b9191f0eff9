//! What the next transaction will write, gathered from everybody who has something to write.

use super::notify::plan::{Plan, Remark};
use super::own::OwnAlert;
use super::rules::InstanceDocument;
use super::{Delivery, Settled, Transition};
use serde::Serialize;

use crate::model::Timestamp;
use crate::store::{Commit, Kept, Line, NoDocument};

/// A commit in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub commit: Commit,
}

/// A line of history about an alert.
#[derive(Serialize)]
struct Changed<'a> {
    what: &'static str,
    rule: &'a str,
    device: &'a str,
    severity: &'static str,
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    transition: &'a Transition,
}

impl Draft {
    /// An alert changed, `by` somebody if it was not its readings.
    pub fn transition(
        &mut self,
        transition: &Transition,
        by: Option<&str>,
    ) -> Result<(), NoDocument> {
        let episode = &transition.episode;
        let line = Changed {
            what: transition.change.name(),
            rule: &episode.rule,
            device: &episode.device,
            severity: episode.severity.name(),
            reason: episode.ended.map(|ended| ended.reason.name()),
            by,
            transition,
        };
        self.line(transition.at, &episode.key, &line)
    }

    /// The gateway's own alerts changed.
    pub fn own(&mut self, changed: Vec<(String, OwnAlert)>) -> Result<(), NoDocument> {
        for (key, alert) in changed {
            self.commit.state.push(Kept::put(key, &alert)?);
        }
        Ok(())
    }

    /// What the planner wants remembered; its notices become rows elsewhere.
    pub fn plan(&mut self, plan: &Plan) -> Result<(), NoDocument> {
        for doc in &plan.changed {
            self.commit.notices.push(Kept::put(doc.id(), doc)?);
        }
        self.commit
            .notices
            .extend(plan.removed.iter().map(Kept::gone));
        for remark in &plan.remarks {
            self.remark(remark)?;
        }
        Ok(())
    }

    fn remark(&mut self, remark: &Remark) -> Result<(), NoDocument> {
        #[derive(Serialize)]
        struct Remarked<'a> {
            what: &'static str,
            remark: &'a Remark,
        }
        let line = Remarked {
            what: remark.kind.name(),
            remark,
        };
        self.line(remark.at, &remark.key, &line)
    }

    /// Alerts as they stand, and those that need not be kept any more.
    pub fn instances(
        &mut self,
        documents: &[InstanceDocument],
        removed: &[String],
    ) -> Result<(), NoDocument> {
        let state = &mut self.commit.state;
        // Removed first: what is put after it stays.
        state.extend(removed.iter().map(Kept::gone));
        for document in documents {
            state.push(Kept::put(document.key.clone(), document)?);
        }
        Ok(())
    }

    /// A part of the feed was missed and judged by query.
    pub fn gap(
        &mut self,
        since: Timestamp,
        until: Timestamp,
        cause: &'static str,
        judged: u64,
    ) -> Result<(), NoDocument> {
        #[derive(Serialize)]
        struct Gap {
            what: &'static str,
            since: Timestamp,
            cause: &'static str,
            judged: i64,
        }
        let gap = Gap {
            what: "gap",
            since,
            cause,
            judged: i64::try_from(judged).unwrap_or(i64::MAX),
        };
        self.line(until, "tidegate.alert_gap:gateway", &gap)
    }

    /// A request to a receiver has ended.
    pub fn settled(&mut self, settled: &Settled) -> Result<(), NoDocument> {
        #[derive(Serialize)]
        struct Told<'a> {
            what: &'static str,
            receiver: &'a str,
            row: &'a str,
            kind: &'static str,
            severity: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            why: Option<&'a str>,
        }
        let (what, why) = match &settled.outcome {
            Delivery::Accepted => ("accepted", None),
            Delivery::Dead { reason, .. } => ("dead", Some(reason.as_str())),
            Delivery::Recalled { .. } => ("recalled", None),
        };
        let notice = &settled.notice;
        let line = Told {
            what,
            receiver: &notice.receiver,
            row: &notice.id,
            kind: notice.kind.name(),
            severity: notice.severity.name(),
            why,
        };
        // A group's or a storm's line is found under each alert it was about.
        let about = notice.episodes.iter().map(|episode| episode.key.as_str());
        for key in about {
            self.line(settled.at, key, &line)?;
        }
        Ok(())
    }

    /// Somebody did something about an alert.
    pub fn asked(
        &mut self,
        what: &'static str,
        key: &str,
        by: &str,
        at: Timestamp,
    ) -> Result<(), NoDocument> {
        #[derive(Serialize)]
        struct Asked<'a> {
            what: &'static str,
            by: &'a str,
        }
        self.line(at, key, &Asked { what, by })
    }

    fn line(&mut self, at: Timestamp, key: &str, line: &impl Serialize) -> Result<(), NoDocument> {
        self.commit.history.push(Line::new(at, key, line)?);
        Ok(())
    }
}
