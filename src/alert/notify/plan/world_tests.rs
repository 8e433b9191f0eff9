//! A small world to plan in: alerts that come and go, an outbox, receivers that answer, do not,
//! or lose the answer, and a process that dies at any moment and starts from what was stored.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Doc, Plan, Planner, Saved, Silence};
use crate::alert::{
    Change, Delivery, EndReason, Ended, Episode, Notice, NoticeKind, Settled, Transition, Wishes,
};
use crate::config::{AlertsConfig, Incident, ReceiverConfig, Span};
use crate::model::{Severity, Timestamp};

/// 2026-03-14, some time in the morning.
pub const START: i64 = 1_773_479_730_000;

/// How a receiver behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Up,
    /// Connection refused: certainly not heard.
    Down,
    /// Heard, but the answer is lost.
    Lost,
    /// Not heard, and not known to be.
    Timeout,
    /// Refused for good.
    Reject,
}

/// What a receiver heard about one incident.
#[derive(Debug, Default, Clone)]
pub struct Heard {
    pub notices: Vec<Notice>,
    /// Some request's fate was unclear.
    pub doubtful: bool,
    /// Some request was sent again by hand, out of its order.
    pub replayed: bool,
}

impl Heard {
    pub fn open(&self) -> bool {
        let last = self.notices.last();
        last.is_some_and(|n| n.kind != NoticeKind::Resolved)
    }

    pub fn kinds(&self) -> Vec<NoticeKind> {
        self.notices.iter().map(|n| n.kind).collect()
    }
}

#[derive(Debug)]
pub struct Row {
    pub notice: Notice,
    ambiguous: bool,
    recalled: bool,
    outcome: Option<Delivery>,
    /// The planner has taken note.
    seen: bool,
}

pub struct World {
    pub now: Timestamp,
    pub policy: AlertsConfig,
    pub receivers: Vec<ReceiverConfig>,
    pub planner: Planner,
    pub docs: BTreeMap<String, String>,
    pub rows: Vec<Row>,
    pub modes: BTreeMap<String, Mode>,
    pub heard: BTreeMap<(String, String), Heard>,
    pub alerts: BTreeMap<String, Episode>,
    pub silences: Vec<Silence>,
    pub hold: bool,
    /// Only the ids of documents are kept: there is no restart.
    pub lean: bool,
    pub remarks: Vec<super::Remark>,
    /// Requests by receiver and time.
    pub sent: Vec<(String, Timestamp, NoticeKind)>,
    changes: Vec<Transition>,
}

pub fn receiver(name: &str, incident: Incident) -> ReceiverConfig {
    ReceiverConfig {
        name: name.into(),
        incident: Some(incident),
        ..ReceiverConfig::default()
    }
}

pub fn policy() -> AlertsConfig {
    let mut policy = AlertsConfig::default();
    policy.flap.high = 0;
    policy.flap.low = 0;
    policy.cooldown = Span::secs(0);
    policy
}

pub fn episode(rule: &str, device: &str, severity: Severity, at: Timestamp) -> Episode {
    Episode {
        key: format!("{rule}:{device}"),
        id: format!("{rule}:{device}@{at}"),
        sequence: 1,
        rule: rule.into(),
        name: rule.into(),
        kind: "threshold".into(),
        device: device.into(),
        device_type: Some("sensor".into()),
        tags: BTreeMap::from([("site".to_owned(), "north".to_owned())]),
        field: Some("temperature".into()),
        unit: None,
        op: Some(">".into()),
        severity,
        value: Some(8.5.into()),
        peak: Some(8.5),
        threshold: Some(8.0),
        clear: None,
        started_at: at,
        fired_at: at,
        ended: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        receivers: Vec::new(),
        wishes: Wishes::default(),
        flags: Vec::new(),
    }
}

