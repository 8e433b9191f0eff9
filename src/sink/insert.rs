//! Writes one group of readings, however long it takes: attempt, verdict, look-up, again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mongodb::ClientSession;
use mongodb::bson::RawDocumentBuf;
use mongodb::error::Error;

use super::batch::{Entry, Group, Letter};
use super::classify::{Cause, Verdict, classify};
use super::health::Health;
use super::metrics::SinkMetrics;
use crate::model::{Outcome, Reason};
use crate::runtime::Backoff;
use crate::store::{Series, Store, probe};

/// Beyond the server's own time limit, before a call counts as overdue.
const GRACE: Duration = Duration::from_secs(15);

/// What a group's write needs.
pub struct Context<'a> {
    /// Handles.
    pub store: &'a Store,
    /// Named in dead letters.
    pub gateway: &'a str,
    /// Counts.
    pub metrics: &'a SinkMetrics,
    /// Told of every result.
    pub health: &'a Health,
    /// Pauses between attempts.
    pub backoff: Backoff,
}

/// Stores all entries of `group`, settling each; returns those the server refuses for what they
/// are. Returns only when nothing is left to write.
pub async fn insert_readings(group: Group, mut context: Context<'_>) -> Vec<Letter> {
    let Group {
        stream,
        entries,
        documents,
        devices,
    } = group;
    let series = context.store.series(&stream);
    let mut letters = Vec::new();
    context.metrics.batch_readings.observe(entries.len() as f64);
    context
        .metrics
        .readings_per_device
        .observe(entries.len() as f64 / devices.max(1) as f64);

    // One for all attempts: see `probe`.
    let mut session = None;
    // Parts still to be written. More than one only after a command had to be divided.
    let mut parts = vec![Part {
        entries,
        documents: Arc::from(documents),
        unclear: false,
    }];
    while let Some(mut part) = parts.pop() {
        if part.unclear {
            match settle_stored(&series, &mut part, &stream.name, &context, &mut session).await {
                Ok(()) if part.entries.is_empty() => continue,
                Ok(()) => part.unclear = false,
                Err(error) => {
                    pause(&mut context, &error.to_string(), Cause::Other).await;
                    parts.push(part);
                    continue;
                }
            }
        }
        let started = Instant::now();
        let result = attempt(&series, &part.documents, &context, &mut session).await;
        context
            .metrics
            .insert_seconds
            .observe(started.elapsed().as_secs_f64());
        let (error_text, verdict) = match result {
            Ok(()) => {
                context.health.good();
                context.backoff.reset();
                let stored = context.metrics.stored.with_label_values(&[&stream.name]);
                stored.inc_by(part.entries.len() as u64);
                part.settle_all(Outcome::Stored);
                continue;
            }
            Err(error) => (error.to_string(), classify(&error)),
        };
        match verdict {
            Verdict::NotWritten(cause) => {
                pause(&mut context, &error_text, cause).await;
                parts.push(part);
            }
            Verdict::Unclear(cause) => {
                pause(&mut context, &error_text, cause).await;
                part.unclear = true;
                parts.push(part);
            }
            Verdict::ByDocument {
                failed,
                unconfirmed,
            } => {
                let (again, mut refused, written) = part.split_by(&failed);
                match refused.pop() {
                    Some((entry, _, words)) if refused.is_empty() => {
                        letters.push(entry.refuse(
                            Reason::MongoRejected,
                            &words,
                            &stream,
                            context.gateway,
                        ));
                    }
                    // The server writes one bucket's readings together: one of them costs all of
                    // them, and only those refused alone are refused for what they are.
                    Some(last) => {
                        refused.push(last);
                        let pairs = refused.into_iter().map(|(entry, doc, _)| (entry, doc));
                        parts.extend(
                            Part::new(pairs.collect(), false)
                                .halves()
                                .into_iter()
                                .flatten(),
                        );
                    }
                    None => {}
                }
                match written {
                    written if unconfirmed && !written.entries.is_empty() => {
                        parts.push(Part {
                            unclear: true,
                            ..written
                        });
                    }
                    written => {
                        let stored = context.metrics.stored.with_label_values(&[&stream.name]);
                        stored.inc_by(written.entries.len() as u64);
                        written.settle_all(Outcome::Stored);
                    }
                }
                if !again.entries.is_empty() {
                    pause(&mut context, &error_text, Cause::Overload).await;
                    parts.push(again);
                }
            }
            Verdict::Divide(words) => match part.halves() {
                Ok(halves) => parts.extend(halves),
                Err(entry) => letters.push(entry.refuse(
                    Reason::MongoRejected,
                    &words,
                    &stream,
                    context.gateway,
                )),
            },
        }
    }
    letters
}

/// Some readings and their documents, position by position.
struct Part {
    entries: Vec<Entry>,
    documents: Arc<[RawDocumentBuf]>,
    /// Whether some may be stored already.
    unclear: bool,
}

