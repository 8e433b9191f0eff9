//! One attempt: take the lease if it is not ours yet, build the request, make it, judge the answer.
//! If the process dies after the request, the lease that stays behind says that it may have been
//! made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::classify::{Failure, Verdict, answer, failure};
use super::queue::Job;
use super::request::outgoing;
use super::row::Row;
use super::target::Target;
use crate::config::ReceiverConfig;
use crate::model::Timestamp;
use crate::runtime;
use crate::store::{Leased, Outbox, words};

/// What a lease must have left beyond the request's own time.
const MARGIN: Duration = Duration::from_secs(2);
/// What it is taken for beyond that time.
const SPARE: Duration = Duration::from_secs(10);

/// How an attempt ended.
#[derive(Debug)]
pub enum Attempted {
    /// The request was made, or nothing but its making failed.
    Sent {
        /// What that means.
        verdict: Verdict,
        /// How long it took.
        took: Duration,
    },
    /// Somebody else has the lease.
    Held,
    /// The row has ended already.
    Ended(Box<Row>),
    /// There is no such row any more.
    Gone,
    /// The lease could not be asked for.
    NoDatabase(String),
}

/// The receivers, and those of them that have been sent to.
#[derive(Debug, Default)]
pub struct Targets {
    configs: HashMap<String, Arc<ReceiverConfig>>,
    ready: HashMap<String, Target>,
}

/// Shared by all attempts.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The rows.
    pub outbox: Outbox,
    /// Names this process in leases.
    pub owner: String,
    /// The receivers.
    pub targets: Arc<Mutex<Targets>>,
}

impl Targets {
    /// Takes new configurations; those for which `keep` holds stay although they are not among them.
    pub fn configure(&mut self, receivers: Vec<ReceiverConfig>, keep: impl Fn(&str) -> bool) {
        let named: HashMap<String, Arc<ReceiverConfig>> = receivers
            .into_iter()
            .map(|receiver| (receiver.name.clone(), Arc::new(receiver)))
            .collect();
        self.configs.retain(|name, _| keep(name));
        self.configs.extend(named);
        // Also where nothing has changed: files may have.
        self.ready.clear();
    }

    /// Makes it be built anew: something in it was wrong.
    pub fn forget(&mut self, receiver: &str) {
        self.ready.remove(receiver);
    }
}

impl Sender {
    /// Makes the attempt. The row, fresh from the database if it was asked, and how it ended.
    pub async fn attempt(&self, job: Job, now: Timestamp) -> (Row, Attempted) {
        let Job {
            mut row,
            leased_until,
        } = job;
        let Some(config) = self.targets().configs.get(&row.receiver).cloned() else {
            let why = "the receiver is not in the configuration".to_owned();
            return (row, not_made(&Failure::Setup(why)));
        };
        let needed = config.timeout.0 + MARGIN;
        if leased_until.is_none_or(|until| now.plus(needed) > until) {
            match self.lease(&row.id, config.timeout.0 + SPARE, needed).await {
                Ok(Leased::Taken(fresh)) => row = *fresh,
                Ok(Leased::Held) => return (row, Attempted::Held),
                Ok(Leased::Ended(ended)) => return (row, Attempted::Ended(ended)),
                Ok(Leased::Gone) => return (row, Attempted::Gone),
                Err(why) => return (row, Attempted::NoDatabase(why)),
            }
        }
        let target = match self.target(&config).await {
            Ok(target) => target,
            Err((key, message)) => {
                let why = format!("{key}: {message}");
                return (row, not_made(&Failure::Setup(why)));
            }
        };
        let request = match outgoing(&row, &target.secrets, runtime::now()) {
            Ok(request) => request,
            Err(unusable) => {
                let why = unusable.to_string();
                return (row, not_made(&Failure::Setup(why)));
            }
        };
        let began = Instant::now();
        let mut verdict = match target.send(request).await {
            Ok(said) => answer(config.kind, &said, runtime::now()),
            Err(failed) => failure(&failed),
        };
        verdict.why = target.secrets.redact(&verdict.why);
        let took = began.elapsed();
        (row, Attempted::Sent { verdict, took })
    }

    /// The driver call runs in a task of its own, because its futures must not be dropped half way.
    async fn lease(
        &self,
        id: &str,
        long: Duration,
        needed: Duration,
    ) -> Result<Leased<crate::alert::Notice>, String> {
        let (outbox, owner, id) = (self.outbox.clone(), self.owner.clone(), id.to_owned());
        let asked = Instant::now();
        let call = tokio::spawn(async move { outbox.lease(&id, &owner, long).await });
        let leased = call
            .await
            .expect("a driver call does not panic; if it does, so does this task")
            .map_err(|error| words(&error))?;
        // The lease runs since some moment after the question. If the answer took so long that the
        // request may outlast it, it is asked for again.
        if asked.elapsed() + needed > long {
            return Err("the answer took longer than the lease lasts".into());
        }
        Ok(leased)
    }

    async fn target(&self, config: &Arc<ReceiverConfig>) -> Result<Target, (String, String)> {
        if let Some(target) = self.targets().ready.get(&config.name) {
            return Ok(target.clone());
        }
        let reading = Arc::clone(config);
        let built = tokio::task::spawn_blocking(move || Target::build(&reading))
            .await
            .expect("reading files does not panic; if it does, so does this task")?;
        let mut targets = self.targets();
        // Another configuration may have come meanwhile.
        if targets
            .configs
            .get(&config.name)
            .is_some_and(|now| Arc::ptr_eq(now, config))
        {
            targets.ready.insert(config.name.clone(), built.clone());
        }
        Ok(built)
    }

    /// The receivers.
    pub fn targets(&self) -> std::sync::MutexGuard<'_, Targets> {
        // Maps are sound whatever a panicking holder was doing.
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_made(failed: &Failure) -> Attempted {
    Attempted::Sent {
        verdict: failure(failed),
        took: Duration::ZERO,
    }
}
