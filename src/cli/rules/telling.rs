//! The second half of a story: what changes go through the planner that runs in the gateway, on the
//! story's clock, and every message it decides on is accepted at once.

use super::fixture::{Case, Fixture, Notified};
use super::play::offset;
use super::report::diff;
use crate::alert::notify::plan::Planner;
use crate::alert::{Delivery, Notice, Settled, Transition};
use crate::config::ReceiverConfig;
use crate::model::Timestamp;

/// A change, and when in the story it was told.
pub(super) type Happened = (Timestamp, Transition);

/// Compares what receivers are sent with what a story expects, line by line.
pub(super) fn notifications(
    fixture: &Fixture,
    case: &Case,
    told: &[Happened],
    end: Timestamp,
) -> Option<String> {
    let expected = case.notifications.as_ref()?;
    let sent = sent(fixture, told, end);
    let start = fixture.start;
    let wishes: Vec<String> = expected.iter().map(|one| wish(one, start)).collect();
    let lines: Vec<String> = sent.iter().map(|notice| line(notice, start)).collect();
    let fits = |e: usize, s: usize| fits(&expected[e], &sent[s], start);
    diff(&wishes, &lines, fits)
        .map(|diff| format!("notifications differ (- expected, + found):\n{diff}"))
}

/// What receivers are sent until the end.
fn sent(fixture: &Fixture, told: &[Happened], end: Timestamp) -> Vec<Notice> {
    let someone = [ReceiverConfig {
        name: "receiver".into(),
        ..ReceiverConfig::default()
    }];
    let receivers: &[ReceiverConfig] = match fixture.receivers.is_empty() {
        true => &someone,
        false => &fixture.receivers,
    };
    let mut planner = Planner::new(&fixture.alerts, receivers);
    let mut sent = Vec::new();
    for (now, transition) in told {
        pass(&mut planner, *now, &mut sent);
        planner.transition(transition, *now);
        plan(&mut planner, *now, &mut sent);
    }
    pass(&mut planner, end, &mut sent);
    sent
}

/// Lets the planner do what is due until then.
fn pass(planner: &mut Planner, until: Timestamp, sent: &mut Vec<Notice>) {
    let mut last = None;
    while let Some(due) = planner.next_due().filter(|due| *due <= until) {
        // What is due again at once has been done.
        if last.is_some_and(|last| due <= last) {
            break;
        }
        last = Some(due);
        plan(planner, due, sent);
    }
}

fn plan(planner: &mut Planner, now: Timestamp, sent: &mut Vec<Notice>) {
    // An end may make the next message due.
    loop {
        let plan = planner.plan(now);
        if plan.notices.is_empty() {
            return;
        }
        for notice in plan.notices {
            let settled = Settled {
                notice: notice.clone(),
                outcome: Delivery::Accepted,
                at: now,
            };
            planner.settled(&settled, now);
            sent.push(notice);
        }
    }
}

fn reason(notice: &Notice) -> Option<&'static str> {
    let ended = notice.episodes.first()?.ended?;
    Some(ended.reason.name())
}

fn fits(wanted: &Notified, notice: &Notice, start: Timestamp) -> bool {
    let same =
        |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
    wanted.kind == notice.kind.name()
        && wanted.at.is_none_or(|at| at.from(start) == notice.at)
        && same(&wanted.receiver, &notice.receiver)
        && wanted.severity.is_none_or(|level| level == notice.severity)
        && wanted
            .reason
            .as_deref()
            .is_none_or(|wanted| Some(wanted) == reason(notice))
}

fn line(notice: &Notice, start: Timestamp) -> String {
    let reason = reason(notice).map_or_else(String::new, |reason| format!(" {reason}"));
    format!(
        "{} {} {} {}{reason}",
        offset(notice.at, start),
        notice.kind.name(),
        notice.receiver,
        notice.severity,
    )
}

fn wish(wanted: &Notified, start: Timestamp) -> String {
    let any = || "*".to_owned();
    let mut words = vec![
        wanted
            .at
            .map_or_else(any, |at| offset(at.from(start), start)),
        wanted.kind.clone(),
        wanted.receiver.clone().unwrap_or_else(any),
        wanted.severity.map_or_else(any, |level| level.to_string()),
    ];
    words.extend(wanted.reason.clone());
    words.join(" ")
}
