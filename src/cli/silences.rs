//! `tidegate silences`: what is not to be told for a while. The end of what was told is told all
//! the same.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};

use super::alerts::span;
use super::words::{printable, whoever};
use super::{ConfigArgs, Usage, block_on};
use crate::alert::inventory;
use crate::alert::notify::plan::{Matcher, Silence};
use crate::app::Prepared;
use crate::model::Timestamp;
use crate::runtime::now;
use crate::store::{SilenceRecord, Store};

/// Add, list or expire silences
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Silences {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Keep what matches from being told
    Add {
        #[command(flatten)]
        config: ConfigArgs,
        /// All must hold: site=north, site!=north, rule=~cold-.*, rule!~cold-.*; labels are rule,
        /// severity, device, type, field, receiver, a rule's labels and tags
        #[arg(required = true, value_name = "MATCHER")]
        matchers: Vec<Matcher>,
        /// For so long, such as 2h
        #[arg(long = "for", value_name = "SPAN", value_parser = span)]
        long: Duration,
        /// From this RFC 3339 time; without it from now
        #[arg(long, value_name = "TIME")]
        starts: Option<Timestamp>,
        /// Why
        #[arg(long)]
        comment: String,
        /// Who; by default the user
        #[arg(long)]
        author: Option<String>,
        /// Only print which open alerts match
        #[arg(long)]
        preview: bool,
    },
    /// One line each
    List {
        #[command(flatten)]
        config: ConfigArgs,
        /// Those that have ended too
        #[arg(long)]
        all: bool,
    },
    /// End one now; it stays listed with --all
    Expire {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its id, as listed
        id: String,
    },
}

impl Silences {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Add {
                config,
                matchers,
                long,
                starts,
                comment,
                author,
                preview,
            } => {
                let starts = starts.unwrap_or_else(now);
                let silence = Silence {
                    id: format!("s{:x}", now().millis()),
                    matchers,
                    starts,
                    ends: starts.plus(long),
                    author: whoever(author),
                    comment,
                };
                block_on(add(config.prepare()?, silence, preview))
            }
            Action::List { config, all } => block_on(list(config.prepare()?, all)),
            Action::Expire { config, id } => block_on(expire(config.prepare()?, id)),
        }
    }
}

async fn add(prepared: Prepared, silence: Silence, preview: bool) -> anyhow::Result<ExitCode> {
    let config = &prepared.loaded.config;
    silence
        .check(config.alerts.silence_max.0)
        .map_err(|error| anyhow!(error))?;
    let store = Store::connect(config).await?;
    let alerts = inventory(&store).await.map_err(|error| anyhow!(error))?;
    let mut out = std::io::stdout();
    let open = alerts.iter().filter(|alert| alert.state != "ok");
    let mut matching = 0;
    for alert in open {
        let receivers = config
            .receivers
            .iter()
            .map(|receiver| receiver.name.as_str());
        let covered = |receiver: &str| {
            let episode = alert.episode.as_ref();
            episode.is_some_and(|episode| silence.covers(episode, receiver))
        };
        if covered("") || receivers.into_iter().any(covered) {
            matching += 1;
            if preview {
                writeln!(out, "{}", printable(&alert.key))?;
            }
        }
    }
    if preview {
        writeln!(out, "{matching} open alerts match; nothing was added")?;
        return Ok(ExitCode::SUCCESS);
    }
    let record = SilenceRecord {
        id: silence.id.clone(),
        matchers: silence.matchers.iter().map(ToString::to_string).collect(),
        starts: silence.starts,
        ends: silence.ends,
        author: silence.author,
        comment: silence.comment,
    };
    store.put_silence(&record).await?;
    writeln!(
        out,
        "{} until {}; {matching} open alerts match",
        record.id, record.ends
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn list(prepared: Prepared, all: bool) -> anyhow::Result<ExitCode> {
    let store = Store::connect(&prepared.loaded.config).await?;
    let mut silences = store.kept_silences().await?;
    silences.sort_by_key(|silence| silence.starts);
    let now = now();
    let mut out = std::io::stdout().lock();
    for silence in silences.iter().filter(|silence| all || silence.ends > now) {
        let state = match silence {
            silence if silence.ends <= now => "ended",
            silence if silence.starts > now => "to come",
            _ => "active",
        };
        writeln!(
            out,
            "{}  {state:7}  {} to {}  {}  {}: {}",
            silence.id,
            silence.starts,
            silence.ends,
            printable(&silence.matchers.join(" ")),
            printable(&silence.author),
            printable(&silence.comment),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn expire(prepared: Prepared, id: String) -> anyhow::Result<ExitCode> {
    let store = Store::connect(&prepared.loaded.config).await?;
    let silences = store.kept_silences().await?;
    let mut silence = silences
        .into_iter()
        .find(|silence| silence.id == id)
        .with_context(|| format!("there is no silence {id:?}"))?;
    if silence.ends <= now() {
        return Err(Usage("it has ended already").into());
    }
    silence.ends = now();
    // One that was to come does not begin any more.
    silence.starts = silence.starts.min(silence.ends);
    store.put_silence(&silence).await?;
    writeln!(std::io::stdout(), "{id} has ended")?;
    Ok(ExitCode::SUCCESS)
}
