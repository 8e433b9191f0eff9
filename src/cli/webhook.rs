//! `tidegate webhook`: for who writes receivers.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use super::Usage;
use crate::alert::notify::sign::{Key, verify};
use crate::model::Timestamp;
use crate::runtime;

/// Check webhooks as a receiver has to
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Webhook {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check a signature: headers and exact body of a request against a secret
    ///
    /// Exit code 0: it is good; 1: it is not, and why.
    Verify(Verify),
}

#[derive(Debug, Args)]
struct Verify {
    /// File that holds the secret, whsec_...; may be repeated while a secret is changed
    #[arg(long, value_name = "FILE")]
    secret_file: Vec<PathBuf>,
    /// Environment variable that holds it
    #[arg(long, value_name = "NAME")]
    secret_env: Vec<String>,
    /// The header webhook-id
    #[arg(long)]
    id: String,
    /// The header webhook-timestamp
    #[arg(long)]
    timestamp: String,
    /// The header webhook-signature
    #[arg(long, allow_hyphen_values = true)]
    signature: String,
    /// File with the exact body [default: standard input]
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// Time to judge by, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
}

impl Webhook {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let Action::Verify(given) = self.action;
        let keys = keys(&given.secret_file, &given.secret_env)?;
        if keys.is_empty() {
            return Err(Usage("name a secret: --secret-file or --secret-env").into());
        }
        let mut body = Vec::new();
        match &given.body_file {
            Some(path) => {
                body = std::fs::read(path).with_context(|| path.display().to_string())?;
            }
            None => {
                std::io::stdin().lock().read_to_end(&mut body)?;
            }
        }
        let now = given.at.unwrap_or_else(runtime::now);
        verify(
            &keys,
            &given.id,
            &given.timestamp,
            &given.signature,
            &body,
            now,
        )?;
        println!("The signature is good.");
        Ok(ExitCode::SUCCESS)
    }
}

/// Secrets from files and variables; none of them is on a command line, where others can see it.
pub(super) fn keys(files: &[PathBuf], variables: &[String]) -> anyhow::Result<Vec<Key>> {
    let mut keys = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        keys.push(Key::parse(&text).with_context(|| path.display().to_string())?);
    }
    for name in variables {
        let text = std::env::var(name)
            .with_context(|| format!("the environment variable {name} cannot be read"))?;
        keys.push(Key::parse(&text).with_context(|| name.clone())?);
    }
    Ok(keys)
}
