//! What one write holds: loads sorted out by destination, readings in the order that is cheapest
//! for MongoDB.

use std::collections::HashMap;
use std::sync::Arc;

use mongodb::bson::RawDocumentBuf;
use mongodb::bson::oid::ObjectId;

use crate::config::StreamConfig;
use crate::devices::{Devices, sightings};
use crate::lane::{Cargo, Load};
use crate::model::{Message, Outcome, Reading, Reason, Receipt};
use crate::store::{DeadLetter, EncodeError, Key, Seen, encode_reading};

/// A reading with its document, encoded alone.
pub struct Entry {
    /// The delivery it came from.
    pub message: Arc<Message>,
    /// The reading, for look-ups.
    pub reading: Reading,
    /// Its document's id: the same at every attempt.
    pub id: ObjectId,
    /// Settled when it is written.
    pub receipt: Receipt,
}

impl Entry {
    /// What identifies it to a look-up.
    pub fn key<'a>(&'a self, document: &'a RawDocumentBuf) -> Key<'a> {
        Key {
            device: self.reading.device.as_str(),
            timestamp: self.reading.timestamp,
            document,
        }
    }

    /// Turns it into a dead letter.
    pub fn refuse(
        self,
        reason: Reason,
        detail: &str,
        stream: &StreamConfig,
        gateway: &str,
    ) -> Letter {
        let device = Some(&self.reading.device);
        let stream = Some(stream.name.as_str());
        let letter = DeadLetter::new(
            &self.message,
            reason.code(),
            detail,
            stream,
            device,
            gateway,
        );
        Letter::new(self.message, reason, letter, self.receipt)
    }
}

/// Readings of one stream, sorted by (device, time), and their documents in the same order.
pub struct Group {
    /// Where they go.
    pub stream: Arc<StreamConfig>,
    /// The readings.
    pub entries: Vec<Entry>,
    /// Their documents.
    pub documents: Vec<RawDocumentBuf>,
    /// Distinct devices among them: what the write costs.
    pub devices: usize,
}

impl Group {
    /// When its devices were heard from.
    pub fn sightings(&self) -> Vec<Seen> {
        let heard = self.entries.iter().map(|entry| {
            let Reading { device, kind, .. } = &entry.reading;
            (device, kind, entry.message.received_at)
        });
        sightings(heard)
    }
}

/// A dead letter on its way: one for each message and reason.
pub struct Letter {
    message: Arc<Message>,
    /// What is written.
    pub letter: DeadLetter,
    /// For the count.
    pub reason: Reason,
    /// Settled when it is written.
    receipts: Vec<Receipt>,
}

impl Letter {
    fn new(message: Arc<Message>, reason: Reason, letter: DeadLetter, receipt: Receipt) -> Self {
        Self {
            message,
            letter,
            reason,
            receipts: vec![receipt],
        }
    }

    /// Ends it.
    pub fn settle(self) {
        for receipt in self.receipts {
            receipt.settle(Outcome::DeadLettered);
        }
    }

    /// Brings letters about parts of one message together, so that a message of many readings is
    /// not kept many times.
    pub fn fold(letters: Vec<Letter>) -> Vec<Letter> {
        let mut folded: Vec<Letter> = Vec::with_capacity(letters.len());
        let mut by_message: HashMap<(*const Message, Reason), usize> = HashMap::new();
        for mut letter in letters {
            let key = (Arc::as_ptr(&letter.message), letter.reason);
            match by_message.get(&key) {
                Some(position) => {
                    let first = &mut folded[*position];
                    first.receipts.append(&mut letter.receipts);
                    for device in letter.letter.devices {
                        first.letter.concerns(device);
                    }
                }
                None => {
                    by_message.insert(key, folded.len());
                    folded.push(letter);
                }
            }
        }
        for letter in folded.iter_mut().filter(|letter| letter.receipts.len() > 1) {
            let more = letter.receipts.len() - 1;
            letter.letter.detail += &format!(" (and {more} more of this message's readings)");
        }
        folded
    }
}

/// Sorts loads out. Readings that no server would take become dead letters here.
pub fn sort_out(loads: Vec<Load>, gateway: &str, devices: &Devices) -> (Vec<Group>, Vec<Letter>) {
    let mut by_stream: Vec<(Arc<StreamConfig>, Vec<Entry>)> = Vec::new();
    let mut letters = Vec::new();
    for Load {
        message,
        stream,
        cargo,
        receipt,
    } in loads
    {
        match (cargo, stream) {
            (Cargo::Reading(reading), Some(stream)) => {
                let entry = Entry {
                    message,
                    reading,
                    id: ObjectId::new(),
                    receipt,
                };
                match by_stream
                    .iter_mut()
                    .find(|(known, _)| Arc::ptr_eq(known, &stream))
                {
                    Some((_, entries)) => entries.push(entry),
                    None => by_stream.push((stream, vec![entry])),
                }
            }
            (
                Cargo::DeadLetter {
                    reason,
                    detail,
                    device,
                },
                stream,
            ) => {
                let (code, device) = (reason.code(), device.as_ref());
                let stream = stream.as_ref().map(|s| s.name.as_str());
                let letter = DeadLetter::new(&message, code, &detail, stream, device, gateway);
                letters.push(Letter::new(message, reason, letter, receipt));
            }
            // A reading belongs to a stream; one that does not is kept rather than lost.
            (Cargo::Reading(reading), None) => {
                let detail = "no stream claims this reading";
                let device = Some(&reading.device);
                let reason = Reason::NoRoute;
                let letter =
                    DeadLetter::new(&message, reason.code(), detail, None, device, gateway);
                letters.push(Letter::new(message, reason, letter, receipt));
            }
        }
    }
    let groups = by_stream
        .into_iter()
        .filter_map(|(stream, entries)| group(stream, entries, gateway, devices, &mut letters))
        .collect();
    (groups, letters)
}

fn group(
    stream: Arc<StreamConfig>,
    mut entries: Vec<Entry>,
    gateway: &str,
    devices: &Devices,
    letters: &mut Vec<Letter>,
) -> Option<Group> {
    // One device's readings side by side and in time order fill one bucket with one update.
    entries.sort_by(|a, b| {
        (&a.reading.device, a.reading.timestamp).cmp(&(&b.reading.device, b.reading.timestamp))
    });
    devices.enrich(entries.iter_mut().map(|entry| &mut entry.reading));
    let mut documents = Vec::with_capacity(entries.len());
    let mut sound = Vec::with_capacity(entries.len());
    for entry in entries {
        match encode_reading(entry.id, &entry.reading) {
            Ok(document) => {
                documents.push(document);
                sound.push(entry);
            }
            Err(error) => {
                let reason = match error {
                    EncodeError::NulInKey(_) => Reason::BadKey,
                    EncodeError::TooLarge { .. } => Reason::TooLarge,
                };
                letters.push(entry.refuse(reason, &error.to_string(), &stream, gateway));
            }
        }
    }
    let devices = sound
        .chunk_by(|a, b| a.reading.device == b.reading.device)
        .count();
    (!sound.is_empty()).then_some(Group {
        stream,
        entries: sound,
        documents,
        devices,
    })
}
