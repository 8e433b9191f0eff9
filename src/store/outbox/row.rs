//! One row of the outbox and its document. What is missing in a stored row reads as empty, so that
//! rows of an older program can be read.

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{Severity, Timestamp};

/// One row; `N` is what it tells.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow<N> {
    /// Its id: the webhook id without `msg_`.
    pub id: String,
    /// To whom.
    pub receiver: String,
    /// What keeps order.
    pub key: String,
    /// Order within (receiver, key).
    pub sequence: u64,
    /// What kind of message.
    pub kind: String,
    /// Its level.
    pub severity: Severity,
    /// When it was decided.
    pub created: Timestamp,
    /// When it was put in the queue: as `created`, or later if somebody repeated it.
    pub queued_at: Timestamp,
    /// What it tells.
    pub notice: N,
    /// What is sent, but for secrets.
    pub body: String,
    /// What is sent if the receiver does not take that.
    pub minimal: Option<String>,
    /// Where it stands.
    pub state: RowState,
    /// Requests made.
    pub attempts: u32,
    /// Whether some attempt that failed may have been accepted all the same.
    pub ambiguous: bool,
    /// Whether the receiver has refused the whole body, so that the minimal one is next.
    pub use_minimal: bool,
    /// Not to be sent before.
    pub next_at: Option<Timestamp>,
    /// Who may send it, and how long.
    pub lease: Option<Lease>,
    /// How the last attempt went.
    pub last: Option<Last>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// Where a row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowState {
    /// To be sent.
    Queued,
    /// Accepted.
    Delivered,
    /// Given up.
    Dead,
    /// Taken back.
    Recalled,
}

impl RowState {
    /// Every state.
    pub const ALL: [RowState; 4] = [Self::Queued, Self::Delivered, Self::Dead, Self::Recalled];

    /// As stored.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Recalled => "recalled",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// The right to send a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// A process, in this run of it.
    pub owner: String,
    /// By the server's clock.
    pub until: Timestamp,
}

/// How an attempt went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Last {
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// In words, without secrets.
    pub why: String,
}

impl<N: Serialize> OutboxRow<N> {
    /// As inserted.
    pub fn encode(&self) -> Document {
        let notice = mongodb::bson::to_bson(&self.notice)
            .expect("a notice is texts, dates and numbers below 2^63");
        let mut document = doc! {
            "_id": &self.id,
            "receiver": &self.receiver,
            "key": &self.key,
            "sequence": signed(self.sequence),
            "kind": &self.kind,
            "severity": self.severity.name(),
            "created": date(self.created),
            "queuedAt": date(self.queued_at),
            "notice": sound(notice),
            "body": &self.body,
            "state": self.state.name(),
            "attempts": i64::from(self.attempts),
            "ambiguous": self.ambiguous,
        };
        if let Some(minimal) = &self.minimal {
            document.insert("minimal", minimal);
        }
        if let Some(at) = self.next_at {
            document.insert("nextAt", date(at));
        }
        if let Some(Lease { owner, until }) = &self.lease {
            document.insert("lease", doc! { "owner": owner, "until": date(*until) });
        }
        document
    }
}

impl<N: DeserializeOwned> OutboxRow<N> {
    /// From a stored document; `None` where somebody else has written it.
    pub fn decode(document: &Document) -> Option<Self> {
        let text = |key: &str| document.get_str(key).ok().map(str::to_owned);
        let at = |key: &str| document.get_datetime(key).ok().map(|at| time(*at));
        let severity = text("severity")?;
        let lease = document.get_document("lease").ok().and_then(|lease| {
            Some(Lease {
                owner: lease.get_str("owner").ok()?.to_owned(),
                until: time(*lease.get_datetime("until").ok()?),
            })
        });
        let last = document.get_document("last").ok().map(|last| Last {
            status: whole(last, "status").and_then(|n| u16::try_from(n).ok()),
            why: last.get_str("why").unwrap_or_default().to_owned(),
        });
        Some(Self {
            id: text("_id")?,
            receiver: text("receiver")?,
            key: text("key")?,
            sequence: u64::try_from(whole(document, "sequence")?).ok()?,
            kind: text("kind")?,
            severity: Severity::ALL
                .into_iter()
                .find(|level| level.name() == severity)?,
            created: at("created")?,
            queued_at: at("queuedAt").or(at("created"))?,
            notice: mongodb::bson::from_bson(document.get("notice")?.clone()).ok()?,
            body: text("body")?,
            minimal: text("minimal"),
            state: RowState::named(document.get_str("state").ok()?)?,
            attempts: whole(document, "attempts")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            ambiguous: document.get_bool("ambiguous").unwrap_or_default(),
            use_minimal: document.get_bool("useMinimal").unwrap_or_default(),
            next_at: at("nextAt"),
            lease,
            last,
            ended_at: at("endedAt"),
        })
    }
}

fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.millis())
}

fn time(at: DateTime) -> Timestamp {
    Timestamp::from_millis(at.timestamp_millis())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn whole(document: &Document, key: &str) -> Option<i64> {
    match document.get(key)? {
        Bson::Int64(number) => Some(*number),
        Bson::Int32(number) => Some(i64::from(*number)),
        _ => None,
    }
}

/// Without NUL in keys, which no document can hold: a tag's name comes from outside.
fn sound(value: Bson) -> Bson {
    match value {
        Bson::Document(document) => Bson::Document(
            document
                .into_iter()
                .map(|(key, value)| (key.replace('\0', "\u{fffd}"), sound(value)))
                .collect(),
        ),
        Bson::Array(items) => Bson::Array(items.into_iter().map(sound).collect()),
        other => other,
    }
}
