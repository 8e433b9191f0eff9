//! Follows the feed by change stream, from a place that was kept.

use std::time::Duration;

use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::ReadConcern;

use super::feed::{FeedDocument, FeedError, decode_feed};
use super::{Store, words};

/// How long the server waits for something to tell before it says that there is nothing.
const WAIT: Duration = Duration::from_millis(500);

/// A place in the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Place(ResumeToken);

/// What the stream brought.
#[derive(Debug)]
pub struct FeedEvent {
    /// Where to go on after it.
    pub place: Place,
    /// The server's time of it, in seconds since the epoch.
    pub cluster_seconds: u32,
    /// The document, or why it is none.
    pub document: Result<FeedDocument, FeedError>,
}

/// Why the stream does not go on.
#[derive(Debug, thiserror::Error)]
pub enum FeedStreamError {
    /// The server no longer has what came after the place: it must be found by query.
    #[error("the server no longer has what followed the place in the stream: {0}")]
    HistoryLost(String),
    /// The collection was dropped or renamed.
    #[error("the feed was dropped or renamed")]
    Invalidated,
    /// An event is larger than the server can send.
    #[error("an event is larger than the server can send: {0}")]
    Oversize(String),
    /// Anything that passes.
    #[error("{0}")]
    Passing(String),
}

/// The feed as it grows.
pub struct FeedStream(ChangeStream<RawDocumentBuf>);

impl Place {
    /// For keeping.
    pub(super) fn encode(&self) -> Option<mongodb::bson::Bson> {
        mongodb::bson::to_bson(&self.0).ok()
    }

    pub(super) fn decode(kept: &mongodb::bson::Bson) -> Option<Self> {
        mongodb::bson::from_bson(kept.clone()).ok().map(Self)
    }
}

/// Where to begin.
#[derive(Debug, Clone)]
pub enum From {
    /// After a kept place.
    After(Place),
    /// With what happens from this server time on, in seconds since the epoch.
    Time(u32),
    /// With what happens from now on.
    Now,
}

impl Store {
    /// Opens the stream.
    ///
    /// # Errors
    /// See [`FeedStreamError`].
    pub async fn follow_feed(&self, from: From) -> Result<FeedStream, FeedStreamError> {
        // Expiry deletes what was inserted a day ago; nobody else is to change anything.
        let pipeline: [Document; 2] = [
            doc! { "$match": { "operationType": { "$in": ["insert", "invalidate", "drop", "rename", "dropDatabase"] } } },
            doc! { "$project": { "operationType": 1, "clusterTime": 1, "fullDocument": 1 } },
        ];
        let feed = self.kept::<Document>(&self.names().feed);
        let watch = feed
            .watch()
            .pipeline(pipeline)
            .max_await_time(WAIT)
            .read_concern(ReadConcern::majority());
        let watch = match from {
            // Also behind the end of the collection that the place belongs to.
            From::After(place) => watch.start_after(place.0),
            From::Time(seconds) => watch.start_at_operation_time(mongodb::bson::Timestamp {
                time: seconds,
                increment: 1,
            }),
            From::Now => watch,
        };
        let stream = watch.await.map_err(classify)?;
        Ok(FeedStream(stream.with_type()))
    }

    /// Whether the server has change streams and transactions: a standalone has not.
    ///
    /// # Errors
    /// The driver's.
    pub async fn replicated(&self) -> mongodb::error::Result<bool> {
        let hello = super::client::hello(self.client()).await?;
        Ok(hello.contains_key("setName") || hello.get_str("msg") == Ok("isdbgrid"))
    }

    /// The server's own time, in seconds since the epoch: that of its last operation.
    ///
    /// # Errors
    /// The driver's.
    pub async fn server_seconds(&self) -> mongodb::error::Result<u32> {
        let hello = super::client::hello(self.client()).await?;
        Ok(hello
            .get_timestamp("operationTime")
            .map_or(0, |time| time.time))
    }
}

impl FeedStream {
    /// The next event, or `None` where the server has none for now.
    ///
    /// # Errors
    /// See [`FeedStreamError`].
    pub async fn next(&mut self) -> Result<Option<FeedEvent>, FeedStreamError> {
        let Some(event) = self.0.next_if_any().await.map_err(classify)? else {
            return if self.0.is_alive() {
                Ok(None)
            } else {
                Err(FeedStreamError::Invalidated)
            };
        };
        match event.get_str("operationType") {
            Ok("insert") => {}
            _ => return Err(FeedStreamError::Invalidated),
        }
        let place = self
            .place()
            .ok_or_else(|| FeedStreamError::Passing("the stream has no place".into()))?;
        let cluster_seconds = event
            .get_timestamp("clusterTime")
            .map_or(0, |time| time.time);
        let document = match event.get_document("fullDocument") {
            Ok(document) => decode_feed(document),
            Err(error) => Err(FeedError::Shape(error.to_string())),
        };
        Ok(Some(FeedEvent {
            place,
            cluster_seconds,
            document,
        }))
    }

    /// Where the stream stands; moves on while nothing happens.
    pub fn place(&self) -> Option<Place> {
        self.0.resume_token().map(Place)
    }
}

/// Server codes of change streams, from `error_codes.yml`.
mod codes {
    /// ChangeStreamHistoryLost, CappedPositionLost, and what a token of another history meets:
    /// InvalidResumeToken, ChangeStreamFatalError, and the number for "resume of change stream was
    /// not possible, as the resume token was not found".
    pub const LOST: [i32; 5] = [286, 136, 260, 280, 40_585];
    /// BSONObjectTooLarge.
    pub const OVERSIZE: i32 = 10_334;
    /// A stream may not resume after an invalidation.
    pub const INVALIDATED: i32 = 40_573;
}

fn classify(error: Error) -> FeedStreamError {
    let text = words(&error);
    let code = match error.kind.as_ref() {
        ErrorKind::Command(command) => command.code,
        _ => return FeedStreamError::Passing(text),
    };
    if code == codes::OVERSIZE {
        FeedStreamError::Oversize(text)
    } else if codes::LOST.contains(&code) || error.contains_label("NonResumableChangeStreamError") {
        FeedStreamError::HistoryLost(text)
    } else if code == codes::INVALIDATED {
        FeedStreamError::Invalidated
    } else {
        FeedStreamError::Passing(text)
    }
}