impl World {
    pub fn new(policy: AlertsConfig, receivers: Vec<ReceiverConfig>) -> Self {
        Self {
            now: Timestamp::from_millis(START),
            planner: Planner::new(&policy, &receivers),
            policy,
            receivers,
            docs: BTreeMap::new(),
            rows: Vec::new(),
            modes: BTreeMap::new(),
            heard: BTreeMap::new(),
            alerts: BTreeMap::new(),
            silences: Vec::new(),
            hold: false,
            lean: false,
            remarks: Vec::new(),
            sent: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// One receiver of alerts, one at a time.
    pub fn alone() -> Self {
        Self::new(policy(), vec![receiver("oncall", Incident::Alert)])
    }

    /// One receiver of groups.
    pub fn grouped() -> Self {
        Self::new(policy(), vec![receiver("chat", Incident::Group)])
    }

    fn change(&mut self, change: Change, episode: Episode, previous: Option<Severity>) {
        self.alerts.insert(episode.key.clone(), episode.clone());
        self.changes.push(Transition {
            change,
            at: self.now,
            previous,
            episode,
        });
    }

    pub fn fire(&mut self, rule: &str, device: &str, severity: Severity) {
        let mut next = episode(rule, device, severity, self.now);
        if let Some(old) = self.alerts.get(&next.key) {
            if old.ended.is_none() {
                return;
            }
            next.sequence = old.sequence + 1;
            next.id = format!("{}#{}", next.id, next.sequence);
        }
        self.change(Change::Fired, next, None);
    }

    pub fn level(&mut self, key: &str, severity: Severity) {
        let Some(old) = self.alerts.get(key).cloned() else {
            return;
        };
        if old.ended.is_some() || old.severity == severity {
            return;
        }
        let change = if severity > old.severity {
            Change::Escalated
        } else {
            Change::Deescalated
        };
        let previous = Some(old.severity);
        let next = Episode {
            severity,
            sequence: old.sequence + 1,
            ..old
        };
        self.change(change, next, previous);
    }

    pub fn end(&mut self, key: &str) {
        self.end_because(key, EndReason::ConditionCleared);
    }

    pub fn end_because(&mut self, key: &str, reason: EndReason) {
        let Some(old) = self.alerts.get(key).cloned() else {
            return;
        };
        if old.ended.is_some() {
            return;
        }
        let at = self.now;
        let next = Episode {
            ended: Some(Ended { at, reason }),
            sequence: old.sequence + 1,
            ..old
        };
        self.change(Change::Resolved, next, None);
    }

    pub fn update(&mut self, key: &str, edit: impl FnOnce(&mut Episode)) {
        let mut next = self.alerts[key].clone();
        next.sequence += 1;
        edit(&mut next);
        self.change(Change::Updated, next, None);
    }

    pub fn silence(&mut self, matcher: &str, lasting: Duration) {
        self.silences.push(Silence {
            id: format!("s{}", self.silences.len()),
            matchers: vec![matcher.parse().unwrap()],
            starts: self.now,
            ends: self.now.plus(lasting),
            author: "me".into(),
            comment: "works".into(),
        });
        self.planner.silences(self.silences.clone());
    }

    pub fn configure(&mut self, policy: AlertsConfig, receivers: Vec<ReceiverConfig>) {
        self.planner.configure(&policy, &receivers);
        self.policy = policy;
        self.receivers = receivers;
    }

    /// A fresh process.
    pub fn restart(&mut self) {
        self.planner = reloaded(&self.docs, &self.policy, &self.receivers);
        self.planner.silences(self.silences.clone());
        self.planner.hold(self.hold);
    }

    fn feed(&mut self) -> Plan {
        for row in self.rows.iter().filter(|r| !r.seen) {
            if let Some(outcome) = &row.outcome {
                let settled = Settled {
                    notice: row.notice.clone(),
                    outcome: outcome.clone(),
                    at: self.now,
                };
                self.planner.settled(&settled, self.now);
            }
        }
        for change in &self.changes {
            self.planner.transition(change, self.now);
        }
        self.planner.plan(self.now)
    }

    /// Plans, and dies before it is stored.
    pub fn plan_and_die(&mut self) {
        self.feed();
        self.restart();
    }

    /// Plans and stores; the number of new requests.
    pub fn plan(&mut self) -> usize {
        let plan = self.feed();
        self.changes.clear();
        for row in self.rows.iter_mut().filter(|r| r.outcome.is_some()) {
            row.seen = true;
        }
        self.commit(plan)
    }

    fn commit(&mut self, plan: Plan) -> usize {
        let count = plan.notices.len();
        for doc in &plan.changed {
            let text = match self.lean {
                true => String::new(),
                false => serde_json::to_string(doc).unwrap(),
            };
            self.docs.insert(doc.id().to_owned(), text);
        }
        for id in &plan.removed {
            assert!(self.docs.remove(id).is_some(), "{id} was not there");
        }
        for notice in plan.notices {
            let busy = self.rows.iter().any(|row| {
                row.outcome.is_none()
                    && row.notice.receiver == notice.receiver
                    && row.notice.key == notice.key
            });
            assert!(!busy, "two under way for {}", notice.key);
            assert!(self.rows.iter().all(|row| row.notice.id != notice.id));
            assert!(!notice.episodes.is_empty());
            if notice.kind == NoticeKind::Resolved {
                assert!(notice.episodes.iter().all(|e| e.ended.is_some()));
            }
            self.sent
                .push((notice.receiver.clone(), self.now, notice.kind));
            self.rows.push(Row {
                notice,
                ambiguous: false,
                recalled: false,
                outcome: None,
                seen: false,
            });
        }
        for id in plan.recall {
            if let Some(row) = self.rows.iter_mut().find(|row| row.notice.id == id) {
                row.recalled = true;
            }
        }
        self.remarks.extend(plan.remarks);
        count
    }

    /// One attempt for every row under way.
    pub fn deliver(&mut self) {
        for row in self.rows.iter_mut().filter(|row| row.outcome.is_none()) {
            let to = (row.notice.receiver.clone(), row.notice.key.clone());
            let heard = self.heard.entry(to).or_default();
            let ambiguous = row.ambiguous;
            if row.recalled {
                row.outcome = Some(Delivery::Recalled { ambiguous });
                continue;
            }
            match self.modes.get(&row.notice.receiver).copied() {
                None | Some(Mode::Up) => {
                    hear(heard, &row.notice);
                    row.outcome = Some(Delivery::Accepted);
                }
                Some(Mode::Down) => {}
                Some(Mode::Lost) => {
                    hear(heard, &row.notice);
                    heard.doubtful = true;
                    row.ambiguous = true;
                }
                Some(Mode::Timeout) => {
                    heard.doubtful = true;
                    row.ambiguous = true;
                }
                Some(Mode::Reject) => {
                    let reason = "400".to_owned();
                    row.outcome = Some(Delivery::Dead { reason, ambiguous });
                }
            }
        }
    }

    /// Somebody sends a dead row again, and it is accepted.
    pub fn replay(&mut self, index: usize) {
        let row = &mut self.rows[index];
        assert!(matches!(row.outcome, Some(Delivery::Dead { .. })));
        let to = (row.notice.receiver.clone(), row.notice.key.clone());
        let heard = self.heard.entry(to).or_default();
        heard.notices.push(row.notice.clone());
        heard.replayed = true;
        heard.doubtful = true;
        row.outcome = Some(Delivery::Accepted);
        row.seen = false;
    }

    /// The rows that were given up, or those under way that are no ends: one who takes an end back
    /// has what he asked for.
    pub fn rows_that_are(&self, dead: bool) -> Vec<usize> {
        let fits = |row: &Row| match &row.outcome {
            Some(Delivery::Dead { .. }) => dead && row.seen,
            Some(_) => false,
            None => !dead && row.notice.kind != NoticeKind::Resolved,
        };
        (0..self.rows.len())
            .filter(|n| fits(&self.rows[*n]))
            .collect()
    }

    /// Somebody takes a row back.
    pub fn drop_row(&mut self, index: usize) {
        let row = &mut self.rows[index];
        let ambiguous = row.ambiguous;
        row.outcome = Some(Delivery::Recalled { ambiguous });
    }

    /// Plans and delivers as often as something follows from it, without time going by.
    pub fn run(&mut self) {
        for _ in 0..20 {
            self.plan();
            let open = self.rows.iter().filter(|r| r.outcome.is_none()).count();
            self.deliver();
            let left = self.rows.iter().filter(|r| r.outcome.is_none()).count();
            if open == left && self.changes.is_empty() {
                return;
            }
        }
        panic!(
            "it never comes to rest: {:?}",
            &self.sent[self.sent.len() - 5..]
        );
    }

    pub fn advance(&mut self, by: Duration) {
        self.now = self.now.plus(by);
    }

    /// Lets time go by, waking up whenever the planner asks.
    pub fn pass(&mut self, by: Duration) {
        let end = self.now.plus(by);
        self.run();
        let mut turns = 0;
        while let Some(due) = self.planner.next_due()
            && due <= end
        {
            turns += 1;
            assert!(turns < 20_000, "it never sleeps");
            self.now = due.max(self.now);
            self.run();
        }
        self.now = end;
        self.run();
    }

    pub fn secs(&mut self, secs: u64) {
        self.pass(Duration::from_secs(secs));
    }

    /// What one receiver heard about an alert.
    pub fn told(&self, receiver: &str, key: &str) -> Vec<NoticeKind> {
        let key = (receiver.to_owned(), format!("tidegate:{key}"));
        self.heard.get(&key).map(Heard::kinds).unwrap_or_default()
    }

    /// What one receiver heard, whatever about.
    pub fn all_told(&self, receiver: &str) -> Vec<Notice> {
        let mine = self.heard.iter().filter(|((name, _), _)| name == receiver);
        let mut notices: Vec<Notice> = mine.flat_map(|(_, h)| h.notices.clone()).collect();
        notices.sort_by_key(|n| (n.at, n.sequence));
        notices
    }

    pub fn remarked(&self, kind: super::RemarkKind) -> usize {
        self.remarks.iter().filter(|r| r.kind == kind).count()
    }
}

pub fn reloaded(
    docs: &BTreeMap<String, String>,
    policy: &AlertsConfig,
    receivers: &[ReceiverConfig],
) -> Planner {
    let mut planner = Planner::new(policy, receivers);
    let docs: Vec<Doc> = docs
        .values()
        .map(|text| {
            // By way of what the database keeps.
            let doc: Doc = serde_json::from_str(text).unwrap();
            let stored = mongodb::bson::to_document(&doc).unwrap();
            mongodb::bson::from_document(stored).unwrap()
        })
        .collect();
    planner.load(Saved { docs });
    planner
}

/// A receiver that folds what it hears twice.
fn hear(heard: &mut Heard, notice: &Notice) {
    if let Some(known) = heard.notices.iter().find(|n| n.id == notice.id) {
        assert_eq!(known, notice, "one id with two contents");
        return;
    }
    if let Some(last) = heard.notices.last() {
        assert!(last.sequence < notice.sequence, "{} goes back", notice.key);
    }
    let open = heard.open();
    match notice.kind {
        NoticeKind::Firing => assert!(!open || heard.replayed, "fires twice: {}", notice.key),
        NoticeKind::Update | NoticeKind::Repeat | NoticeKind::Resolved => assert!(
            open || heard.doubtful,
            "{:?} of what is not known: {}",
            notice.kind,
            notice.key
        ),
        NoticeKind::Test => {}
    }
    heard.notices.push(notice.clone());
}
