//! `tidegate outbox`: what receivers are owed, what they were told, and what was given up.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};

use super::words::printable;
use super::{ConfigArgs, Usage, block_on};
use crate::alert::notify::Row;
use crate::app::Prepared;
use crate::store::{Outbox, OutboxFilter, RowState, Store};

/// List, show or repeat messages to receivers
#[derive(Debug, Args)]
#[command(name = "outbox", arg_required_else_help = true)]
pub struct OutboxCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One line each, newest first
    List {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        which: Which,
        /// Only in this state
        #[arg(long)]
        state: Option<State>,
        /// At most this many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// One message, whole: what is sent but for secrets, and how it went
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its id, as listed
        id: String,
    },
    /// Put messages that were given up in the queue again, under the same id
    ///
    /// A gateway that runs takes them up within half a minute.
    Replay {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        which: Which,
        /// Only this one
        #[arg(long)]
        id: Option<String>,
        /// All that were given up
        #[arg(long)]
        all: bool,
    },
}

/// Which messages.
#[derive(Debug, Args)]
struct Which {
    /// Only to this receiver
    #[arg(long)]
    receiver: Option<String>,
    /// Only about this alert or group
    #[arg(long)]
    key: Option<String>,
}

impl Which {
    fn filter(self, state: Option<RowState>) -> OutboxFilter {
        OutboxFilter {
            state,
            receiver: self.receiver,
            key: self.key,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Queued,
    Delivered,
    Dead,
    Recalled,
}

impl From<State> for RowState {
    fn from(state: State) -> Self {
        match state {
            State::Queued => Self::Queued,
            State::Delivered => Self::Delivered,
            State::Dead => Self::Dead,
            State::Recalled => Self::Recalled,
        }
    }
}

impl OutboxCommand {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::List {
                config,
                which,
                state,
                limit,
            } => {
                let filter = which.filter(state.map(RowState::from));
                block_on(list(config.prepare()?, filter, limit))
            }
            Action::Show { config, id } => block_on(show(config.prepare()?, id)),
            Action::Replay {
                config,
                which,
                id,
                all,
            } => {
                let filter = which.filter(Some(RowState::Dead));
                if id.is_none() && filter.receiver.is_none() && filter.key.is_none() && !all {
                    return Err(Usage("say which (--id, --receiver, --key), or --all").into());
                }
                block_on(replay(config.prepare()?, filter, id))
            }
        }
    }
}

async fn open(prepared: &Prepared) -> anyhow::Result<Outbox> {
    let store = Store::connect(&prepared.loaded.config).await?;
    Ok(Outbox::new(&store, &store.names().outbox))
}

async fn list(prepared: Prepared, filter: OutboxFilter, limit: u32) -> anyhow::Result<ExitCode> {
    let outbox = open(&prepared).await?;
    let total = outbox.count(&filter).await?;
    let rows: Vec<Row> = outbox.list(&filter, i64::from(limit)).await?;
    let mut out = std::io::stdout().lock();
    for row in &rows {
        let Row {
            id,
            created,
            receiver,
            kind,
            severity,
            attempts,
            ..
        } = row;
        let state = row.state.name();
        let key = printable(&row.key);
        let why = row.last.as_ref().map_or("", |last| last.why.as_str());
        let why = printable(why);
        writeln!(
            out,
            "{id}  {created}  {state:9}  {receiver}  {kind}  {severity}  {key}  attempts {attempts}  {why}"
        )?;
    }
    writeln!(out, "{} of {total}", rows.len())?;
    Ok(ExitCode::SUCCESS)
}

async fn show(prepared: Prepared, id: String) -> anyhow::Result<ExitCode> {
    let row: Option<Row> = open(&prepared).await?.show(&id).await?;
    let row = row.with_context(|| format!("there is no message {id}"))?;
    let time = |at: Option<crate::model::Timestamp>| at.map_or("-".into(), |at| at.to_string());
    let last = row.last.clone().unwrap_or_default();
    let lease = row.lease.as_ref().map_or("-".into(), |lease| {
        format!("{} until {}", lease.owner, lease.until)
    });
    let mut out = std::io::stdout().lock();
    for (name, value) in [
        ("id", row.id.clone()),
        ("webhook id", format!("msg_{}", row.id)),
        ("state", row.state.name().to_owned()),
        ("receiver", row.receiver.clone()),
        ("key", row.key.clone()),
        ("sequence", row.sequence.to_string()),
        ("kind", row.kind.clone()),
        ("severity", row.severity.to_string()),
        ("created", row.created.to_string()),
        ("attempts", row.attempts.to_string()),
        ("ambiguous", row.ambiguous.to_string()),
        ("last", last.why),
        ("next", time(row.next_at)),
        ("lease", lease),
        ("ended", time(row.ended_at)),
    ] {
        writeln!(out, "{name:12}{}", printable(&value))?;
    }
    let sent = match &row.minimal {
        Some(minimal) if row.use_minimal => minimal,
        _ => &row.body,
    };
    let body: serde_json::Value = serde_json::from_str(sent)?;
    for line in format!("{body:#}").lines() {
        writeln!(out, "{}", printable(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn replay(
    prepared: Prepared,
    filter: OutboxFilter,
    id: Option<String>,
) -> anyhow::Result<ExitCode> {
    let outbox = open(&prepared).await?;
    let ids = match id {
        Some(id) => vec![id],
        None => {
            let rows: Vec<Row> = outbox.list(&filter, 0).await?;
            // Oldest first, so that what belongs together goes in order.
            rows.into_iter().rev().map(|row| row.id).collect()
        }
    };
    let mut out = std::io::stdout().lock();
    let (mut queued, mut not) = (0, 0);
    for id in ids {
        if outbox.requeue(&id).await? {
            queued += 1;
        } else {
            not += 1;
            writeln!(
                out,
                "{}  is not a message that was given up",
                printable(&id)
            )?;
        }
    }
    writeln!(out, "{queued} in the queue again")?;
    Ok(if not == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
