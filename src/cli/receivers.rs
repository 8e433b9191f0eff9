//! `tidegate receivers`: who is told, and whether they can be.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{ConfigArgs, block_on};
use crate::alert::notify::{Class, host, try_out};
use crate::config::ReceiverConfig;

/// List receivers, or try one out
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Receivers {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One line each: name, kind, host, and how requests are secured; secrets are not shown
    List {
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Send a test message and its end, and say how the receiver answered
    ///
    /// Needs neither broker nor database. Exit code 1 unless both were accepted.
    Test {
        #[command(flatten)]
        config: ConfigArgs,
        /// Its name
        name: String,
    },
}

impl Receivers {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::List { config } => list(&config.prepare()?.loaded.config.receivers),
            Action::Test { config, name } => {
                let config = config.prepare()?.loaded.config;
                let receiver = config
                    .receivers
                    .iter()
                    .find(|receiver| receiver.name == name)
                    .with_context(|| format!("there is no receiver {name:?}"))?;
                block_on(test(receiver, &config.alerts.environment))
            }
        }
    }
}

fn list(receivers: &[ReceiverConfig]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for receiver in receivers {
        let name = &receiver.name;
        let kind = receiver.kind.name();
        let host = host(receiver).map_err(anyhow::Error::msg)?;
        let mut secured = Vec::new();
        if receiver.kind.signs() {
            secured.push(match receiver.previous_secret_source().is_set() {
                _ if !receiver.secret_source().is_set() => "not signed",
                true => "signed by two secrets",
                false => "signed",
            });
        }
        if receiver.token_source().is_set() {
            secured.push("token");
        }
        if receiver.routing_key_source().is_set() {
            secured.push("routing key");
        }
        if receiver.cert_file.is_some() {
            secured.push("client certificate");
        }
        if receiver.allow_http {
            secured.push("http allowed");
        }
        let secured = secured.join(", ");
        let least = receiver.min_severity;
        writeln!(
            out,
            "{name:20}  {kind:12}  {host:30}  from {least:8}  {secured}"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn test(receiver: &ReceiverConfig, environment: &str) -> anyhow::Result<ExitCode> {
    let tried = try_out(receiver, environment)
        .await
        .map_err(anyhow::Error::msg)?;
    let mut out = std::io::stdout().lock();
    for one in &tried {
        let status = match (one.status, &one.why) {
            (Some(status), _) => format!("HTTP {status}"),
            (None, Some(why)) => why.clone(),
            (None, None) => String::new(),
        };
        let (kind, class) = (one.kind.name(), one.class.name());
        let millis = one.took.as_millis();
        writeln!(out, "{kind:10}{class:15}{millis:>6} ms  {status}")?;
    }
    let accepted = tried.iter().all(|one| one.class == Class::Ok);
    Ok(if accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
