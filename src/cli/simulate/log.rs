//! What the broker confirmed, one line each. A reading is noted under its packet id when it is
//! written to the connection, and in the file when the broker has confirmed it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

use super::fleet;
use crate::model::Timestamp;

/// The file, shared by all connections.
pub struct PublishedLog(Mutex<BufWriter<File>>);

/// One connection's readings that are not confirmed yet.
#[derive(Default)]
pub struct Unconfirmed(HashMap<u16, (usize, Timestamp)>);

impl PublishedLog {
    /// Starts a new file.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(Mutex::new(BufWriter::new(file))))
    }

    /// Everything is in the file.
    pub fn flush(&self) -> anyhow::Result<()> {
        // Lines are whole whatever a panicking holder was doing.
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.flush().context("cannot write the log of publishes")
    }

    /// The broker confirmed a packet.
    pub fn confirmed(&self, unconfirmed: &mut Unconfirmed, packet: u16) -> anyhow::Result<()> {
        let Some((device, time)) = unconfirmed.0.remove(&packet) else {
            return Ok(());
        };
        let device = fleet::name(device);
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{{\"device\":\"{device}\",\"time\":\"{time}\"}}")
            .context("cannot write the log of publishes")
    }
}

impl Unconfirmed {
    /// A sound reading is on its way.
    pub fn sent(&mut self, packet: u16, device: usize, time: Timestamp) {
        self.0.insert(packet, (device, time));
    }
}
