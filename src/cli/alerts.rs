//! `tidegate alerts`: what fires, who was told, what happened; and the two things a person can do
//! about it.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};

use super::words::{printable, whoever};
use super::{ConfigArgs, block_on};
use crate::alert::notify::plan::Standing;
use crate::alert::{Listed, inventory, standing};
use crate::app::Prepared;
use crate::model::{Severity, Timestamp};
use crate::runtime::now;
use crate::store::{Request, Store};

/// How long a request may wait for the leader before we say so.
const PATIENCE: Duration = Duration::from_secs(10);

/// List, show, acknowledge or resolve alerts, or read their history
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Alerts {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One line each
    List {
        #[command(flatten)]
        config: ConfigArgs,
        /// Only of this state; without it what fires, recovers or is pending
        #[arg(long, value_parser = ["ok", "pending", "firing", "recovering", "all"])]
        state: Option<String>,
        /// Only this bad or worse
        #[arg(long, value_parser = severity)]
        severity: Option<Severity>,
        /// Only of this rule
        #[arg(long)]
        rule: Option<String>,
        /// Only of this device
        #[arg(long)]
        device: Option<String>,
        /// Only with this label or tag, NAME=VALUE; may be repeated
        #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
        labels: Vec<(String, String)>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// One alert: its episode, who was told what, and what holds a message back
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its key, as listed
        key: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// No reminders: somebody knows. A higher level or a new episode is told all the same
    Ack {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its key, as listed
        key: String,
        /// For so long, such as 2h; without it for the rest of the episode
        #[arg(long = "for", value_name = "SPAN", value_parser = span)]
        long: Option<Duration>,
        /// Who says so; by default the user
        #[arg(long)]
        by: Option<String>,
    },
    /// End an episode by hand; it fires again only after a clear reading
    Resolve {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its key, as listed
        key: String,
        /// Who says so; by default the user
        #[arg(long)]
        by: Option<String>,
    },
    /// What happened, newest first
    History {
        #[command(flatten)]
        config: ConfigArgs,
        /// Only of this alert
        key: Option<String>,
        /// Only at or after this RFC 3339 time
        #[arg(long, value_name = "TIME")]
        since: Option<Timestamp>,
        /// At most this many lines
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A duration as in the configuration.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected a duration such as 30m, 2h or 1d".into())
}

fn severity(text: &str) -> Result<Severity, String> {
    let found = Severity::ALL.into_iter().find(|level| level.name() == text);
    found.ok_or_else(|| "expected info, warning, error or critical".into())
}

impl Alerts {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::List {
                config,
                state,
                severity,
                rule,
                device,
                labels,
                json,
            } => {
                let wanted = Wanted {
                    state,
                    severity,
                    rule,
                    device,
                    labels,
                };
                block_on(list(config.prepare()?, wanted, json))
            }
            Action::Show { config, key, json } => block_on(show(config.prepare()?, key, json)),
            Action::Ack {
                config,
                key,
                long,
                by,
            } => {
                let until = long.map(|long| now().plus(long));
                block_on(ask(config.prepare()?, Request::Ack { key, until }, by))
            }
            Action::Resolve { config, key, by } => {
                block_on(ask(config.prepare()?, Request::Resolve { key }, by))
            }
            Action::History {
                config,
                key,
                since,
                limit,
                json,
            } => block_on(history(config.prepare()?, key, since, limit, json)),
        }
    }
}

/// Which alerts.
struct Wanted {
    state: Option<String>,
    severity: Option<Severity>,
    rule: Option<String>,
    device: Option<String>,
    labels: Vec<(String, String)>,
}

impl Wanted {
    fn takes(&self, alert: &Listed) -> bool {
        let state = match self.state.as_deref() {
            None => alert.state != "ok",
            Some("all") => true,
            Some(state) => state == alert.state,
        };
        let episode = alert.episode.as_ref();
        let severity = self
            .severity
            .is_none_or(|least| episode.is_some_and(|episode| episode.severity >= least));
        let label = |(name, value): &(String, String)| {
            episode.is_some_and(|episode| {
                let found = episode.labels.get(name).or(episode.tags.get(name));
                found == Some(value)
            })
        };
        state
            && severity
            && self.rule.as_ref().is_none_or(|rule| *rule == alert.rule)
            && self
                .device
                .as_ref()
                .is_none_or(|device| *device == alert.device)
            && self.labels.iter().all(label)
    }
}

async fn open(prepared: &Prepared) -> anyhow::Result<Store> {
    Ok(Store::connect(&prepared.loaded.config).await?)
}

