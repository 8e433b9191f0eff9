//! Writes one group of readings, however long it takes: look up where something may be there
//! already, attempt, verdict, again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mongodb::ClientSession;
use mongodb::error::Error;

use super::batch::{Entry, Group, Letter};
use super::call::answer;
use super::classify::{Cause, Verdict, cause, classify, first_cause};
use super::health::Health;
use super::metrics::SinkMetrics;
use super::part::{LookUp, Part, Refused};
use super::suspects::{Keys, Suspects};
use crate::config::{Dedup, StreamConfig};
use crate::model::{Outcome, Reason};
use crate::runtime::{Backoff, now};
use crate::store::{Found, Series, Store, probe, words};

/// What a group's write needs.
pub struct Context<'a> {
    /// Handles.
    pub store: &'a Store,
    /// Named in dead letters.
    pub gateway: &'a str,
    /// Which readings to look up before they are written.
    pub dedup: Dedup,
    /// What is known of the lane's devices.
    pub suspects: &'a Mutex<Suspects>,
    /// Counts.
    pub metrics: &'a SinkMetrics,
    /// Told of every result.
    pub health: &'a Health,
    /// Pauses between attempts.
    pub backoff: Backoff,
}

impl Context<'_> {
    /// Reports a failed attempt at `place` and waits before the next.
    pub async fn pause(&mut self, place: &str, cause: Cause, error: &str) {
        let failed = &self.metrics.attempts_failed;
        failed.with_label_values(&[cause.name()]).inc();
        match cause.remedy() {
            Some(remedy) => self.health.bad(place, &format!("{error}. {remedy}")),
            None => self.health.bad(place, error),
        }
        let pause = match cause {
            // The attempt has waited for a server, and would have gone on as soon as there was
            // one. Nobody ends a pause for it.
            Cause::NoServer => self.backoff.first_pause(),
            _ => self.backoff.next_pause(),
        };
        tokio::time::sleep(pause).await;
    }

    /// Reports a success at `place`.
    pub fn succeeded(&mut self, place: &str) {
        self.health.good(place);
        self.backoff.reset();
    }
}

/// Stores all entries of `group`, settling each; returns those the server refuses for what they
/// are. Returns only when nothing is left to write.
pub async fn insert_readings(group: Group, context: Context<'_>) -> Vec<Letter> {
    let (readings, devices) = (group.entries.len() as f64, group.devices.max(1) as f64);
    context.metrics.batch_readings.observe(readings);
    context
        .metrics
        .readings_per_device
        .observe(readings / devices);
    let mut writing = Writing {
        series: context.store.series(&group.stream),
        stream: Arc::clone(&group.stream),
        session: None,
        letters: Vec::new(),
        context,
    };
    let suspect = writing.suspects(&group).await;
    let mut parts = Part::of(group, &suspect);
    while let Some(part) = parts.pop() {
        let rest = match part.look_up {
            LookUp::No => writing.attempt(part).await,
            LookUp::Delivered | LookUp::Written => writing.look_up(part).await,
        };
        parts.extend(rest);
    }
    writing.letters
}

/// One group on its way.
struct Writing<'a> {
    context: Context<'a>,
    stream: Arc<StreamConfig>,
    series: Series,
    /// One for all attempts: see `probe`.
    session: Option<ClientSession>,
    letters: Vec<Letter>,
}

