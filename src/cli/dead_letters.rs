//! `tidegate dead-letters`: look at what could not be stored, repeat it, or drop it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::{Args, Subcommand};
use mongodb::bson::oid::ObjectId;

use super::{ConfigArgs, block_on};
use crate::app::Prepared;
use crate::decode::decode;
use crate::model::{Message, Timestamp};
use crate::store::{DeadLetter, DeadLetterFilter, Key, Store, connect, encode_reading};

/// List, show, replay or drop messages that could not be stored
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct DeadLetters {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One line each, oldest first
    List {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        which: Which,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// One dead letter, whole
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its id, as listed
        id: ObjectId,
        /// Write the exact payload, and nothing else, to standard output
        #[arg(long)]
        payload: bool,
    },
    /// Decode again with today's configuration, store what is sound now, keep the rest
    Replay {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        which: Which,
        /// All of them
        #[arg(long)]
        all: bool,
    },
    /// Delete for good
    Drop {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        which: Which,
        /// All of them
        #[arg(long)]
        all: bool,
    },
}

/// Which dead letters.
#[derive(Debug, Args)]
struct Which {
    /// Only this one
    #[arg(long)]
    id: Option<ObjectId>,
    /// Only of this stream
    #[arg(long)]
    stream: Option<String>,
    /// Only with this reason, such as json_syntax
    #[arg(long)]
    reason: Option<String>,
    /// Only received at or after this RFC 3339 time
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Only received before this RFC 3339 time
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
}

impl Which {
    fn filter(self) -> DeadLetterFilter {
        DeadLetterFilter {
            id: self.id,
            stream: self.stream,
            reason: self.reason,
            since: self.since,
            until: self.until,
        }
    }

    /// The filter for a command that changes things: naming nothing must be said aloud.
    fn some(self, all: bool) -> anyhow::Result<DeadLetterFilter> {
        let filter = self.filter();
        if filter.is_empty() && !all {
            bail!("say which (--id, --stream, --reason, --since, --until), or --all");
        }
        Ok(filter)
    }
}

impl DeadLetters {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::List {
                config,
                which,
                limit,
            } => block_on(list(config.prepare()?, which.filter(), limit)),
            Action::Show {
                config,
                id,
                payload,
            } => block_on(show(config.prepare()?, id, payload)),
            Action::Replay { config, which, all } => {
                let filter = which.some(all)?;
                block_on(replay(config.prepare()?, filter))
            }
            Action::Drop { config, which, all } => {
                let filter = which.some(all)?;
                block_on(async {
                    let dropped = open(&config.prepare()?)
                        .await?
                        .drop_dead_letters(&filter)
                        .await?;
                    println!("{dropped} dropped");
                    Ok(ExitCode::SUCCESS)
                })
            }
        }
    }
}

async fn open(prepared: &Prepared) -> anyhow::Result<Store> {
    let config = &prepared.loaded.config.mongodb;
    Ok(Store::new(connect(config, 1).await?, config))
}

async fn list(
    prepared: Prepared,
    filter: DeadLetterFilter,
    limit: u32,
) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let total = store.count_dead_letters(&filter).await?;
    let letters = store.find_dead_letters(&filter, i64::from(limit)).await?;
    for letter in &letters {
        println!(
            "{}  {}  {:20}  {}  {}",
            letter.id,
            letter.at,
            letter.reason,
            printable(&letter.topic),
            printable(&letter.detail)
        );
    }
    println!("{} of {total}", letters.len());
    Ok(ExitCode::SUCCESS)
}

