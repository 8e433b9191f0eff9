//! `tidegate dead-letters`: look at what could not be stored, repeat it, or drop it.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use mongodb::bson::oid::ObjectId;

use super::words::printable;
use super::{ConfigArgs, Usage, block_on};
use crate::app::{Prepared, Replayed, replay};
use crate::model::Timestamp;
use crate::store::{DeadLetter, DeadLetterFilter, Store, provision};

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
    /// Decode again with today's configuration, store what is sound now, keep the rest
    ///
    /// What is stored already is not stored again. Exit code 1 when any had to be kept.
    Replay(Selection),
    /// Delete for good
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
            return Err(
                Usage("say which (--id, --stream, --reason, --since, --until), or --all").into(),
            );
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
            Action::Replay(selection) => {
                let (prepared, filter) = selection.prepare()?;
                block_on(replay_all(prepared, filter))
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
        ..
    } in &letters
    {
        let (topic, detail) = (printable(topic), printable(detail));
        writeln!(out, "{id}  {at}  {reason:20}  {topic}  {detail}")?;
    }
    writeln!(out, "{} of {total}", letters.len())?;
    Ok(ExitCode::SUCCESS)
}

async fn show(prepared: Prepared, id: ObjectId, payload_only: bool) -> anyhow::Result<ExitCode> {
    let filter = DeadLetterFilter {
        id: Some(id),
        ..DeadLetterFilter::default()
    };
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
    let replays = match &letter.last_replay {
        Some(last) => format!("{}, the last kept it: {last}", letter.attempts),
        None => letter.attempts.to_string(),
    };
    let stream = letter.stream.as_deref().unwrap_or("none claimed it");
    for (name, value) in [
        ("id", letter.id.to_string()),
        ("received", letter.at.to_string()),
        ("topic", letter.topic.clone()),
        ("stream", stream.to_owned()),
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

async fn replay_all(prepared: Prepared, filter: DeadLetterFilter) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    // A stream that is new today has no collection yet; the server would make an ordinary one.
    provision(&store, &prepared.loaded.config).await?;
    let mut out = std::io::stdout();
    let (mut stored, mut kept) = (0, 0);
    for id in store.dead_letter_ids(&filter).await? {
        let one = DeadLetterFilter {
            id: Some(id),
            ..DeadLetterFilter::default()
        };
        let Some(letter) = store.find_dead_letters(&one, 1).await?.pop() else {
            continue;
        };
        match replay(&prepared.router, &store, &letter).await? {
            Replayed::Stored => {
                store.drop_dead_letters(&one).await?;
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
