//! `tidegate dead-letters`: look at what could not be stored, take it out, repeat it, or drop it.

mod export;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use mongodb::bson::oid::ObjectId;

use super::words::printable;
use super::{ConfigArgs, Usage, block_on};
use crate::app::{Prepared, Replay, Replayed};
use crate::model::Timestamp;
use crate::store::{Claim, DeadLetter, DeadLetterFilter, Store, provision};

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
        /// Also those that were replayed
        #[arg(long)]
        replayed: bool,
        /// At most this many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
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
    /// Write them out, one JSON object a line
    ///
    /// Each holds id, at, topic, qos, retained, payload (text; payloadBase64 where it is not UTF-8),
    /// payloadBytes, reason, detail, stream, devices, gateway, attempts, and where they apply
    /// topicBase64, lastReplay and replayedAt.
    Export {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        which: Which,
        /// Also those that were replayed
        #[arg(long)]
        replayed: bool,
        /// The file to write, instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Decode again with today's configuration, store what is sound now, keep the rest
    ///
    /// Those that are stored are marked and kept until their time to live is over. What is stored
    /// already is not stored again, however often this is run. Exit code 1 when any could not be
    /// stored.
    Replay {
        #[command(flatten)]
        selection: Selection,
        /// Also those that were replayed before
        #[arg(long)]
        again: bool,
    },
    /// Delete for good, replayed or not
    Drop(Selection),
}

/// What a command that changes things is to change.
#[derive(Debug, Args)]
struct Selection {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    which: Which,
    /// All of them
    #[arg(long)]
    all: bool,
}

impl Selection {
    /// The configuration, and a filter: naming nothing must be said aloud.
    fn prepare(self) -> anyhow::Result<(Prepared, DeadLetterFilter)> {
        let filter = self.which.filter();
        if filter.is_empty() && !self.all {
            return Err(Usage(
                "say which (--id, --stream, --reason, --device, --since, --until), or --all",
            )
            .into());
        }
        Ok((self.config.prepare()?, filter))
    }
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
    /// Only about this device
    #[arg(long)]
    device: Option<String>,
    /// Only received at or after this RFC 3339 time
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Only received before this RFC 3339 time
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
}

impl Which {
    /// Those that match and were not replayed, or all; one that is named is meant in any state.
    fn state(self, replayed: bool) -> DeadLetterFilter {
        let filter = self.filter();
        DeadLetterFilter {
            open: !replayed && filter.id.is_none(),
            ..filter
        }
    }

    fn filter(self) -> DeadLetterFilter {
        DeadLetterFilter {
            id: self.id,
            stream: self.stream,
            reason: self.reason,
            device: self.device,
            open: false,
            since: self.since,
            until: self.until,
        }
    }
}

impl DeadLetters {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::List {
                config,
                which,
                replayed,
                limit,
            } => block_on(list(config.prepare()?, which.state(replayed), limit)),
            Action::Export {
                config,
                which,
                replayed,
                out,
            } => block_on(export::export(
                config.prepare()?,
                which.state(replayed),
                out,
            )),
            Action::Show {
                config,
                id,
                payload,
            } => block_on(show(config.prepare()?, id, payload)),
            Action::Replay { selection, again } => {
                let (prepared, mut filter) = selection.prepare()?;
                // One that is named is meant.
                let again = again || filter.id.is_some();
                filter.open = !again;
                block_on(replay_all(prepared, filter, again))
            }
            Action::Drop(selection) => {
                let (prepared, filter) = selection.prepare()?;
                block_on(drop_all(prepared, filter))
            }
        }
    }
}

async fn open(prepared: &Prepared) -> anyhow::Result<Store> {
    Ok(Store::connect(&prepared.loaded.config).await?)
}

async fn drop_all(prepared: Prepared, filter: DeadLetterFilter) -> anyhow::Result<ExitCode> {
    let dropped = open(&prepared).await?.drop_dead_letters(&filter).await?;
    writeln!(std::io::stdout(), "{dropped} dropped")?;
    Ok(ExitCode::SUCCESS)
}

