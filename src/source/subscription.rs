//! What should be subscribed and what the broker granted. Pure.

use crate::model::QoS;

/// The filters of one connection, each with its `$share` prefix where one is due.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscription {
    /// As sent to the broker.
    pub filters: Vec<String>,
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
        }
    }

    /// Filters that `self` has and `other` lacks.
    pub fn without(&self, other: &Self) -> Vec<String> {
        self.filters
            .iter()
            .filter(|f| !other.filters.contains(f))
            .cloned()
            .collect()
    }

    /// What stands in the way, given the broker's answer; empty: all granted.
    pub fn refusals(&self, granted: &[Result<QoS, String>]) -> Vec<String> {
        if granted.len() != self.filters.len() {
            return vec![format!(
                "the broker answered for {} of {} filters",
                granted.len(),
                self.filters.len()
            )];
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
        self.filters
            .iter()
            .zip(granted)
            .filter_map(refusal)
            .collect()
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
                .is_empty()
        );
        let refusals = subscription.refusals(&[Ok(QoS::AtMostOnce), Err("NotAuthorized".into())]);
        assert!(
            refusals[0].contains("QoS 0") && refusals[1].contains("NotAuthorized"),
            "{refusals:?}"
        );
        assert_eq!(subscription.refusals(&[]).len(), 1);
        assert_eq!(
            subscription.without(&Subscription {
                filters: vec!["$share/own/b".into()]
            }),
            ["$share/g/a/+"]
        );
    }
}