async fn show(prepared: Prepared, id: ObjectId, payload_only: bool) -> anyhow::Result<ExitCode> {
    let filter = DeadLetterFilter {
        id: Some(id),
        ..DeadLetterFilter::default()
    };
    let letters = open(&prepared).await?.find_dead_letters(&filter, 1).await?;
    let letter = letters
        .first()
        .with_context(|| format!("there is no dead letter {id}"))?;
    if payload_only {
        std::io::stdout().write_all(&letter.payload)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stream = letter.stream.as_deref().unwrap_or("none claimed it");
    println!(
        "id        {}\nreceived  {}\ntopic     {}",
        letter.id,
        letter.at,
        printable(&letter.topic)
    );
    println!(
        "stream    {stream}\nreason    {}\ndetail    {}",
        letter.reason,
        printable(&letter.detail)
    );
    println!(
        "qos       {}\nretained  {}\ngateway   {}\nreplays   {}",
        letter.qos as u8, letter.retained, letter.gateway, letter.attempts
    );
    println!(
        "payload   {} bytes{}",
        letter.payload_bytes,
        if letter.cut() { ", cut" } else { "" }
    );
    println!("{}", printable(&String::from_utf8_lossy(&letter.payload)));
    Ok(ExitCode::SUCCESS)
}

async fn replay(prepared: Prepared, filter: DeadLetterFilter) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let (mut stored, mut kept) = (0, 0);
    for letter in store.find_dead_letters(&filter, 0).await? {
        match replay_one(&prepared, &store, &letter).await? {
            Ok(()) => {
                let one = DeadLetterFilter {
                    id: Some(letter.id),
                    ..DeadLetterFilter::default()
                };
                store.drop_dead_letters(&one).await?;
                stored += 1;
            }
            Err((reason, detail)) => {
                store
                    .note_failed_replay(letter.id, &reason, &detail)
                    .await?;
                println!("{}  kept: {reason}: {}", letter.id, printable(&detail));
                kept += 1;
            }
        }
    }
    println!("{stored} stored, {kept} kept");
    Ok(ExitCode::SUCCESS)
}

/// Stores one letter's readings, or says why not. Ids follow from the letter's, so that a replay
/// that was cut off can be repeated without doubling anything.
async fn replay_one(
    prepared: &Prepared,
    store: &Store,
    letter: &DeadLetter,
) -> anyhow::Result<Result<(), (String, String)>> {
    if letter.cut() {
        return Ok(Err((
            letter.reason.clone(),
            "the payload was cut when it was kept; it cannot be decoded".into(),
        )));
    }
    let message = Message {
        topic: letter
            .topic_bytes
            .clone()
            .unwrap_or_else(|| letter.topic.clone().into_bytes())
            .into(),
        payload: Bytes::from(letter.payload.clone()),
        qos: letter.qos,
        // Asked for by a person now: not a replay that should be skipped.
        retain: false,
        dup: false,
        received_at: letter.at,
    };
    let decoded = decode(&prepared.router, &message);
    if let Some(refusal) = decoded.refused {
        return Ok(Err((refusal.reason.code().to_owned(), refusal.detail)));
    }
    let Some(stream) = decoded.stream.filter(|_| !decoded.readings.is_empty()) else {
        let reason = decoded.ignored.map_or("no_values", |reason| reason.code());
        return Ok(Err((
            reason.to_owned(),
            "today's configuration leaves this message out".into(),
        )));
    };
    let series = store.series(stream.config());
    let ids: Vec<_> = (0u32..)
        .map(|position| derived_id(letter.id, position))
        .take(decoded.readings.len())
        .collect();
    let keys: Vec<_> = decoded
        .readings
        .iter()
        .zip(&ids)
        .map(|(reading, id)| Key {
            device: reading.device.as_str(),
            timestamp: reading.timestamp,
            id: *id,
        })
        .collect();
    let there = series.stored(&keys).await?;
    let mut documents = Vec::new();
    for (reading, id) in decoded
        .readings
        .iter()
        .zip(&ids)
        .filter(|(_, id)| !there.contains(*id))
    {
        match encode_reading(*id, reading) {
            Ok(document) => documents.push(document),
            Err(error) => return Ok(Err(("too_large".into(), error.to_string()))),
        }
    }
    if !documents.is_empty() {
        series
            .insert(&documents, &mut store.session().await?)
            .await?;
    }
    Ok(Ok(()))
}

/// The letter's id for its first reading, and neighbours of it for the others.
fn derived_id(letter: ObjectId, position: u32) -> ObjectId {
    let mut bytes = letter.bytes();
    for (byte, add) in bytes[4..8].iter_mut().zip(position.to_be_bytes()) {
        *byte ^= add;
    }
    ObjectId::from_bytes(bytes)
}

/// Text from outside, made safe for a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_control() && c != '\n' {
                c.escape_default().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect()
}
