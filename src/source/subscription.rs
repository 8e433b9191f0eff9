//! What should be subscribed and what the broker granted. Pure.

use std::time::{Duration, Instant};

use crate::model::QoS;

/// The filters of one connection, each with its `$share` prefix where one is due.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscription {
    /// As sent to the broker.
    pub filters: Vec<String>,
    /// Asked for beside them: where this connection hears its own canaries.
    pub canary: Option<String>,
}

/// What the broker did not grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals {
    /// Of the filters; empty: all granted.
    pub filters: Vec<String>,
    /// Of the canary's topic.
    pub canary: Option<String>,
}

impl Subscription {
    /// Puts every filter that has no share prefix of its own into `group`, unless that is empty.
    pub fn new(filters: &[String], group: &str) -> Self {
        let shared = |filter: &String| match filter {
            filter if group.is_empty() || filter.starts_with("$share/") => filter.clone(),
            filter => format!("$share/{group}/{filter}"),
        };
        Self {
            filters: filters.iter().map(shared).collect(),
            canary: None,
        }
    }

    /// The same with the canary's topic.
    pub fn with_canary(self, topic: Option<&str>) -> Self {
        Self {
            canary: topic.map(str::to_owned),
            ..self
        }
    }

    /// Everything to ask for, in one request.
    pub fn all(&self) -> Vec<String> {
        self.filters.iter().chain(&self.canary).cloned().collect()
    }

    /// Filters that `self` has and `other` lacks.
    pub fn without(&self, other: &Self) -> Vec<String> {
        self.filters
            .iter()
            .filter(|f| !other.filters.contains(f))
            .cloned()
            .collect()
    }

    /// The same filters as they would read with and without `group`: what an earlier run of this
    /// gateway may have left in the session.
    pub fn other_spellings(&self, group: &str) -> Vec<String> {
        let other = |filter: &String| match filter.strip_prefix("$share/") {
            Some(rest) => rest.split_once('/').map(|(_, plain)| plain.to_owned()),
            None if group.is_empty() => None,
            None => Some(format!("$share/{group}/{filter}")),
        };
        self.filters.iter().filter_map(other).collect()
    }

    /// What stands in the way, given the broker's answer.
    pub fn refusals(&self, granted: &[Result<QoS, String>]) -> Refusals {
        let asked = self.filters.len() + usize::from(self.canary.is_some());
        if granted.len() != asked {
            let answered = granted.len();
            return Refusals {
                filters: vec![format!(
                    "the broker answered for {answered} of {asked} filters"
                )],
                canary: None,
            };
        }
        let refusal = |(filter, answer): (&String, &Result<QoS, String>)| match answer {
            Ok(QoS::AtMostOnce) => Some(format!(
                "{filter}: granted at QoS 0 only, which loses messages"
            )),
            Ok(_) => None,
            Err(reason) => Some(format!(
                "{filter}: {reason}; allow client and user to subscribe to it"
            )),
        };
        Refusals {
            filters: self
                .filters
                .iter()
                .zip(granted)
                .filter_map(refusal)
                .collect(),
            canary: match granted.last() {
                Some(Err(reason)) if self.canary.is_some() => Some(reason.clone()),
                _ => None,
            },
        }
    }
}

/// How long the broker may take to answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How often refused filters are asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Where one connection's subscription stands.
#[derive(Debug, Default)]
pub struct Progress {
    /// What the broker was asked for last.
    pub subscription: Subscription,
    answer_due: Option<Instant>,
    ask_again: Option<Instant>,
}

/// What is to be done about a subscription.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing now.
    Wait,
    /// Ask for what is wanted.
    Ask,
    /// The broker does not answer: the request or its answer is lost.
    Overdue,
}

impl Progress {
    /// The broker was asked for `wanted`.
    pub fn asked(&mut self, wanted: Subscription, now: Instant) {
        self.subscription = wanted;
        self.answer_due = Some(now + ANSWER_LIMIT);
        self.ask_again = None;
    }

