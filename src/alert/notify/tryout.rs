//! Trying a receiver out: a test message and its end, sent at once and once, without the database.

use std::time::{Duration, Instant};

use super::classify::{Class, answer, failure};
use super::receivers::render;
use super::request::outgoing;
use super::row::row;
use super::target::Target;
use crate::alert::{EndReason, Ended, Episode, Notice, NoticeKind, Wishes};
use crate::config::ReceiverConfig;
use crate::model::{Severity, Timestamp};
use crate::runtime;

/// What came of one message. What the receiver said is left out: it may be a page of somebody
/// else's that only this machine can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// What was sent.
    pub kind: NoticeKind,
    /// What its end means.
    pub class: Class,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// Why there was none.
    pub why: Option<String>,
    /// How long it took.
    pub took: Duration,
}

/// Sends a test message to the receiver `config`, and its end.
///
/// # Errors
/// The key and what is wrong with it, where nothing can be sent.
pub async fn try_out(config: &ReceiverConfig, environment: &str) -> Result<Vec<Tried>, String> {
    let target = Target::build(config).map_err(|(key, message)| format!("{key}: {message}"))?;
    let key = format!("test:{:08x}", fastrand::u32(..));
    let mut tried = Vec::new();
    for (number, kind) in [NoticeKind::Test, NoticeKind::Resolved]
        .into_iter()
        .enumerate()
    {
        let sequence = u64::try_from(number).unwrap_or(0) + 1;
        let notice = notice(&config.name, &key, kind, sequence, runtime::now());
        let made = row(
            &notice,
            render(config, &notice, environment),
            None,
            notice.at,
        );
        let now = runtime::now();
        let request = outgoing(&made, &target.secrets, now).map_err(|error| error.to_string())?;
        let began = Instant::now();
        let sent = target.send(request).await;
        let took = began.elapsed();
        let (verdict, why) = match sent {
            Ok(said) => (answer(config.kind, &said, now), None),
            Err(failed) => {
                let verdict = failure(&failed);
                let why = target.secrets.redact(&verdict.why);
                (verdict, Some(why))
            }
        };
        tried.push(Tried {
            kind,
            class: verdict.class,
            status: verdict.status,
            why,
            took,
        });
    }
    Ok(tried)
}

fn notice(receiver: &str, key: &str, kind: NoticeKind, sequence: u64, at: Timestamp) -> Notice {
    let resolved = kind == NoticeKind::Resolved;
    let words = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    let episode = Episode {
        key: key.to_owned(),
        id: format!("{key}:1"),
        sequence,
        rule: "tidegate.test".into(),
        name: "Test of this receiver".into(),
        kind: "gateway".into(),
        device: "tidegate".into(),
        device_type: None,
        tags: words(&[]),
        field: None,
        unit: None,
        op: None,
        severity: Severity::Info,
        value: None,
        peak: None,
        threshold: None,
        clear: None,
        started_at: at,
        fired_at: at,
        ended: resolved.then_some(Ended {
            at,
            reason: EndReason::Manual,
        }),
        labels: words(&[("test", "true")]),
        annotations: words(&[(
            "summary",
            "Tidegate can reach this receiver; nothing is wrong",
        )]),
        receivers: Vec::new(),
        wishes: Wishes::default(),
        flags: Vec::new(),
    };
    Notice {
        id: format!("{:032x}", fastrand::u128(..)),
        receiver: receiver.to_owned(),
        key: key.to_owned(),
        sequence,
        kind,
        severity: Severity::Info,
        at,
        episodes: vec![episode],
        truncated: 0,
        group: words(&[]),
        storm: None,
    }
}

/// Where requests to `config` go: the host, and no more than that.
///
/// # Errors
/// The key and what is wrong with it.
pub fn host(config: &ReceiverConfig) -> Result<String, String> {
    let target = Target::build(config).map_err(|(key, message)| format!("{key}: {message}"))?;
    Ok(target.secrets.host())
}
