//! What operators change while the gateway runs: rules, silences, requests.
//!
//! * `alert_rules`: `{_id: rule id, …}` with the keys of `[[rules]]`;
//! * `alert_silences`: `{_id, matchers: […], starts, ends, author, comment}`;
//! * `alert_requests`: `{_id, at, by, what, …}`, taken away by the leader when it is done.

use futures_util::{StreamExt, TryStreamExt};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::options::ReadConcern;

use super::{DriverResult, Store};
use crate::config::RuleConfig;
use crate::model::Timestamp;

/// What an operator asks of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// No reminders of this alert, for good or until then.
    Ack {
        /// The alert's key.
        key: String,
        /// Until when.
        until: Option<Timestamp>,
    },
    /// The alert is over.
    Resolve {
        /// The alert's key.
        key: String,
    },
}

/// Something kept from being told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilenceRecord {
    /// Its id.
    pub id: String,
    /// What it matches, all of it: `name=value`, `!=`, `=~`, `!~`.
    pub matchers: Vec<String>,
    /// From when.
    pub starts: Timestamp,
    /// Until when.
    pub ends: Timestamp,
    /// Who.
    pub author: String,
    /// Why.
    pub comment: String,
}

/// Which of the collections changed that operators write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// `alert_rules`.
    Rules,
    /// `alert_silences`.
    Silences,
    /// `alert_requests`.
    Requests,
}

/// Changes of what operators write to.
pub struct Controls {
    stream: ChangeStream<Document>,
    names: super::Names,
}

impl Store {
    /// Rules kept in the database; for those that cannot be read, the id and why.
    ///
    /// # Errors
    /// The driver's.
    pub async fn kept_rules(&self) -> DriverResult<Vec<Result<RuleConfig, (String, String)>>> {
        let documents = self.kept_documents(&self.names().rules).await?;
        let rule = |(id, mut document): (Bson, Document)| {
            let id = match id {
                Bson::String(id) => id,
                other => return Err((other.to_string(), "its _id is not text".to_owned())),
            };
            document.insert("id", &id);
            mongodb::bson::from_document(document).map_err(|error| (id, error.to_string()))
        };
        Ok(documents.into_iter().map(rule).collect())
    }

    /// All silences, those that have ended too.
    ///
    /// # Errors
    /// The driver's.
    pub async fn kept_silences(&self) -> DriverResult<Vec<SilenceRecord>> {
        let documents = self.kept_documents(&self.names().silences).await?;
        let silence = |(id, document): (Bson, Document)| {
            let text = |key: &str| document.get_str(key).unwrap_or_default().to_owned();
            let date = |key: &str| {
                let date = document.get_datetime(key).ok()?;
                Some(Timestamp::from_millis(date.timestamp_millis()))
            };
            let matchers = document.get_array("matchers").ok()?.iter();
            Some(SilenceRecord {
                id: id.as_str()?.to_owned(),
                matchers: matchers
                    .map(|matcher| matcher.as_str().map(str::to_owned))
                    .collect::<Option<_>>()?,
                starts: date("starts")?,
                ends: date("ends")?,
                author: text("author"),
                comment: text("comment"),
            })
        };
        Ok(documents.into_iter().filter_map(silence).collect())
    }

    /// Adds a silence, or replaces the one of its id.
    ///
    /// # Errors
    /// The driver's.
    pub async fn put_silence(&self, silence: &SilenceRecord) -> DriverResult<()> {
        let document = doc! {
            "matchers": &silence.matchers,
            "starts": date(silence.starts),
            "ends": date(silence.ends),
            "author": &silence.author,
            "comment": &silence.comment,
        };
        self.kept::<Document>(&self.names().silences)
            .replace_one(doc! { "_id": &silence.id }, document)
            .upsert(true)
            .await
            .map(drop)
    }

    /// Asks something of the leader; returns the request's id.
    ///
    /// # Errors
    /// The driver's.
    pub async fn ask(&self, request: &Request, by: &str, at: Timestamp) -> DriverResult<Bson> {
        let id = Bson::ObjectId(ObjectId::new());
        let mut document = doc! { "_id": &id, "at": date(at), "by": by };
        match request {
            Request::Ack { key, until } => {
                document.extend(doc! { "what": "ack", "key": key });
                if let Some(until) = until {
                    document.insert("until", date(*until));
                }
            }
            Request::Resolve { key } => document.extend(doc! { "what": "resolve", "key": key }),
        }
        self.kept::<Document>(&self.names().requests)
            .insert_one(document)
            .await?;
        Ok(id)
    }