async fn list(prepared: Prepared, wanted: Wanted, json: bool) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let alerts = inventory(&store).await.map_err(|error| anyhow!(error))?;
    let mut out = std::io::stdout().lock();
    let mut count = 0;
    for alert in alerts.iter().filter(|alert| wanted.takes(alert)) {
        count += 1;
        if json {
            writeln!(out, "{}", serde_json::to_string(alert)?)?;
        } else {
            let episode = alert.episode.as_ref();
            let level = episode.map_or("", |episode| episode.severity.name());
            let value = episode.and_then(|episode| episode.value.as_ref());
            let value = value.map(ToString::to_string).unwrap_or_default();
            let since = episode.map(|episode| episode.fired_at.to_string());
            let acked = if alert.acked { "  acked" } else { "" };
            writeln!(
                out,
                "{:10}  {level:8}  {:24}  {}  {}{acked}",
                alert.state,
                since.unwrap_or_default(),
                printable(&alert.key),
                printable(&value),
            )?;
        }
    }
    if !json {
        writeln!(out, "{count} of {}", alerts.len())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(prepared: Prepared, key: String, json: bool) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let alerts = inventory(&store).await.map_err(|error| anyhow!(error))?;
    let alert = alerts
        .into_iter()
        .find(|alert| alert.key == key)
        .with_context(|| {
            format!("there is no alert {key:?}; `tidegate alerts list --state all` names them")
        })?;
    let told = standing(&store, &prepared.loaded.config, &key).await;
    let told = told.map_err(|error| anyhow!(error))?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&alert)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut say = |name: &str, value: String| writeln!(out, "{name:10}{}", printable(&value));
    say("key", alert.key)?;
    say("state", alert.state.to_owned())?;
    if let Some(episode) = alert.episode {
        say("rule", format!("{} ({})", episode.rule, episode.name))?;
        say("device", episode.device)?;
        say("severity", episode.severity.to_string())?;
        if let (Some(field), Some(value)) = (&episode.field, &episode.value) {
            let unit = episode.unit.unwrap_or_default();
            say("value", format!("{field} = {value} {unit}"))?;
        }
        say("started", episode.started_at.to_string())?;
        say("fired", episode.fired_at.to_string())?;
        if let Some(ended) = episode.ended {
            say("ended", format!("{} ({})", ended.at, ended.reason.name()))?;
        }
        if !episode.flags.is_empty() {
            say("flags", episode.flags.join(", "))?;
        }
    }
    for told in told {
        say("receiver", standing_line(&told))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn standing_line(told: &Standing) -> String {
    let mut line = told.receiver.clone();
    line += match told.told {
        Some(true) => ": told",
        Some(false) => ": perhaps told",
        None => ": not told",
    };
    if let Some(at) = told.at {
        line += &format!(" at {at}");
    }
    if let Some(kind) = told.under_way {
        line += &format!("; a {} message is under way", kind.name());
    }
    if let Some(held) = &told.held {
        line += &format!("; held back by {}", held.by.name());
        if let Some(until) = held.until {
            line += &format!(" until {until}");
        }
    }
    line
}

async fn ask(prepared: Prepared, request: Request, by: Option<String>) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let alerts = inventory(&store).await.map_err(|error| anyhow!(error))?;
    let (Request::Ack { key, .. } | Request::Resolve { key }) = &request;
    let open = alerts
        .iter()
        .any(|alert| alert.key == *key && alert.state != "ok");
    if !open {
        return Err(anyhow!(
            "no alert {key:?} is open; `tidegate alerts list` names those that are"
        ));
    }
    let id = store.ask(&request, &whoever(by), now()).await?;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !store.done(&id).await? {
        if tokio::time::Instant::now() > deadline {
            return Err(anyhow!(
                "asked for, but no gateway has done it yet: is one running with alerts.enabled? It will be done when one does"
            ));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    writeln!(std::io::stdout(), "done")?;
    Ok(ExitCode::SUCCESS)
}

async fn history(
    prepared: Prepared,
    key: Option<String>,
    since: Option<Timestamp>,
    limit: u32,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let lines = store
        .history(key.as_deref(), since, i64::from(limit))
        .await?;
    let mut out = std::io::stdout().lock();
    for line in lines {
        if json {
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{}", printable(&history_line(&line)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One line for people: when, what, which alert, and whatever else it says that is short.
fn history_line(line: &serde_json::Value) -> String {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut words = format!(
        "{}  {:16}  {}",
        text(&line["at"]),
        text(&line["what"]),
        text(&line["key"])
    );
    let rest = [
        "severity", "reason", "receiver", "kind", "by", "why", "cause", "judged",
    ];
    let remark = &line["remark"];
    for name in rest {
        let value = line.get(name).or_else(|| remark.get(name));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            words += &format!("  {name}={}", text(value));
        }
    }
    words
}