    /// The broker answered. Returns what stands in the way.
    pub fn answered(&mut self, granted: &[Result<QoS, String>], now: Instant) -> Refusals {
        self.answer_due = None;
        let refusals = self.subscription.refusals(granted);
        self.ask_again = (refusals != Refusals::default()).then_some(now + ASK_AGAIN);
        refusals
    }

    /// How long to wait for the next event: at most `longest`, and not beyond the moment when an
    /// answer is overdue.
    pub fn patience(&self, longest: Duration, now: Instant) -> Duration {
        // One more millisecond, so that it is overdue by then.
        let left = |due: Instant| due.saturating_duration_since(now) + Duration::from_millis(1);
        self.answer_due
            .map_or(longest, |due| longest.min(left(due)))
    }

    /// The next step of an accepted connection; `changed`: the streams are others than those
    /// that were asked for.
    pub fn step(&self, now: Instant, changed: bool) -> Step {
        match (self.answer_due, self.ask_again) {
            (Some(due), _) if now > due => Step::Overdue,
            (Some(_), _) => Step::Wait,
            (None, _) if changed => Step::Ask,
            (None, Some(at)) if now > at => Step::Ask,
            _ => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_groups_and_refusals() {
        let filters = ["a/+".to_owned(), "$share/own/b".to_owned()];
        assert_eq!(Subscription::new(&filters, "").filters, filters);
        let subscription = Subscription::new(&filters, "g");
        assert_eq!(subscription.filters, ["$share/g/a/+", "$share/own/b"]);
        assert!(
            subscription
                .refusals(&[Ok(QoS::AtLeastOnce), Ok(QoS::AtLeastOnce)])
                .filters
                .is_empty()
        );
        let refusals = subscription.refusals(&[Ok(QoS::AtMostOnce), Err("NotAuthorized".into())]);
        let refusals = refusals.filters;
        assert!(
            refusals[0].contains("QoS 0") && refusals[1].contains("NotAuthorized"),
            "{refusals:?}"
        );
        assert_eq!(subscription.refusals(&[]).filters.len(), 1);
        let canary = subscription.clone().with_canary(Some("c"));
        assert_eq!(canary.all(), ["$share/g/a/+", "$share/own/b", "c"]);
        let refusals = canary.refusals(&[
            Ok(QoS::AtLeastOnce),
            Ok(QoS::AtLeastOnce),
            Err("NotAuthorized".into()),
        ]);
        assert!(refusals.filters.is_empty());
        assert_eq!(refusals.canary.as_deref(), Some("NotAuthorized"));
        assert_eq!(
            subscription.without(&Subscription {
                filters: vec!["$share/own/b".into()],
                canary: None,
            }),
            ["$share/g/a/+"]
        );
    }

    #[test]
    fn an_unanswered_request_is_overdue_and_a_refusal_is_asked_for_again() {
        let start = Instant::now();
        let later = |secs| start + Duration::from_secs(secs);
        let mut progress = Progress::default();
        assert_eq!(progress.step(start, true), Step::Ask);
        progress.asked(Subscription::new(&["a".into()], ""), start);
        assert_eq!(progress.step(later(9), true), Step::Wait);
        let patience = progress.patience(Duration::from_secs(60), later(9));
        assert_eq!(progress.step(later(9) + patience, false), Step::Overdue);
        assert_eq!(progress.step(later(11), false), Step::Overdue);
        assert_ne!(
            progress.answered(&[Err("no".into())], start),
            Refusals::default()
        );
        assert_eq!(progress.step(later(9), false), Step::Wait);
        assert_eq!(progress.step(later(31), false), Step::Ask);
        assert_eq!(
            progress.answered(&[Ok(QoS::AtLeastOnce)], start),
            Refusals::default()
        );
        assert_eq!(progress.step(later(99), false), Step::Wait);
        assert_eq!(progress.step(later(99), true), Step::Ask);
    }
}
