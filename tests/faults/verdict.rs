//! The publisher's log against MongoDB: what was acknowledged is there, and how often.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use mongodb::bson::{Document, RawDocumentBuf, doc};

use crate::publisher::{Kind, WAVE};
use crate::support::plan::Stored;

#[derive(Debug, Default)]
pub struct Verdict {
    /// Acknowledged by the broker: with own time, without, unfit to be stored.
    pub timed: u64,
    pub plain: u64,
    pub poison: u64,
    /// Acknowledged and nowhere: kind, id, time of the acknowledgement.
    pub lost: Vec<(char, usize, i64)>,
    /// Readings with their own time that are there more than once.
    pub doubled: Vec<(usize, u8)>,
    /// Readings that are not where and when their device said.
    pub changed: Vec<String>,
    /// Copies beyond the first, which are allowed.
    pub plain_copies: u64,
    pub poison_copies: u64,
    /// When the doubled ones were sent, by their own time.
    pub times: HashMap<usize, i64>,
}

impl Verdict {
    /// Reads everything; `ids` is one more than the greatest id.
    pub async fn read(stored: &Stored, log: &Path, ids: u64) -> Result<Verdict, String> {
        let count = usize::try_from(ids).expect("ids are counted in memory") + 1;
        let mut verdict = Verdict::default();
        let timed = verdict.timed_rows(stored, count).await?;
        let plain = rows(stored, "plain", count).await?;
        let letters = letters(stored, count).await?;
        let file = File::open(log).map_err(|error| format!("the log: {error}"))?;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|error| format!("the log: {error}"))?;
            let mut words = line.split(' ');
            let letter = words.next().and_then(|word| word.chars().next());
            let id = words.next().and_then(|word| word.parse::<usize>().ok());
            let at = words.next().and_then(|word| word.parse::<i64>().ok());
            let (Some(letter), Some(id), Some(at)) = (letter, id, at) else {
                return Err(format!("the log has a line {line:?}"));
            };
            let (seen, counter) = match letter {
                't' => (&timed, &mut verdict.timed),
                'r' => (&plain, &mut verdict.plain),
                _ => (&letters, &mut verdict.poison),
            };
            *counter += 1;
            if seen[id] == 0 {
                verdict.lost.push((letter, id, at));
            }
        }
        let doubled = timed.iter().enumerate().filter(|(_, count)| **count > 1);
        verdict.doubled = doubled.map(|(id, count)| (id, *count)).collect();
        let copies = |seen: &[u8]| seen.iter().map(|n| u64::from(n.saturating_sub(1))).sum();
        verdict.plain_copies = copies(&plain);
        verdict.poison_copies = copies(&letters);
        Ok(verdict)
    }

    pub fn acknowledged(&self) -> u64 {
        self.timed + self.plain + self.poison
    }

    /// How often each id is in the series; notes what is not as it was sent.
    async fn timed_rows(&mut self, stored: &Stored, count: usize) -> Result<Vec<u8>, String> {
        let mut seen = vec![0_u8; count];
        let fields = doc! { "_id": 0, "id": 1, "v": 1, "timestamp": 1, "metadata.deviceId": 1 };
        each(stored, "readings", fields, |row| {
            let id = row.get_f64("id").map_err(|error| error.to_string())? as usize;
            let count = seen.get_mut(id).ok_or("an id that nobody sent")?;
            *count = count.saturating_add(1);
            let twice = *count > 1;
            let time = row.get_datetime("timestamp").map_err(|e| e.to_string())?;
            let said = row.get_f64("v").map_err(|error| error.to_string())? as i64;
            if twice {
                self.times.insert(id, said);
            }
            let metadata = row.get_document("metadata").map_err(|e| e.to_string())?;
            let device = metadata.get_str("deviceId").map_err(|e| e.to_string())?;
            if time.timestamp_millis() != said || !(device == WAVE || device.starts_with("d-")) {
                self.changed.push(format!(
                    "id {id} of {device}: at {}, sent for {said}",
                    time.timestamp_millis()
                ));
            }
            Ok(())
        })
        .await?;
        Ok(seen)
    }
}

impl Kind {
    pub fn of(letter: char) -> &'static str {
        match letter {
            't' => "reading with its own time",
            'r' => "reading without",
            _ => "poison",
        }
    }
}

async fn rows(stored: &Stored, collection: &str, count: usize) -> Result<Vec<u8>, String> {
    let mut seen = vec![0_u8; count];
    each(stored, collection, doc! { "_id": 0, "id": 1 }, |row| {
        let id = row.get_f64("id").map_err(|error| error.to_string())? as usize;
        let seen = seen.get_mut(id).ok_or("an id that nobody sent")?;
        *seen = seen.saturating_add(1);
        Ok(())
    })
    .await?;
    Ok(seen)
}

async fn letters(stored: &Stored, count: usize) -> Result<Vec<u8>, String> {
    let mut seen = vec![0_u8; count];
    each(
        stored,
        "dead_letters",
        doc! { "_id": 0, "payload": 1 },
        |row| {
            let payload = row.get_binary("payload").map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(payload.bytes);
            let digits = text.trim_start_matches("{\"id\":").split(',').next();
            let id: usize = digits
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| format!("a dead letter that nobody sent: {text:.60}"))?;
            let seen = seen.get_mut(id).ok_or("an id that nobody sent")?;
            *seen = seen.saturating_add(1);
            Ok(())
        },
    )
    .await?;
    Ok(seen)
}

async fn each(
    stored: &Stored,
    collection: &str,
    fields: Document,
    mut row: impl FnMut(&RawDocumentBuf) -> Result<(), String>,
) -> Result<(), String> {
    let collection = stored.database().collection::<RawDocumentBuf>(collection);
    let find = collection
        .find(doc! {})
        .projection(fields)
        .batch_size(20_000);
    let mut cursor = find.await.map_err(|error| error.to_string())?;
    while cursor.advance().await.map_err(|error| error.to_string())? {
        let current = cursor.current().to_owned();
        row(&current).map_err(|error| format!("{error}: {current:?}"))?;
    }
    Ok(())
}