impl Writing<'_> {
    /// Which readings may be stored already.
    async fn suspects(&mut self, group: &Group) -> Vec<bool> {
        let dedup = self.context.dedup;
        let keys = Keys::of(group);
        if dedup == Dedup::Redelivered {
            self.meet(group, &keys).await;
        }
        lock(self.context.suspects).judge(group, &keys, dedup)
    }

    /// Learns up to when the series knows devices that are met for the first time.
    async fn meet(&mut self, group: &Group, keys: &Keys) {
        let strangers = lock(self.context.suspects).strangers(group, keys, now());
        if strangers.is_empty() {
            return;
        }
        let asked: Arc<[_]> = strangers
            .iter()
            .map(|stranger| {
                let reading = &group.entries[stranger.position].reading;
                (reading.device.as_str().to_owned(), stranger.earliest)
            })
            .collect();
        loop {
            self.context.metrics.look_ups.inc();
            let (series, asked) = (self.series.clone(), Arc::clone(&asked));
            let call = async move { series.greatest(&asked).await };
            let limit = self.series.wtimeout();
            match answer(self.context.health, self.series.name(), limit, call).await {
                Ok(greatest) => {
                    return lock(self.context.suspects).learned(group, keys, &strangers, &greatest);
                }
                Err(error) => self.pause(cause(&error), &error).await,
            }
        }
    }

    /// One insert; returns what is left to do.
    async fn attempt(&mut self, part: Part) -> Vec<Part> {
        let started = Instant::now();
        let result = self.insert(&part).await;
        let seconds = started.elapsed().as_secs_f64();
        self.context.metrics.insert_seconds.observe(seconds);
        let Err(error) = result else {
            self.context.succeeded(self.series.name());
            self.stored(part);
            return Vec::new();
        };
        match classify(&error) {
            Verdict::NotWritten(cause) => {
                self.pause(cause, &error).await;
                vec![part]
            }
            Verdict::Unclear(cause) => {
                self.pause(cause, &error).await;
                vec![Part {
                    look_up: LookUp::Written,
                    ..part
                }]
            }
            Verdict::ByDocument {
                failed,
                unconfirmed,
            } => {
                let cause = first_cause(&failed);
                let judged = part.judged(failed);
                let mut rest = Vec::new();
                if unconfirmed && !judged.written.entries.is_empty() {
                    rest.push(Part {
                        look_up: LookUp::Written,
                        ..judged.written
                    });
                } else {
                    self.stored(judged.written);
                }
                if !judged.again.entries.is_empty() {
                    self.pause(cause, &error).await;
                    rest.push(judged.again);
                }
                rest.extend(self.refused(judged.refused));
                rest
            }
            Verdict::Divide(_) if part.entries.len() > 1 => part.halves().into(),
            Verdict::Divide(words) => self.refused_command(part, &words, &error).await,
        }
    }

    async fn insert(&mut self, part: &Part) -> Result<(), Error> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.context.store.session().await?,
        };
        let (series, documents) = (self.series.clone(), Arc::clone(&part.documents));
        let call = async move {
            let result = series.insert(&documents, &mut session).await;
            (session, result)
        };
        let limit = self.series.wtimeout();
        let (session, result) = answer(self.context.health, self.series.name(), limit, call).await;
        self.session = Some(session);
        result
    }

    /// The server writes one bucket's readings together: one of them costs all of them, and only
    /// those refused alone are refused for what they are.
    fn refused(&mut self, mut refused: Vec<Refused>) -> Vec<Part> {
        if refused.len() > 1 {
            let pairs = refused
                .into_iter()
                .map(|(entry, document, _)| (entry, document));
            return Part::new(pairs.collect(), LookUp::No).halves().into();
        }
        if let Some((entry, _, words)) = refused.pop() {
            self.refuse(entry, &words);
        }
        Vec::new()
    }

    /// A command with one document in it was refused: because of the document, if a command
    /// without it is taken under the same terms; else because of the terms.
    async fn refused_command(&mut self, part: Part, words: &str, error: &Error) -> Vec<Part> {
        if let Err(unconfirmed) = self.confirmed().await {
            self.pause(cause(&unconfirmed), error).await;
            return vec![part];
        }
        for entry in part.entries {
            self.refuse(entry, words);
        }
        Vec::new()
    }

    fn refuse(&mut self, entry: Entry, words: &str) {
        let reason = Reason::MongoRejected;
        let letter = entry.refuse(reason, words, &self.stream, self.context.gateway);
        self.letters.push(letter);
    }

    /// Settles what is there already; returns what is missing.
    async fn look_up(&mut self, part: Part) -> Vec<Part> {
        // An earlier attempt of ours is on as many nodes as asked for, or will never happen.
        if part.look_up == LookUp::Written
            && let Err(error) = self.confirmed().await
        {
            self.pause(cause(&error), &error).await;
            return vec![part];
        }
        self.context.metrics.look_ups.inc();
        let looked_up = &self.context.metrics.looked_up;
        looked_up.inc_by(part.entries.len() as u64);
        let series = self.series.clone();
        let Part {
            entries,
            documents,
            look_up,
        } = part;
        let call = async move {
            let keys: Vec<_> = entries
                .iter()
                .zip(documents.iter())
                .map(|(entry, document)| entry.key(document))
                .collect();
            let found = series.find(&keys).await;
            drop(keys);
            (
                Part {
                    entries,
                    documents,
                    look_up,
                },
                found,
            )
        };
        let limit = self.series.wtimeout();
        let (part, found) = answer(self.context.health, self.series.name(), limit, call).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.pause(cause(&error), &error).await;
                return vec![part];
            }
        };
        let there: Vec<bool> = found
            .iter()
            .map(|found| match look_up {
                LookUp::Written => *found == Found::SameId,
                _ => matches!(found, Found::SameId | Found::SameContent),
            })
            .collect();
        let (there, missing) = part.take(&there);
        match look_up {
            // Written by the attempt whose answer was lost: stored now, not before.
            LookUp::Written => self.stored(there),
            _ => {
                let name = &[self.stream.name.as_str()];
                let metrics = self.context.metrics;
                let conflicts = found
                    .iter()
                    .filter(|found| **found == Found::OtherContent)
                    .count();
                metrics
                    .conflicts
                    .with_label_values(name)
                    .inc_by(conflicts as u64);
                metrics
                    .already_stored
                    .with_label_values(name)
                    .inc_by(there.entries.len() as u64);
                there.settle(Outcome::AlreadyStored);
            }
        }
        if missing.entries.is_empty() {
            Vec::new()
        } else {
            vec![missing]
        }
    }

    /// Waits until earlier writes of the session are confirmed as the stream asks.
    async fn confirmed(&mut self) -> Result<(), Error> {
        let (store, series) = (self.context.store.clone(), self.series.clone());
        let mut session = self.session.take();
        let call = async move {
            let result = probe(&store, Some(&series), None, session.as_mut()).await;
            (session, result)
        };
        let limit = self.series.wtimeout();
        let (session, result) = answer(self.context.health, self.series.name(), limit, call).await;
        self.session = session;
        result
    }

    fn stored(&self, part: Part) {
        let stored = self
            .context
            .metrics
            .stored
            .with_label_values(&[&self.stream.name]);
        stored.inc_by(part.entries.len() as u64);
        part.settle(Outcome::Stored);
    }

    async fn pause(&mut self, cause: Cause, error: &Error) {
        self.context
            .pause(self.series.name(), cause, &words(error))
            .await;
    }
}

fn lock(suspects: &Mutex<Suspects>) -> MutexGuard<'_, Suspects> {
    // A map of times is sound whatever a panicking holder was doing.
    suspects.lock().unwrap_or_else(PoisonError::into_inner)
}