    /// Whether the leader has done what was asked under this id.
    ///
    /// # Errors
    /// The driver's.
    pub async fn done(&self, id: &Bson) -> DriverResult<bool> {
        let requests = self.kept::<Document>(&self.names().requests);
        let left = requests.find_one(doc! { "_id": id }).await?;
        Ok(left.is_none())
    }

    /// Lines of the history as JSON, newest first: of one alert or all, since then, at most
    /// `limit`. `at` is RFC 3339 text.
    ///
    /// # Errors
    /// The driver's.
    pub async fn history(
        &self,
        key: Option<&str>,
        since: Option<Timestamp>,
        limit: i64,
    ) -> DriverResult<Vec<serde_json::Value>> {
        let mut query = Document::new();
        if let Some(key) = key {
            query.insert("key", key);
        }
        if let Some(since) = since {
            query.insert("at", doc! { "$gte": date(since) });
        }
        let cursor = self
            .kept::<Document>(&self.names().history)
            .find(query)
            .sort(doc! { "at": -1, "_id": -1 })
            .limit(limit)
            .await?;
        let json = |mut line: Document| {
            line.remove("_id");
            let at = line
                .get_datetime("at")
                .map_or(0, |at| at.timestamp_millis());
            line.insert("at", Timestamp::from_millis(at).to_string());
            Bson::Document(line).into_relaxed_extjson()
        };
        cursor.map_ok(json).try_collect().await
    }

    /// What is asked and not done yet, oldest first: id, request (`None`: nothing this release
    /// knows), and who asked.
    ///
    /// # Errors
    /// The driver's.
    pub async fn asked(&self) -> DriverResult<Vec<(Bson, Option<Request>, String)>> {
        let mut documents = self.kept_documents(&self.names().requests).await?;
        documents.sort_by_key(|(_, document)| document.get_datetime("at").copied().ok());
        let request = |document: &Document| {
            let key = document.get_str("key").ok()?.to_owned();
            match document.get_str("what").ok()? {
                "ack" => {
                    let until = document.get_datetime("until").ok();
                    let until = until.map(|at| Timestamp::from_millis(at.timestamp_millis()));
                    Some(Request::Ack { key, until })
                }
                "resolve" => Some(Request::Resolve { key }),
                _ => None,
            }
        };
        let by = |document: &Document| document.get_str("by").unwrap_or_default().to_owned();
        Ok(documents
            .into_iter()
            .map(|(id, document)| (id, request(&document), by(&document)))
            .collect())
    }

    /// Hears when somebody changes rules, silences or requests.
    ///
    /// # Errors
    /// The driver's.
    pub async fn watch_controls(&self) -> mongodb::error::Result<Controls> {
        let names = self.names();
        let theirs = doc! { "$in": [&names.rules, &names.silences, &names.requests] };
        // The leader takes requests away itself, and expired silences go by themselves.
        let pipeline = [
            doc! { "$match": { "ns.coll": theirs, "$or": [
                { "operationType": { "$ne": "delete" } },
                { "ns.coll": &names.rules },
            ] } },
            doc! { "$project": { "ns": 1 } },
        ];
        let stream = self
            .database()
            .watch()
            .pipeline(pipeline)
            .read_concern(ReadConcern::majority())
            .await?
            .with_type();
        Ok(Controls {
            stream,
            names: names.clone(),
        })
    }
}

impl Controls {
    /// What changed next; `None`: the stream has ended.
    ///
    /// # Errors
    /// The driver's.
    pub async fn next(&mut self) -> mongodb::error::Result<Option<Control>> {
        while let Some(event) = self.stream.next().await {
            let event = event?;
            let Ok(collection) = event.get_document("ns").and_then(|ns| ns.get_str("coll")) else {
                continue;
            };
            let control = [
                (&self.names.rules, Control::Rules),
                (&self.names.silences, Control::Silences),
                (&self.names.requests, Control::Requests),
            ]
            .into_iter()
            .find(|(name, _)| *name == collection);
            if let Some((_, control)) = control {
                return Ok(Some(control));
            }
        }
        Ok(None)
    }
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.millis())
}
