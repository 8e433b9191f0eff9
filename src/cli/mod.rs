//! What an operator can run, one file per command. Results go to standard output, everything
//! else to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage.

mod alerts;
mod check;
mod completions;
mod dead_letters;
mod explain;
mod outbox;
mod provision;
mod receive;
mod receivers;
mod reconcile;
mod rules;
mod run;
mod silences;
mod simulate;
mod webhook;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::app::{Prepared, prepare};
use crate::config::Sources;

/// Takes what devices publish over MQTT and stores it in MongoDB time-series collections; a
/// message is acknowledged to the broker only after the database has it.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
First steps:
  tidegate check --config tidegate.toml                    every mistake at once
  tidegate explain --config tidegate.toml --topic devices/d1/telemetry --payload '{\"t\":21.5}'
                                                           what would be stored
  tidegate run --config tidegate.toml                      the gateway itself

Keys of the file can be set by environment variables too: TIDEGATE_MQTT__URL sets mqtt.url."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Check(check::Check),
    Explain(explain::Explain),
    Provision(provision::Provision),
    Simulate(simulate::Simulate),
    DeadLetters(dead_letters::DeadLetters),
    Reconcile(reconcile::Reconcile),
    Alerts(alerts::Alerts),
    Silences(silences::Silences),
    Rules(rules::RulesCommand),
    Receivers(receivers::Receivers),
    Outbox(outbox::OutboxCommand),
    Webhook(webhook::Webhook),
    Receive(receive::Receive),
    Completions(completions::Completions),
}

/// The files a command reads its configuration from.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file (TOML); may be repeated, later files win. Without any, the defaults
    /// and the environment count
    #[arg(long = "config", short = 'c', value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl ConfigArgs {
    fn sources(&self) -> Sources {
        Sources::new(self.files.clone())
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let prepared = prepare(&self.sources())?;
        for warning in &prepared.loaded.warnings {
            eprintln!("warning: {warning}");
        }
        Ok(prepared)
    }
}

impl Cli {
    /// Runs the command and reports its failure.
    pub fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Run(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Explain(command) => command.run(),
            Command::Provision(command) => command.run(),
            Command::Simulate(command) => command.run(),
            Command::DeadLetters(command) => command.run(),
            Command::Reconcile(command) => command.run(),
            Command::Alerts(command) => command.run(),
            Command::Silences(command) => command.run(),
            Command::Rules(command) => command.run(),
            Command::Receivers(command) => command.run(),
            Command::Outbox(command) => command.run(),
            Command::Webhook(command) => command.run(),
            Command::Receive(command) => command.run(),
            Command::Completions(command) => command.run(),
        };
        outcome.unwrap_or_else(|error| {
            let closed = |io: &std::io::Error| io.kind() == std::io::ErrorKind::BrokenPipe;
            if error.downcast_ref().is_some_and(closed) {
                // Whoever read the output has seen enough.
                return ExitCode::SUCCESS;
            }
            eprintln!("tidegate: {}", sentence(&error));
            match error.downcast_ref::<Usage>() {
                Some(_) => ExitCode::from(2),
                None => ExitCode::FAILURE,
            }
        })
    }
}

/// Arguments that do not make sense together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(&'static str);

/// The error and its causes on one line, without saying the same twice.
fn sentence(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string().trim_end().to_owned();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

/// A runtime for commands that talk to the network.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(future);
    // A name look-up that hangs must not hold up the exit.
    runtime.shutdown_background();
    outcome
}
