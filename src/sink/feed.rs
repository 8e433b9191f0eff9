//! Writes the readings that somebody wants to follow into the feed, beside the series.
//!
//! A reading's message is acknowledged when both have it. Documents keep their ids, so a repeated
//! write that finds them there has succeeded. A reading that comes again is written again: whoever
//! reads the feed tells by its time that it has seen it.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::RawDocumentBuf;

use super::batch::Group;
use super::call::answer;
use super::classify::{DocumentError, Fate, Verdict, all_there, cause, classify};
use super::insert::Context;
use crate::config::{FeedConfig, FeedMode};
use crate::model::{Receipt, Selection};
use crate::runtime::now;
use crate::store::{FeedAuthor, encode_feed_reading, feed_documents, words};

/// How long the server may take to confirm.
const LIMIT: Duration = Duration::from_secs(30);

/// What one writer puts into the feed.
#[derive(Clone)]
pub struct Feed {
    author: FeedAuthor,
    most: usize,
    /// `None`: all readings.
    selection: Option<Arc<dyn Selection>>,
}

/// Documents on their way, and what waits for them.
#[derive(Default)]
pub struct Pending {
    documents: Vec<RawDocumentBuf>,
    readings: usize,
    receipts: Vec<Receipt>,
}

impl Feed {
    /// The feed of one lane; `None` where there is none.
    pub fn build(
        config: &FeedConfig,
        gateway: &str,
        lane: usize,
        selection: &Arc<dyn Selection>,
    ) -> Option<Self> {
        let selection = match config.mode {
            FeedMode::Off => return None,
            FeedMode::All => None,
            FeedMode::Rules => Some(Arc::clone(selection)),
        };
        Some(Self {
            author: FeedAuthor {
                gateway: gateway.to_owned(),
                lane,
            },
            most: config.document_bytes.bytes(),
            selection,
        })
    }

    /// Adds the wanted readings of a group.
    pub fn gather(&self, group: &Group, pending: &mut Pending) {
        let stream = group.stream.name.as_str();
        let mut readings = Vec::new();
        for entry in &group.entries {
            let topic = entry.message.topic_lossy();
            let wanted = self
                .selection
                .as_ref()
                .is_none_or(|selection| selection.selects(&entry.reading, &topic, stream));
            if !wanted {
                continue;
            }
            // What BSON cannot say has become a dead letter before it comes here.
            let received = entry.message.received_at;
            if let Ok(reading) = encode_feed_reading(&entry.reading, &topic, received) {
                readings.push(reading);
                pending.receipts.push(entry.receipt.clone());
            }
        }
        pending.readings += readings.len();
        let documents = feed_documents(&self.author, stream, now(), &readings, self.most);
        pending
            .documents
            .extend(documents.into_iter().map(|(document, _)| document));
    }
}

/// Writes everything, however long it takes.
pub async fn write_feed(pending: Pending, mut context: Context<'_>) {
    if pending.documents.is_empty() {
        return;
    }
    let collection = context.store.feed();
    let place = collection.name().to_owned();
    let mut documents: Arc<[RawDocumentBuf]> = pending.documents.into();
    loop {
        let (handle, sent) = (collection.clone(), Arc::clone(&documents));
        let call = async move { handle.insert_many(sent.iter()).ordered(false).await };
        let error = match answer(context.health, &place, LIMIT, call).await {
            Ok(_) => break,
            Err(error) if all_there(&error) => break,
            Err(error) => error,
        };
        if let Verdict::ByDocument { failed, .. } = classify(&error) {
            // The server will never take those it refuses. Their readings are in the series or
            // the dead letters; waiting for them here would stop the lane.
            let refused = |f: &&DocumentError| matches!(f.fate, Fate::Refused(_)) && !f.there;
            let lost: Vec<_> = failed.iter().filter(refused).map(|f| f.index).collect();
            if !lost.is_empty() {
                context.metrics.feed_refused.inc_by(lost.len() as u64);
                tracing::error!(
                    documents = lost.len(),
                    error = words(&error),
                    "MongoDB refuses documents of the feed: rules do not see their readings"
                );
                let kept = documents.iter().enumerate();
                let kept = kept.filter(|(index, _)| !lost.contains(index));
                documents = kept.map(|(_, document)| document.clone()).collect();
                if documents.is_empty() {
                    break;
                }
            }
        }
        context.pause(&place, cause(&error), &words(&error)).await;
    }
    context.succeeded(&place);
    context.metrics.fed.inc_by(pending.readings as u64);
    for receipt in pending.receipts {
        receipt.release();
    }
}
