//! How the others talk to the deliverer: rows in, rows back, configurations; and how it is doing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::super::queue::Standing;
use super::super::row::Row;
use crate::config::ReceiverConfig;
use crate::model::Timestamp;

/// What the deliverer is asked to do.
pub enum Command {
    /// Send these.
    Deliver(Vec<Row>),
    /// Take this one back.
    Recall(String),
    /// Know these receivers.
    Configure(Vec<ReceiverConfig>),
}

/// How one receiver is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverHealth {
    /// Its name.
    pub receiver: String,
    /// What is wrong with it; `None`: nothing.
    pub trouble: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Rows that wait for it.
    pub waiting: usize,
}

/// What the deliverer last said of itself.
#[derive(Debug, Default)]
pub struct Shared {
    health: Vec<ReceiverHealth>,
    oldest: Option<Duration>,
}

impl Shared {
    /// Takes note.
    pub fn update(&mut self, standing: &[Standing], oldest: Option<Duration>) {
        self.oldest = oldest;
        self.health = standing
            .iter()
            .map(|one| ReceiverHealth {
                receiver: one.receiver.clone(),
                trouble: one.trouble.as_ref().map(|(why, _)| why.clone()),
                since: one.trouble.as_ref().map(|(_, since)| *since),
                waiting: one.waiting,
            })
            .collect();
    }
}

/// A way to the deliverer.
#[derive(Clone)]
pub struct DeliveryHandle {
    commands: mpsc::UnboundedSender<Command>,
    owner: Arc<str>,
    shared: Arc<Mutex<Shared>>,
}

impl DeliveryHandle {
    pub(super) fn new(
        commands: mpsc::UnboundedSender<Command>,
        owner: String,
        shared: Arc<Mutex<Shared>>,
    ) -> Self {
        Self {
            commands,
            owner: owner.into(),
            shared,
        }
    }

    /// Names this run of the process in leases, for rows that are born leased.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Sends these rows, whose transaction has been committed. Rows that are known already are left
    /// alone. Where the deliverer has stopped, they wait in the database.
    pub fn deliver(&self, rows: Vec<Row>) {
        let _ = self.commands.send(Command::Deliver(rows));
    }

    /// Takes a row back, if it is not being sent just now. Its end is told as that of any row.
    pub fn recall(&self, id: impl Into<String>) {
        let _ = self.commands.send(Command::Recall(id.into()));
    }

    /// Puts these receivers in the place of those before. One that is no longer named stays known
    /// until nothing is owed to it.
    pub fn configure(&self, receivers: Vec<ReceiverConfig>) {
        let _ = self.commands.send(Command::Configure(receivers));
    }

    /// How each receiver is doing.
    pub fn health(&self) -> Vec<ReceiverHealth> {
        lock(&self.shared).health.clone()
    }

    /// For how long the oldest row has been owed; `None`: nothing is.
    pub fn oldest(&self) -> Option<Duration> {
        lock(&self.shared).oldest
    }
}

pub(super) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Replaced as a whole; sound whatever a panicking holder was doing.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