impl Part {
    fn new(pairs: Vec<(Entry, RawDocumentBuf)>, unclear: bool) -> Self {
        let (entries, documents): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        Self {
            entries,
            documents: Arc::from(documents),
            unclear,
        }
    }

    fn settle_all(self, outcome: Outcome) {
        for entry in self.entries {
            entry.receipt.settle(outcome);
        }
    }

    /// (write again, refused with the server's words, written).
    fn split_by(
        self,
        failed: &[super::classify::DocumentError],
    ) -> (Part, Vec<(Entry, RawDocumentBuf, String)>, Part) {
        let (mut again, mut refused, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut errors = failed
            .iter()
            .map(|e| (e.index, &e.refused))
            .collect::<std::collections::HashMap<_, _>>();
        for (index, (entry, document)) in self
            .entries
            .into_iter()
            .zip(self.documents.iter().cloned())
            .enumerate()
        {
            match errors.remove(&index) {
                None => written.push((entry, document)),
                Some(None) => again.push((entry, document)),
                Some(Some(words)) => refused.push((entry, document, words.clone())),
            }
        }
        (Part::new(again, false), refused, Part::new(written, false))
    }

    /// Two halves, or the one entry that cannot be divided.
    fn halves(self) -> Result<[Part; 2], Box<Entry>> {
        let mut pairs: Vec<_> = self
            .entries
            .into_iter()
            .zip(self.documents.iter().cloned())
            .collect();
        if pairs.len() == 1 {
            let (entry, _) = pairs.remove(0);
            return Err(Box::new(entry));
        }
        let second = pairs.split_off(pairs.len() / 2);
        Ok([Part::new(pairs, false), Part::new(second, false)])
    }
}

/// One insert, in a task of its own: the driver's futures must not be dropped, and it has no time
/// limit for a call that hangs. An unanswered call is waited for, but said to be overdue: giving
/// it up could only lead to the same server, and to a second copy should it answer after all.
async fn attempt(
    series: &Series,
    documents: &Arc<[RawDocumentBuf]>,
    context: &Context<'_>,
    kept: &mut Option<ClientSession>,
) -> Result<(), Error> {
    let (handle, documents) = (series.clone(), Arc::clone(documents));
    let mut session = match kept.take() {
        Some(session) => session,
        None => context.store.session().await?,
    };
    let mut call = tokio::spawn(async move {
        let result = handle.insert(&documents, &mut session).await;
        (session, result)
    });
    let overdue = series.wtimeout() + GRACE;
    let ended = loop {
        match tokio::time::timeout(overdue, &mut call).await {
            Ok(ended) => break ended,
            Err(_) => {
                let seconds = overdue.as_secs();
                context
                    .health
                    .bad(&format!("no answer to an insert for {seconds} s"));
            }
        }
    };
    let (session, result) =
        ended.expect("an insert does not panic; if it does, this writer must stop the process");
    *kept = Some(session);
    result
}

/// After a write of unclear outcome: makes sure that it is either on a majority or will never
/// happen, then settles what is found and leaves in `part` only what is missing.
async fn settle_stored(
    series: &Series,
    part: &mut Part,
    stream: &str,
    context: &Context<'_>,
    kept: &mut Option<ClientSession>,
) -> Result<(), Error> {
    let (store, handle) = (context.store.clone(), series.clone());
    let mut session = kept.take();
    let entries = std::mem::take(&mut part.entries);
    let documents = std::mem::replace(&mut part.documents, Arc::from([]));
    let looked = tokio::spawn(async move {
        let found = match probe(&store, handle.wtimeout(), session.as_mut()).await {
            Ok(()) => {
                let keys: Vec<_> = entries.iter().map(Entry::key).collect();
                handle.stored(&keys).await
            }
            Err(error) => Err(error),
        };
        (session, entries, found)
    })
    .await;
    let (session, entries, found) =
        looked.expect("a look-up does not panic; if it does, this writer must stop the process");
    *kept = session;
    context.metrics.look_ups.inc();
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            part.entries = entries;
            part.documents = documents;
            return Err(error);
        }
    };
    let mut missing = Vec::new();
    for (entry, document) in entries.into_iter().zip(documents.iter().cloned()) {
        if found.contains(&entry.id) {
            // Written by the attempt whose answer was lost: stored now, not before.
            entry.receipt.settle(Outcome::Stored);
        } else {
            missing.push((entry, document));
        }
    }
    let stored = context.metrics.stored.with_label_values(&[stream]);
    stored.inc_by(found.len() as u64);
    *part = Part::new(missing, true);
    Ok(())
}

async fn pause(context: &mut Context<'_>, error: &str, cause: Cause) {
    context
        .metrics
        .attempts_failed
        .with_label_values(&[cause.name()])
        .inc();
    context.health.bad(error);
    tokio::time::sleep(context.backoff.next_pause()).await;
}