async fn list(
    prepared: Prepared,
    filter: DeadLetterFilter,
    limit: u32,
) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let total = store.count_dead_letters(&filter).await?;
    let letters = store.find_dead_letters(&filter, i64::from(limit)).await?;
    let mut out = std::io::stdout().lock();
    for DeadLetter {
        id,
        at,
        reason,
        topic,
        detail,
        replayed_at,
        ..
    } in &letters
    {
        let (topic, detail) = (printable(topic), printable(detail));
        let replayed = replayed_at.map_or(String::new(), |at| format!("  (replayed {at})"));
        writeln!(out, "{id}  {at}  {reason:20}  {topic}  {detail}{replayed}")?;
    }
    writeln!(out, "{} of {total}", letters.len())?;
    Ok(ExitCode::SUCCESS)
}

async fn show(prepared: Prepared, id: ObjectId, payload_only: bool) -> anyhow::Result<ExitCode> {
    let filter = DeadLetterFilter::one(id);
    let mut letters = open(&prepared).await?.find_dead_letters(&filter, 1).await?;
    let letter = letters
        .pop()
        .with_context(|| format!("there is no dead letter {id}"))?;
    let mut out = std::io::stdout().lock();
    if payload_only {
        out.write_all(&letter.payload)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cut = if letter.cut() { ", cut" } else { "" };
    let replays = match (&letter.last_replay, letter.replayed_at) {
        (_, Some(at)) => format!("stored at {at}"),
        (Some(last), None) => format!("{}, the last kept it: {last}", letter.attempts),
        (None, None) => letter.attempts.to_string(),
    };
    let devices = match &letter.devices[..] {
        [] => "not known".to_owned(),
        devices => devices.join(", "),
    };
    let stream = letter.stream.as_deref().unwrap_or("none claimed it");
    for (name, value) in [
        ("id", letter.id.to_string()),
        ("received", letter.at.to_string()),
        ("topic", letter.topic.clone()),
        ("stream", stream.to_owned()),
        ("device", devices),
        ("reason", letter.reason.clone()),
        ("detail", letter.detail.clone()),
        ("qos", (letter.qos as u8).to_string()),
        ("retained", letter.retained.to_string()),
        ("gateway", letter.gateway.clone()),
        ("replays", replays),
        ("payload", format!("{} bytes{cut}", letter.payload_bytes)),
    ] {
        writeln!(out, "{name:10}{}", printable(&value))?;
    }
    for line in String::from_utf8_lossy(&letter.payload).lines() {
        writeln!(out, "{}", printable(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn replay_all(
    prepared: Prepared,
    filter: DeadLetterFilter,
    again: bool,
) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    // A stream that is new today has no collection yet; the server would make an ordinary one.
    provision(&store, &prepared.loaded.config).await?;
    let replay = Replay::new(&prepared, &store).await?;
    let mut out = std::io::stdout();
    let (mut stored, mut kept) = (0, 0);
    for id in store.dead_letter_ids(&filter).await? {
        match store.claim_dead_letter(id, again).await? {
            Claim::Taken => {}
            Claim::Done => continue,
            Claim::Busy => {
                writeln!(
                    out,
                    "{id}  kept: another replay has it, or had it when it was stopped less than a minute ago"
                )?;
                kept += 1;
                continue;
            }
        }
        let one = DeadLetterFilter::one(id);
        let Some(letter) = store.find_dead_letters(&one, 1).await?.pop() else {
            continue;
        };
        let outcome = match replay.store(&letter).await {
            Ok(outcome) => outcome,
            Err(error) => {
                // Where the database is away altogether, the claim lapses by itself.
                store.release_dead_letter(id).await.ok();
                return Err(error.into());
            }
        };
        match outcome {
            Replayed::Stored => {
                store.mark_replayed(id).await?;
                stored += 1;
            }
            Replayed::Kept { reason, detail } => {
                store.note_failed_replay(id, &reason, &detail).await?;
                writeln!(out, "{id}  kept: {reason}: {}", printable(&detail))?;
                kept += 1;
            }
        }
    }
    writeln!(out, "{stored} stored, {kept} kept")?;
    Ok(if kept == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
